"""The durability suite."""

from __future__ import annotations

import contextlib
import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from riot_bench.suites.streambench import durability as streambench_durability
from riot_bench.suites.streambench.durability import LIMIT_S, MarkedSource, MarkObserver

from riot_ops import streams
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.streambench import wordcount
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.processes import Usage


def test_marks_are_delivered_with_their_delay() -> None:
    now = [1000.0]
    source = PacedSource(MarkedSource(streams.generate("searches", messages=100), 25), rate=10, clock=lambda: now[0])
    start = source.latest(source.initial())
    now[0] = 1010.0
    splits = source.splits(source.initial(), source.latest(start), 2)
    lines = [line.as_py() for split in splits for batch in source.read(split) for line in batch["payload"]]
    marks = [line.decode().split("!") for line in lines if line.startswith(b"mark!")]
    assert [number for _, number, _ in marks] == ["0", "1", "2", "3"]
    assert [float(due) / 1e6 for *_, due in marks] == pytest.approx([1000.0, 1002.5, 1005.0, 1007.5], abs=0.01)
    assert len(lines) == 100

    seen = MarkObserver()
    begun = time.time()
    rows = [{"payload": f"a mark!{n}!{(begun - n) * 1e6:.0f} b".encode()} for n in (3, 5, 3)]
    for batch in wordcount().run(rows)["counts"].to_batches():
        seen("counts", batch)
    seen("errors", pa.record_batch({"reason": ["a", "b"]}))
    assert sorted(seen.delays) == [3, 5]
    assert seen.delays[3] == pytest.approx(3, abs=2)
    assert seen.rejected == 2
    assert streambench_durability._slots(110.0) == 11
    stores = [{"memoryUsedBytes": 700}, {"memoryUsedBytes": 77}]
    progress = [{"stateOperators": [{"memoryUsedBytes": 5}]}, {"stateOperators": stores}]
    streaming = SimpleNamespace(recentProgress=progress)
    query = SimpleNamespace(active=True, summary=SimpleNamespace(messages=7), streaming=streaming)
    seen = MarkObserver()
    seen.delays = {2: 0.5, 0: 0.25}
    found = {m.measure: m for m in streambench_durability._figures("at", query, seen, 30.0)}
    assert (found["at/latency"].sample, found["at/latency"].values) == ((250.0, 500.0), ())
    assert (found["at/state"].value, found["at/state"].unit) == (777, "bytes")
    streaming.recentProgress = []
    assert "at/state" not in {m.measure for m in streambench_durability._figures("at", query, seen, 30.0)}
    assert LIMIT_S == 30.0


@pytest.mark.parametrize(
    ("per_minute", "seconds", "lines", "slots"),
    [
        (10.0, 120.0, 20, 12),
        (6.0, 60.0, 6, 6),
        (7.2, 20.0, 3, 2),
        (10_000.0, 172_800.0, 28_800_000, 17_280),
        (1_000_000.0, 60.0, 1_000_000, 6),
    ],
)
def test_each_slot_has_one_mark_at_any_rate(
    per_minute: float, seconds: float, lines: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where lines per slot are no whole number, as 1,666.7 of 10,000 a minute; each when its slot begins."""
    asked: list[Any] = []
    flow = SimpleNamespace(start=lambda _, source, **__: asked.append(source))
    monkeypatch.setattr(streambench_durability, "program_flow", lambda _: flow)
    streambench_durability._start(None, per_minute, seconds)
    marked = asked[0].source
    assert marked.count(marked.initial(), marked.latest(marked.initial())) == lines
    numbers, due = list[int](), list[float]()
    for first in range(0, lines, 1_000_000):
        seq = np.arange(first, min(first + 1_000_000, lines))
        places, found = streambench_durability.mark_positions(seq, marked.every)
        numbers += found.tolist()
        due += (seq[places] * 60 / per_minute).tolist()
    assert numbers == list(range(slots))
    assert streambench_durability._slots(seconds) == slots
    assert all(10 * n - 1e-3 <= at <= 10 * n + 60 / per_minute + 1e-3 for n, at in zip(numbers, due, strict=True))


@pytest.mark.parametrize(("rate", "scale"), [(5.9, 1.0), (10.0, 0.5)])
def test_rates_too_low_for_a_mark_in_each_slot_are_refused(rate: float, scale: float) -> None:
    message = rf"--rate times --scale must be at least 6 records per minute, one for each mark, got {rate * scale:g}"
    with pytest.raises(ConfigError, match=message):
        next(streambench_durability.durability(True, ["wordcount"], scale, rate=[10_000.0, rate], seconds=9.0))


def test_run_lasts_at_least_the_requested_time() -> None:
    def done(left: float, *queries: tuple[bool, int]) -> bool:
        running = {
            float(n): (SimpleNamespace(active=active), SimpleNamespace(delays=dict.fromkeys(range(marks), 0.1)))
            for n, (active, marks) in enumerate(queries)
        }
        return streambench_durability._done(running, 20.0, left)  # type: ignore[arg-type]

    assert not done(0.1, (True, 2), (True, 2))
    assert not done(0.1, (False, 2), (False, 2)), "it is over when it says"
    assert done(0.0, (True, 2), (True, 2))
    assert not done(-1.0, (True, 1), (True, 2)), "a mark is to come"
    assert done(-1.0, (False, 1), (True, 2))
    assert not done(5.0, (False, 1), (True, 2)), "the other one continues"
    assert done(5.0, (False, 1), (False, 2)), "for two days nothing would come"


@pytest.mark.parametrize(("samples", "expected"), [((18.0,), None), ((10.0, 18.0), 0.0)])
def test_run_has_its_declared_length(
    samples: tuple[float, ...], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = [0.0], MarkObserver()
    seen.delays = {0: 0.5}

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], sleep=sleep)
    summary, streaming = SimpleNamespace(messages=7), SimpleNamespace(recentProgress=[])
    query = SimpleNamespace(active=True, stop=list, poll=list, summary=summary, streaming=streaming)
    usage = Usage(np.array(samples), np.ones(len(samples)), np.full(len(samples), 1e6))
    tree = SimpleNamespace(usage=lambda: usage)
    monkeypatch.setattr(streambench_durability, "time", clock)
    monkeypatch.setattr(streambench_durability, "spark_session", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(streambench_durability, "ProcessTree", lambda **_: contextlib.nullcontext(tree))
    monkeypatch.setattr(streambench_durability, "_start", lambda *_: (query, seen))
    found = {m.measure: m for m in streambench_durability.durability(True, (), rate=[60.0], seconds=19.0)}
    assert now[0] == pytest.approx(19.0, abs=0.2)
    one = found["streambench/durability/60/availability"]
    assert (one.value, "1 marks in 19 s" in one.against) == (100.0, True)
    slope = found["streambench/durability/memory-slope"]
    assert (slope.value == expected, slope.met) == ((True, True) if expected is not None else (False, None))
    assert ("too few samples for a slope: 1 of 2" in slope.against) == math.isnan(slope.value) == (expected is None)
    query.active = False
    for delays, ended in (({0: 0.5}, False), ({}, True)):
        seen.delays = delays
        [first, *_] = streambench_durability._figures("at", query, seen, 19.0)
        assert ("; the query ended early" in first.against) == ended


@pytest.mark.slow  # it runs for its time; figures and ends are tested above
@pytest.mark.spark
def test_short_durability_run(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streambench_durability, "SLOT_S", 1.0)
    sizes = streambench_durability.Sizes((600, 1200), 4.0)
    found = {m.measure: m for m in streambench_durability.durability(True, ["wordcount"], 2.0, sizes)}
    for rate in (1200, 2400):
        one = found[f"streambench/durability/{rate}/availability"]
        assert (one.value, one.reach) == (100.0, 100)
        assert "4 marks in 4 s" in one.against
        assert found[f"streambench/durability/{rate}/failed"].value == 0
        assert 0 < found[f"streambench/durability/{rate}/latency"].value < 30_000
        assert found[f"streambench/durability/{rate}/state"].value > 0
    assert math.isfinite(found["streambench/durability/memory-slope"].value)
    assert list(streambench_durability.durability(True, ["grep"])) == []
