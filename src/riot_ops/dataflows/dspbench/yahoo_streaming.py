"""The Yahoo streaming benchmark: advertisement views per campaign and window."""

from __future__ import annotations

from datetime import timedelta

from riot_ops import tasks as t
from riot_ops.core.parameters import as_timedelta, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.streams.dspbench.adverts import campaigns

__all__ = ["yahoo_streaming"]

FIELDS = {"ad_id": ("ad_id", "string"), "event_type": ("event_type", "quoted"), "event_time": ("event_time", "ms")}


def yahoo_streaming(
    *,
    ads: str | None = None,
    window: str | timedelta = "10s",
    allowed_lateness: str | timedelta = "0s",
    event_type: str = "view",
) -> Dataflow:
    """Build the Yahoo streaming benchmark (YSB): advertisement events as JSON lines → views per campaign and window.

    Its result stream is ``campaigns``, with the fields ``window_start``, ``window_end``, ``campaign_id`` and ``count``.
    A line has ``ad_id``, ``event_type`` and ``event_time`` (ms since 1970, a number or text); any other line, and a
    line that is too late for its window, goes to the errors stream. Events of other types, and of advertisements that
    the table lacks, are dropped.

    Parameters
    ----------
    ads : str, optional
        Path of a CSV file with the columns ``ad_id`` and ``campaign_id``; by default there are 100
        campaigns of ten advertisements each: campaign 0 has the advertisements 0 to 9, and so on.
    window : timedelta or text such as "10s", default "10s"
        Length of the windows, aligned to the epoch.
    allowed_lateness : timedelta or text, default "0s"
        How far an event may lag behind stream time.
    event_type : str, default "view"
        Type of the events to count.

    References
    ----------
    .. [1] S. Chintapalli et al., *Benchmarking Streaming Computation Engines: Storm, Flink and Spark Streaming*,
       IPDPSW 2016, DOI 10.1109/IPDPSW.2016.138.

    Examples
    --------
    >>> import pyarrow as pa
    >>> line = '{{"ad_id": "{}", "event_type": "view", "event_time": {}}}'
    >>> lines = [line.format(ad, time) for ad, time in ((7, 1000), (8, 9000), (12, 11_000))]
    >>> views = yahoo_streaming().run(pa.table({"payload": lines, "event_time": pa.nulls(3)}))["campaigns"]
    >>> [(f"{row['window_start']:%M:%S}", row["campaign_id"], row["count"]) for row in views.to_pylist()]
    [('00:00', '0', 2), ('00:10', '1', 1)]
    """
    check_arguments(yahoo_streaming, locals())
    flow = Dataflow("yahoo_streaming")
    events = flow.source("events").shuffle().to(t.ParseJSON(schema=FIELDS), id="parse")
    views = events.shuffle().to(t.Filter(f"event_type == {event_type!r}"), id="views")
    table = campaigns() if ads is None else ads
    join = t.Lookup(table=table, on=("ad_id",), columns=("campaign_id",), on_missing="drop")
    counted = t.Window(by=("campaign_id",), frame=as_timedelta(window), allowed_lateness=as_timedelta(allowed_lateness))
    viewed = views.to(join, id="join") >> t.Project(fields=("campaign_id",))
    return flow.sink("campaigns_sink", viewed.partition_by("campaign_id").to(counted, id="campaigns"))
