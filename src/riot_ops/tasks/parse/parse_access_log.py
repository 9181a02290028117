"""Parsing of the access logs of web servers into records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.text.access_log import NO_NAMES, NO_REQUEST, NO_STATUS, NO_TIME, PARTS, cut_access_logs
from riot_ops.kernels.text.fast_lines import ACCESS
from riot_ops.task import Case, register
from riot_ops.tasks.parse.fast_lines import FastLineReader
from riot_ops.tasks.parse.line_cells import Cells, Mask
from riot_ops.tasks.parse.line_parser import LineParser

__all__ = ["ParseAccessLog"]

MESSAGES = {
    NO_NAMES: "no host, identity and user, with a blank after each, before a time in brackets",
    NO_TIME: "the bracket of the time is not closed",
    NO_REQUEST: "no request in double quotes after the time",
    NO_STATUS: "no status of three digits and number of bytes after a request in double quotes",
}


@register
@dataclass(frozen=True, kw_only=True)
class ParseAccessLog(LineParser):
    r"""Read a record from each line of a web server's access log, in the common or the combined format.

    A line is ``host ident user [day/Mon/year:h:m:s ±hhmm] "request" status size``, with single blanks and any text
    after a further blank. The request ends at the first double quote that a blank, a status of three digits, a blank
    and a size follow, so it may contain quotes; one after a backslash ends it only if no other does. The size is a
    number or ``-``.

    Parameters
    ----------
    schema : dict of str to (part, kind) or (part, kind, default)
        The fields of a record. A part is ``host``, ``ident``, ``user``, ``time``, ``request``, ``status``, ``size``;
        ``referrer`` and ``agent`` (the two quoted texts after the size); ``method``, ``resource`` and ``protocol`` (the
        first word of the request, the last one if it begins with ``HTTP/``, and the part between); or ``client`` (the
        user, or the host without a user). Kinds are those of :class:`ParseLines`; the kind of ``time`` is ``log``. With
        a default, which may be null, the part may be missing.
    field : str, default "payload"
        Field with the line.
    keep : tuple of str, default ()
        Fields of the input record to keep, besides those of its order and time.
    encoding, problems
        Encoding of lines of bytes, and field for the reasons why defaults replace values, see :class:`ParseLines`.

    Shapes and rates
    ----------------
    text[n] -> record[n], 1:1; O(bytes) time, no state.

    Missing values
    --------------
    The log's ``-`` is a missing value, except as host and as request: where a connection failed before its request, the
    request is the text ``-``, and its words are missing. A missing part without a default, an empty request and a null
    line are errors (``missing``).

    Errors
    ------
    ``malformed`` (not of the form above), ``missing``, ``bad_time``, ``bad_number``, ``out_of_range``,
    ``invalid_utf8``, ``invalid_encoding``: see :class:`ParseLines`.

    References
    ----------
    .. [1] Apache HTTP Server, *Log Files*: Common Log Format and Combined Log Format.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: log processing, click analytics.

    Examples
    --------
    >>> fields = {"ip": ("host", "string"), "page": ("resource", "string", None), "status": ("status", "int64")}
    >>> log = ParseAccessLog(schema=fields).session()
    >>> log.push({"payload": '192.0.2.1 - - [10/Jun/1998:12:00:01 +0000] "GET /a"b HTTP/1.0" 200 5'})
    [{'ip': '192.0.2.1', 'page': '/a"b', 'status': 200}]
    >>> log.push({"payload": '192.0.2.1 - - [10/Jun/1998:12:00:01 +0000] "-" 408 -'})
    [{'ip': '192.0.2.1', 'page': None, 'status': 408}]
    """

    code: ClassVar[str] = "PAL"
    category: ClassVar[str] = "Parse"

    def __hash__(self) -> int:
        return hash(repr(self))

    def _check_location(self, name: str, place: Any) -> None:
        if place not in PARTS:
            raise ConfigError(
                f"schema: the part of {name!r} must be one of {', '.join(PARTS)}, got {value_text(place)}"
                f"{did_you_mean(str(place), PARTS)}"
            )

    @cached_property
    def _fast_reader(self) -> FastLineReader:
        """The fast path, for lines without errors."""
        fields = {name: (self._cells(0, name), *rest) for name, (_, *rest) in self.schema.items()}
        return FastLineReader(fields, b" ", ACCESS, len(PARTS), len(PARTS), False, b"")

    def read_fast(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        return self._fast_reader.read(text)

    def _cut_lines(self, batch: pa.RecordBatch, text: pa.Array, errors: RejectedRecords) -> Cells:
        lines = _AccessLogCells(batch, text)
        lines.reject_non_text(errors)
        return lines

    def _cells(self, number: int, name: str) -> tuple[int, int]:
        part = PARTS.index(self.schema[name][0])
        return part, part

    @classmethod
    def cases(cls) -> Iterable[Case]:
        line = 'h - {} [10/Jun/1998:12:00:01 {}] "{}" {} {}'
        lines = [
            line.format("-", "+0000", "GET / HTTP/1.0", 200, 5),
            line.format("bob", "-0130", "-", 408, "-"),
            line.format("ü", "+0000", 'GET /"a" 200', "099", '7 "r" "a \\"b\\""'),
            line.format("-", "0000", "GET /", 200, 5),
            line.format("-", "+0000", "", 400, 0),
            line.format("-", "+0000", "GET /", 20, 5),
            "",
            None,
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(len(lines)), pa.int64()), "payload": lines})
        fields: dict[str, Any] = {
            "event_time": ("time", "log"),
            "request": ("request", "string"),
            "status": ("status", "int64"),
            "size": ("size", "int64", 0),
        }
        yield Case(cls(schema=fields), batch)
        names = ("host", "ident", "user", "referrer", "agent", "method", "resource", "protocol", "client")
        yield Case(cls(schema={name: (name, "string", None) for name in names}, keep=("payload",)), batch)


class _AccessLogCells(Cells):
    """A batch of lines of an access log, whose cells are the parts."""

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array) -> None:
        super().__init__(batch, lines)
        n = len(lines)
        self._starts, self._ends = np.zeros((2, len(PARTS), n), np.int64)
        self._places, self.counts = np.arange(len(PARTS)), np.full(n, len(PARTS))
        self._faults = np.zeros(n, np.int8)
        spans = (self._line_starts, self._line_ends)
        cut_access_logs(self.data, *spans, self._valid, self._starts, self._ends, self._faults)

    def reject_non_text(self, errors: RejectedRecords) -> None:
        super().reject_non_text(errors)
        for fault, message in MESSAGES.items():
            self.reject(errors, self._faults == fault, "malformed", message)
