"""Numbered lines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from riot_bench.harness.numbered_lines import NumberedLines, measure_read_rate, write_numbered

from riot_ops.streams import generate


def test_repeated_lines_have_new_numbers(tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 8).repeated_to(13)
    assert (data.total, data.lines_per_file, len(set(data.files))) == (14, 2, 4)
    read = [batch for split in data.source().splits({"file": 0}, {"file": 7}, 3) for batch in data.source().read(split)]
    table = pa.Table.from_batches(read)
    assert table["seq"].to_pylist() == list(range(14))
    payload = table["payload"].to_pylist()
    assert payload[:6] == payload[8:]
    assert len(set(payload)) == 8


def test_lines_are_numbered_and_cyclic(tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "s", 3, 8_000)
    assert (len(data.files), data.lines_per_file, data.batch, data.total) == (12, 2_000, 8_000, 24_000)
    source = data.source()
    read = [b for split in source.splits({"file": 0}, {"file": 12}, 5) for b in source.read(split)]
    table = pa.Table.from_batches(read)
    assert table["seq"].to_pylist() == list(range(24_000))
    payload = table["payload"].to_pylist()
    assert payload[:4_000] == payload[10_000:14_000] == payload[20_000:]
    seed = [v for b in generate("searches", messages=10, seed=1).read({"start": 0, "end": 10}) for v in b["payload"]]
    assert payload[:10] == [v.as_py() for v in seed]
    assert data.line_bytes == pytest.approx(60, abs=1)
    assert data.first_batches(2).total == 16_000
    assert measure_read_rate(data) > 0


def test_source_has_the_requested_number_of_splits(lines: dict[str, NumberedLines]) -> None:
    ends = {"file": 0}, {"file": 4}
    assert [len(lines["searches"].source(n).splits(*ends, 3)) for n in (None, 1, 2, 4)] == [3, 1, 2, 3]
