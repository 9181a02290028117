"""Click analytics: visits and visitors of pages, and their locations."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import check_arguments
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench.log_processing import count_by_place

__all__ = ["click_analytics"]

FIELDS = {"ip": ("ip", "quoted"), "url": ("url", "quoted"), "client_key": (("clientKey", "ip"), "quoted")}
#: The same fields in the access log of a web server.
LOG_FIELDS = {
    "event_time": ("time", "log"),
    "ip": ("host", "string"),
    "url": ("resource", "string"),
    "client_key": ("client", "string"),
}
VISIT = ("url", "client_key")


def click_analytics(
    *,
    format: Literal["json", "log"] = "json",
    geo: str | None = None,
    capacity: int | None = None,
    ttl: str | timedelta | None = None,
    emit: Literal["each", "update"] = "each",
    encoding: str = "utf-8",
    secret: Secret | None = None,
) -> Dataflow:
    """Build click analytics (CA): clicks → visits and first visits, counts by country and city.

    Its result streams are ``visits`` (``total_count``, ``total_unique``) and ``locations`` (``country``,
    ``country_total``, ``city``, ``city_total``). A visit is unique if it is the first of its client to its page. The
    client is the ``clientKey``, or the address where that is null or absent. A line that is not a JSON object, or lacks
    ``ip`` or ``url``, goes to the errors stream.

    Parameters
    ----------
    format : "json" or "log", default "json"
        Whether clicks are JSON objects with ``ip``, ``url`` and ``clientKey``, or lines of a web server's access log in
        the common or the combined format, see :class:`riot_ops.tasks.ParseAccessLog`. In a log the page is the resource
        of the request, the client the user, or the address where the user is ``-``; a line without a resource goes to
        the errors stream.
    geo : str, optional
        Path of the table of networks, see :class:`riot_ops.tables.Networks`; by default the table of the generated
        streams.
    capacity : int >= 1, optional
        Minimum number of visits to remember, in 32 bits each; about one unique visit in a thousand may then count as
        repeated, see :class:`riot_ops.tasks.Deduplicate`. None: remember all visits exactly.
    ttl : timedelta or text such as "1h", optional
        A visit counts as unique again if the previous one is longer ago; in the time of the log, or the source's event
        time, since clicks in JSON have no time of their own. Not together with capacity.
    emit : "each" or "update", default "each"
        Emit totals and counts at every click, or the last ones in a batch, see :class:`riot_ops.tasks.RunningCount`.
    encoding : str, default "utf-8"
        Encoding of the lines, by a name that Python knows. A line that is not in it goes to the errors stream.
    secret : Secret, optional
        With capacity: keys the hash of the visits, see :class:`riot_ops.tasks.Deduplicate`.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> line = '{{"ip": "198.18.2.7", "url": "/{}", "clientKey": "c1"}}'
    >>> clicks = pa.table({"payload": [line.format(page) for page in "aba"], "event_time": pa.nulls(3)})
    >>> result = click_analytics().run(clicks)
    >>> result["visits"].select(["total_count", "total_unique"]).to_pylist()[-1]
    {'total_count': 3, 'total_unique': 2}
    >>> result["locations"].select(["country", "country_total", "city", "city_total"]).to_pylist()[-1]
    {'country': 'Brazil', 'country_total': 3, 'city': 'Porto Alegre', 'city_total': 3}
    """
    check_arguments(click_analytics, locals())
    if capacity is not None and ttl is not None:
        raise ConfigError(f"give either capacity or ttl: one of them bounds the memory; got {capacity}, {ttl!r}")
    if secret is not None and capacity is None:
        raise ConfigError("secret needs a capacity; without it, visits are compared exactly")
    flow = Dataflow("click_analytics")
    parser = (
        t.ParseJSON(schema=FIELDS, encoding=encoding)
        if format == "json"
        else t.ParseAccessLog(schema=LOG_FIELDS, encoding=encoding)
    )
    clicks = flow.source("clicks").shuffle().to(parser, id="parse")
    visit = clicks >> t.Project(fields=VISIT)
    if capacity is None:
        seen = t.Deduplicate(by=VISIT, ttl=ttl, flag="unique")
    else:
        seen = t.Deduplicate(fields=VISIT, capacity=capacity, flag="unique", secret=secret)
    flags = visit.partition_by(*VISIT).to(seen, id="repeat") >> t.Project(fields=("unique",))
    totals = t.RunningTotals(totals={"total_count": None, "total_unique": "unique"}, emit=emit)
    visits = flags.to_single().to(totals, id="visits")

    locations = count_by_place(clicks >> t.Project(fields=("ip",)), geo, "locations", emit)
    return flow.sink("visits_sink", visits).sink("locations_sink", locations)
