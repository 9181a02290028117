"""Lazy rows: some rows of a batch, with some fields replaced, copied only when a step needs a batch.

For a small batch, a call of Arrow costs more than the rows do. So a filter returns the batch and the numbers of the
rows that pass. A step that reads one column or a few rows does not copy the others, and whatever is cached for the
batch, such as a column as floats, serves all lazy rows of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import float_column, readonly, replace_column
from riot_ops.kernels.arrays.rows import filter_rows, take_rows
from riot_ops.kernels.jit import kernel

__all__ = [
    "SMALL",
    "AnyRows",
    "Rows",
    "floats",
    "materialize",
    "materialize_all",
    "replace_field",
    "select",
    "take_columns",
    "take_with_fields",
]

#: Maximum number of rows of a small batch.
SMALL = 8192
#: Lazy rows that are materialized together, at most: a reference to one of them keeps the memory of all.
PAGE = 128
#: Above this number of rows, taking column by column is faster than Arrow's take of a batch.
TAKE_BY_COLUMN = 1024
#: What :meth:`pyarrow.RecordBatch.take` calls, at two thirds of the cost for few rows.
_TAKE = pc.get_function("take")

Floats = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]
Fields = Mapping[str, npt.NDArray[Any]]
NO_FIELDS: Fields = MappingProxyType({})
#: Fields that may order rows; the ordinals, which no task replaces, do so as well.
ORDERING = ("seq", "event_time")


@kernel
def any_infinite(values: Any) -> Any:
    """Whether a number is infinite; without branches."""
    found = False
    for i in range(values.size):
        found |= np.abs(values[i]) == np.inf
    return found


class Rows:
    """Some rows of a batch, with some fields replaced; part of the interface of a batch.

    Parameters
    ----------
    batch : record batch
    rows : array of int64, optional
        Row numbers in ascending order; all rows by default.
    of : Rows, optional
        All rows of the batch, whose caches are used.
    fields : mapping of str to array, optional
        New values by field: one for each row, none missing.
    ordered : bool, optional
        Whether the rows of the batch are in order; None until the first keyed step that reads it has checked.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> some = Rows(batch, np.array([0, 2]))
    >>> some.num_rows, some.column("key").to_pylist(), floats(some, "value")[0].tolist()
    (2, ['a', 'c'], [1.0, 3.0])
    >>> Rows(batch, np.array([0, 2]), fields={"value": np.array([7.0, 8.0])}).materialize().to_pylist()
    [{'key': 'a', 'value': 7.0}, {'key': 'c', 'value': 8.0}]
    """

    __slots__ = (
        "_all_rows", "_floats", "_infinite", "_names", "_schema", "batch", "fields", "hashes", "is_batch",
        "materialized", "num_rows", "ordered", "rows",
    )  # fmt: skip

    def __init__(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[np.int64] | None = None,
        of: Rows | None = None,
        *,
        fields: Fields = NO_FIELDS,
        ordered: bool | None = None,
    ) -> None:
        self.batch = batch
        self.rows = rows
        self.fields = fields
        self.num_rows: int = batch.num_rows if rows is None else rows.size
        self.ordered = ordered
        #: Key hashes of all rows, by the fields of the key.
        self.hashes: dict[tuple[str, ...], tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]] = {}
        copied = rows is not None or fields
        #: Whether these are all rows of the batch, with its own fields.
        self.is_batch = not copied
        self._all_rows = of if of is not None or not copied else Rows(batch)
        self._names: list[str] | None = None
        self._schema: pa.Schema | None = None
        self._floats: dict[str, Floats] = {}
        self._infinite: dict[str, bool] = {}
        #: The rows as a batch, once they are copied.
        self.materialized: pa.RecordBatch | None = None if copied else batch

    @property
    def all_rows(self) -> Rows:
        """All rows of the batch, with its own fields."""
        return self if self._all_rows is None else self._all_rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        if not self.fields:
            return self.batch.schema
        if self._schema is None:
            none = {name: values[:0] for name, values in self.fields.items()}
            self._schema = _replace_fields(self.batch.slice(0, 0), none).schema
        return self._schema

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        if self._names is None:
            if self._all_rows is None:
                self._names = self.batch.schema.names
            else:
                own = self._all_rows.names
                self._names = [*own, *[name for name in self.fields if name not in own]] if self.fields else own
        return self._names

    def column(self, name: str) -> pa.Array:
        """Return the values of a field."""
        if self.materialized is not None:
            return self.materialized.column(name)
        if name in self.fields:
            return pa.array(self.fields[name])
        column = self.batch.column(name)
        return column if self.rows is None else column.take(pa.array(self.rows))

    def floats(self, name: str) -> Floats:
        """Return the values of a field as :func:`float_column` gives them."""
        found = self._floats.get(name)
        if found is None:
            if name in self.fields or self._all_rows is None:
                found = float_column(self.column(name))
            elif self.rows is None:
                found = self.all_rows.floats(name)
            else:
                values, valid = self.all_rows.floats(name)
                found = readonly(values[self.rows]), readonly(valid[self.rows]) if valid.size else valid
            self._floats[name] = found
        return found

    def has_infinite(self, name: str) -> bool:
        """Whether a field has an infinite value."""
        if name not in self._infinite:
            self._infinite[name] = any_infinite(self.floats(name)[0])
        return self._infinite[name]

    def may_have_infinite(self, name: str) -> bool:
        """Whether a field has an infinite value in the rows or, which is known sooner, in the whole batch."""
        return (self if self.is_batch or name in self.fields else self.all_rows).has_infinite(name)

    def select(self, passes: npt.NDArray[np.bool_]) -> Rows:
        """Select the rows that pass."""
        positions = passes.nonzero()[0]
        return self if positions.size == self.num_rows else self.take(positions)

    def take(self, positions: npt.NDArray[np.int64], fields: Fields = NO_FIELDS) -> Rows:
        """Take rows, by ascending positions, and replace some fields by ``fields``, with one value for each."""
        if positions.size == self.num_rows:  # all, as they ascend
            rows = self.rows
        else:
            rows = positions if self.rows is None else self.rows[positions]
        if self.fields:
            fields = {**{name: values[positions] for name, values in self.fields.items()}, **fields}
        return Rows(self.batch, rows, self._all_rows or self, fields=fields)

    def inherit(self, given: Rows) -> None:
        """Take over the key hashes of a batch from which this one has the columns of the key, not copied."""
        if self.num_rows == given.num_rows and self.is_batch and given.is_batch:
            for fields, found in given.hashes.items():
                if all(name in self.names and _is_same(self.column(name), given.column(name)) for name in fields):
                    self.hashes[fields] = found

    def materialize(self) -> pa.RecordBatch:
        """Return the rows as a batch; copied once."""
        if self.materialized is None:
            batch = self.batch if self.rows is None else take_columns(self.batch, self.rows)
            self.materialized = _replace_fields(batch, self.fields)
        return self.materialized

    def page_key(self) -> tuple[Any, ...]:
        """What lazy rows have in common that can be materialized together."""
        return id(self.batch), *((name, values.dtype) for name, values in self.fields.items())


def _is_same(column: pa.Array, other: pa.Array) -> bool:
    """Whether two columns of one length are the same memory."""
    return bool(
        column.type.equals(other.type)
        and column.offset == other.offset
        and not pa.types.is_dictionary(column.type)
        and [b and b.address for b in column.buffers()] == [b and b.address for b in other.buffers()]
    )


#: Records of a stream.
AnyRows: TypeAlias = pa.RecordBatch | Rows


def materialize(rows: AnyRows | None) -> Any:
    """Return the rows as a batch; None stays None."""
    return rows if rows is None or isinstance(rows, pa.RecordBatch) else rows.materialize()


def take_with_fields(rows: AnyRows, positions: npt.NDArray[np.int64], fields: Fields) -> AnyRows:
    """Take rows, by ascending positions, and replace some fields; lazily if ``rows`` are lazy.

    ``fields`` as of :class:`Rows`.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> take_with_fields(batch, np.array([0, 2]), {"value": np.array([7.0, 8.0])}).to_pylist()
    [{'key': 'a', 'value': 7.0}, {'key': 'c', 'value': 8.0}]
    """
    if isinstance(rows, Rows):
        return rows.take(positions, fields)
    return _replace_fields(rows if positions.size == rows.num_rows else take_columns(rows, positions), fields)


def replace_field(rows: AnyRows, name: str, values: Any) -> AnyRows:
    """Replace a field, or add it, as :func:`replace_column` does; lazy rows keep everything else that they know.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": [1.0, 2.0]})
    >>> replace_field(batch, "value", np.array([7.0, np.nan])).to_pylist()
    [{'key': 'a', 'value': 7.0}, {'key': 'b', 'value': None}]
    """
    if isinstance(rows, pa.RecordBatch):
        return replace_column(rows, name, values)
    made = Rows(replace_column(rows.materialize(), name, values))
    if rows.is_batch:
        made.hashes = {fields: found for fields, found in rows.hashes.items() if name not in fields}
        made.ordered = None if name in ORDERING else rows.ordered
    return made


def materialize_all(rows: Iterable[Rows]) -> None:
    """Materialize lazy rows, those with the same :meth:`~Rows.page_key` together, as slices of one batch.

    Many that share a batch cost little more than one.
    """
    pages: dict[tuple[Any, ...], list[Rows]] = {}
    sizes: dict[tuple[Any, ...], int] = {}
    for lazy in rows:
        if lazy.materialized is None and lazy.rows is not None and lazy.num_rows:
            key = lazy.page_key()
            page = pages.setdefault(key, [])
            page.append(lazy)
            sizes[key] = sizes.get(key, 0) + lazy.num_rows
            if sizes[key] >= PAGE:
                _materialize_page(pages.pop(key))
                del sizes[key]
    for page in pages.values():
        _materialize_page(page)


def _materialize_page(page: list[Rows]) -> None:
    first = page[0]
    if len(page) == 1:
        first.materialize()
        return
    numbers = [lazy.rows for lazy in page if lazy.rows is not None]
    fields = {name: np.concatenate([lazy.fields[name] for lazy in page]) for name in first.fields}
    batch = _replace_fields(take_columns(first.batch, np.concatenate(numbers)), fields)
    at = 0
    for lazy in page:
        lazy.materialized = batch.slice(at, lazy.num_rows)
        at += lazy.num_rows


def _replace_fields(batch: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    for name, values in fields.items():
        batch = replace_column(batch, name, pa.array(values))
    return batch


def select(rows: AnyRows, passes: npt.NDArray[np.bool_]) -> AnyRows:
    """Filter rows; a small batch is not copied.

    >>> select(pa.RecordBatch.from_pydict({"n": [1, 2]}), np.array([False, True])).num_rows
    1
    """
    if rows.num_rows > SMALL:
        return rows if passes.all() else filter_rows(materialize(rows), passes)
    return (rows if isinstance(rows, Rows) else Rows(rows)).select(passes)


def take_columns(
    rows: AnyRows, positions: npt.NDArray[np.int64], fields: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Take rows by position, with all or some fields.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> take_columns(Rows(batch, np.array([0, 2])), np.array([1]), ["key"]).to_pylist()
    [{'key': 'c'}]
    """
    if isinstance(rows, Rows):
        if rows.fields:
            rows = rows.materialize()
        else:
            rows, positions = rows.batch, positions if rows.rows is None else rows.rows[positions]
    batch = rows if fields is None else rows.select(list(fields))
    if positions.size > TAKE_BY_COLUMN:
        return take_rows(batch, positions)
    return _TAKE.call([batch, pa.array(positions)]) if positions.size else batch.slice(0, 0)


def floats(rows: AnyRows, name: str) -> Floats:
    """Return a column of numbers as :func:`float_column` gives it."""
    return rows.floats(name) if isinstance(rows, Rows) else float_column(rows.column(name))
