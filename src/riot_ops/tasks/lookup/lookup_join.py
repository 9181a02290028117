"""Join with a static table."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, excerpt, value_text
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.arrow import valid_mask
from riot_ops.kernels.arrays.hashing import hash_keys
from riot_ops.kernels.arrays.index import KeyIndex
from riot_ops.kernels.arrays.rows import filter_rows, take_or_null
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["LookupJoin"]

#: Limit for the size of a table file in bytes.
MAX_BYTES = 512 << 20


@register
@dataclass(frozen=True, kw_only=True)
class LookupJoin(StatelessTask):
    """Join each record with the row of a static table for its key, such as the campaign of an advertisement.

    Parameters
    ----------
    field : str
        Text field with the key.
    table : str, or mapping of str to (str or sequence of str)
        Path of a CSV file in UTF-8 whose first line names its columns, at most 512 MB; or the row of each key.
    columns : tuple of str, default ()
        Text columns to add: for a file, by default all except the key; for a mapping, a name for each value.
    key : str or None, default None
        Column of the file with the key; None: the one with the same name as the field.
    missing : "drop", "null" or "reject", default "drop"
        What to do with a record whose key the table lacks: drop it, add nulls, or send it to the errors stream.

    Shapes and rates
    ----------------
    text[n] -> text[m] in each column, 1:0/1; O(1) time, no state. Each process reads the table once per version of the
    file.

    Missing values
    --------------
    A null key is in no table.

    Errors
    ------
    With ``missing="reject"``: ``unknown_key``. A table that cannot be read, or has a key twice or rows of different
    lengths, is a configuration error.

    References
    ----------
    .. [1] S. Chintapalli et al., *Benchmarking Streaming Computation Engines*, IPDPSW 2016: the join of the Yahoo
       streaming benchmark.

    Examples
    --------
    >>> join = LookupJoin(field="ad_id", table={"a1": "c1", "a2": "c1"}, columns=("campaign_id",)).session()
    >>> join.push_many([{"ad_id": "a2"}, {"ad_id": "a3"}])
    [{'ad_id': 'a2', 'campaign_id': 'c1'}]
    """

    code: ClassVar[str] = "LKJ"
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "1:0/1"

    field: str
    table: Any
    columns: tuple[str, ...] = ()
    key: str | None = None
    missing: Literal["drop", "null", "reject"] = "drop"

    def validate(self) -> None:
        if not isinstance(self.table, str):
            object.__setattr__(self, "table", _normalized_rows(self.table))
            if self.key is not None:
                raise ConfigError(
                    f"key = {self.key!r} names a column of a file, but table is a mapping with its own keys"
                )
        width = len(self.rows.columns)
        if len(set(self.columns)) < len(self.columns) or self.field in self.names or len(self.names) != width:
            raise ConfigError(f"columns must be {width} distinct names other than that of the field, got {self.names}")

    @property
    def rows(self) -> IndexedTable:
        """The table in use."""
        return (
            _stored_table(self.table, self.key or self.field, self.columns) if self._is_file else _table_of(self.table)
        )

    @property
    def _is_file(self) -> bool:
        return isinstance(self.table, str)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are added."""
        return self.columns or self.rows.names

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def writes(self) -> frozenset[str] | None:
        return frozenset(self.names)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.names:
            schema = with_field(schema, pa.field(name, pa.string()))
        return schema

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        rows = self.rows
        column = batch.column(self.field)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        places = rows.places.find(*hash_keys([column], batch.num_rows))
        known = places >= 0
        if column.null_count:
            known &= valid_mask(column)
        if not known.all():
            if self.missing == "reject":
                dead.reject(batch, ~known, "unknown_key", f"{self.field} is not in the table")
            if self.missing != "null":
                batch, places, known = filter_rows(batch, known), places[known], known[known]
        for name, values in zip(self.names, rows.columns, strict=True):
            batch = replace_column(batch, name, take_or_null(values, places, known))
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        table = {"a": ("x", ""), "": ("é", "1"), "ü": ("a,b", "x")}
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(5), pa.int64()), "key": ["a", "", None, "ü", "gone"], "x": [1] * 5}
        )
        for missing in ("drop", "null", "reject"):
            yield Case(cls(field="key", table=table, columns=("x", "y"), missing=missing), batch, missing)


class IndexedTable(NamedTuple):
    """A table in use: its columns, and the row of each key."""

    names: tuple[str, ...]
    places: KeyIndex
    columns: list[pa.Array]


TableRows = tuple[tuple[str, tuple[str, ...]], ...]


def _normalized_rows(table: Any) -> TableRows:
    """Normalise a mapping (or its normal form) to sorted rows, so that equal tables make equal tasks."""
    pairs = list(table.items()) if isinstance(table, Mapping) else table
    if (
        not isinstance(pairs, Sequence)
        or not pairs
        or not all(isinstance(one, Sequence) and len(one) == 2 for one in pairs)
    ):
        raise ConfigError(f"table must be a path or a non-empty mapping of text to texts, got {value_text(table)}")
    rows = [(key, (row,) if isinstance(row, str) else row) for key, row in pairs]
    for key, row in rows:
        if not isinstance(row, Sequence) or not all(isinstance(text, str) for text in (key, *row)):
            raise ConfigError(f"table: key and row must be texts, got {value_text(key)} and {value_text(row)}")
        if len(row) != len(rows[0][1]):
            raise ConfigError(
                f"table: the row of {key!r} has {len(row)} texts, that of {rows[0][0]!r} {len(rows[0][1])}"
            )
    if len({key for key, _ in rows}) < len(rows):
        raise ConfigError("table has a key twice")
    return tuple(sorted((key, tuple(row)) for key, row in rows))


def _indexed(names: tuple[str, ...], keys: Sequence[str], columns: Sequence[Sequence[str]], what: str) -> IndexedTable:
    index = KeyIndex()
    places = index.resolve(*hash_keys([pa.array(keys, pa.string())], len(keys)))
    again = np.flatnonzero(places != np.arange(len(keys)))
    if again.size:
        raise ConfigError(f"{what} has the key {excerpt(keys[again[0]])!r} twice")
    return IndexedTable(names, index, [pa.array(column, pa.string()) for column in columns])


@functools.lru_cache(maxsize=64)
def _table_of(table: TableRows) -> IndexedTable:
    columns = [[row[i] for _, row in table] for i in range(len(table[0][1]))]
    return _indexed((), [key for key, _ in table], columns, "lookup_join: table")


def _stored_table(path: str, key: str, columns: tuple[str, ...]) -> IndexedTable:
    """Load the table in a file, once per process and version of the file."""
    try:
        status = local_path(path, "table").stat()
    except OSError as error:
        raise ConfigError(f"lookup_join: the table {path} cannot be read: {error.strerror or error}") from None
    if status.st_size > MAX_BYTES:
        raise ConfigError(f"lookup_join: the table {path} has {status.st_size} bytes, at most {MAX_BYTES} are allowed")
    return _load_table(path, key, columns, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=16)
def _load_table(path: str, key: str, columns: tuple[str, ...], modified: int, size: int) -> IndexedTable:
    what = f"lookup_join: the table {path}"
    rows = []
    try:
        with local_path(path).open(encoding="utf-8-sig", newline="") as lines:
            table = csv.reader(lines, strict=True)
            head = next(table, [])
            for name in (key, *columns):
                if name not in head:
                    # the file may be any that a descriptor names, so its content is not shown
                    raise ConfigError(f"{what} has no column {name!r} among the {len(head)} of its first line")
            for row in table:
                if row and len(row) != len(head):
                    raise ConfigError(f"{what}: line {table.line_num} has {len(row)} cells, the header {len(head)}")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{what} cannot be read: {error}") from None
    names = columns or tuple(name for name in head if name != key)
    every = [[row[head.index(name)] for row in rows] for name in names]
    return _indexed(names, [row[head.index(key)] for row in rows], every, what)
