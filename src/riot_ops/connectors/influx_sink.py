"""A sink that writes streams to InfluxDB, in line protocol over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode, urlsplit

import pyarrow as pa

from riot_ops.connectors.batched_sink import BatchedSink
from riot_ops.connectors.http import HTTPConnection
from riot_ops.connectors.line_protocol import encode_lines
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError, ConnectorError, RecordError
from riot_ops.core.parameters import Count, Names
from riot_ops.core.schema import ERRORS_STREAM

__all__ = ["InfluxSink"]

#: By version, the path of the endpoint, the name of its database, and its names of precisions.
ENDPOINTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "1": ("/write", "db", {"ns": "ns", "us": "u", "ms": "ms", "s": "s"}),
    "2": ("/api/v2/write", "bucket", {"ns": "ns", "us": "us", "ms": "ms", "s": "s"}),
    "3": (
        "/api/v3/write_lp",
        "db",
        {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"},
    ),
}
#: By version, names that no tag and no field can have: the server drops the point or the field without an error.
RESERVED: Mapping[str, tuple[str, ...]] = {
    "1": ("time", "_field", "_measurement"),
    "2": ("time", "_field", "_measurement"),
    "3": ("time",),
}
#: Tags of rejected records.
ERROR_TAGS = ("task", "reason")


@dataclass(frozen=True, kw_only=True)
class InfluxSink(HTTPConnection, BatchedSink):
    r"""Writes the records of streams to InfluxDB, or to another server that takes its line protocol.

    A point with the measurement, tags and time of an earlier one replaces its fields, so that records that are sent
    again after a crash appear once. For the same reason records of one time need a tag that tells them apart.

    A tag that is null or empty is left out, and so is a field that is null, NaN or infinite; a record without any field
    makes no point. Integers keep their type (``7i``, ``7u``); times, bytes (Base64), lists and structs (JSON) are text.
    A record without a time gets that of the server. What line protocol has no form for, such as a line break in a tag,
    ends the run with :class:`~riot_ops.ConnectorError`.

    Parameters
    ----------
    url : str
        Address of the server, such as ``http://localhost:8086``; the path of the endpoint is added.
    database : str
        Database, with ``api="2"`` the bucket.
    org : str or None
        Organisation, with ``api="2"``.
    api : "1", "2" or "3", default "2"
        Version of the interface: ``/write``, ``/api/v2/write`` or ``/api/v3/write_lp``.
    measurement : str, default "{stream}"
        Template of the measurement.
    tags : tuple of str, default ()
        Fields that become tags.
    fields : tuple of str, default all others
        Fields that become fields; by default all but tags, time, ``seq`` and those of the measurement.
    time : str or None, default "event_time"
        Field with the time; None: that of the server.
    time_unit : "ns", "us", "ms" or "s", default "us"
        Precision of the times that are sent.
    batch_size : int, >= 1, default 5000
        Maximum number of records in a request. Fewer are sent at the end of an epoch or micro-batch.
    username, password, token, headers, compression, ca_file, certificate, private_key, timeout, retry
        As for :class:`~riot_ops.connectors.http.HTTPConnection`.

    Examples
    --------
    >>> from riot_ops import Secret
    >>> sink = InfluxSink(url="http://localhost:8086", database="plant", org="hall", tags=("device",),
    ...                   token=Secret.env("INFLUX_TOKEN"))
    >>> rows = pa.RecordBatch.from_pydict({"device": ["a"], "value": [21.5]})
    >>> InfluxSink(url="http://localhost:8086", database="plant", tags="device", time=None).lines("air", rows)
    b'air,device=a value=21.5\n'
    """

    database: str
    org: str | None = None
    api: Literal["1", "2", "3"] = "2"
    measurement: str = "{stream}"
    tags: Names = ()
    fields: Names = ()
    time: str | None = "event_time"
    time_unit: Literal["ns", "us", "ms", "s"] = "us"
    batch_size: Count = 5000

    def validate(self) -> None:
        super().validate()
        parts = urlsplit(self.url)
        if parts.query or parts.path.strip("/"):
            raise ConfigError(f"url must have neither path nor parameters, which InfluxSink adds, got {self.label!r}")
        if not self.database:
            raise ConfigError("database must not be empty")
        if (self.org is not None) and self.api != "2":
            raise ConfigError(f"org is for api='2', got api={self.api!r}")
        if twice := sorted({*self.tags} & {*self.fields}):
            raise ConfigError(f"{twice[0]!r} is both in tags and in fields; give it once")
        template(self.measurement)

    @property
    def place_options(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("url", "api", "database", "org") if self.api == "2" else ("url", "api", "database")

    @property
    def token_scheme(self) -> str:  # type: ignore[override]
        return "Bearer" if self.api == "3" else "Token"

    def check_stream(self, stream: str, schema: pa.Schema) -> None:
        if stream == ERRORS_STREAM:
            return
        needed = [*self.tags, *self.fields, *template(self.measurement).fields, *([self.time] if self.time else [])]
        for name in needed:
            if name not in schema.names and name != "stream":
                remedy = "; give time=None for the server's time" if name == self.time else ""
                raise ConfigError(f"InfluxSink reads the field {name!r}, which the stream {stream!r} lacks{remedy}")
        for name in (*self.tags, *self._field_names(schema.names)):
            if name in RESERVED[self.api]:
                raise ConfigError(
                    f"InfluxDB drops records with a tag or field named {name!r}, which the stream {stream!r} has: "
                    "rename it in a task, or leave it out of tags and fields"
                )
        if self.time is not None and not pa.types.is_timestamp(schema.field(self.time).type):
            raise ConfigError(
                f"the time of the stream {stream!r}, {self.time!r}, must be a timestamp, "
                f"got {schema.field(self.time).type}"
            )
        for name in self.tags:
            if pa.types.is_nested(schema.field(name).type):
                raise ConfigError(
                    f"the tag {name!r} of the stream {stream!r} must be one value, not {schema.field(name).type}"
                )

    def _field_names(self, names: Sequence[str]) -> list[str]:
        """Return the columns that become fields."""
        others = (*self.tags, self.time, "seq", *template(self.measurement).fields)
        return list(self.fields) or [name for name in names if name not in others]

    def lines(self, stream: str, batch: pa.RecordBatch) -> bytes:
        """Return records in line protocol."""
        names, tags, time = batch.schema.names, tuple(self.tags), self.time
        made = template(self.measurement)
        fields = self._field_names(names)
        if stream == ERRORS_STREAM:
            made, tags, time = template("{stream}"), ERROR_TAGS, "event_time"
            fields = [n for n in names if n not in (*tags, time)]
        named, is_one = batch, False
        if "stream" not in names:
            named = batch.append_column("stream", pa.array([stream] * batch.num_rows, pa.string()))
            is_one = batch.num_rows > 0 and not set(made.fields) - {"stream"}
        measurements = made.render(named.slice(0, 1) if is_one else named)
        return encode_lines(
            batch,
            measurements[0] or "" if is_one else measurements,
            tags,
            fields,
            time,
            time_unit=self.time_unit,
            unsigned=self.api != "1",
        )

    def send_batch(self, stream: str, batch: pa.RecordBatch, label: str) -> None:
        try:
            body = self.lines(stream, batch)
        except RecordError as error:
            raise ConnectorError(f"a record of the stream {stream!r} cannot be sent to {self.label}: {error}") from None
        if not body:
            return
        path, database, precisions = ENDPOINTS[self.api]
        options = {database: self.database, "precision": precisions[self.time_unit]}
        if self.org is not None:
            options["org"] = self.org
        if self.api == "3":
            options["accept_partial"] = "false"  # a batch is written whole or not at all
        url = f"{self.url.rstrip('/')}{path}?{urlencode(options)}"
        what = f"a batch of {batch.num_rows:,} records of the stream {stream!r}"
        self.send("POST", url, body, {"Content-Type": "text/plain; charset=utf-8"}, what)
