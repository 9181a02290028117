"""Collect: gather a fixed number of records and emit them as lists, a record per group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields, next_ordinal, ordinals
from riot_ops.core.parameters import Count, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import concat_batches
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register

__all__ = ["Collect", "collect_blocks"]

BLOCK, TIMES = "batch_id", "times"


@register
@dataclass(frozen=True, kw_only=True)
class Collect(KeyedTask):
    """Collect blocks of ``size`` records, and emit each block as one record of lists per group.

    Parameters
    ----------
    size : int >= 1, default 100
        Records per block, counted per key (by default over the whole stream).
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields that partition the records of a block into groups.
    partial : bool, default False
        Whether the end of a bounded stream emits the records that do not fill a block.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    N:1: the last record of a block emits one record per group, in order of the groups; O(log size) time per record; the
    state of a key is at most its last ``size - 1`` records.

    An emitted record has the fields of the key and the groups, ``batch_id`` (int64), which numbers the blocks of a key
    from 0, and every other field as a list over the group's records, in order of ``event_time``, then of arrival; the
    list of event times is called ``times``. Its ``seq`` and ``event_time``, where the input has them, are those of the
    block's last record. A further ``ordinal`` (``ordinal_2`` where the input has an ``ordinal``), the position in the
    block, distinguishes the groups of one block.

    Missing values
    --------------
    Kept. A null in a group field or ``event_time`` sorts after all values.

    Errors
    ------
    None.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ACC.

    Examples
    --------
    >>> sets = Collect(size=3, groups=("sensor",)).session()
    >>> out = [sets.push({"sensor": s, "value": v}) for s, v in (("b", 1.0), ("a", 2.0), ("b", 3.0))]
    >>> out[:2]
    [[], []]
    >>> out[2]
    [{'sensor': 'a', 'batch_id': 0, 'value': [2.0]}, {'sensor': 'b', 'batch_id': 0, 'value': [1.0, 3.0]}]
    """

    code: ClassVar[str] = "ACC"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    size: Count = 100
    groups: Names = ("sensor_id", "obs_type")
    partial: bool = False

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.groups, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.groups:
            dtype = schema.field(name).type
            if pa.types.is_nested(dtype):
                raise ConfigError(f"{self.name()} cannot group by the field {name!r} of type {dtype}")
        for name in (BLOCK, TIMES):
            if name in schema.names:
                raise ConfigError(f"{self.name()} adds the field {name!r}, which its input already has")
        own = [schema.field(name) for name in self._order_fields(schema)]
        place = [pa.field(next_ordinal(schema.names), pa.int64())] if "seq" in schema.names else []
        lists = [
            pa.field(TIMES if name == "event_time" else name, pa.list_(schema.field(name).type))
            for name in self._collected_fields(schema)
        ]
        return pa.schema([*own, *place, *self._group_fields(schema), pa.field(BLOCK, pa.int64()), *lists])

    def _order_fields(self, schema: pa.Schema) -> list[str]:
        """Return the names of the fields that order the records of a stream, which are no part of the lists."""
        return [name for name in carried_fields(schema.names) if name not in (*self.by, *self.groups)]

    def _group_fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [schema.field(name) for name in dict.fromkeys((*self.by, *self.groups))]

    def _collected_fields(self, schema: pa.Schema) -> list[str]:
        other = {"seq", *ordinals(schema.names), *self.by, *self.groups}
        return [name for name in schema.names if name not in other]

    def expands(self) -> bool:
        return True

    def writes(self) -> None:
        return None  # each field of the input but those of the key becomes a list

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None), "blocks": StateField("int64")}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        pool, owners, rows, blocks, last = collect_blocks(batch, slots, state["held"], self.size)
        number = blocks + state["blocks"][owners]
        np.add.at(state["blocks"], owners[rows == last], 1)
        return self._sets(pool, rows, last, number)

    def _sets(
        self,
        pool: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        last: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        """Build one record per block and group from the given rows, each with the last row and number of its block."""
        found = pool.take(pa.array(rows))
        groups = [ranks(found.column(name)) for name in self.groups]
        times = [ranks(found.column("event_time"))] if "event_time" in found.schema.names else []
        sort = np.lexsort([*times, *reversed(groups), last])
        place = np.array([last[sort], *(g[sort] for g in groups)])
        starts = np.flatnonzero(np.append(True, (place[:, 1:] != place[:, :-1]).any(axis=0))[: rows.size])
        found, last, number = found.take(pa.array(sort)), last[sort[starts]], number[sort[starts]]
        offsets = pa.array(np.append(starts, rows.size).astype(np.int32))

        columns = {BLOCK: pa.array(number)}
        for field in self._group_fields(pool.schema):
            columns[field.name] = found.column(field.name).take(pa.array(starts))
        for name in self._collected_fields(pool.schema):
            values = pa.ListArray.from_arrays(offsets, found.column(name))
            columns[TIMES if name == "event_time" else name] = values
        for name in self._order_fields(pool.schema):
            columns[name] = pool.column(name).take(pa.array(last))
        columns[next_ordinal(pool.schema.names)] = pa.array(np.arange(starts.size) - np.searchsorted(last, last))
        schema = self.output_schema(pool.schema)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        held = [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        if not self.partial or not held:
            return None
        lengths = [rows.num_rows for _, rows in held]
        slots = np.repeat([s for s, _ in held], lengths)
        pool = concat_batches([rows for _, rows in held])
        return self._sets(
            pool, np.arange(slots.size), np.repeat(np.cumsum(lengths) - 1, lengths), state["blocks"][slots]
        )

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "event_time": pa.array([5, 1, 2, 3, None, 5, 4, 12, 1, 30], pa.timestamp("ms", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a"],
                "value": [10.0, -3.5, None, None, float("nan"), 1e308, float("inf"), 1e308, None, None],
                "list": pa.array(
                    [[1.0], [], None, [None], [2.0, 3.0], [], [], [1.0], [], [4.0]], pa.list_(pa.float64())
                ),
            }
        )
        yield Case(cls(size=3, groups=("key",), partial=True), batch)
        yield Case(cls(size=2, groups=("value", "key"), by=("key",)), batch)
        yield Case(cls(size=1, groups=()), batch)


def collect_blocks(
    batch: pa.RecordBatch, slots: npt.NDArray[np.int64], held: list[pa.RecordBatch | None], size: int
) -> tuple[pa.RecordBatch, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Divide the records of each key into blocks of ``size``, and store those of unfilled blocks in ``held``.

    Returns ``(pool, owners, rows, blocks, last)``: ``pool`` has the records held so far, followed by the batch; the
    others have, for each record of a full block, its key's slot, its row in the pool, the number of its block among the
    key's new blocks, and the row of the record that filled the block. The records of a key are in order of arrival.
    """
    touched = np.unique(slots)
    before = [(s, rows) for s in touched if (rows := held[s]) is not None]
    pool = concat_batches([*(rows for _, rows in before), batch])
    owners = np.concatenate([*(np.full(rows.num_rows, s) for s, rows in before), slots]).astype(np.int64)

    # rows by key, in order of arrival: the n-th row of a key is in its block n // size
    order = np.argsort(owners, kind="stable")
    first = np.searchsorted(owners[order], touched)
    lengths = np.diff(np.append(first, order.size))
    place = np.arange(order.size) - np.repeat(first, lengths)
    full = np.repeat(lengths // size, lengths)
    block = place // size
    done = block < full
    last = np.repeat(first, lengths) + (block + 1) * size - 1

    rest = order[~done]
    ends = np.cumsum(lengths % size) if touched.size else lengths
    for s, n, end in zip(touched, lengths % size, ends, strict=True):
        held[s] = pool.take(pa.array(rest[end - n : end])) if n else None
    return pool, owners[order[done]], order[done], block[done], order[last[done]]


def ranks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Compute the dense rank of each value; nulls rank last."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    distinct = column.dictionary_encode()
    place: npt.NDArray[np.int64] = np.asarray(pc.rank(distinct.dictionary, tiebreaker="dense")).astype(np.int64)
    place = np.append(place, place.size + 1)
    found: npt.NDArray[np.int64] = place[np.asarray(distinct.indices.fill_null(place.size - 1))]
    return found
