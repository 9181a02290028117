"""Columns of structs, lists and maps, built of the columns of their members, values or entries.

A column comes with its bad rows: those that could not be converted, which are null. ``valid`` flags the rows that are
not missing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Cells", "Mask", "build_lists", "build_maps", "build_structs", "flat_list"]

types = pa.types

Mask = npt.NDArray[np.bool_]
#: A column, and its bad rows.
Cells = tuple[pa.Array, list[int]]


def flat_list(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the values of all lists of a column, and the length of each; a null has none.

    >>> flat_list(pa.array([[1, 2], None, [3]]))[1].tolist()
    [2, 0, 1]
    """
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return column.flatten(), lengths


def build_structs(valid: Mask, members: Mapping[str, Cells], want: pa.StructType) -> Cells:
    """Build structs of their members; a struct with a bad member is bad. A member that is not there is null."""
    bad = np.zeros(valid.size, np.bool_)
    arrays = []
    for field in want:
        array, rows = members.get(field.name) or (pa.nulls(valid.size, field.type), [])
        bad[rows] = True
        if not field.nullable:
            bad |= valid & np.asarray(array.is_null())
        arrays.append(array)
    mask = pa.array(~valid | bad)
    if not arrays:
        return pa.array([None if null else {} for null in mask.to_pylist()], want), []
    return pa.StructArray.from_arrays(arrays, fields=list(want), mask=mask), np.flatnonzero(bad).tolist()


def build_lists(valid: Mask, lengths: npt.NDArray[np.int64], values: Cells, want: pa.DataType) -> Cells:
    """Build lists of the values of all lists and their lengths; a list with a bad value is bad."""
    array, bad = values
    good = valid.copy()
    good[np.repeat(np.arange(valid.size), lengths)[bad]] = False
    if types.is_fixed_size_list(want):
        good &= lengths == want.list_size
        starts = np.cumsum(lengths) - lengths
        places = starts[:, None] + np.arange(want.list_size)
        places = np.where(good[:, None], places, 0).ravel()
        mask = np.repeat(~good, want.list_size)
        array = array.take(pa.array(places, mask=mask))
        result = pa.FixedSizeListArray.from_arrays(array, type=want, mask=pa.array(~good))
    else:
        array = array.filter(pa.array(np.repeat(good, lengths)))
        kind = pa.LargeListArray if types.is_large_list(want) else pa.ListArray
        result = kind.from_arrays(_offsets(good, lengths), array, type=want, mask=pa.array(~good))
    return result, np.flatnonzero(valid & ~good).tolist()


def build_maps(valid: Mask, lengths: npt.NDArray[np.int64], keys: Cells, items: Cells, want: pa.MapType) -> Cells:
    """Build maps of the keys and items of all maps and their lengths; a map with a bad entry or a null key is bad."""
    good = valid.copy()
    parents = np.repeat(np.arange(valid.size), lengths)
    for _, bad in (keys, items):
        good[parents[bad]] = False
    good[parents[np.asarray(keys[0].is_null())]] = False
    kept = pa.array(np.repeat(good, lengths))
    offsets = _offsets(good, lengths)
    arrays = [array.filter(kept) for array, _ in (keys, items)]
    return (
        pa.MapArray.from_arrays(offsets, *arrays, type=want, mask=pa.array(~good)),
        np.flatnonzero(valid & ~good).tolist(),
    )


def _offsets(good: Mask, lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(good.size + 1, np.int64)
    np.cumsum(np.where(good, lengths, 0), out=offsets[1:])
    return pa.array(offsets)
