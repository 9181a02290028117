"""StreamBench's saturation suite: the largest micro-batch and the highest rate that a program sustains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import FILES_PER_BATCH, NumberedLines, write_numbered
from riot_bench.harness.peak_rate import PeakRate, find_peak
from riot_bench.harness.session import spark_session
from riot_bench.harness.trial import runner
from riot_bench.harness.workload import Workload
from riot_bench.suites.streambench.programs import choose_programs
from riot_bench.suites.streambench.runs import (
    Run,
    check_implementations,
    check_on_spark,
    program_flow,
    run_packed,
    run_pyspark,
)
from riot_ops import streams
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application

__all__ = ["Sizes", "find_volume", "saturation"]

#: Maximum ratio between the lowest unsustained and the highest sustained value.
PRECISION = 1.1
#: Seconds that a query may take in addition to its micro-batch.
START_S = 20.0


@dataclass(frozen=True)
class Sizes:
    """Amount of work.

    Attributes
    ----------
    lines, max_lines : int
        First volume, and maximum volume; the search doubles and then quadruples the volume.
    limit_s : float
        Seconds after which a micro-batch counts as saturated.
    search_s : float
        Seconds after which no further volume is tried.
    implementations : tuple of str
        Implementations whose volume is searched.
    paced : bool
        Whether to search the highest rate of the packed implementation, too.
    programs : tuple of str
        Default programs.
    """

    lines: int
    max_lines: int
    limit_s: float
    search_s: float
    implementations: tuple[str, ...]
    paced: bool
    programs: tuple[str, ...]


FULL = Sizes(
    lines=100_000,
    max_lines=50_000_000,
    limit_s=60.0,
    search_s=300.0,
    implementations=("packed", "expressions"),
    paced=True,
    programs=("identity", "wordcount", "statistics"),
)
QUICK = Sizes(700_000, 40_000_000, 3.0, 30.0, ("packed",), False, ("wordcount",))


def saturation(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """Measure the largest micro-batch, and the highest rate that micro-batches sustain.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        Programs; by default those of ``sizes``.
    scale : float, default 1
        Factor of the first and of the maximum volume.
    sizes : Sizes, optional
        By default those of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    names = choose_programs(programs, sizes.programs)
    with temporary_folder() as base, spark_session(jvm="full") as spark:
        for name in names:
            stream = application(name).inputs["lines"]
            each = max(1, int(sizes.lines * scale)) // FILES_PER_BATCH
            data = write_numbered(stream, base / name, 1, FILES_PER_BATCH * each)
            wanted = check_implementations(name, data)
            for implementation in sizes.implementations:
                check_on_spark(spark, name, implementation, data, wanted)
                yield _volume_measure(spark, name, implementation, data, sizes, int(sizes.max_lines * scale))
    if not sizes.paced:
        return
    with runner("spark", quick) as paced:
        for name in names:
            yield _rate_measure(paced, name)


def find_volume(takes: Callable[[int], bool], first: int, most: int, search_s: float) -> tuple[PeakRate, bool]:
    """Search the largest volume to a tenth; return it and whether a larger one was tried and failed."""
    too_many: list[int] = []

    def tried(lines: float) -> bool:
        if not 1 <= lines <= most:
            return False
        if taken := takes(int(lines)):
            return taken
        too_many.append(int(lines))
        return False

    found = find_peak(tried, first, precision=PRECISION, step=2.0, attempts=1, limit_s=search_s)
    return found, bool(too_many)


def _volume_measure(
    spark: Any, name: str, implementation: str, data: NumberedLines, sizes: Sizes, most: int
) -> Measure:
    """Measure the largest volume in a single micro-batch; the lines are repeated."""
    took: dict[int, float] = {}

    def takes(lines: int) -> bool:
        some = data.repeated_to(lines)
        try:
            run = _run_single_batch(spark, name, implementation, some, START_S + sizes.limit_s)
        except RiotError:
            return False
        took[some.total] = run.spent[0]
        return not run.saturated and run.spent[0] <= sizes.limit_s

    _run_single_batch(spark, name, implementation, data, START_S + sizes.limit_s)  # the very first query is slow
    found, saturated = find_volume(takes, data.total, most, sizes.search_s)
    how = f"{implementation}, one micro-batch within {sizes.limit_s:g} s"
    if not found.rate:
        tried = ", ".join(f"{lines:,.0f}" for lines, _ in found.tried if lines >= 1)
        return Measure(
            f"streambench/saturation/{name}/{implementation}/volume", 0, "records", f"{how}; too many: {tried}"
        )
    taken = data.repeated_to(int(found.rate)).total
    how += f": {took[taken]:.1f} s"
    known = saturated and found.converged
    marks = "" if known else "; lower bound: no larger volume was tried"
    at = f"streambench/saturation/{name}/{implementation}/volume"
    return Measure(at, taken, "records", how + marks, lower_bound=not known)


def _run_single_batch(spark: Any, name: str, implementation: str, data: NumberedLines, limit_s: float) -> Run:
    if implementation == "packed":
        return run_packed(spark, name, data, limit_s, max_records=data.total)
    return run_pyspark(spark, name, implementation, data, limit_s, files=len(data.files))


def _rate_measure(paced: Any, name: str) -> Measure:
    """Measure the highest rate at which successive micro-batches have no growing backlog."""
    workload = Workload(program_flow(name), {"lines": streams.generate(application(name).inputs["lines"])})
    workload, taken, _ = paced.calibrate(workload)
    found = find_peak(
        lambda rate: paced.keeps_up(workload, rate), 0.8 * taken, precision=PRECISION, limit_s=paced.search_s
    )
    how = f"packed, {paced.where}, {len(found.tried)} trials of {paced.trial_s:g} s{found.caveat}"
    at = f"streambench/saturation/{name}/packed/rate"
    return Measure(at, found.rate, "records/s", how, lower_bound=not found.converged)
