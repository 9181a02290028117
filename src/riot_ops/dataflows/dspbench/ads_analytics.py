"""Ads analytics: how often advertisements are clicked, of the times that they are shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.dataflows.dspbench.trending_topics import span

__all__ = ["ads_analytics"]

PAIR = ("query_id", "ad_id")
KINDS = ("clicks", "impressions")
#: More than so many clicks or impressions of a record are none.
MOST = 2**31 - 1


def ads_analytics(
    *,
    tick_every: Count | None = None,
    window: str | timedelta = "10s",
    every: str | timedelta = "2s",
    emit: Literal["tick", "each", "update"] = "tick",
) -> Dataflow:
    r"""Build ads analytics (AD): records of clicks and of impressions → the click-through rate of queries and ads.

    Its result stream is ``ctr``, with the fields ``query_id``, ``ad_id``, ``ctr``, ``impressions`` and ``clicks``, and
    ``window_length`` (s) at ticks: clicks by impressions of each pair that is known in the window. Both sources,
    ``clicks`` and ``impressions``, have records of the KDD Cup 2012, of 12 cells with tabs between, and may read one
    file; the one takes the number of clicks of a record, the other that of impressions. A line that is no such record
    ends in the errors stream, and a pair with clicks and without impressions as ``zero_denominator``.

    Parameters
    ----------
    tick_every : int >= 1, optional
        Records (of each source) from tick to tick, as records have no time: so many last as long as ``every``. None:
        there is one window over all, put out at the end.
    window : timedelta or text such as "10s", default "10s"
        How far the window reaches back; of it so many whole ticks are taken, at least two.
    every : timedelta or text, default "2s"
        Time from tick to tick.
    emit : "tick", "each" or "update", default "tick"
        Rates over the window at its ticks; or over all that has come, after each record with clicks or impressions, or
        after the last of each pair in a batch, see :class:`riot_ops.tasks.RunningCount`.

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
    length, period = span(window), span(every)
    if not timedelta(0) < period <= length:
        raise ConfigError(f"every must be longer than 0 and window no shorter, got {every!r} and {window!r}")
    if emit != "tick" and tick_every is not None:
        raise ConfigError(f"tick_every is for emit='tick', got {emit!r}")
    flow = Dataflow("ads_analytics", merging="number")
    step = t.SyntheticEventTime(
        every=timedelta(0) if tick_every is None else period, messages=tick_every or 1, sources=2
    )
    clicks, impressions = (_events(flow, kind, step) for kind in KINDS)
    totals: dict[str, str | None] = {kind: kind for kind in reversed(KINDS)}
    count: t.Task
    if emit == "tick":
        count = t.SlidingTotals(by=PAIR, totals=totals, every=period, slots=max(2, length // period))
    else:
        count = t.RunningTotals(by=PAIR, totals=totals, emit=emit)
    counts = flow.add(count, clicks.partition_by(*PAIR), impressions.partition_by(*PAIR), id="counts")
    rate = counts.to(t.Ratio(numerator="clicks", denominator="impressions", output="ctr"), id="ctr")
    return flow.sink("ctr_sink", rate)


def _events(flow: Dataflow, kind: str, step: t.SyntheticEventTime) -> Stream:
    """What a source says of clicks or of impressions, without records that have none."""
    fields = {kind: (KINDS.index(kind), "int64"), "ad_id": (3, "int64"), "query_id": (7, "int64")}
    timed = flow.source(kind).to(step, id=f"{kind}_time")
    read = timed.to(t.ParseLines(fields=fields, delimiter="\t", cells=12), id=f"{kind}_parse")
    checked = read.to(t.RangeFilter(by=None, bounds={kind: (0, MOST)}, on_fail="reject"), id=f"{kind}_check")
    some = checked.to(t.RangeFilter(by=None, bounds={kind: (1, MOST)}), id=f"{kind}_some")
    other = KINDS[1 - KINDS.index(kind)]
    return some >> t.Project(fields=(*PAIR, kind), nulls={other: "int64"})
