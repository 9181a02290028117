"""Trending topics: the most frequent hash tags over a sliding window."""

from __future__ import annotations

from datetime import timedelta

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, as_timedelta, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench import operators

__all__ = ["TWEET", "WRAPPER", "as_timedelta", "trending_topics"]

#: The fields of a tweet, which in version 2 of Twitter's API is within ``data``.
TWEET = {
    "id": ("id", "string"),
    "event_time": ("created_at", "tweet"),
    "text": ("text", "quoted"),
}
#: Name of the object with a tweet.
WRAPPER = "data"


def trending_topics(
    *,
    window: str | timedelta = "10s",
    every: str | timedelta = "2s",
    k: Count = 10,
    normalise: bool = False,
    rankers: Count = 4,
    partial: bool = True,
) -> Dataflow:
    """Build trending topics (TT): tweets → hash tags → counts over a sliding window → most frequent topics.

    Its result stream is ``rankings``, with the fields ``tick_time``, ``rank``, ``topic`` and ``count``: the k topics
    with the largest counts at each tick, ties in alphabetical order. Ticks are at the time of the first tweet plus
    multiples of ``every``, in stream time. A tweet has an ``id``, ``text``, which must be a string, and ``created_at``,
    an ISO 8601 time or a time such as ``Wed Oct 10 20:19:24 +0000 2018``; all of them in the line itself, or in its
    object ``data``. Any other line goes to the errors stream.

    Parameters
    ----------
    window : timedelta or text such as "10s", default "10s"
        Length of the window, rounded down to a whole number of ticks, at least two.
    every : timedelta or text, default "2s"
        Time from tick to tick.
    k : int >= 1, default 10
        Number of topics to rank.
    normalise : bool, default False
        Whether "#IoT!" and "#iot" are one topic: in lower case, without punctuation at the ends.
    rankers : int >= 1, default 4
        Number of partial rankers among which the topics are partitioned before a final one; the result is the same.
    partial : bool, default True
        Whether the end of the stream counts as a tick.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> tweet = '{{"id": "{0}", "created_at": "2020-11-20T04:30:0{0}Z", "text": "{1}"}}'
    >>> lines = [tweet.format(i, text) for i, text in enumerate(("#sun #rain", "more #rain", "#sun and #sun"))]
    >>> table = pa.table({"payload": lines, "event_time": pa.nulls(3)})
    >>> for row in trending_topics().run(table)["rankings"].to_pylist():
    ...     print(f"{row['tick_time']:%M:%S}", row["rank"], row["topic"], row["count"])
    30:02 1 #rain 2
    30:02 2 #sun 1
    30:04 1 #sun 3
    30:04 2 #rain 2
    """
    check_arguments(trending_topics, locals())
    length, period = as_timedelta(window), as_timedelta(every)
    if not timedelta(0) < period <= length:
        raise ConfigError(f"every must be longer than 0 and at most window, got {every!r} and {window!r}")
    flow = Dataflow("trending_topics")
    tweets = flow.source("tweets").to(t.ParseJSON(schema=TWEET, wrapper=WRAPPER), id="parse").shuffle()
    extract = t.Tokenize(
        field="text",
        output="topic",
        split="spaces",
        prefix="#",
        lowercase=normalise,
        unicode=normalise,
        trim=normalise,
        coded=True,
    )
    count = operators.SlidingTotals(
        by=("topic",), totals={"count": None}, every=period, slots=max(2, length // period), partial=partial
    )
    counts = tweets.to(extract, id="topics").partition_by("topic").to(count, id="counts")
    rank = operators.TopK(item="topic", k=k, every=period, partial=partial)
    parts = counts.partition_by("topic", parallelism=rankers).to(rank, id="parts")
    return flow.sink("rankings_sink", parts.to_single().to(rank, id="rankings"))
