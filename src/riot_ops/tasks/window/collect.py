"""Gather records into sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried, next_ordinal, ordinals
from riot_ops.core.parameters import Count
from riot_ops.kernels.arrays.arrow import joined
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register

__all__ = ["Collect", "full_blocks"]

BLOCK, TIMES = "batch_id", "times"


@register
@dataclass(frozen=True, kw_only=True)
class Collect(KeyedTask):
    """Hold records back until there are enough of them, then emit a record per group with them all.

    Parameters
    ----------
    size : int >= 1, default 100
        Records per block, counted over the whole key (by default the whole stream).
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields by which the records of a block are parted into sets.
    partial : bool, default False
        Whether the end of a bounded stream emits the records that do not fill a block.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    N:1, at the arrival of a block's last record one record per set, in order of the groups; O(log
    size) time per record; the state of a key is its last ``size - 1`` records at most.

    A set has the fields of the key and the groups, ``batch_id`` (int64), which numbers the blocks of
    a key from 0, and every other field as a list over the set's records, in order of
    ``event_time``, then of arrival; the list of event times is called ``times``. Its own ``seq``
    and ``event_time``, where the input has them, are those of the block's last record, and a further
    ``ordinal`` (``ordinal_2`` where the input has a ``ordinal``), the place in the block, tells sets of one block apart.

    Missing values
    --------------
    Kept. A null in a group field or ``event_time`` comes after all values.

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
    groups: tuple[str, ...] = ("sensor_id", "obs_type")
    partial: bool = False

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.groups, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.groups:
            kind = schema.field(name).type
            if pa.types.is_nested(kind):
                raise ConfigError(f"{self.name()} cannot group by the field {name!r} of type {kind}")
        for name in (BLOCK, TIMES):
            if name in schema.names:
                raise ConfigError(f"{self.name()} makes the field {name!r}, which its input has already")
        own = [schema.field(name) for name in self._own(schema)]
        place = [pa.field(next_ordinal(schema.names), pa.int64())] if "seq" in schema.names else []
        lists = [
            pa.field(TIMES if name == "event_time" else name, pa.list_(schema.field(name).type))
            for name in self._gathered(schema)
        ]
        return pa.schema([*own, *place, *self._parts(schema), pa.field(BLOCK, pa.int64()), *lists])

    def _own(self, schema: pa.Schema) -> list[str]:
        """Fields that a set has of its own: what orders the records of a stream."""
        return [name for name in carried(schema.names) if name not in (*self.by, *self.groups)]

    def _parts(self, schema: pa.Schema) -> list[pa.Field]:
        return [schema.field(name) for name in dict.fromkeys((*self.by, *self.groups))]

    def _gathered(self, schema: pa.Schema) -> list[str]:
        left = {"seq", *ordinals(schema.names), *self.by, *self.groups}
        return [name for name in schema.names if name not in left]

    def expands(self) -> bool:
        return True

    def writes(self) -> None:
        return None

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None), "blocks": StateField("int64")}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        pool, owners, rows, blocks, last = full_blocks(batch, slots, state["held"], self.size)
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
        """A record per set of the given rows, each with its block's last row and number."""
        found = pool.take(pa.array(rows))
        groups = [ranks(found.column(name)) for name in self.groups]
        times = [ranks(found.column("event_time"))] if "event_time" in found.schema.names else []
        sort = np.lexsort([*times, *reversed(groups), last])
        place = np.array([last[sort], *(g[sort] for g in groups)])
        starts = np.flatnonzero(np.append(True, (place[:, 1:] != place[:, :-1]).any(axis=0))[: rows.size])
        found, last, number = found.take(pa.array(sort)), last[sort[starts]], number[sort[starts]]
        offsets = pa.array(np.append(starts, rows.size).astype(np.int32))

        made = {BLOCK: pa.array(number)}
        for field in self._parts(pool.schema):
            made[field.name] = found.column(field.name).take(pa.array(starts))
        for name in self._gathered(pool.schema):
            values = pa.ListArray.from_arrays(offsets, found.column(name))
            made[TIMES if name == "event_time" else name] = values
        for name in self._own(pool.schema):
            made[name] = pool.column(name).take(pa.array(last))
        made[next_ordinal(pool.schema.names)] = pa.array(np.arange(starts.size) - np.searchsorted(last, last))
        schema = self.output_schema(pool.schema)
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        held = [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        if not self.partial or not held:
            return None
        lengths = [rows.num_rows for _, rows in held]
        slots = np.repeat([s for s, _ in held], lengths)
        pool = joined([rows for _, rows in held])
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


def full_blocks(
    batch: pa.RecordBatch, slots: npt.NDArray[np.int64], held: list[pa.RecordBatch | None], size: int
) -> tuple[pa.RecordBatch, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Gather records per key into blocks of a size; those of blocks that are not full are ``held`` from now on.

    Returns ``(pool, owners, rows, blocks, last)``: records held before and those of the batch behind them;
    and, for each record of a full block, its key's slot, its row in the pool, the number of its
    block among the key's new ones, and the row of the record that made it full. The records of a
    key are in order of arrival.
    """
    touched = np.unique(slots)
    before = [(s, rows) for s in touched if (rows := held[s]) is not None]
    pool = joined([*(rows for _, rows in before), batch])
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
    """The place of each value among all, equal values sharing one; nulls come last."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    distinct = column.dictionary_encode()
    place: npt.NDArray[np.int64] = np.asarray(pc.rank(distinct.dictionary, tiebreaker="dense")).astype(np.int64)
    place = np.append(place, place.size + 1)
    found: npt.NDArray[np.int64] = place[np.asarray(distinct.indices.fill_null(place.size - 1))]
    return found
