"""State as a table: the state of each key, decoded from snapshots.

A snapshot names its fields and their types, so the task itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, to_microseconds
from riot_ops.core.errors import ConfigError, StateError, did_you_mean
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.parameters import duration, parameters_from_json
from riot_ops.core.special_operators import ReadableState
from riot_ops.kernels.arrays.arrow import numpy_values
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.runtime.snapshot import from_ipc, unpack_snapshot

__all__ = ["concat_tables", "live_keys", "live_rows", "read_checkpoint_state", "state_of_step", "state_table"]


def state_table(snapshots: Sequence[bytes], where: str = "") -> pa.Table:
    """Decode the state of a full snapshot and its deltas.

    Parameters
    ----------
    snapshots : sequence of bytes
        In order.
    where : str, default ""
        Owner of the state, for error messages.

    Returns
    -------
    pyarrow.Table
        One row per key, with the fields of the key and of the state, decoded by the task that wrote them (see
        :meth:`~riot_ops.core.special_operators.ReadableState.decode_state`): arrays as lists, JSON values as text, rows
        that a task holds as a list of structs. Keys whose time to live has passed are left out. A task without a
        key, or with one state for all keys, has one row.

    Raises
    ------
    StateError
        If the bytes are not snapshots.

    Examples
    --------
    >>> from riot_ops import tasks
    >>> counts = tasks.MovingAverage(by=("device",), window=3).session()
    >>> _ = counts.push_many({"device": d, "value": v} for d, v in (("a", 1.0), ("b", 5.0), ("a", 2.0)))
    >>> state_table([counts.snapshot()]).select(["device", "n", "total"]).to_pylist()
    [{'device': 'a', 'n': 2, 'total': 3.0}, {'device': 'b', 'n': 1, 'total': 5.0}]
    """
    identity, rows, known, indices = _newest(snapshots, where)
    rows = rows.take(indices)
    names = known.column_names
    columns = list(known.take(rows.column("slot")).columns) if names else []
    for name, (dtype, _) in identity["fields"].items():
        names, columns = [*names, name], [*columns, _readable(rows.column(f"state.{name}"), dtype)]
    table, task = pa.Table.from_arrays(columns, names=names), _task_of(identity)
    return task.decode_state(table) if isinstance(task, ReadableState) else table


def live_keys(snapshots: Sequence[bytes], where: str = "") -> int:
    """Return the number of keys in the state of a full snapshot and its deltas, see :func:`state_table`.

    >>> from riot_ops import tasks
    >>> counts = tasks.MovingAverage(by=("device",), window=3).session()
    >>> _ = counts.push_many({"device": d, "value": 1.0} for d in "aba")
    >>> live_keys([counts.snapshot()])
    2
    """
    return len(_newest(snapshots, where)[-1])


def _newest(snapshots: Sequence[bytes], where: str) -> tuple[dict[str, Any], pa.Table, pa.Table, npt.NDArray[np.int64]]:
    """Return identity, rows, keys by slot, and the places of the rows that count."""
    parts: list[pa.Table] = []
    keys: list[pa.Table] = []
    identity: dict[str, Any] = {}
    for data in snapshots:
        identity, _, time, new, rows, added = unpack_snapshot(data, where)
        if identity["kind"] == "full":
            parts, keys = [], []
        parts.append(pa.Table.from_batches([rows.replace_schema_metadata(None)]))
        if added.num_rows:
            held = concat_tables(keys)
            if held.num_rows > new:
                held = held.slice(0, new)
            keys = [held, pa.Table.from_batches([added.replace_schema_metadata(None)])]
    if not parts:
        raise StateError(f"the state{where} is empty: there is no snapshot")
    rows = pa.concat_tables(parts)
    known = concat_tables(keys)
    indices = live_rows(rows, known, _duration(identity["parameters"].get("ttl")), time[0] - time[2] if time else NEVER)
    return identity, rows, known, indices


def _task_of(identity: dict[str, Any]) -> KeyedOperator | None:
    """Return the task that wrote a snapshot; None if it is unknown here, or has a function as parameter."""
    waiting: list[type[Any]] = [KeyedOperator]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.code and (kind.name(), kind.version) == (identity["task"], identity["version"]):
            try:
                found: KeyedOperator = kind(**parameters_from_json(kind, kind.name(), identity["parameters"]))
            except ConfigError:
                return None
            return found
    return None


def concat_tables(tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables; a field that a table lacks, or whose type is unknown there, becomes null."""
    found = [table for table in tables if table.num_columns]
    return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})


def read_checkpoint_state(folder: Path, step: str) -> pa.Table:
    """Read the state of a step from the checkpoint of a local run."""
    checkpoint = Checkpoint(folder)
    newest = checkpoint.latest_path()
    if newest is None:
        raise StateError(f"{folder} is no checkpoint: nothing has been saved there")
    return state_table([state_of_step(checkpoint.read(newest).state, step, str(folder))], f" of step {step!r}")


def state_of_step(states: dict[str, Any], step: str, checkpoint: str) -> Any:
    """Return the entry of a step; KeyError if there is none."""
    if step not in states:
        raise KeyError(
            f"the checkpoint {checkpoint} has no state of a step {step!r}; there are {', '.join(states) or 'none'}"
            f"{did_you_mean(step, states)}"
        )
    return states[step]


def live_rows(rows: pa.Table, keys: pa.Table, ttl: timedelta | None, now: int) -> npt.NDArray[np.int64]:
    """Return the newest row of each live slot, in the order of slots; ``keys`` has the key of each slot."""
    slots = numpy_values(rows.column("slot"))
    # np.unique returns the first of equal values, but the last is wanted
    _, last = np.unique(slots[::-1], return_index=True)
    indices = np.asarray(slots.size - 1 - last, np.int64)
    if "last" not in rows.column_names or not indices.size:
        return indices
    if ttl is not None:
        seen = numpy_values(rows.column("last"))[indices]
        indices = indices[max(now, seen.max()) - seen <= to_microseconds(ttl)]
    # an expired key that returned has a new slot besides the old one
    columns = [column.combine_chunks() for column in keys.take(rows.column("slot").take(indices)).columns]
    _, first = np.unique(key_numbers(columns, indices.size)[::-1], return_index=True)
    return np.sort(indices[indices.size - 1 - first])


def _duration(text: str | None) -> timedelta | None:
    """Parse a time to live from an identity, which holds the repr if another parameter is a function."""
    if text is None or not text.startswith("datetime"):
        return None if text is None else duration(text)
    return timedelta(**{unit: int(number) for unit, number in re.findall(r"(\w+)=(-?\d+)", text)})


def _readable(column: pa.ChunkedArray, dtype: str) -> pa.ChunkedArray:
    if dtype == "json":
        return column.cast(pa.string())
    if dtype == "rows":
        return _held_rows(column.to_pylist())
    return column


def _held_rows(cells: list[bytes | None]) -> pa.ChunkedArray:
    """Decode record batches to lists of structs with the fields of all batches."""
    tables = [None if data is None else pa.Table.from_batches([from_ipc(data)]) for data in cells]
    joined = concat_tables(t.replace_schema_metadata(None) for t in tables if t is not None)
    ends = np.cumsum([0, *(0 if t is None else t.num_rows for t in tables)])
    items = joined.to_struct_array().combine_chunks() if joined.num_columns else pa.nulls(0, pa.struct([]))
    mask = pa.array([t is None for t in tables], pa.bool_())
    return pa.chunked_array([pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=mask)])
