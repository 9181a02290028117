"""Look-up of values in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.connectors.stores import open_table
from riot_ops.connectors.stores.table import Row
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import OWN_CHECK, CellIndex, Names, as_names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.rows import filter_rows, take_or_null
from riot_ops.kernels.text.csv.lines import csv_column, csv_lines
from riot_ops.kernels.text.strings import non_utf8
from riot_ops.tables import Networks, RoadNetwork, StoreTable, table_from
from riot_ops.tables.table import NO_ROW, Column, Table
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field
from riot_ops.tasks.io.store_task import reject, scratch

__all__ = ["Lookup"]

#: Characters of a key that a message shows.
MAX_SHOWN = 60

DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@register
@dataclass(frozen=True, kw_only=True)
class Lookup(StatelessTask):
    """Add to each record the values that a table has for its key, such as the room of a sensor.

    Parameters
    ----------
    table : mapping, str, or table of :mod:`riot_ops.tables`
        The values of each key, a text or a sequence of texts; the path of a CSV file whose first line names its
        columns; or a :class:`~riot_ops.tables.CSVTable` whose key has another name than the field,
        :class:`~riot_ops.tables.KeyFile` of lines ``key:value,value``, :class:`~riot_ops.tables.Networks` for
        internet addresses, :class:`~riot_ops.tables.RoadNetwork` for positions, or
        :class:`~riot_ops.tables.StoreTable` in a database or Azure Tables.
    on : tuple of str
        The text field with the key, or the fields that form it; for roads the latitude and the longitude. A row of a
        store table has a key of its own.
    columns : tuple of str, mapping of str to str, or None, default None
        The columns to add; a mapping has the column of each new field. For a table without names of columns, such as a
        mapping, a name for each value. None: all columns.
    on_missing : "null", "drop" or "reject", default "null"
        What to do with a record whose key the table lacks: add nulls or ``default``, drop it, or send it to the
        errors stream.
    default : str, or tuple of str, or None, default None
        With ``on_missing="null"``: the text for keys that the table lacks, one for all columns, or one per column.
    keep : tuple of str or None, default None
        Fields of the input record to keep, besides those of its order and time; None: all.
    coded : bool, default False
        Whether the values form dictionary columns of Arrow: the same values, but steps that process each distinct value
        once, such as :class:`RunningCount` by value, are faster.
    line : str or None, default None
        Text field with a line of comma-separated values, to which the values are appended as well.
    column : int from 0 to 65,535, or None, default None
        If given, the field ``on`` has lines of comma-separated values: the key is in this column, and the values are
        appended to the line only.

    Shapes and rates
    ----------------
    text[n] -> text[m] in each column (a store's values have the types of its schema), 1:0/1; of roads float64[n],
    float64[n] -> int64[m] or text[m]. No state. O(1) time per
    record, for networks O(log networks); of a store one look-up per distinct key of a batch, ``max_concurrency`` at a
    time.

    Missing values
    --------------
    A null key is in no table, and for a store an error. A null in ``line`` stays null. A value that the row of a store
    lacks is null.

    Errors
    ------
    With ``on_missing="reject"``: ``unknown_key``. With ``column``: ``missing`` (a null line); ``wrong_columns`` (a line
    without the column of the key, or with an open quote). ``malformed``: a line that is not UTF-8. Of a store:
    ``missing_key`` (a null in a key); ``wrong_type`` (a value that is not of the declared type). A table that cannot be
    read, has a key twice, or rows of different lengths, is a configuration error.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, tasks ANN and ATQ.
    .. [2] S. Chintapalli et al., *Benchmarking Streaming Computation Engines*, IPDPSW 2016: the join of the Yahoo
       streaming benchmark.
    .. [3] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: log processing and click analytics.

    Examples
    --------
    >>> rooms = Lookup(table={"s1": ("Rio", "roof")}, on="sensor", columns=("city", "place")).session()
    >>> rooms.push_many([{"sensor": "s1"}, {"sensor": "s2"}])
    [{'sensor': 's1', 'city': 'Rio', 'place': 'roof'}, {'sensor': 's2', 'city': None, 'place': None}]
    >>> places = Lookup(table=Networks(), on="ip", columns={"iso": "country_code", "city": "city"}, on_missing="drop")
    >>> places.session().push_many([{"ip": "203.0.113.9"}, {"ip": "10.0.0.1"}])
    [{'ip': '203.0.113.9', 'iso': 'CN', 'city': 'Wuhan'}]
    >>> ages = StoreTable(store="memory", table="doc", partition="subjects", row="{id}", schema={"age": "int64"})
    >>> ages.rows.insert([Row("subjects", "s1", {"age": 30})])
    {}
    >>> Lookup(table=ages, on_missing="reject").session().push({"id": "s1"})
    [{'id': 's1', 'age': 30}]
    """

    code: ClassVar[str] = "LKP"
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "1:0/1"

    table: Annotated[str | Mapping[Any, Any] | Table, OWN_CHECK]
    on: Names = ()
    columns: Annotated[Names | Mapping[str, str] | None, OWN_CHECK] = None
    on_missing: Literal["null", "drop", "reject"] = "null"
    default: str | tuple[str, ...] | None = None
    keep: Names | None = None
    coded: bool = False
    line: str | None = None
    column: CellIndex | None = None

    def validate(self) -> None:
        object.__setattr__(self, "table", table_from(self.table))
        object.__setattr__(self, "reentrant", self._table.reentrant)
        self._table.check_keys(self._on)
        object.__setattr__(self, "columns", self._normalized_columns())
        named = self.columns or (() if self._table.textual else self.names)  # by the caller, not by a file
        object.__setattr__(self, "replaces", frozenset(one if isinstance(one, str) else one[0] for one in named))
        if self.column is not None and (
            self.coded or any(one is not None for one in (self.columns, self.line, self.keep))
        ):
            raise ConfigError(
                "columns, line, keep and coded cannot be combined with column: the values are appended to the line only"
            )
        if self.column is not None and len(self.on) != 1:
            raise ConfigError(f"on must be the one field with the line where column is given, got {self.on!r}")
        text_only = (self.default, self.line, self.column, self.coded or None)
        if not self._table.textual and any(one is not None for one in text_only):
            raise ConfigError(
                f"default, line, column and coded are for tables of texts, not for {type(self._table).__name__}"
            )
        if self.line is not None and self.line in (*self.on, *self.names):
            raise ConfigError(f"line must not be {self.line!r}, a field of the key or of a value")
        if self.default is not None and self.on_missing != "null":
            raise ConfigError(f"default is for on_missing='null', got {self.default!r} with {self.on_missing!r}")
        if isinstance(self.default, tuple) and len(self.default) != self._width:
            raise ConfigError(f"default must be one text, or {self._width}, one per value; got {self.default!r}")

    def _normalized_columns(self) -> tuple[Any, ...] | None:
        given, known = self.columns, self._table.names(self._on)
        if given is None:
            if known is None and self.column is None:
                raise ConfigError(f"columns must be {self._table_width} distinct names, one per value of the table")
            return None
        pairs = given.items() if isinstance(given, Mapping) else (given,) if isinstance(given, str) else given
        try:
            columns = tuple(one if isinstance(one, str) else (one[0], one[1]) for one in pairs)
        except (TypeError, IndexError):
            raise ConfigError(f"columns must be names, or map fields to columns, got {value_text(given)}") from None
        names = [one if isinstance(one, str) else one[0] for one in columns]
        renamed = any(not isinstance(one, str) for one in columns)
        if known is None and (renamed or len(names) != self._table_width):
            raise ConfigError(
                f"columns must be {self._table_width} distinct names, one per value of the table; got {given!r}"
            )
        if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
            raise ConfigError(f"columns must be distinct names, got {given!r}")
        if not renamed and set(names) & set(self.on):
            raise ConfigError(f"columns must be names other than those of the key {self.on!r}, got {given!r}")
        for one in columns:
            source = one if isinstance(one, str) else one[1]
            if known is not None and source not in known:
                hint = did_you_mean(str(source), known)
                raise ConfigError(f"columns: the table has no column {source!r}{hint}")
        return columns

    @property
    def _table(self) -> Table:
        return cast("Table", self.table)

    @property
    def _on(self) -> tuple[str, ...]:
        return as_names(self.on)

    @property
    def _table_width(self) -> int:
        return self._table.width(self._on)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields that are added."""
        if self.column is not None:
            return ()
        if self.columns is None:
            return self._table.names(self._on) or ()
        return tuple(one if isinstance(one, str) else one[0] for one in self.columns)

    @cached_property
    def _wanted(self) -> tuple[str, ...] | None:
        """The wanted columns of the table, those of its first version; None: all of a table without names."""
        if (known := self._table.names(self._on)) is None:
            return None
        return known if self.columns is None else tuple(one if isinstance(one, str) else one[1] for one in self.columns)

    @property
    def _width(self) -> int:
        return self._table_width if self.column is not None else len(self.names)

    @property
    def _line(self) -> str | None:
        """The field with the line to which values are appended."""
        return self.line if self.column is None else self.on[0]

    def requires(self) -> Mapping[str, Requirement]:
        kept: dict[str, Requirement] = dict.fromkeys(self.keep or (), "any")
        lines: dict[str, Requirement] = {} if self.line is None else {self.line: "text"}
        return {**kept, **self._table.requires(self._on), **lines}

    def writes(self) -> frozenset[str] | None:
        return frozenset({*self.names, *([] if self._line is None else [self._line])})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        self._table.check_input(schema)
        schema = pa.schema([schema.field(name) for name in self._kept_fields(schema.names)])
        types = self._table.types(self._wanted, self._on) if self.names else ()
        for name, dtype in zip(self.names, types, strict=True):
            schema = with_field(schema, pa.field(name, DICTIONARY if self.coded else dtype))
        return schema if self._line is None else with_field(schema, pa.field(self._line, pa.string()))

    def _kept_fields(self, names: list[str]) -> list[str]:
        lines = [] if self.line is None else [self.line]
        return names if self.keep is None else list(dict.fromkeys([*carried_fields(names), *self.keep, *lines]))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        if self.column is not None:
            batch, keys = self._keys_of_lines(batch, self.column, errors)
        else:
            if self.line is not None:
                batch = _valid_lines(batch, self.line, errors)
            keys = [batch.column(name) for name in self.on]
        found = self._table.look_up(batch, keys, self._wanted, self._on)
        rows, known = found.rows, found.rows != NO_ROW
        passed = np.ones(batch.num_rows, np.bool_)
        if found.failures:
            passed = reject(batch, dict(found.failures), errors)
        if self.on_missing != "null" and not known.all():
            if self.on_missing == "reject":
                missing = np.flatnonzero(~known & passed)
                errors.reject(batch, missing, "unknown_key", self._messages(keys, missing))
            passed &= known
        batch = batch.select(self._kept_fields(batch.schema.names))
        if not passed.all():
            batch, rows, known = filter_rows(batch, passed), rows[passed], known[passed]
        for i, (name, column) in enumerate(zip(self.names, found.columns, strict=False)):
            batch = replace_column(batch, name, self._values(column, i, rows, known))
        if self._line is None:
            return batch
        lines = pc.utf8_rtrim(_text(batch.column(self._line)).cast(pa.string()), "\r\n")
        cells = [self._cells(column, i, rows, known) for i, column in enumerate(found.columns)]
        return replace_column(batch, self._line, pc.binary_join_element_wise(lines, *cells, ","))

    def _messages(self, keys: Sequence[pa.Array], rows: npt.NDArray[np.int64]) -> pa.StringArray | str:
        """Describe the key of each of some rows, which is not in the table."""
        if not keys:  # a row of a store, whose key is a template
            return "the key is not in the table"
        names = self.on if self.column is None else [f"column {self.column} of {self.on[0]}"]
        shown = [
            pc.binary_join_element_wise(f"{name} = ", _shown(_text(key.take(pa.array(rows)))), "")
            for name, key in zip(names, keys, strict=True)
        ]
        return pc.binary_join_element_wise(pc.binary_join_element_wise(*shown, ", "), " is not in the table", "")

    def _values(self, column: Column, i: int, rows: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
        if self.coded and self.default is None:
            return _dictionary_column(column, rows, known)
        values = take_or_null(column.values, rows, known)
        if self.default is not None and not known.all():
            values = pc.if_else(pa.array(known), values, self._default(i))
        return values.dictionary_encode() if self.coded else values

    def _cells(self, column: Column, i: int, rows: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
        default = csv_lines([pa.array([self._default(i)], pa.string())])[0].as_py()
        return pc.fill_null(take_or_null(column.quoted, rows, known), default)

    def _default(self, i: int) -> str:
        return self.default[i] if isinstance(self.default, tuple) else self.default or ""

    def _keys_of_lines(
        self, batch: pa.RecordBatch, cell: int, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch, Sequence[pa.Array]]:
        field = self.on[0]
        lines = _text(batch.column(field))
        invalid = non_utf8(lines)
        keys, found = csv_column(lines, cell)
        null = np.asarray(lines.is_null())
        errors.reject(batch, null, "missing", f"{field} is null", lines)
        errors.reject(batch, invalid, "malformed", f"{field} is not UTF-8", lines)
        errors.reject(batch, ~found & ~null & ~invalid, "wrong_columns", f"{field} has no column {cell}", lines)
        good = found & ~invalid
        return (batch, [keys]) if good.all() else (batch.filter(pa.array(good)), [keys.filter(pa.array(good))])

    @classmethod
    def cases(cls) -> Iterable[Case]:
        table = {"a": ("x", ""), "": ("é", "1"), "ü": ('q"', "b, c")}
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(5), pa.int64()), "key": ["a", "", None, "ü", "gone"], "x": [1] * 5}
        )
        for on_missing in ("null", "drop", "reject"):
            yield Case(cls(table=table, on=("key",), columns=("x", "y"), on_missing=on_missing), batch, on_missing)
        several = {("a", "1"): "x", ("ü", "1"): "y"}
        pairs = batch.append_column("other", pa.array(["1", "1", "1", "1", "2"]))
        yield Case(cls(table=several, on=("key", "other"), columns="place", default="?"), pairs, "two fields")
        lines = ["1,a,2", None, "1", '5,"ü"\r\n', '1,"open', "1,,", "", "1,stranger,3"]
        payload = pa.array([None if text is None else text.encode() for text in lines] + [b"\xff,a"], pa.binary())
        texts = pa.RecordBatch.from_pydict({"payload": payload})
        yield Case(cls(table=table, on=("payload",), column=1, default=("?", "a,b")), texts, "line")
        both = texts.append_column("key", pa.array(["a", "", "ü", None] * 2 + ["a"]))
        task = cls(table=table, on=("key",), line="payload", columns=("place", "floor"), default="")
        yield Case(task, both, "fields and line")
        addresses = ["203.0.113.9", "198.18.0.1", "10.0.0.1", None, "", "192.0.2.256", "192.0.2.07", "ü", "::1"]
        where = pa.RecordBatch.from_pydict({"seq": pa.array(range(9), pa.int64()), "ip": addresses})
        renamed = {"ip": "country", "code": "country_code", "city": "city"}
        yield Case(cls(table=Networks(), on=("ip",), columns=renamed), where, "networks")
        yield Case(cls(table=Networks(), on=("ip",), coded=True, keep=()), where, "coded")
        store = f"sqlite:///{scratch() / 'lookup.db'}"
        with open_table(store, "cases") as stored:
            stored.insert(
                [
                    Row("p", "a", {"x": 1.5, "text": "ü", "n": 7}),
                    Row("p", "=C3=BC=2F", {"text": ""}),
                    Row("p", "wrong", {"x": "warm"}),
                ]
            )
        schema = {"x": "double", "text": "string", "n": "int64"}
        rows = StoreTable(store=store, table="cases", partition="p", row="{key}", schema=schema)
        keys = pa.RecordBatch.from_pydict({"key": ["a", "ü/", None, "gone", "wrong", "a", ""], "x": list("abcdefg")})
        positions = pa.RecordBatch.from_pydict(
            {
                "latitude": [39.6983, 39.6982, 40.0, None, float("nan"), float("inf"), 39.6983, 0.0],
                "longitude": [116.3, 116.25, 116.65, 116.3, 116.3, 116.3, float("-inf"), 0.0],
            }
        )
        where = ("latitude", "longitude")
        yield Case(cls(table=RoadNetwork(), on=where, on_missing="drop"), positions, "roads")
        wide = RoadNetwork(road_width=500.0, tolerance=300.0)
        yield Case(cls(table=wide, on=where, columns={"latitude": "road_id"}), positions, "roads, null")
        yield Case(cls(table=rows, on_missing="reject"), keys, "store")
        yield Case(cls(table=rows), keys, "store, null")


def _text(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _shown(values: pa.Array) -> pa.StringArray:
    """Return values as texts of a message: texts in quotes, shortened."""
    if pa.types.is_primitive(values.type):
        return values.cast(pa.string()).fill_null("null")
    if not pa.types.is_string(values.type):
        texts = (v.decode("utf-8", "replace") if isinstance(v, bytes) else v and str(v) for v in values.to_pylist())
        values = pa.array(texts, pa.string())
    short = pc.utf8_slice_codeunits(values, 0, MAX_SHOWN)
    return pc.binary_join_element_wise("'", short, "'", "").fill_null("null")


def _valid_lines(batch: pa.RecordBatch, line: str, errors: RejectedRecords) -> pa.RecordBatch:
    lines = _text(batch.column(line))
    invalid = non_utf8(lines)
    if not invalid.any():
        return batch
    errors.reject(batch, invalid, "malformed", f"{line} is not UTF-8", lines)
    return batch.filter(pa.array(~invalid))


def _dictionary_column(column: Column, rows: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
    """Return values as a dictionary column, null where unknown."""
    codes, values = column.coded
    if known.all():
        return pa.DictionaryArray.from_arrays(pa.array(codes[rows]), values, safe=False)
    codes = np.append(codes, np.int32(0))[rows]  # also for a table without rows
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=~known), values, safe=False)
