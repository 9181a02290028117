"""CSV lines to SenML messages."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_encoding
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.csv.senml_writer import BAD_TIME, OK, OPEN_QUOTE, WRONG_COLUMNS, csv_to_senml
from riot_ops.kernels.text.encodings import to_utf8
from riot_ops.kernels.text.strings import name_table, non_utf8, without_marks
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["CSVToSenML"]


@register
@dataclass(frozen=True, kw_only=True)
class CSVToSenML(StatelessTask):
    """Convert lines of comma-separated values into SenML messages, for ``ParseSenML`` or for publishing.

    ``{"e":[{"n":name,"u":unit,"v":number or "sv":text},…],"bt":milliseconds}``, one entry per
    column in schema order, the time column as base time.

    Parameters
    ----------
    schema : str or StreamSchema, default "city"
        The columns, their units and kinds, and which of them holds the time; or the name of one of
        the schemas in :data:`riot_ops.core.schema.SCHEMAS`.
    field : str, default "payload"
        Field with the line; it is replaced by the message.
    delimiter : str, default ","
        One ASCII character between the columns. A column in double quotes may contain the delimiter,
        line breaks, and doubled quotes.
    encoding : str, default "utf-8"
        Encoding of lines of bytes, by a name that Python knows, such as "latin-1"; columns of text have none.

    Shapes and rates
    ----------------
    text[n] -> text[n], 1:1; O(bytes) time, no state.

    Missing values
    --------------
    An empty column, or one with the text ``null``, gets no entry. A column of kind ``v`` whose text
    is not a finite number below 1e308 becomes a text value, so that nothing is lost.

    Errors
    ------
    ``wrong_columns`` (more or fewer than the schema has), ``bad_time`` (neither integer
    milliseconds nor an ISO date-time; a time without an offset is UTC, and digits below a
    millisecond are cut off), ``malformed`` (an open quote, a second line, text that is not UTF-8),
    ``invalid_encoding`` (text that is not in another encoding), ``missing`` (null).

    References
    ----------
    .. [1] C. Jennings et al., *Sensor Measurement Lists (SenML)*, RFC 8428; the message form is
       that of its drafts, as in RIoTBench.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task C2S.

    Examples
    --------
    >>> c2s = CSVToSenML(schema="grid").session()
    >>> c2s.push({"payload": "m1,1970-01-01T00:00:01Z,2.50"})[0]["payload"]
    '{"e":[{"n":"meterid","u":"string","sv":"m1"},{"n":"energyconsumed","u":"kWh","v":2.50}],"bt":1000}'
    >>> c2s.push({"payload": "m1,1000"}), c2s.errors[0]["message"]
    ([], '2 columns, the schema grid has 3')
    """

    code: ClassVar[str] = "C2S"
    category: ClassVar[str] = "Parse"

    schema: str | StreamSchema = "city"
    field: str = "payload"
    delimiter: str = ","
    encoding: str = "utf-8"

    def validate(self) -> None:
        stream_schema(self.schema)
        check_encoding(self.encoding)
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ConfigError(
                "csv_to_senml: delimiter must be one ASCII character other than a quote or a "
                f"line break, got {self.delimiter!r}"
            )

    @property
    def columns(self) -> StreamSchema:
        """The stream schema in use."""
        return stream_schema(self.schema)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.field, pa.string()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.field})

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        schema = self.columns
        raw = batch.column(self.field)
        lines, wrong_encoding = to_utf8(raw.cast(pa.binary()) if pa.types.is_null(raw.type) else raw, self.encoding)
        lines = without_marks(lines)
        data, starts, ends, valid = byte_spans(lines)
        null = ~valid & ~wrong_encoding if valid.size else np.zeros(batch.num_rows, np.bool_)
        invalid = non_utf8(lines)
        skip = null | invalid | wrong_encoding
        ends = readonly(np.where(skip, starts, ends)) if skip.any() else ends
        heads, head_starts, head_ends, numeric = _heads(schema.columns, schema.units, schema.kinds)
        used = data[int(starts[0]) : int(ends.max())] if starts.size else data
        escapes = int(np.count_nonzero((used < 32) | (used == 34) | (used == 92)))
        room = batch.num_rows * (heads.size + 24 + len(schema.columns) * 16) + used.size + 5 * escapes
        out = np.empty(room, np.uint8)
        offsets = np.empty(batch.num_rows + 1, np.int64)
        problems = np.empty(batch.num_rows, np.int8)
        counts = np.empty(batch.num_rows, np.int64)
        longest = int((ends - starts).max()) if starts.size else 0
        time_column = schema.columns.index(schema.time_field)
        csv_to_senml(
            data,
            starts,
            ends,
            ord(self.delimiter),
            numeric,
            time_column,
            heads,
            head_starts,
            head_ends,
            np.empty(longest + 1, np.uint8),
            out,
            offsets,
            problems,
            counts,
        )
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError(f"a batch makes {offsets[-1]} bytes of messages, more than 2 GiB: use smaller batches")
        problems[skip] = OK
        errors.reject(batch, null, "missing", f"{self.field} is null", raw)
        errors.reject(batch, invalid, "malformed", f"{self.field} is not UTF-8", raw)
        errors.reject(batch, wrong_encoding, "invalid_encoding", f"{self.field} is not {self.encoding}", raw)
        wrong = np.flatnonzero(problems == WRONG_COLUMNS)
        wanted = f"the schema {schema.name} has {len(schema.columns)}"
        errors.reject(batch, wrong, "wrong_columns", [f"{n} columns, {wanted}" for n in counts[wrong]], raw)
        errors.reject(
            batch, problems == OPEN_QUOTE, "malformed", "a quote is not closed, or the text has more than one line", raw
        )
        errors.reject(
            batch,
            problems == BAD_TIME,
            "bad_time",
            f"{schema.time_field} is neither integer milliseconds nor an ISO date-time",
            raw,
        )
        messages = pa.Array.from_buffers(
            pa.string(),
            batch.num_rows,
            [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out[: offsets[-1]])],
        )
        result = replace_column(batch, self.field, messages)
        keep = (problems == OK) & ~skip
        return result if keep.all() else result.filter(pa.array(keep))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "payload": [
                    "m1,1000,2.5",
                    None,
                    "",
                    "m2,2013-01-14 00:00:00,null",
                    '"a ""ü"", b",5,+.5',
                    "m,1",
                    "m,1,2,3",
                    '"open,1,2',
                    "m,never,1",
                    "null,-5,NaN",
                    "m\\\t,7,1e999\n",
                ]
            }
        )
        yield Case(cls(schema="grid"), batch)
        raw = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3], pa.int64()),
                "payload": pa.array([b"1422748800000;s;1;2;3;4;5;6;7", b"\xff;s", None], pa.binary()),
            }
        )
        yield Case(cls(delimiter=";"), raw, "binary")


@functools.lru_cache(maxsize=32)
def _heads(
    names: tuple[str, ...],
    units: tuple[str, ...],
    kinds: tuple[str, ...],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the JSON text between the values, and which columns hold numbers."""
    parts = [
        f'{{"n":{json.dumps(n, ensure_ascii=False)},"u":{json.dumps(u, ensure_ascii=False)}'
        for n, u in zip(names, units, strict=True)
    ]
    table = name_table([*parts, '{"e":[', ',"sv":', ',"v":', '],"bt":'])
    return *table, readonly(np.array([kind == "v" for kind in kinds]))
