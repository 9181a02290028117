"""A program of StreamBench on Spark whose driver is killed half way and restarted from its checkpoint.

The driver is ``python -m riot_bench.suites.streambench.driver_loss PROGRAM FOLDER MICRO_BATCH LINES FILE…``.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from riot_bench.harness.child_process import kill_group, module_process, wait_for_exit
from riot_bench.harness.numbered_lines import NumberedFiles, NumberedLines
from riot_bench.suites.streambench.runs import program_flow
from riot_ops.core.errors import RiotError
from riot_ops.core.file_sink import ParquetSink

__all__ = ["RestartedRun", "TooSoonError", "main", "run_with_lost_driver"]

#: Cores of Spark.
CORES = 2


class TooSoonError(RiotError):
    """A run was done before the failure."""


@dataclass(frozen=True)
class RestartedRun:
    """A restarted run: the folder of its results, and seconds from the failure until the first new results."""

    out: Path
    back_s: float


def run_with_lost_driver(name: str, data: NumberedLines, base: Path, limit_s: float) -> RestartedRun:
    """Run a program, kill the driver and its processes after half of the micro-batches, and start it again."""
    base.mkdir(parents=True, exist_ok=True)
    words = (name, str(base), str(data.batch), str(data.lines_per_file), *map(str, data.files))
    batches = data.total // data.batch
    half, sink = 1 + (batches - 1) // 2, ParquetSink(base / "out")
    with module_process(__name__, *words) as process:
        until = time.monotonic() + limit_s
        while _visible_batches(sink) < half:
            if process.poll() is not None:
                raise RiotError(f"{name} ended with exit code {process.returncode} before its driver was to be killed")
            if time.monotonic() > until:
                raise RiotError(f"{name} was not half done in {limit_s:g} s")
            time.sleep(0.02)
        kill_group(process)
        before, failed = _visible_batches(sink), time.time()
        if before >= batches:
            raise TooSoonError(f"{name} was done before its driver was killed: use more records, such as --scale 10")
    with module_process(__name__, *words) as process:
        wait_for_exit(process, f"{name}, restarted,", limit_s)
    back = min(path.stat().st_mtime for batch, _, path in sink.files() if batch >= before)
    return RestartedRun(base / "out", back - failed)


def _visible_batches(sink: ParquetSink) -> int:
    """Return the number of micro-batches with visible results."""
    return 1 + max((batch for batch, _, _ in sink.files()), default=-1)


def main(name: str, folder: Path, most: int, each: int, files: list[Path]) -> None:
    """Run the program until all input is read."""
    from riot_ops.spark import session

    spark, source = session(cores=CORES), NumberedFiles(files, each, CORES // 2)
    program_flow(name).start(
        spark, source, max_records=most, out=folder / "out", checkpoint=folder / "checkpoint", partitions=CORES
    ).wait()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), [Path(one) for one in sys.argv[5:]])
