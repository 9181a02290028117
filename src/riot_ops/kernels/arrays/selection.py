"""Lazy rows: selections of a batch and batches with replaced fields, copied only when a step needs a batch.

For a small batch, a call of Arrow costs more than the rows do. So a filter returns the batch and the numbers of the
rows that pass. A step that reads one column or a few rows does not copy the others, and whatever is cached for the
batch, such as a column as floats, serves the selection as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import float_column, readonly, replace_column
from riot_ops.kernels.arrays.rows import filter_rows, take_rows

__all__ = [
    "SMALL",
    "LazyBatch",
    "Rows",
    "Selection",
    "field_names",
    "floats",
    "materialize",
    "materialize_all",
    "select",
    "take_columns",
    "take_with_fields",
]

#: Maximum number of rows of a small batch.
SMALL = 8192
#: Rows of lazy batches that are materialized together: a reference to one of them keeps the memory of all.
PAGE = 128
#: Above this number of rows, taking column by column is faster than Arrow's take of a batch.
TAKE_BY_COLUMN = 1024
#: What :meth:`pyarrow.RecordBatch.take` calls, at two thirds of the cost for few rows.
_TAKE = pc.get_function("take")

Floats = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]


class Selection:
    """Some rows of a batch, with part of the interface of a batch.

    Parameters
    ----------
    batch : record batch
    rows : array of int64, optional
        Row numbers in ascending order; all rows by default.
    of : Selection, optional
        The selection of all rows of the batch, whose caches are used.
    ordered : bool, optional
        Whether the rows of the batch are in order; None until the first keyed step that reads it has checked.
    memo : HashMemo, optional
        Known key hashes of the batches that are processed together.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> some = Selection(batch, np.array([0, 2]))
    >>> some.num_rows, some.column("key").to_pylist(), floats(some, "value")[0].tolist()
    (2, ['a', 'c'], [1.0, 3.0])
    """

    __slots__ = (
        "_all_rows", "_floats", "_infinite", "_materialized", "_names", "batch", "memo", "num_rows", "ordered", "rows",
    )  # fmt: skip

    def __init__(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[np.int64] | None = None,
        of: Selection | None = None,
        *,
        ordered: bool | None = None,
        memo: Any = None,
    ) -> None:
        self.batch = batch
        self.rows = rows
        self.num_rows: int = batch.num_rows if rows is None else rows.size
        self.ordered = ordered
        self.memo = memo
        self._all_rows = of if of is not None or rows is None else Selection(batch)
        self._names: list[str] | None = None
        self._floats: dict[str, Floats] = {}
        self._infinite: dict[str, bool] = {}
        self._materialized: pa.RecordBatch | None = batch if rows is None else None

    @property
    def all_rows(self) -> Selection:
        """The selection of all rows of the batch."""
        return self if self._all_rows is None else self._all_rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batch."""
        return self.batch.schema

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        if self._all_rows is not None:
            return self._all_rows.names
        if self._names is None:
            self._names = self.batch.schema.names
        return self._names

    def column(self, name: str) -> pa.Array:
        """Return the values of a field."""
        return (
            self.batch.column(name).take(pa.array(self.rows))
            if self._materialized is None
            else self._materialized.column(name)
        )

    def floats(self, name: str) -> Floats:
        """Return the values of a field as :func:`float_column` gives them."""
        found = self._floats.get(name)
        if found is None:
            if self.rows is None:
                found = float_column(self.batch.column(name))
            else:
                values, valid = self.all_rows.floats(name)
                found = readonly(values[self.rows]), readonly(valid[self.rows]) if valid.size else valid
            self._floats[name] = found
        return found

    def has_infinite(self, name: str) -> bool:
        """Whether a field has an infinite value."""
        if name not in self._infinite:
            self._infinite[name] = bool(np.isinf(self.floats(name)[0]).any())
        return self._infinite[name]

    def select(self, passes: npt.NDArray[np.bool_]) -> Selection:
        """Select the rows that pass."""
        positions = passes.nonzero()[0]
        if positions.size == self.num_rows:
            return self
        rows = positions if self.rows is None else self.rows[positions]
        return Selection(self.batch, rows, self.all_rows, memo=self.memo)

    def materialize(self) -> pa.RecordBatch:
        """Return the rows as a batch; copied once."""
        if self._materialized is None:
            assert self.rows is not None
            self._materialized = take_columns(self.batch, self.rows)
        return self._materialized


class LazyBatch:
    """A batch that is not copied yet: rows of another batch, with some fields replaced.

    Materializing many that share a batch, see :func:`materialize_all`, costs little more than one.

    Parameters
    ----------
    base : Selection
        All rows of the underlying batch.
    rows : array of int64
        Numbers of the rows, in ascending order.
    fields : mapping of str to array
        New values by field: one for each row, none missing.
    """

    __slots__ = ("base", "fields", "materialized", "memo", "num_rows", "rows")

    def __init__(self, base: Selection, rows: npt.NDArray[np.int64], fields: Mapping[str, npt.NDArray[Any]]) -> None:
        self.base = base
        self.rows = rows
        self.fields = fields
        self.num_rows: int = rows.size
        self.memo = base.memo
        #: The batch, once it is materialized.
        self.materialized: pa.RecordBatch | None = None

    def materialize(self) -> pa.RecordBatch:
        """Return the rows as a batch; copied once."""
        if self.materialized is None:
            self.materialized = _replace_fields(take_columns(self.base, self.rows), self.fields)
        return self.materialized

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        own = self.base.names
        return [*own, *[name for name in self.fields if name not in own]]

    def page_key(self) -> tuple[Any, ...]:
        """What lazy batches have in common that can be materialized together."""
        return id(self.base), *((name, values.dtype) for name, values in self.fields.items())


#: Records of a stream.
Rows: TypeAlias = pa.RecordBatch | Selection


def materialize(rows: Rows | LazyBatch | None) -> Any:
    """Return the rows as a batch; None stays None."""
    return rows if rows is None or isinstance(rows, pa.RecordBatch) else rows.materialize()


def field_names(rows: Rows | LazyBatch) -> list[str]:
    """Return the names of the fields."""
    return rows.schema.names if isinstance(rows, pa.RecordBatch) else rows.names


def take_with_fields(
    rows: Rows, positions: npt.NDArray[np.int64], fields: Mapping[str, npt.NDArray[Any]]
) -> pa.RecordBatch | LazyBatch:
    """Take rows, by ascending positions, and replace some fields; lazily if ``rows`` is a selection.

    ``fields`` as of :class:`LazyBatch`.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> take_with_fields(batch, np.array([0, 2]), {"value": np.array([7.0, 8.0])}).to_pylist()
    [{'key': 'a', 'value': 7.0}, {'key': 'c', 'value': 8.0}]
    """
    if isinstance(rows, Selection):
        return LazyBatch(rows.all_rows, positions if rows.rows is None else rows.rows[positions], fields)
    return _replace_fields(rows if positions.size == rows.num_rows else take_columns(rows, positions), fields)


def materialize_all(batches: Iterable[LazyBatch]) -> None:
    """Materialize lazy batches, those with the same :meth:`~LazyBatch.page_key` together, as slices of one batch."""
    pages: dict[tuple[Any, ...], list[LazyBatch]] = {}
    sizes: dict[tuple[Any, ...], int] = {}
    for lazy in batches:
        if lazy.materialized is None and lazy.num_rows:
            key = lazy.page_key()
            page = pages.setdefault(key, [])
            page.append(lazy)
            sizes[key] = sizes.get(key, 0) + lazy.num_rows
            if sizes[key] >= PAGE:
                _materialize_page(pages.pop(key))
                del sizes[key]
    for page in pages.values():
        _materialize_page(page)


def _materialize_page(page: list[LazyBatch]) -> None:
    first = page[0]
    if len(page) == 1 and first.num_rows == first.base.num_rows:  # all rows
        first.materialized = _replace_fields(materialize(first.base), first.fields)
        return
    fields = {name: np.concatenate([lazy.fields[name] for lazy in page]) for name in first.fields}
    batch = _replace_fields(take_columns(first.base, np.concatenate([lazy.rows for lazy in page])), fields)
    at = 0
    for lazy in page:
        lazy.materialized = batch.slice(at, lazy.num_rows)
        at += lazy.num_rows


def _replace_fields(batch: pa.RecordBatch, fields: Mapping[str, npt.NDArray[Any]]) -> pa.RecordBatch:
    for name, values in fields.items():
        batch = replace_column(batch, name, pa.array(values))
    return batch


def select(rows: Rows, passes: npt.NDArray[np.bool_]) -> Rows:
    """Filter rows; a small batch is not copied.

    >>> select(pa.RecordBatch.from_pydict({"n": [1, 2]}), np.array([False, True])).num_rows
    1
    """
    if rows.num_rows > SMALL:
        return rows if passes.all() else filter_rows(materialize(rows), passes)
    return (rows if isinstance(rows, Selection) else Selection(rows)).select(passes)


def take_columns(rows: Rows, positions: npt.NDArray[np.int64], fields: Sequence[str] | None = None) -> pa.RecordBatch:
    """Take rows by position, with all or some fields.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> take_columns(Selection(batch, np.array([0, 2])), np.array([1]), ["key"]).to_pylist()
    [{'key': 'c'}]
    """
    if isinstance(rows, Selection):
        rows, positions = rows.batch, positions if rows.rows is None else rows.rows[positions]
    batch = rows if fields is None else rows.select(list(fields))
    if positions.size > TAKE_BY_COLUMN:
        return take_rows(batch, positions)
    return _TAKE.call([batch, pa.array(positions)]) if positions.size else batch.slice(0, 0)


def floats(rows: Rows, name: str) -> Floats:
    """Return a column of numbers as :func:`float_column` gives it."""
    return rows.floats(name) if isinstance(rows, Selection) else float_column(rows.column(name))
