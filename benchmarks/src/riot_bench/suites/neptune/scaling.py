"""Many senders to one receiver, and many concurrent jobs on one machine: relays and equipment monitoring."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from riot_bench.harness.formatting import format_number
from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune.equipment import fairness, write_readings
from riot_bench.suites.neptune.link import LinkSource, accept
from riot_bench.suites.neptune.messages import MessageSource
from riot_bench.suites.neptune.processes import EXIT_SECONDS, listen, stage_process
from riot_bench.suites.neptune.relay import median_of_runs
from riot_bench.suites.neptune.thesis import EQUIPMENT, JOBS, NODES, OVER_STORM, SENDERS, STORM_JOBS
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow, merge

__all__ = ["equipment_measures", "relay_measures", "run_jobs", "run_senders", "scaling", "steady_rate"]

SIZE = 50
#: Readings of each equipment monitoring job.
LINES, QUICK_LINES = 500_000, 200_000
#: Share of the time at the begin and at the end that does not count for senders.
EDGE_SHARE = 0.2
BUFFERS = Buffering(capacity=1 << 20, flush_after="10ms", codec=None)


def scaling(quick: bool) -> Iterator[Measure]:
    """Measure senders, relays and equipment monitoring with 1, 2, 4 … processes."""
    seconds, repetitions = (0.5, 1) if quick else (2.0, 5)
    lost = 0
    for n in (1, 2, 4) if quick else range(1, 9):
        runs = [run_senders(n, seconds) for _ in range(repetitions)]
        lost += sum(abs(missing) for _, missing in runs)
        note = f"{n} sending processes, 50 B, one receiver; without the first and the last fifth of the time"
        one = median_of_runs(f"neptune/senders/{n}", [rate for rate, _ in runs], "messages/s", note)
        yield replace(one, published=SENDERS if n == 8 else None)
    yield Measure("neptune/senders/lost", lost, "messages", "lost or duplicated, in all runs", 0, at_most=True)
    counts = (1, 2, 4) if quick else (1, 2, 3, 4, 6, 8)
    yield from relay_measures(counts, repetitions, seconds)
    yield from equipment_measures(counts, repetitions, QUICK_LINES if quick else LINES)


def relay_measures(counts: Sequence[int], repetitions: int, seconds: float) -> Iterator[Measure]:
    """Measure concurrent relays of 50 B messages."""
    lost = 0
    for n in counts:
        runs = [run_jobs("relay-job", n, SIZE, seconds) for _ in range(repetitions)]
        lost += sum(abs(one["lost"]) + one["disorder"] for run in runs for one in run)
        rates = [[one["rate"] for one in run] for run in runs]
        yield from _concurrent_measures("relay", n, [sum(one) for one in rates], rates, JOBS)
        yield _cores_of_a_job("relay", n, runs)
    note = "lost, duplicated or out of order, in all runs"
    yield Measure("neptune/jobs/relay/lost", lost, "messages", note, 0, at_most=True)


def equipment_measures(counts: Sequence[int], repetitions: int, lines: int) -> Iterator[Measure]:
    """Measure concurrent equipment monitoring jobs; the total rate is over the time until the last one is done."""
    lost, wanted = 0, dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        path = write_readings(Path(folder) / "readings.arrow", lines)
        for n in counts:
            runs = [run_jobs("equipment-job", n, path) for _ in range(repetitions)]
            for one in (one for run in runs for one in run):
                wanted = wanted or one["rows"]
                lost += abs(lines - one["messages"])
                lost += sum(abs(one["rows"].get(name, 0) - rows) for name, rows in wanted.items())
            rates = [[one["messages"] / one["seconds"] for one in run] for run in runs]
            totals = [sum(one["messages"] for one in run) / max(one["seconds"] for one in run) for run in runs]
            yield from _concurrent_measures(
                "equipment", n, totals, rates, EQUIPMENT, f"; {OVER_STORM:g} times Storm's at {STORM_JOBS} jobs"
            )
            yield _cores_of_a_job("equipment", n, runs)
    note = f"readings not processed, and differences from the number of results of one job; {lines:,} readings each"
    yield Measure("neptune/jobs/equipment/lost", lost, "messages", note, 0, at_most=True)


def _concurrent_measures(
    kind: str, n: int, totals: Sequence[float], rates: Sequence[Sequence[float]], theirs: float, more: str = ""
) -> Iterator[Measure]:
    """Yield the total rate and the fairness of ``n`` jobs; ``rates`` has the rate of each job of each run."""
    at, note = f"neptune/jobs/{kind}/{n}", f"{n} concurrent processes, {os.cpu_count()} cores; total"
    one = median_of_runs(
        at, totals, "messages/s", f"{note}; thesis, {NODES} jobs on {NODES} nodes: {format_number(theirs)}{more}"
    )
    yield replace(one, published=theirs / NODES if n == 1 else None)  # per node
    if n > 1:
        yield median_of_runs(
            f"{at}/fairness", [fairness(run) for run in rates], "share", "Jain's index of the jobs' rates: 1 is even"
        )


def _cores_of_a_job(kind: str, n: int, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Measure:
    """Return the CPU use of a job, which is a node of the thesis here: the mean over the jobs of each run."""
    cores = [sum(one["cores"] for one in run) / len(run) for run in runs]
    note = f"CPU time of a job over its wall time, mean over {n} concurrent jobs on {os.cpu_count()} cores"
    return median_of_runs(f"neptune/jobs/{kind}/{n}/cores", cores, "cores", note)


def run_senders(n: int, seconds: float) -> tuple[float, int]:
    """Run ``n`` concurrent senders; return the messages per second of the receiver, and the number of lost messages.

    A link raises an error if its messages are out of order.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [stack.enter_context(listen(folder / str(i))) for i in range(n)]
        processes = [
            stack.enter_context(stage_process("send", BUFFERS, folder / str(i), SIZE, seconds)) for i in range(n)
        ]
        _wait_ready(processes)
        links = [stack.enter_context(accept(place)) for place in places]
        schema = MessageSource(SIZE).schema
        flow = Dataflow("senders")
        streams = [flow.source(f"from{i}", schema=schema) for i in range(n)]
        flow.sink("received", merge(*streams) if n > 1 else streams[0])
        notes: list[tuple[float, int]] = []

        def note(_: str, batch: pa.RecordBatch) -> None:
            notes.append((time.monotonic(), batch.num_rows))

        sources = {f"from{i}": LinkSource(link, schema) for i, link in enumerate(links)}
        _start(processes)
        flow.run(sources, sinks=CallbackSink(note), buffering=BUFFERS, cores=1)
        sent = sum(_results(processes))
    return steady_rate(notes), sent - sum(rows for _, rows in notes)


def steady_rate(notes: Sequence[tuple[float, int]]) -> float:
    """Return the messages per second between the first and the last fifth of the time, in which not all senders run.

    ``notes`` has the time and the number of messages of each batch. NaN if fewer than two batches are in between.

    >>> steady_rate([(0.0, 99), (2.0, 10), (4.0, 30), (6.0, 10), (10.0, 99)])
    10.0
    """
    if not notes:
        return math.nan
    began, length = notes[0][0], notes[-1][0] - notes[0][0]
    within = [(when, rows) for when, rows in notes if EDGE_SHARE * length <= when - began <= (1 - EDGE_SHARE) * length]
    if not within or within[0][0] == within[-1][0]:
        return math.nan
    return sum(rows for _, rows in within[1:]) / (within[-1][0] - within[0][0])


def run_jobs(kind: str, n: int, *arguments: Any) -> list[dict[str, Any]]:
    """Run ``n`` concurrent jobs in separate processes and return their results."""
    with ExitStack() as stack:
        processes = [stack.enter_context(stage_process(kind, BUFFERS, *arguments)) for _ in range(n)]
        _wait_ready(processes)
        _start(processes)
        return _results(processes)


def _wait_ready(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until all processes have compiled."""
    for process in processes:
        if _read_line(process.stdout) != "ready\n":
            raise RiotError("a job process did not start")


def _start(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Signal all processes to begin."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def _results(processes: Sequence[subprocess.Popen[str]]) -> list[Any]:
    """Return the results of all processes; raise if a process failed or does not end."""
    lines = [_read_line(process.stdout) for process in processes]
    for line, process in zip(lines, processes, strict=True):
        try:
            code = process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RiotError(f"a job process did not end within {EXIT_SECONDS} s") from None
        if code or not line:
            raise RiotError(f"a job process failed with exit code {code}")
    return [json.loads(line) for line in lines]


def _read_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()
