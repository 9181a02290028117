"""Ads analytics: the click-through rate of advertisements."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.dataflows.dspbench import operators
from riot_ops.dataflows.dspbench.trending_topics import as_timedelta

__all__ = ["ads_analytics"]

PAIR = ("query_id", "ad_id")
KINDS = ("clicks", "impressions")
#: Maximum number of clicks or impressions of a valid record.
MAX_COUNT = 2**31 - 1
#: Valid range of each cell of a record that is not a number of clicks or impressions.
BOUNDS: dict[str, tuple[float, float]] = {
    "display_url": (0.0, float(2**64)),
    **dict.fromkeys(("ad_id", "advertiser_id", "depth", "position", "query_id"), (0, 2**63 - 1)),
    **dict.fromkeys(("keyword_id", "title_id", "description_id", "user_id"), (0, 2**63 - 1)),
}


def ads_analytics(
    *,
    tick_every: Count | None = None,
    window: str | timedelta = "10s",
    every: str | timedelta = "2s",
    emit: Literal["tick", "each", "update"] = "tick",
) -> Dataflow:
    r"""Build ads analytics (AD): records of clicks and impressions → click-through rate by query and ad.

    Its result stream is ``ctr``, with the fields ``query_id``, ``ad_id``, ``ctr``, ``impressions`` and ``clicks``, and
    at ticks ``window_length`` (s): clicks divided by impressions of each pair in the window. Both sources, ``clicks``
    and ``impressions``, have records of the KDD Cup 2012, lines of 12 tab-separated cells, and may read one file; one
    source takes a record's number of clicks, the other its number of impressions. Both sources check both numbers, so
    a record counts whole or not at all. Any other line, such as one with a cell that is not a number from 0 on, goes to
    the errors stream, and a pair with clicks but without impressions goes there as ``division_by_zero``.

    Parameters
    ----------
    tick_every : int >= 1, optional
        Records (of each source) per tick: since records have no time, this number of them spans ``every``. None: one
        window over the whole stream, emitted at its end.
    window : timedelta or text such as "10s", default "10s"
        Length of the window, rounded down to a whole number of ticks, at least two.
    every : timedelta or text, default "2s"
        Time from tick to tick.
    emit : "tick", "each" or "update", default "tick"
        Emit rates over the window at every tick; or over the whole stream so far, after each record with clicks or
        impressions, or after the last record of each pair in a batch, see :class:`riot_ops.tasks.RunningCount`.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> cells = "{}\t{}\t9\t100\t501\t2\t1\t12\t1012\t2100\t3100\t3144"
    >>> lines = pa.table({"payload": [cells.format(*counts) for counts in ((0, 3), (1, 1))], "event_time": pa.nulls(2)})
    >>> ctr = ads_analytics().run({"clicks": lines, "impressions": lines})["ctr"].to_pylist()
    >>> [(row["query_id"], row["ad_id"], row["ctr"], row["impressions"], row["clicks"]) for row in ctr]
    [(12, 100, 0.25, 4, 1)]
    """
    check_arguments(ads_analytics, locals())
    length, period = as_timedelta(window), as_timedelta(every)
    if not timedelta(0) < period <= length:
        raise ConfigError(f"every must be longer than 0 and at most window, got {every!r} and {window!r}")
    if emit != "tick" and tick_every is not None:
        raise ConfigError(f"tick_every is for emit='tick', got {emit!r}")
    flow = Dataflow("ads_analytics", merging="number")
    step = operators.SyntheticEventTime(
        every=timedelta(0) if tick_every is None else period, messages=tick_every or 1, stride=2
    )
    clicks, impressions = (_events(flow, kind, step) for kind in KINDS)
    totals: dict[str, str | None] = {kind: kind for kind in reversed(KINDS)}
    count: t.Task
    if emit == "tick":
        count = operators.SlidingTotals(by=PAIR, totals=totals, every=period, slots=max(2, length // period))
    else:
        count = t.RunningTotals(by=PAIR, totals=totals, emit=emit)
    counts = flow.add(count, clicks.partition_by(*PAIR), impressions.partition_by(*PAIR), id="counts")
    rate = counts.to(t.Compute({"ctr": "0.0 if clicks == 0 else clicks / impressions"}), id="ctr")
    return flow.sink("ctr_sink", rate)


def _events(flow: Dataflow, kind: str, step: operators.SyntheticEventTime) -> Stream:
    """Build the steps that read the clicks or impressions of a source, without records that have none."""
    # All cells are read, because a line with a malformed one is damaged. The hash of a URL may exceed int64.
    names = (*KINDS, *BOUNDS)
    fields = {name: (i, "double" if name == "display_url" else "int64") for i, name in enumerate(names)}
    timed = flow.source(kind).to(step, id=f"{kind}_time")
    read = timed.to(t.ParseLines(schema=fields, delimiter="\t", cells=12), id=f"{kind}_parse")
    # Both numbers, because the two sources may read one file: a record counts whole or not at all.
    bounds = {**dict.fromkeys(KINDS, (0, MAX_COUNT)), **BOUNDS}
    checked = read.to(t.RangeFilter(by=None, bounds=bounds, on_error="reject"), id=f"{kind}_check")
    some = checked.to(t.RangeFilter(by=None, bounds={kind: (1, MAX_COUNT)}), id=f"{kind}_some")
    other = KINDS[1 - KINDS.index(kind)]
    return some >> t.Project(fields=(*PAIR, kind), nulls={other: "int64"})
