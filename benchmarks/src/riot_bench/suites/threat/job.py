"""Threat detection as a separate process, which can be killed and restarted.

``python -m riot_bench.suites.threat.job FOLDER MODE RATE MESSAGES``, where the mode is ``replayed``, ``at-most-once``
or
``driver`` (on Spark).
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from riot_ops import dataflows
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.streams.streambench import FlowsSource

__all__ = ["CORES", "OPENED", "AtMostOnceBroker", "Broker", "main", "open_stream"]

#: Seconds between two commits, and maximum messages of a batch.
EPOCH_S, BATCH = 0.5, 8_192
#: Cores of Spark.
CORES = 2
#: File in the folder of a run that the broker creates at the first message.
OPENED = "opened"


class Broker(WrappedSource):
    """Messages at a constant rate from the first read on, independently of the reader.

    Other than with :class:`riot_ops.streams.PacedSource`, messages wait while no process reads, as at a broker.

    Parameters
    ----------
    source : Source
        Source of numbered messages.
    opened : Path
        An empty file that is created at the first message; its time is the begin, also after a restart.
    rate : float
        Messages per second.
    """

    def __init__(self, source: Source, opened: Path, rate: float) -> None:
        super().__init__(source)
        self.opened, self.rate = opened, rate

    def description(self) -> dict[str, Any]:
        return {"source": self.name(), "of": self.source.description(), "rate": self.rate}

    def waits(self) -> bool:
        return True

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if not self.opened.exists():
            self.opened.touch()
        ready = int((time.time() - self.opened.stat().st_mtime) * self.rate) - start["message"]
        ready = ready if limit is None else min(ready, limit)
        return self.source.latest(start, ready) if ready > 0 else start


class AtMostOnceBroker(Broker):
    """Broker that acknowledges messages when they are read: a restarted reader continues after them (at most once)."""

    def __init__(self, source: Source, opened: Path, rate: float, kept: Path) -> None:
        super().__init__(source, opened, rate)
        self.kept = kept

    def initial(self) -> Offset:
        if not self.kept.exists():
            return super().initial()
        offset: Offset = msgspec.json.decode(self.kept.read_bytes())
        return offset

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = super().latest(start, limit)
        fresh = self.kept.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(end))
        fresh.replace(self.kept)
        return end


def open_stream(messages: int) -> FlowsSource:
    """Create the source of flows."""
    return FlowsSource(messages=messages, seed=2)


def main(folder: Path, mode: str, rate: float, messages: int) -> None:
    """Run until all messages are analysed; each start in at-most-once mode has its own output folder."""
    flow, opened = dataflows.threat(), folder / OPENED
    options: dict[str, Any] = {"epoch": timedelta(seconds=EPOCH_S), "batch_size": BATCH}
    broker = Broker(open_stream(messages), opened, rate)
    if mode == "driver":
        _on_spark(flow, broker, folder)
        return
    if not opened.exists():
        flow.run(open_stream(2_000), cores=1)  # loads all code before messages arrive
    if mode == "replayed":
        flow.run(broker, out=folder / "out", checkpoint=folder / "checkpoint", **options)
        return
    number = sum(path.name.startswith("out") for path in folder.iterdir())
    source = AtMostOnceBroker(open_stream(messages), opened, rate, folder / "position.json")
    flow.run(source, out=folder / f"out{number}", **options)


def _on_spark(flow: Any, broker: Broker, folder: Path) -> None:
    from riot_ops.spark import session

    spark = session(cores=CORES)
    if not broker.opened.exists():
        flow.start(spark, open_stream(2_000)).wait()
    flow.start(spark, broker, out=folder / "out", checkpoint=folder / "checkpoint", partitions=CORES).wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
