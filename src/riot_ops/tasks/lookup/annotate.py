"""Annotation of records from a table."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.core.parameters import CellIndex
from riot_ops.core.paths import local_path
from riot_ops.kernels.text.csv.lines import csv_column, csv_lines
from riot_ops.kernels.text.strings import non_utf8
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["Annotate"]

#: Limit for the size of a table in bytes, in a file or given directly.
MAX_BYTES = 256 << 20


@register
@dataclass(frozen=True, kw_only=True)
class Annotate(StatelessTask):
    """Add the values that a table has for the key of each record.

    Parameters
    ----------
    table : str, mapping, or sequence of (key, values)
        Path of a UTF-8 file of lines ``key:value,value,...`` (one colon; empty lines are
        skipped), or the values of each key: a text or a sequence of texts. All keys must have
        the same number of values. At most 256 MB.
    field : str, default "sensor_id"
        Text field with the key; with ``column``, the field with the line.
    columns : tuple of str or None, default None
        Text fields for the values; None: ``annotation``, or ``annotation_1`` and so on.
    line : str or None, default None
        Text field with a line of comma-separated values, to which the values are appended as well.
    column : int from 0 to 65,535, or None, default None
        If given, records are lines of comma-separated values: the key is in this column,
        and the values are appended to the line.
    default : str, or tuple of str, default ""
        Value for keys that the table lacks: one for all columns, or one per column.

    Shapes and rates
    ----------------
    text[n] -> text[n] with more fields, or longer lines, 1:1; O(1) time per record. Each process reads
    the table once per version of the file.

    Missing values
    --------------
    A null key is not in the table and gets the default. A null in ``line`` stays null.

    Errors
    ------
    With ``column``: ``missing`` (a null line); ``wrong_columns`` (a line without the column of the key, or
    with an open quote). ``malformed``: a line that is not UTF-8. A table that cannot be read, or has a line
    without exactly one colon, a key twice, or a wrong number of values, is a configuration error.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ANN.

    Examples
    --------
    >>> ann = Annotate(table={"s1": ("Rio", "roof")}, columns=("city", "place"), default="?").session()
    >>> ann.push_many([{"sensor_id": "s1"}, {"sensor_id": "s2"}])
    [{'sensor_id': 's1', 'city': 'Rio', 'place': 'roof'}, {'sensor_id': 's2', 'city': '?', 'place': '?'}]
    >>> line = Annotate(table={"s1": ("Rio", "roof")}, field="payload", column=1).session()
    >>> line.push_many([{"payload": "1000,s1,20.5"}, {"payload": "1000,s2,20.5"}])
    [{'payload': '1000,s1,20.5,Rio,roof'}, {'payload': '1000,s2,20.5,,'}]
    """

    code: ClassVar[str] = "ANN"
    category: ClassVar[str] = "Parse"

    table: Any
    field: str = "sensor_id"
    columns: tuple[str, ...] | None = None
    line: str | None = None
    column: CellIndex | None = None
    default: str | tuple[str, ...] = ""

    def validate(self) -> None:
        if not isinstance(self.table, str):
            object.__setattr__(self, "table", _normalized_rows(self.table))
        if self.column is not None and (self.columns, self.line) != (None, None):
            raise ConfigError(
                "columns and line cannot be combined with column: with column, the values are appended to the line only"
            )
        if self.line is not None and self.line in (self.field, *self.names):
            raise ConfigError(f"line must not be {self.line!r}, the field of the key or of an annotation")
        width = self.lookup.width
        if self.columns is not None and not len(self.columns) == width == len(set(self.columns)):
            raise ConfigError(
                f"columns must be {width} distinct names, one per value of the table; got {self.columns!r}"
            )
        if isinstance(self.default, tuple) and len(self.default) != width:
            raise ConfigError(f"default must be one text, or {width}, one per value of the table; got {self.default!r}")

    @property
    def lookup(self) -> Lookup:
        """The table in use."""
        return _stored_table(self.table) if isinstance(self.table, str) else _table_of(self.table)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields for the values."""
        width = self.lookup.width
        if self.columns is not None:
            return self.columns
        return ("annotation",) if width == 1 else tuple(f"annotation_{i + 1}" for i in range(width))

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((self.field, *self._line), "text")

    @property
    def _line(self) -> tuple[str, ...]:
        return () if self.line is None else (self.line,)

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.field} if self.column is not None else (*self.names, *self._line))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.column is not None:
            return with_field(schema, pa.field(self.field, pa.string()))
        for name in (*self.names, *self._line):
            schema = with_field(schema, pa.field(name, pa.string()))
        return schema

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        if self.column is None:
            if self.line is not None:
                batch = self._with_lines(batch, self.line, dead)
            for name, values in zip(self.names, self._values(_text(batch.column(self.field))), strict=True):
                batch = replace_column(batch, name, values)
            return batch
        lines = _text(batch.column(self.field))
        invalid = non_utf8(lines)
        keys, found = csv_column(lines, self.column)
        null = np.asarray(lines.is_null())
        dead.reject(batch, null, "missing", f"{self.field} is null", lines)
        dead.reject(batch, invalid, "malformed", f"{self.field} is not UTF-8", lines)
        short = ~found & ~null & ~invalid
        dead.reject(batch, short, "wrong_columns", f"{self.field} has no column {self.column}", lines)
        good = found & ~invalid
        if not good.all():
            batch, lines, keys = (x.filter(pa.array(good)) for x in (batch, lines, keys))
        return replace_column(batch, self.field, self._append_values(lines, keys))

    def _with_lines(self, batch: pa.RecordBatch, line: str, dead: DeadLetters) -> pa.RecordBatch:
        lines = _text(batch.column(line))
        invalid = non_utf8(lines)
        if invalid.any():
            dead.reject(batch, invalid, "malformed", f"{line} is not UTF-8", lines)
            batch, lines = (x.filter(pa.array(~invalid)) for x in (batch, lines))
        return replace_column(batch, line, self._append_values(lines, _text(batch.column(self.field))))

    def _append_values(self, lines: pa.Array, keys: pa.Array) -> pa.Array:
        lines = pc.utf8_rtrim(lines.cast(pa.string()), "\r\n")
        return pc.binary_join_element_wise(lines, *self._values(keys, self.lookup.quoted), ",")

    def _values(self, keys: pa.Array, values: Sequence[pa.Array] | None = None) -> list[pa.Array]:
        table = self.lookup
        place = pc.index_in(keys.cast(pa.binary()), value_set=table.keys)
        width = table.width
        defaults = self.default if isinstance(self.default, tuple) else (self.default,) * width
        if values is not None:
            defaults = tuple(csv_lines([pa.array([d], pa.string())])[0].as_py() for d in defaults)
        columns = table.values if values is None else values
        return [pc.fill_null(c.take(place), d) for c, d in zip(columns, defaults, strict=True)]

    @classmethod
    def cases(cls) -> Iterable[Case]:
        table = {"a": ("x", ""), "": ("é", "1"), "ü": ('q"', "b, c")}
        batch = pa.RecordBatch.from_pydict({"sensor_id": ["a", "", None, "ü", "stranger"], "other": [1] * 5})
        yield Case(cls(table=table), batch)
        yield Case(cls(table={"a": "1"}, columns=("place",), default="?"), batch, "named")
        lines = ["1,a,2", None, "1", '5,"ü"\r\n', '1,"open', "1,,", "", "1,stranger,3"]
        payload = pa.array([None if text is None else text.encode() for text in lines] + [b"\xff,a"], pa.binary())
        texts = pa.RecordBatch.from_pydict({"payload": payload})
        yield Case(cls(table=table, field="payload", column=1, default=("?", "a,b")), texts, "line")
        both = texts.append_column("sensor_id", pa.array(["a", "", "ü", None] * 2 + ["a"]))
        yield Case(cls(table=table, line="payload", columns=("place", "floor")), both, "fields and line")


class Lookup(NamedTuple):
    """A table in use: the keys, and the values of each column."""

    keys: pa.Array
    values: list[pa.Array]
    quoted: list[pa.Array]  # as written in a line

    @property
    def width(self) -> int:
        return len(self.values)


def _text(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


TableRows = tuple[tuple[str, tuple[str, ...]], ...]


def _normalized_rows(table: Any) -> TableRows:
    """Normalise a table given directly to sorted rows, so that equal tables make equal tasks."""
    try:
        pairs = table.items() if isinstance(table, Mapping) else [(key, values) for key, values in table]
        rows = [(key, (values,) if isinstance(values, str) else tuple(values)) for key, values in pairs]
        for key, values in rows:
            if not all(isinstance(text, str) for text in (key, *values)):
                raise ValueError(f"the entry {(key, values)!r} has values other than texts")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"annotate: table must be a path or map keys to texts: {error}") from None
    if sum(len(key) + sum(map(len, values)) for key, values in rows) > MAX_BYTES:
        raise ConfigError(f"annotate: table is larger than {MAX_BYTES} bytes")
    return tuple(sorted(rows))


def _lookup_of(rows: Iterable[tuple[str, tuple[str, ...]]], what: str) -> Lookup:
    keys: dict[str, tuple[str, ...]] = {}
    width = 0
    for key, values in rows:
        if key in keys:
            raise ConfigError(f"{what} has the key {excerpt(key)!r} twice")
        width = width or len(values)
        if len(values) != width or not values:
            raise ConfigError(
                f"{what} has {len(values)} values for the key {excerpt(key)!r}, {width or 'at least 1'} expected"
            )
        keys[key] = values
    if not keys:
        raise ConfigError(f"{what} is empty")
    columns = [pa.array([values[i] for values in keys.values()], pa.string()) for i in range(width)]
    return Lookup(pa.array([k.encode() for k in keys], pa.binary()), columns, [csv_lines([c]) for c in columns])


@functools.lru_cache(maxsize=64)
def _table_of(table: TableRows) -> Lookup:
    return _lookup_of(table, "annotate: table")


def _stored_table(path: str) -> Lookup:
    """Load the table in a file, once per process and version of the file."""
    try:
        status = local_path(path).stat()
    except OSError as error:
        raise ConfigError(f"annotate: the table {path} cannot be read: {error.strerror or error}") from None
    if status.st_size > MAX_BYTES:
        raise ConfigError(f"annotate: the table {path} has {status.st_size} bytes, at most {MAX_BYTES} are allowed")
    return _load_table(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=16)
def _load_table(path: str, modified: int, size: int) -> Lookup:
    rows = []
    try:
        text = local_path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"annotate: the table {path} cannot be read: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        key, colon, values = line.partition(":")
        if not colon or ":" in values:
            raise ConfigError(f"annotate: line {number} of {path} must have one colon")
        rows.append((key, tuple(values.split(","))))
    return _lookup_of(rows, f"annotate: the table {path}")
