"""The suite threat."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.suites import registry
from riot_bench.suites.threat import suite as threat

from riot_ops.core.errors import ConfigError


def test_parts_are_experiments() -> None:
    found = registry.find_experiments("threat")
    assert [one.key for one in found] == [f"threat/{name}" for name in threat.PARTS]
    with pytest.raises(ConfigError, match=r'--suite must be one of classifier.*did you mean "failure"'):
        list(threat.measures(suite="failur"))


def test_classifier_measures() -> None:
    sizes = threat.Sizes(1, 0, 0, 0, (), ())
    found = {one.measure: one for one in threat.classifier(True, sizes)}
    assert 0.95 <= found["threat/classifier/accuracy"].value <= 0.99
    assert found["threat/classifier/difference"].met
    counts = [one.value for name, one in found.items() if "/confusion/" in name]
    assert sum(counts) == 3_000 and len(counts) == 9
    figure = registry.find_experiments("threat")[0].figures[0]
    assert {(series, x) for series, x, _ in figure.points(found.values())} == {
        (series, x) for series in ("precision", "recall", "f1") for x in ("normal", "dos", "scan")
    }


def test_throughput_in_process() -> None:
    sizes = threat.Sizes(0, 400, 2, 2, (), ())
    found = {one.measure: one for one in threat.throughput(True, sizes)}
    assert set(found) == {
        *(f"threat/throughput/local/{p}" for p in (1, 2)), "threat/speedup/local/2", "threat/efficiency/local/2",
    }  # fmt: skip
    assert len(found["threat/throughput/local/1"].values) == 2
    gain = found["threat/throughput/local/2"].value / found["threat/throughput/local/1"].value
    assert found["threat/speedup/local/2"].value == pytest.approx(gain)
    assert found["threat/efficiency/local/2"].value == pytest.approx(gain / 2)


@pytest.mark.parametrize("trigger", [None, "0.5 seconds"])
def test_throughput_on_spark_spans_micro_batches(monkeypatch: pytest.MonkeyPatch, trigger: str | None) -> None:
    """Four micro-batches of 0.1 s each, one every half second: 400 messages in that time, regardless of their durations."""
    asked = list[str | None]()

    class Flow:
        streaming = SimpleNamespace(
            recentProgress=[
                {
                    "batchId": n,
                    "timestamp": f"2026-01-01T00:00:0{n / 2}00Z",
                    "durationMs": {"triggerExecution": 100},
                    "numInputRows": 400,
                }
                for n in range(4)
            ]
        )

        def start(self, *_: Any, trigger: str | None = None, **__: Any) -> Flow:
            asked.append(trigger)
            return self

        def run(self, *_: Any, **__: Any) -> Flow:
            return self

        def wait(self) -> None:
            pass

    monkeypatch.setattr(threat, "spark_session", lambda _: contextlib.nullcontext(None))
    monkeypatch.setattr(threat, "dataflows", SimpleNamespace(threat=Flow))
    monkeypatch.setattr(threat, "_results", lambda _: [])
    monkeypatch.setattr(threat, "_in_process", lambda *_: (9.0, 9.0))
    sizes = threat.Sizes(0, 400, 3, 2, (1,), (trigger,))
    found = {one.measure: one for one in threat.throughput(True, sizes)}
    one = found[f"threat/throughput/spark{'-interval' * bool(trigger)}/1"]
    assert one.value == pytest.approx(60 * 400 / 0.5)
    assert asked[1::2] == [trigger]
    # micro-batches of one run are no runs
    assert one.values == () and one.sample == pytest.approx((48_000.0,) * 3)
    local = found["threat/throughput/local/1"]
    assert (local.values, local.sample) == ((9.0, 9.0), ())
