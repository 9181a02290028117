"""Some rows of a batch, copied only where somebody wants them.

Of a small batch a call of Arrow's costs more than its rows do. So what a filter lets through is at first the batch and
the numbers of the rows: a step that reads one of its columns, or few of its rows, need not have the others copied, and
what has been found out about the batch, such as the numbers in a column, is known of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import float_column, readonly, replace_column
from riot_ops.kernels.arrays.rows import filtered, taken_rows

__all__ = ["SMALL", "Draft", "Rows", "Selection", "drafted", "finish", "floats", "kept", "names_of", "picked", "whole"]

#: Most rows of a batch that counts as small.
SMALL = 8192
#: Most rows of several drafts that are made at once: who keeps one of them keeps the memory of all.
PAGE = 128
#: From so many rows on, a column at a time is faster than Arrow.
MANY = 1024
#: What :meth:`pyarrow.RecordBatch.take` calls, at two thirds of the cost for few rows.
_TAKE = pc.get_function("take")

Floats = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]


class Selection:
    """Rows of a batch, which looks like a batch of them.

    Parameters
    ----------
    batch : record batch
    rows : array of int64, optional
        Their numbers, rising; by default all.
    of : Selection, optional
        All rows of the batch, of which something may be known.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> some = Selection(batch, np.array([0, 2]))
    >>> some.num_rows, some.column("key").to_pylist(), floats(some, "value")[0].tolist()
    (2, ['a', 'c'], [1.0, 3.0])
    """

    __slots__ = ("_floats", "_infinite", "_names", "_of", "_whole", "batch", "num_rows", "ordered", "rows")

    def __init__(
        self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64] | None = None, of: Selection | None = None
    ) -> None:
        self.batch = batch
        self.rows = rows
        self.num_rows: int = batch.num_rows if rows is None else rows.size
        #: Whether they are in order, once somebody has looked.
        self.ordered: bool | None = None
        self._of = of if of is not None or rows is None else Selection(batch)
        self._names: list[str] | None = None
        self._floats: dict[str, Floats] = {}
        self._infinite: dict[str, bool] = {}
        self._whole: pa.RecordBatch | None = batch if rows is None else None

    @property
    def every(self) -> Selection:
        """All rows of the batch."""
        return self if self._of is None else self._of

    @property
    def schema(self) -> pa.Schema:
        return self.batch.schema

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        if self._of is not None:
            return self._of.names
        if self._names is None:
            self._names = self.batch.schema.names
        return self._names

    def column(self, name: str) -> pa.Array:
        """The values of a field."""
        return self.batch.column(name).take(pa.array(self.rows)) if self._whole is None else self._whole.column(name)

    def floats(self, name: str) -> Floats:
        """The values of a field as :func:`float_column` gives them."""
        found = self._floats.get(name)
        if found is None:
            if self.rows is None:
                found = float_column(self.batch.column(name))
            else:
                values, valid = self.every.floats(name)
                found = readonly(values[self.rows]), readonly(valid[self.rows]) if valid.size else valid
            self._floats[name] = found
        return found

    def has_infinite(self, name: str) -> bool:
        """Whether a number in a field is infinite."""
        if name not in self._infinite:
            self._infinite[name] = bool(np.isinf(self.floats(name)[0]).any())
        return self._infinite[name]

    def kept(self, passes: npt.NDArray[np.bool_]) -> Selection:
        """Those of the rows that pass."""
        places = passes.nonzero()[0]
        if places.size == self.num_rows:
            return self
        return Selection(self.batch, places if self.rows is None else self.rows[places], self.every)

    def whole(self) -> pa.RecordBatch:
        """A batch of these rows alone."""
        if self._whole is None:
            assert self.rows is not None
            self._whole = picked(self.batch, self.rows)
        return self._whole


class Draft:
    """A batch that is still to be made: rows of another one, in which some fields have other values.

    Many that were made of one batch, see :func:`finish`, cost little more than one.

    Parameters
    ----------
    of : Selection
        All rows of the batch.
    rows : array of int64
        The numbers of those.
    fields : dict of str to array
        The values, one for each of the rows and none missing.
    """

    __slots__ = ("fields", "made", "num_rows", "of", "rows")

    def __init__(self, of: Selection, rows: npt.NDArray[np.int64], fields: Mapping[str, npt.NDArray[Any]]) -> None:
        self.of = of
        self.rows = rows
        self.fields = fields
        self.num_rows: int = rows.size
        #: The batch, once it is there.
        self.made: pa.RecordBatch | None = None

    def whole(self) -> pa.RecordBatch:
        """The batch."""
        if self.made is None:
            self.made = _with(picked(self.of, self.rows), self.fields)
        return self.made

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        own = self.of.names
        return [*own, *[name for name in self.fields if name not in own]]

    def page(self) -> tuple[Any, ...]:
        """What those have in common that can be made at once."""
        return id(self.of), *((name, values.dtype) for name, values in self.fields.items())


#: Records of a stream.
Rows: TypeAlias = pa.RecordBatch | Selection
#: What is no batch yet. To write it as a union where it is asked for would make one each time.
_LATER = (Selection, Draft)


def whole(rows: Rows | Draft | None) -> Any:
    """The records as a batch; None stays None."""
    return rows if rows is None or isinstance(rows, pa.RecordBatch) else rows.whole()


def names_of(rows: Rows | Draft) -> list[str]:
    """The names of the fields."""
    return rows.schema.names if isinstance(rows, pa.RecordBatch) else rows.names


def drafted(
    rows: Rows, places: npt.NDArray[np.int64], fields: Mapping[str, npt.NDArray[Any]]
) -> pa.RecordBatch | Draft:
    """Some of the records with some fields written: of picked rows a batch that is made later.

    The places rise; the values are those of :class:`Draft`.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> drafted(batch, np.array([0, 2]), {"value": np.array([7.0, 8.0])}).to_pylist()
    [{'key': 'a', 'value': 7.0}, {'key': 'c', 'value': 8.0}]
    """
    if isinstance(rows, Selection):
        return Draft(rows.every, places if rows.rows is None else rows.rows[places], fields)
    return _with(rows if places.size == rows.num_rows else picked(rows, places), fields)


def finish(drafts: Iterable[Draft]) -> None:
    """Make the batches of many drafts: of each few in one go, as slices of one."""
    pages: dict[tuple[Any, ...], list[Draft]] = {}
    sizes: dict[tuple[Any, ...], int] = {}
    for draft in drafts:
        if draft.made is None and draft.num_rows:
            which = draft.page()
            page = pages.setdefault(which, [])
            page.append(draft)
            sizes[which] = sizes.get(which, 0) + draft.num_rows
            if sizes[which] >= PAGE:
                _make(pages.pop(which))
                del sizes[which]
    for page in pages.values():
        _make(page)


def _make(page: list[Draft]) -> None:
    first = page[0]
    fields = {name: np.concatenate([draft.fields[name] for draft in page]) for name in first.fields}
    batch = _with(picked(first.of, np.concatenate([draft.rows for draft in page])), fields)
    at = 0
    for draft in page:
        draft.made = batch.slice(at, draft.num_rows)
        at += draft.num_rows


def _with(batch: pa.RecordBatch, fields: Mapping[str, npt.NDArray[Any]]) -> pa.RecordBatch:
    for name, values in fields.items():
        batch = replace_column(batch, name, pa.array(values))
    return batch


def kept(rows: Rows, passes: npt.NDArray[np.bool_]) -> Rows:
    """The records that pass: of a small batch copied later, if at all.

    >>> kept(pa.RecordBatch.from_pydict({"n": [1, 2]}), np.array([False, True])).num_rows
    1
    """
    if isinstance(rows, Selection):
        return rows.kept(passes)
    if rows.num_rows > SMALL:
        return rows if passes.all() else filtered(rows, passes)
    return Selection(rows).kept(passes)


def picked(rows: Rows, places: npt.NDArray[np.int64], fields: Sequence[str] | None = None) -> pa.RecordBatch:
    """Some of the records, by their places, with some of their fields.

    >>> batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]})
    >>> picked(Selection(batch, np.array([0, 2])), np.array([1]), ["key"]).to_pylist()
    [{'key': 'c'}]
    """
    if isinstance(rows, Selection):
        rows, places = rows.batch, places if rows.rows is None else rows.rows[places]
    batch = rows if fields is None else rows.select(list(fields))
    if places.size > MANY:
        return taken_rows(batch, places)
    return _TAKE.call([batch, pa.array(places)]) if places.size else batch.slice(0, 0)


def floats(rows: Rows, name: str) -> Floats:
    """A column of numbers as :func:`float_column` gives it."""
    return rows.floats(name) if isinstance(rows, Selection) else float_column(rows.column(name))
