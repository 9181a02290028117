"""Neptune's compression: payloads and settings."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from riot_bench.suites.neptune import compression as neptune_compression
from riot_bench.suites.neptune.messages import RelayResult
from riot_bench.suites.neptune.thesis import COMPRESSION

from riot_ops.core.ipc import encode_with_flag


def test_compression_compares_all_settings(monkeypatch):
    monkeypatch.setattr(neptune_compression, "LINES", 50)
    chance = np.random.default_rng(0)
    counts = []

    class Made:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __call__(self, messages, buffering):
            return self.counted(messages, buffering)[0]

        def counted(self, messages, buffering):
            rate = (100.0 if buffering.codec is None else 50.0) + chance.random()
            counts.append(len(counts))
            compressed = 0 if buffering.codec is None else 1 if buffering.ratio == 0.2 else 3
            link = SimpleNamespace(bytes=1000 + int(chance.integers(9)), sent=10, frames=4, compressed=compressed)
            lost = {7: 3, 8: -3}.get(len(counts), 0)  # of equipment
            return RelayResult(10 - lost, rate, chance.random(), 0.1, 2.0, lost, 0), link

    monkeypatch.setattr(neptune_compression, "ProcessRelay", Made)
    found = {m.measure: m for m in neptune_compression.compression(True)}
    assert [found[f"neptune/compression/{data}/lost"].value for data in ("equipment", "mixed", "random")] == [6, 0, 0]
    assert found["neptune/compression/equipment/lost"].met is False
    shares = [found[f"neptune/compression/mixed/{mode}/compressed"].value for mode in neptune_compression.MODES]
    assert shares == [0, 0.25, 0.75, 0.75]
    for data in ("equipment", "mixed", "random"):
        for mode in neptune_compression.MODES:
            assert len(found[f"neptune/compression/{data}/{mode}/throughput"].values) == 3
            assert found[f"neptune/compression/{data}/{mode}/bytes"].value == pytest.approx(100.5, abs=0.5)
            if mode != "off":
                gain = found[f"neptune/compression/{data}/{mode}/vs-off"]
                assert gain.value == pytest.approx(0.5, abs=0.02) and len(gain.values) == 3
                assert gain.published == (1 if data == "equipment" else None)
        tests = [name for name in found if re.fullmatch(rf"neptune/compression/{data}/throughput/.*/p", name)]
        assert len(tests) == 6
        assert all(COMPRESSION[data] in found[name].against for name in tests)


def test_payloads_lie_below_between_and_above_the_coefficients(monkeypatch):
    monkeypatch.setattr(neptune_compression, "LINES", 3000)  # about 1 MiB
    wanted = {
        "equipment": [False, True, True, True],
        "mixed": [False, False, True, True],
        "random": [False, False, False, True],
    }
    found = neptune_compression.payloads()
    assert found.keys() == wanted.keys()
    assert len({tuple(map(len, lines)) for lines in found.values()}) == 1
    for name, lines in found.items():
        batch = pa.record_batch({"filler": lines})
        assert [encode_with_flag([batch], mode)[1] for mode in neptune_compression.MODES.values()] == wanted[name]
    assert not set(found["mixed"]) & set(found["equipment"])
    assert found["mixed"][7][-100:] == found["equipment"][7][-100:]
