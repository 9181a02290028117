"""Collect records and pass them on in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.errors import ConfigError
from riot_ops.state import StateField
from riot_ops.task import (
    Case,
    Count,
    DeadLetters,
    KeyedTask,
    Requirement,
    State,
    register,
    replace_column,
    with_field,
)

__all__ = ["Accumulator"]

BLOCK = "batch_id"


@register
@dataclass(frozen=True, kw_only=True)
class Accumulator(KeyedTask):
    """Hold records back until there are enough of them, then emit them all, grouped and in order.

    Parameters
    ----------
    size : int >= 1, default 100
        Records per block, counted over the whole key (by default the whole stream).
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields by which a block is ordered; within a group its records are in order of
        ``event_time``, then of arrival.
    partial : bool, default False
        Whether the end of a bounded stream emits the records that do not fill a block.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.
    value, output
        Not used: a record passes with all its fields, lists included.

    Shapes and rates
    ----------------
    any[n] -> any[n] in blocks of ``size`` records at the arrival of a block's last, N:1 in blocks;
    O(log size) time per record; the state of a key is its last ``size - 1`` records at most. The
    field ``batch_id`` (int64) numbers the blocks of a key from 0.

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
    >>> blocks = Accumulator(size=3, groups=("sensor",)).session()
    >>> out = [blocks.push({"sensor": s, "value": v}) for s, v in (("b", 1.0), ("a", 2.0), ("b", 3.0))]
    >>> out[:2]
    [[], []]
    >>> [(row["sensor"], row["value"], row["batch_id"]) for row in out[2]]
    [('a', 2.0, 0), ('b', 1.0, 0), ('b', 3.0, 0)]
    """

    code: ClassVar[str] = "ACC"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    size: Count = 100
    groups: tuple[str, ...] = ("sensor_id", "obs_type")
    partial: bool = False

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {"event_time": "any"} if self.ttl else {}
        return {**dict.fromkeys((*self.by, *self.groups), "any"), **extra}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self.groups:
            kind = schema.field(name).type
            if pa.types.is_nested(kind):
                raise ConfigError(f"{self.name()} cannot order by the field {name!r} of type {kind}")
        return with_field(schema, pa.field(BLOCK, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({BLOCK})

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return batch

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None), "blocks": StateField("int64")}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        touched = np.unique(slots)
        held = [(s, state["held"][s]) for s in touched if state["held"][s] is not None]
        pool = joined([*(rows for _, rows in held), batch])
        owners = np.concatenate([*(np.full(rows.num_rows, s) for s, rows in held), slots]).astype(np.int64)

        # rows by key, in order of arrival: the n-th row of a key is in its block n // size
        order = np.argsort(owners, kind="stable")
        first = np.searchsorted(owners[order], touched)
        lengths = np.diff(np.append(first, order.size))
        place = np.arange(order.size) - np.repeat(first, lengths)
        full = np.repeat(lengths // self.size, lengths)
        block = place // self.size
        done = block < full
        last = np.repeat(first, lengths) + (block + 1) * self.size - 1
        rows, blocks, last = order[done], block[done], order[last[done]]

        number = blocks + state["blocks"][owners[rows]]
        rest = order[~done]
        ends = np.cumsum(lengths % self.size) if touched.size else lengths
        for s, n, end in zip(touched, lengths % self.size, ends, strict=True):
            state["held"][s] = pool.take(pa.array(rest[end - n : end])) if n else None
        state["blocks"][touched] += lengths // self.size
        return self._emit(pool, rows, last, number)

    def _emit(
        self,
        pool: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        blocks: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        """Rows in order of their blocks, then of groups, time and arrival, as they are given."""
        found = pool.take(pa.array(rows))
        names = [*self.groups, *(["event_time"] if "event_time" in pool.schema.names else [])]
        sort = np.lexsort([*(ranks(found.column(name)) for name in reversed(names)), blocks])
        return replace_column(found.take(pa.array(sort)), BLOCK, pa.array(number[sort]))

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        held = [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        if not self.partial or not held:
            return None
        slots = np.concatenate([np.full(rows.num_rows, s) for s, rows in held])
        pool = joined([rows for _, rows in held])
        return self._emit(pool, np.arange(slots.size), slots, state["blocks"][slots])

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


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; where types differ (such as null and text), as a type that fits all."""
    if len(batches) == 1:
        return batches[0]
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([b]) for b in batches]
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return pa.RecordBatch.from_arrays(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns], schema=table.schema
    )


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
