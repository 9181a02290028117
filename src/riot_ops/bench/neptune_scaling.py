"""Many senders at one receiver, and many relays at once on one machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from riot_ops.bench.measure import Measure, median
from riot_ops.bench.neptune_link import LinkSource, accepted
from riot_ops.bench.neptune_messages import Messages
from riot_ops.bench.neptune_processes import listening, stage
from riot_ops.bench.neptune_published import SENDERS
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow, merge

__all__ = ["jobs", "scaling", "senders"]

SIZE = 50
BUFFERS = Buffering(capacity=1 << 20, flush_ms=10, codec=None)


def scaling(quick: bool) -> Iterator[Measure]:
    """Both, with 1, 2, 4 … of them."""
    seconds, repetitions = (0.5, 1) if quick else (2.0, 5)
    for n in (1, 2, 4) if quick else range(1, 9):
        rates = [senders(n, seconds) for _ in range(repetitions)]
        one = Measure(f"neptune/senders/{n}", median(rates), "messages/s", f"{n} processes, 50 B, one receiver")
        yield replace(one, values=tuple(rates) if repetitions > 1 else (), published=SENDERS if n == 8 else None)
    for n in (1, 2, 4) if quick else (1, 2, 3, 4, 6, 8):
        rates = [jobs(n, seconds) for _ in range(repetitions)]
        told = f"{n} relays in processes of their own at once, 50 B, {os.cpu_count()} cores; together"
        yield Measure(
            f"neptune/jobs/{n}", median(rates), "messages/s", told, values=tuple(rates) if repetitions > 1 else ()
        )


def senders(n: int, seconds: float) -> float:
    """Messages per second that one dataflow receives of so many processes; each sender's come all and in order."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [stack.enter_context(listening(folder / str(i))) for i in range(n)]
        for i in range(n):
            stack.enter_context(stage("send", BUFFERS, folder / str(i), SIZE, seconds))
        links = [stack.enter_context(accepted(place)) for place in places]
        schema = Messages(SIZE).schema
        flow = Dataflow("senders")
        streams = [flow.source(f"from{i}", schema=schema) for i in range(n)]
        flow.sink("received", merge(*streams) if n > 1 else streams[0])
        rows = 0

        def count(_: str, batch: object) -> None:
            nonlocal rows
            rows += batch.num_rows  # type: ignore[attr-defined]

        sources = {f"from{i}": LinkSource(link, schema) for i, link in enumerate(links)}
        result = flow.run(sources, sinks=CallbackSink(count), buffering=BUFFERS, cores=1)
        if rows != result.summary.messages:
            raise RiotError(f"{result.summary.messages:,} messages came of {n} senders, and {rows:,} went on")
    return rows / result.summary.seconds


def jobs(n: int, seconds: float) -> float:
    """Messages per second of so many relays in processes of their own, begun at once."""
    with ExitStack() as stack:
        processes = [stack.enter_context(stage("job", BUFFERS, SIZE, seconds)) for _ in range(n)]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RiotError("a relay in a process of its own did not start")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    if any(one["lost"] or one["disorder"] for one in found):
        raise RiotError(f"a relay lost messages: {found}")
    return float(sum(one["rate"] for one in found))
