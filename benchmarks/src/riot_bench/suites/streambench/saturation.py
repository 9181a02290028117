"""Saturation: how many lines at once, and how many per second, are too much for a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.harness.peak_rate import Peak, highest
from riot_bench.harness.trial import Feed, runner
from riot_bench.suites.streambench.data import PARTS, NumberedLines, write_numbered
from riot_bench.suites.streambench.forms import chosen
from riot_bench.suites.streambench.runs import Run, agreed, flow_of, on_spark, packed, proved
from riot_ops import streams
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application

__all__ = ["Sizes", "saturation", "volume"]

#: Between what was kept up with and what was not, at most.
PRECISION = 1.1
#: Seconds that a query may take besides its micro-batch.
START_S = 20.0


@dataclass(frozen=True)
class Sizes:
    """How much is tried.

    Attributes
    ----------
    lines : int
        The first volume; the next have twice and then four times as many, up to ``most``.
    limit_s : float
        A micro-batch that takes longer is saturated.
    search_s : float
        After this time no further volume is tried.
    forms : tuple of str
        Those that take volumes; and whether the packed one is paced besides.
    programs : tuple of str
        Where none are named.
    """

    lines: int
    most: int
    limit_s: float
    search_s: float
    forms: tuple[str, ...]
    paced: bool
    programs: tuple[str, ...]


FULL = Sizes(
    lines=100_000,
    most=50_000_000,
    limit_s=60.0,
    search_s=300.0,
    forms=("packed", "expressions"),
    paced=True,
    programs=("identity", "wordcount", "statistics"),
)
QUICK = Sizes(700_000, 40_000_000, 3.0, 30.0, ("packed",), False, ("wordcount",))


def saturation(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """The volume that a micro-batch holds, and the rate that micro-batches keep up with.

    Parameters
    ----------
    scale : float, default 1
        Times the lines of the first volume and of the last.
    """
    sizes = sizes or (QUICK if quick else FULL)
    names = chosen(programs, sizes.programs)
    with folder() as base, spark_session(jvm="full") as spark:
        for name in names:
            stream = application(name).inputs["lines"]
            each = max(1, int(sizes.lines * scale)) // PARTS
            data = write_numbered(stream, base / name, 1, PARTS * each)
            wanted = agreed(name, data)
            for form in sizes.forms:
                proved(spark, name, form, data, wanted)
                yield _volume(spark, name, form, data, sizes, int(sizes.most * scale))
    if not sizes.paced:
        return
    with runner("spark", quick) as paced:
        for name in names:
            yield _rate(paced, name)


def volume(takes: Callable[[int], bool], first: int, most: int, search_s: float) -> tuple[Peak, bool]:
    """The most lines that are taken, to a tenth, and whether more of them were tried and not taken."""
    too_many: list[int] = []

    def tried(lines: float) -> bool:
        if not 1 <= lines <= most:
            return False
        if taken := takes(int(lines)):
            return taken
        too_many.append(int(lines))
        return False

    found = highest(tried, first, precision=PRECISION, step=2.0, attempts=1, limit_s=search_s)
    return found, bool(too_many)


def _volume(spark: Any, name: str, form: str, data: NumberedLines, sizes: Sizes, most: int) -> Measure:
    """All lines at once, as many as there are: they are the same over and over again."""
    took: dict[int, float] = {}

    def takes(lines: int) -> bool:
        some = data.lines(lines)
        try:
            run = _at_once(spark, name, form, some, START_S + sizes.limit_s)
        except RiotError:
            return False
        took[some.total] = run.spent[0]
        return not run.saturated and run.spent[0] <= sizes.limit_s

    _at_once(spark, name, form, data, START_S + sizes.limit_s)  # the first query is slow
    found, saturated = volume(takes, data.total, most, sizes.search_s)
    how = f"{form}, all in one micro-batch within {sizes.limit_s:g} s"
    if not found.rate:
        tried = ", ".join(f"{lines:,.0f}" for lines, _ in found.tried if lines >= 1)
        return Measure(f"streambench/saturation/{name}/{form}/volume", 0, "records", f"{how}; too many: {tried}")
    taken = data.lines(int(found.rate)).total
    how += f": {took[taken]:.1f} s"
    known = saturated and found.closed
    marks = "" if known else "; at least: no more were tried"
    at = f"streambench/saturation/{name}/{form}/volume"
    return Measure(at, taken, "records", how + marks, lower_bound=not known)


def _at_once(spark: Any, name: str, form: str, data: NumberedLines, limit_s: float) -> Run:
    if form == "packed":
        return packed(spark, name, data, limit_s, max_records=data.total)
    return on_spark(spark, name, form, data, limit_s, files=len(data.files))


def _rate(paced: Any, name: str) -> Measure:
    """What micro-batches, one behind the other, keep up with: what waits does not grow."""
    feed = Feed(flow_of(name), {"lines": streams.generate(application(name).inputs["lines"])})
    feed, taken, _ = paced.sized(feed)
    found = highest(lambda rate: paced.keeps_up(feed, rate), 0.8 * taken, precision=PRECISION, limit_s=paced.search_s)
    how = f"packed, {paced.where}, {len(found.tried)} trials of {paced.trial_s:g} s{found.mark}"
    at = f"streambench/saturation/{name}/packed/rate"
    return Measure(at, found.rate, "records/s", how, lower_bound=not found.closed)
