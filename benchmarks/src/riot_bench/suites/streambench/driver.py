"""A program of StreamBench on Spark whose driver is killed half way, and started again from its checkpoint.

``python -m riot_bench.suites.streambench.driver PROGRAM FOLDER MICRO_BATCH LINES FILE…`` is the driver.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from riot_bench.harness.jobs import finish, job, kill
from riot_bench.suites.streambench.data import NumberedFiles, NumberedLines
from riot_bench.suites.streambench.runs import flow_of
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import ParquetSink

__all__ = ["Restarted", "TooSoonError", "lost_driver", "main"]

#: Of Spark.
CORES = 2


class TooSoonError(RiotError):
    """A run was done before anything of it was lost."""


@dataclass(frozen=True)
class Restarted:
    """A run of two parts: where its results are, and seconds from the end of the first until the second put any out."""

    out: Path
    back_s: float


def lost_driver(name: str, data: NumberedLines, base: Path, limit_s: float) -> Restarted:
    """Run a program, kill the driver with all its processes behind half of the micro-batches, and start it again."""
    base.mkdir(parents=True, exist_ok=True)
    words = (name, str(base), str(data.batch), str(data.each), *map(str, data.files))
    batches = data.total // data.batch
    half, sink = 1 + (batches - 1) // 2, ParquetSink(base / "out")
    with job(__name__, *words) as process:
        until = time.monotonic() + limit_s
        while _done(sink) < half:
            if process.poll() is not None:
                raise RiotError(f"{name} ended with {process.returncode} before its driver was to be lost")
            if time.monotonic() > until:
                raise RiotError(f"{name} was not half done in {limit_s:g} s")
            time.sleep(0.02)
        kill(process)
        before, failed = _done(sink), time.time()
        if before >= batches:
            raise TooSoonError(f"{name} was done before its driver was lost: give more records, such as --scale 10")
    with job(__name__, *words) as process:
        finish(process, f"{name}, started again,", limit_s)
    back = min(path.stat().st_mtime for batch, _, path in sink.files() if batch >= before)
    return Restarted(base / "out", back - failed)


def _done(sink: ParquetSink) -> int:
    """How many micro-batches have results that can be seen."""
    return 1 + max((batch for batch, _, _ in sink.files()), default=-1)


def main(name: str, folder: Path, most: int, each: int, files: list[Path]) -> None:
    """Run the program until all is read."""
    from riot_ops.spark import session

    spark, source = session(cores=CORES), NumberedFiles(files, each, CORES // 2)
    options = {"out": folder / "out", "checkpoint": folder / "checkpoint", "partitions": CORES}
    flow_of(name).start(spark, source, max_records=most, **options).wait()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), [Path(one) for one in sys.argv[5:]])
