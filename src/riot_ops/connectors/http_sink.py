"""A sink that sends streams to an HTTP server in batches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import pyarrow as pa

from riot_ops.connectors.batched_sink import BatchedSink
from riot_ops.connectors.http import HTTPConnection
from riot_ops.connectors.senml_body import check_senml, senml_body
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError
from riot_ops.core.json_rows import json_lines
from riot_ops.core.parameters import Count, Names
from riot_ops.core.schema import ERRORS_STREAM

__all__ = ["HTTPSink"]

CONTENT_TYPES = {
    "json": "application/json",
    "jsonlines": "application/x-ndjson",
    "senml": "application/senml+json",
}


@dataclass(frozen=True, kw_only=True)
class HTTPSink(HTTPConnection, BatchedSink):
    """Sends the records of streams to an HTTP server, many in one request.

    At least once: a request that fails for a time is repeated, and the records since the last checkpoint are sent again
    after a crash. Each request has an ``Idempotency-Key``: that of a repeated request is equal if and only if run,
    place and body are, so that a server that knows it stores each request once; others recognise records by ``seq``.

    The source waits for the server. A request that the server refuses, such as with status 400, ends the run with
    :class:`~riot_ops.ConnectorError` and the server's answer.

    Parameters
    ----------
    url : str
        As for :class:`~riot_ops.connectors.http.HTTPConnection`; ``{stream}`` is the name of the stream.
    format : "json", "jsonlines" or "senml", default "json"
        Form of a body: a JSON array of objects, an object per line, or a SenML pack (RFC 8428) in JSON. JSON has no
        NaN: it becomes ``null``, and is left out in SenML. The stream of errors is sent as JSON instead of SenML.
    fields : tuple of str, default all
        The fields to send; for SenML those that become measurements, by default all but ``seq``, ``event_time`` and
        those of ``senml_name``.
    senml_name : str, default "{stream}/"
        Template of the base name of a record in SenML.
    verb : "POST" or "PUT", default "POST"
    batch_size : int, >= 1, default 1000
        Maximum number of records in a request. Fewer are sent at the end of an epoch or micro-batch.
    username, password, token, headers, compression, ca_file, certificate, private_key, timeout, retry
        As for :class:`~riot_ops.connectors.http.HTTPConnection`.

    Examples
    --------
    >>> from riot_ops import Secret
    >>> HTTPSink(url="https://example.org/{stream}", token=Secret.env("API_TOKEN"), format="jsonlines").batch_size
    1000
    """

    format: Literal["json", "jsonlines", "senml"] = "json"
    fields: Names = ()
    senml_name: str = "{stream}/"
    verb: Literal["POST", "PUT"] = "POST"
    batch_size: Count = 1000

    def validate(self) -> None:
        super().validate()
        if unknown := sorted({*template(self.url).fields} - {"stream"}):
            raise ConfigError(f"url may have the field {{stream}} only, got {{{unknown[0]}}}")
        template(self.senml_name)
        if self.format != "senml" and self.senml_name != HTTPSink.senml_name:
            raise ConfigError(f"senml_name is for format='senml', got format={self.format!r}")

    def check_stream(self, stream: str, schema: pa.Schema) -> None:
        if stream == ERRORS_STREAM:
            return
        if self.format == "senml":
            check_senml(stream, template(self.senml_name), self.fields, schema)
        for name in self.fields:
            if name not in schema.names:
                raise ConfigError(f"HTTPSink reads the field {name!r}, which the stream {stream!r} lacks")

    def send_batch(self, stream: str, batch: pa.RecordBatch, label: str) -> None:
        form = "json" if stream == ERRORS_STREAM and self.format == "senml" else self.format
        body = self._body(form, stream, batch)
        key = hashlib.blake2b(f"{self.run} {label} ".encode() + body, digest_size=16).hexdigest()
        headers = {"Content-Type": CONTENT_TYPES[form], "Idempotency-Key": key}
        url = self.url.format(stream=quote(stream, safe=""))
        self.send(self.verb, url, body, headers, f"a batch of {batch.num_rows:,} records of the stream {stream!r}")

    def _body(self, form: str, stream: str, batch: pa.RecordBatch) -> bytes:
        if form == "senml":
            return senml_body(stream, batch, template(self.senml_name), self.fields)
        lines = json_lines(batch.select(list(self.fields)) if self.fields and stream != ERRORS_STREAM else batch)
        return lines if form == "jsonlines" else b"[" + lines[:-1].replace(b"\n", b",") + b"]"
