"""Many senders at one receiver, and many jobs at once on one machine: relays, and monitoring of equipment."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune.equipment import fairness, write_readings
from riot_bench.suites.neptune.link import LinkSource, accepted
from riot_bench.suites.neptune.messages import Messages
from riot_bench.suites.neptune.processes import ENDING_SECONDS, listening, stage
from riot_bench.suites.neptune.published import EQUIPMENT, JOBS, NODES, OVER_STORM, SENDERS, STORM_JOBS
from riot_bench.suites.neptune.relay import of_runs
from riot_bench.suites.riotbench.tables import short
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow, merge

__all__ = ["equipment_at_once", "jobs", "relays_at_once", "scaling", "senders", "steady"]

SIZE = 50
#: Readings of each job that monitors equipment.
LINES, QUICK_LINES = 500_000, 200_000
#: Share of the time, at the beginning and at the end, in which senders do not count.
EDGE = 0.2
BUFFERS = Buffering(capacity=1 << 20, flush_ms=10, codec=None)


def scaling(quick: bool) -> Iterator[Measure]:
    """All of them, with 1, 2, 4 … at once."""
    seconds, repetitions = (0.5, 1) if quick else (2.0, 5)
    lost = 0
    for n in (1, 2, 4) if quick else range(1, 9):
        runs = [senders(n, seconds) for _ in range(repetitions)]
        lost += sum(abs(missing) for _, missing in runs)
        told = f"{n} processes, 50 B, one receiver; without the first and the last fifth of the time"
        one = of_runs(f"neptune/senders/{n}", [rate for rate, _ in runs], "messages/s", told)
        yield replace(one, published=SENDERS if n == 8 else None)
    yield Measure("neptune/senders/lost", lost, "messages", "lost or doubled, in all runs", 0, at_most=True)
    counts = (1, 2, 4) if quick else (1, 2, 3, 4, 6, 8)
    yield from relays_at_once(counts, repetitions, seconds)
    yield from equipment_at_once(counts, repetitions, QUICK_LINES if quick else LINES)


def relays_at_once(counts: Sequence[int], repetitions: int, seconds: float) -> Iterator[Measure]:
    """Relays of 50 B; what all of them hand on."""
    lost = 0
    for n in counts:
        runs = [jobs("relay-job", n, SIZE, seconds) for _ in range(repetitions)]
        lost += sum(abs(one["lost"]) + one["disorder"] for run in runs for one in run)
        rates = [[one["rate"] for one in run] for run in runs]
        yield from _together("relay", n, [sum(one) for one in rates], rates, JOBS)
    told = "lost, doubled or out of order, in all runs"
    yield Measure("neptune/jobs/relay/lost", lost, "messages", told, 0, at_most=True)


def equipment_at_once(counts: Sequence[int], repetitions: int, lines: int) -> Iterator[Measure]:
    """Jobs that monitor equipment; what all of them read until the last one is done."""
    lost, wanted = 0, dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        path = write_readings(Path(folder) / "readings.arrow", lines)
        for n in counts:
            runs = [jobs("equipment-job", n, path) for _ in range(repetitions)]
            for one in (one for run in runs for one in run):
                wanted = wanted or one["rows"]
                lost += abs(lines - one["messages"])
                lost += sum(abs(one["rows"].get(name, 0) - rows) for name, rows in wanted.items())
            rates = [[one["messages"] / one["seconds"] for one in run] for run in runs]
            totals = [sum(one["messages"] for one in run) / max(one["seconds"] for one in run) for run in runs]
            yield from _together(
                "equipment", n, totals, rates, EQUIPMENT, f"; {OVER_STORM:g} times Storm's at {STORM_JOBS} jobs"
            )
    told = f"readings not taken, and results more or fewer than one job has; {lines:,} readings each"
    yield Measure("neptune/jobs/equipment/lost", lost, "messages", told, 0, at_most=True)


def _together(
    kind: str, n: int, totals: Sequence[float], rates: Sequence[Sequence[float]], theirs: float, more: str = ""
) -> Iterator[Measure]:
    """What so many jobs do together, and how evenly; ``rates``: of each job of each run."""
    at, told = f"neptune/jobs/{kind}/{n}", f"{n} processes at once, {os.cpu_count()} cores; together"
    one = of_runs(at, totals, "messages/s", f"{told}; thesis, {NODES} jobs on {NODES} nodes: {short(theirs)}{more}")
    yield replace(one, published=theirs / NODES if n == 1 else None)  # of a node
    if n > 1:
        yield of_runs(
            f"{at}/fairness", [fairness(run) for run in rates], "share", "Jain's index of the jobs' rates: 1 is even"
        )


def senders(n: int, seconds: float) -> tuple[float, int]:
    """Messages per second that one dataflow receives of so many processes that begin at once, and how many are missing.

    The messages of each sender come in order, else its link is an error.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [stack.enter_context(listening(folder / str(i))) for i in range(n)]
        processes = [stack.enter_context(stage("send", BUFFERS, folder / str(i), SIZE, seconds)) for i in range(n)]
        _ready(processes)
        links = [stack.enter_context(accepted(place)) for place in places]
        schema = Messages(SIZE).schema
        flow = Dataflow("senders")
        streams = [flow.source(f"from{i}", schema=schema) for i in range(n)]
        flow.sink("received", merge(*streams) if n > 1 else streams[0])
        notes: list[tuple[float, int]] = []

        def note(_: str, batch: pa.RecordBatch) -> None:
            notes.append((time.monotonic(), batch.num_rows))

        sources = {f"from{i}": LinkSource(link, schema) for i, link in enumerate(links)}
        _begin(processes)
        flow.run(sources, sinks=CallbackSink(note), buffering=BUFFERS, cores=1)
        sent = sum(_told(processes))
    return steady(notes), sent - sum(rows for _, rows in notes)


def steady(notes: Sequence[tuple[float, int]]) -> float:
    """Messages per second between the first and the last fifth of the time; of notes when how many came.

    There not all have begun, or some are over. NaN where less than two come between.

    >>> steady([(0.0, 99), (2.0, 10), (4.0, 30), (6.0, 10), (10.0, 99)])
    10.0
    """
    if not notes:
        return math.nan
    began, length = notes[0][0], notes[-1][0] - notes[0][0]
    within = [(when, rows) for when, rows in notes if EDGE * length <= when - began <= (1 - EDGE) * length]
    if not within or within[0][0] == within[-1][0]:
        return math.nan
    return sum(rows for _, rows in within[1:]) / (within[-1][0] - within[0][0])


def jobs(kind: str, n: int, *arguments: Any) -> list[dict[str, Any]]:
    """What so many jobs in processes of their own tell, begun at once."""
    with ExitStack() as stack:
        processes = [stack.enter_context(stage(kind, BUFFERS, *arguments)) for _ in range(n)]
        _ready(processes)
        _begin(processes)
        return _told(processes)


def _ready(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until all have compiled."""
    for process in processes:
        if _line(process.stdout) != "ready\n":
            raise RiotError("a job in a process of its own did not start")


def _begin(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Have all begin."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def _told(processes: Sequence[subprocess.Popen[str]]) -> list[Any]:
    """What all tell at their end; an error where one was ended before it, or by a failure."""
    lines = [_line(process.stdout) for process in processes]
    for line, process in zip(lines, processes, strict=True):
        try:
            code = process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            raise RiotError(f"a job in a process of its own did not end within {ENDING_SECONDS} s") from None
        if code or not line:
            raise RiotError(f"a job in a process of its own did not end as it should: its exit code is {code}")
    return [json.loads(line) for line in lines]


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()
