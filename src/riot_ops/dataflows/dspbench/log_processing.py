"""Log processing: volume, status codes and visitor locations of a web server's log."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.dataflows.dspbench import operators
from riot_ops.tables import Networks

__all__ = ["count_by_place", "log_processing"]

FIELDS = {
    "ip": ("host", "string"),
    "event_time": ("time", "log"),
    "request": ("request", "string"),
    "response": ("status", "int64"),
    "byte_size": ("size", "int64", 0),
}
#: Further fields of a request that is split.
WORDS = {
    "verb": ("method", "string", None),
    "resource": ("resource", "string", None),
    "protocol": ("protocol", "string", None),
}


def log_processing(
    *,
    geo: str | None = None,
    window: Count = 60,
    emit: Literal["each", "update"] = "each",
    split_request: bool = False,
    keep: tuple[str, ...] = (),
    encoding: str = "utf-8",
) -> Dataflow:
    """Build log processing (LP): lines of a web server's log → counts by minute, by status, by country and city.

    Its result streams are ``volume`` (``minute``, ``count``), ``status`` (``response``, ``count``) and ``countries``
    (``country``, ``country_total``, ``city``, ``city_total``). Lines are in the common or the combined log format, see
    :class:`riot_ops.tasks.ParseAccessLog`: a status is any three digits, ``-`` bytes count as 0, and a request may be
    ``-`` or contain quotes. Any other line goes to the errors stream, such as one without zone, brackets or quotes.

    Parameters
    ----------
    geo : str, optional
        Path of the table of networks, see :class:`riot_ops.tables.Networks`; by default the table of the generated
        streams.
    window : int >= 1, default 60
        Number of minutes whose counts are held; a new minute evicts the one that was added first.
    emit : "each" or "update", default "each"
        Emit the counts at every line, or the last count of each key in a batch, see
        :class:`riot_ops.tasks.RunningCount`.
    split_request : bool, default False
        Whether to split the request into ``verb``, ``resource`` and ``protocol``, each null where the request has none.
    keep : tuple of str, default ()
        Fields of the line that the results carry: ``ip``, ``response``, ``byte_size``, ``request`` (or its parts).
    encoding : str, default "utf-8"
        Encoding of the lines, by a name that Python knows; "latin-1" reads any bytes. A line that is not in it goes to
        the errors stream.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> line = '198.18.2.7 - - [10/Jun/1998:12:00:{:02}' ' +0000] "GET / HTTP/1.0" {} 5'
    >>> lines = [line.format(s, status) for s, status in ((1, 200), (2, 404), (9, 200))]
    >>> result = log_processing().run(pa.table({"payload": lines, "event_time": pa.nulls(3)}))
    >>> result["status"].select(["response", "count"]).to_pylist()[-1]
    {'response': 200, 'count': 2}
    >>> result["countries"].select(["country", "country_total", "city", "city_total"]).to_pylist()[-1]
    {'country': 'Brazil', 'country_total': 3, 'city': 'Porto Alegre', 'city_total': 3}
    """
    check_arguments(log_processing, locals())
    flow = Dataflow("log_processing")
    fields = {**FIELDS, **WORDS} if split_request else FIELDS
    lines = flow.source("log").shuffle().to(t.ParseAccessLog(schema=fields, encoding=encoding), id="parse")

    minute = t.Compute({"minute": "floor_time(event_time, '1min')"})
    minutes = lines.to(minute, id="minutes") >> _project("minute", *keep)
    volume = minutes.partition_by("minute").to(
        operators.BoundedCount(field="minute", capacity=window, emit=emit), id="volume"
    )
    answers = lines >> _project("response", *keep)
    status = answers.partition_by("response").to(t.RunningCount(by=("response",), emit=emit), id="status")
    countries = count_by_place(lines >> _project("ip", *keep), geo, "countries", emit, keep)
    for name, stream in (("volume", volume), ("status", status), ("countries", countries)):
        flow.sink(f"{name}_sink", stream)
    return flow


def count_by_place(
    addresses: Stream, geo: str | None, id: str, emit: Literal["each", "update"], keep: tuple[str, ...] = ()
) -> Stream:
    """Build the running counts of addresses by country, and by city within it, where both are known."""
    locate = t.Lookup(
        table=Networks(geo), on=("ip",), columns=("country", "city"), on_missing="drop", keep=keep, coded=True
    )
    places = addresses.shuffle().to(locate, id="locate")
    totals = places.partition_by("country").to(
        t.RunningCount(by=("country",), output="country_total"), id=f"{id}_total"
    )
    counts = t.RunningCount(by=("country", "city"), output="city_total", emit=emit)
    counted = totals.partition_by("country").to(counts, id=f"{id}_cities")
    names = ("country", "city", *keep, "country_total", "city_total")
    return counted.to(t.Project(fields=names, decoded=True), id=id)


def _project(*fields: str) -> t.Project:
    return t.Project(fields=tuple(dict.fromkeys(fields)))
