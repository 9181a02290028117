"""Top k: the items with the largest values at every tick of stream time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import plain_type
from riot_ops.core.clock import END, NEVER, Clock, Ticks, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import ordinals, with_timer_ordinals
from riot_ops.core.parameters import Count
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import concat_batches, float_column, int64_column, int_column, readonly, valid_mask
from riot_ops.kernels.arrays.dictionaries import decode_dictionaries, dictionary_codes
from riot_ops.kernels.arrays.exact import dense_ranks
from riot_ops.kernels.arrays.ordering import are_sorted, order_by_number_within, run_edges, sort_runs
from riot_ops.kernels.arrays.rows import filter_rows, take
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.stats.ranking import next_ticks, select_candidates, top_rows
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register

__all__ = ["TopK"]

#: Number of the tick at the end of the stream.
LAST_TICK = 1 << 60
SLOT, TICK = "slot", "tick"

Numbers = npt.NDArray[np.int64]


@register
@dataclass(frozen=True, kw_only=True)
class TopK(KeyedTask):
    """Rank the items since the last tick by a value, and emit the k largest, one record per rank.

    Ticks are at the first event time of the stream plus multiples of ``every``. Records from one tick up to the next
    are ranked at the latter: downstream of :class:`SlidingTotals` with the same ``every``, the results of a tick are
    ranked at that tick. The last value of an item counts; among equal values the smaller item ranks first. Ranking the
    rankings of the parts of a stream gives the ranking of the whole.

    Parameters
    ----------
    item : str
        Field with the item: text, or a number.
    value : str, default "count"
        Numeric field to rank by.
    k : int >= 1, default 10
        Number of ranks to emit.
    every : timedelta > 0 or text such as "2s"
        Time from tick to tick.
    zeros : bool, default False
        Whether items with the value 0 are ranked.
    partial : bool, default True
        Whether the end of a bounded stream counts as a tick.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; a ttl is refused, since rankings hold nothing beyond a tick.

    Shapes and rates
    ----------------
    record[n] -> record[m], N:M: up to k records per key and tick. O(log n) time per record; the state of a key is the
    last record of each item since the last tick.

    A result has the key, ``tick_time``, ``rank`` (from 1 on), the item and the value. Its ``event_time`` is the
    microsecond before the tick.

    Missing values
    --------------
    A record without item or value, or whose value is NaN, is not ranked.

    Errors
    ------
    ``late``: the tick of the record's event time has passed. ``no_event_time``. ``out_of_range``: the tick
    lies after the year 9999.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the rankers of trending topics.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> top = TopK(item="tag", k=2, every="2s").session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> for second, tag, count in ((0, "a", 3), (0, "b", 5), (1, "c", 3), (1, "b", 4), (2, "d", 1)):
    ...     for out in top.push({"event_time": noon + timedelta(seconds=second), "tag": tag, "count": count}):
    ...         print(f"{out['tick_time']:%S}", out["rank"], out["tag"], out["count"])
    02 1 b 4.0
    02 2 a 3.0
    """

    code: ClassVar[str] = "TPK"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:M"

    item: str
    every: timedelta
    value: str = "count"
    k: Count = 10
    zeros: bool = False
    partial: bool = True

    def validate(self) -> None:
        if self.every <= timedelta(0):
            raise ConfigError(f"every must be longer than 0, got {self.every!r}")
        if self.ttl is not None:
            raise ConfigError(f"ttl = {self.ttl!r} is not supported: rankings hold nothing beyond a tick")
        names = [*self.by, self.item, self.value, "tick_time", "rank", "event_time", "seq"]
        if len(set(names)) < len(names) or ordinals(names):
            raise ConfigError(f"item, value and by must be different fields other than tick_time and rank, got {names}")

    # -- contract ----------------------------------------------------------------------------------

    def clock(self) -> Clock:
        return Clock(self.every, from_first=True, whole_periods=True)

    @property
    def key_retention(self) -> timedelta:
        return self.every * 3

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any", self.item: "key", self.value: "exact number"}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_time_field(self.name(), schema)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        out = with_timer_ordinals(pa.schema([schema.field("seq")])) if "seq" in schema.names else pa.schema([])
        fields = [pa.field("event_time", TIMESTAMP), *(schema.field(name) for name in self.by)]
        added = [pa.field("tick_time", TIMESTAMP), pa.field("rank", pa.int64())]
        for field in (*fields, *added, schema.field(self.item), schema.field(self.value)):
            out = out if field.name in out.names else out.append(field.with_type(plain_type(field.type)))
        return out

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", "tick_time", "rank"})

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        raise AssertionError("rows and ticks go through advance")

    def advance(
        self, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        before, passed = self._tick_numbers(np.array([ticks.start, ticks.end]), ticks).tolist()
        # between two ticks, no held row is due, and only those of the keys of the batch are looked at
        keys = np.unique(slots) if passed == before else np.arange(len(state["held"]))
        rows = self._rows_to_rank(batch, slots, state, keys, ticks, errors)
        if rows is None:
            return None, None
        slot, tick = (int_column(rows.column(name)) for name in (SLOT, TICK))
        if ticks.end >= END:
            passed = LAST_TICK if self.partial else -1
        values = dense_ranks(rows.column(self.value))
        codes, known = dictionary_codes(_normalise_zeros(rows.column(self.item)))
        order = _order_by_tick(tick, slot, len(state["held"]))
        # only items that reach the k-th value are compared by name
        found, ends, used = (
            np.empty(order.size, np.int64),
            np.zeros(order.size + 1, np.int64),
            np.zeros(len(known), bool),
        )
        runs, n, all_ = select_candidates(
            order, tick, slot, codes, values, passed, self.k, self.zeros, np.zeros(len(known), np.int64), used,
            np.empty(min(self.k, order.size)), found, ends,
        )  # fmt: skip
        if n < all_:
            held = np.sort(found[n:all_])
            self._hold(rows.take(pa.array(held)), slot[held], state)
        if not n:
            return None, None
        ends, order = ends[: runs + 1], found[:n]
        order = order[sort_runs(ends, np.arange(n), -values[order], _name_ranks(known, used)[codes[order]])]
        row, rank, times, key, item = (np.empty(n, np.int64) for _ in range(5))
        n = top_rows(
            ends, order, self.k, tick, slot, codes, ticks.origin, to_microseconds(self.every), row, rank, times, key,
            item,
        )  # fmt: skip
        columns = [
            int64_column(times[:n], TIMESTAMP),
            int64_column(rank[:n]),
            take(known, item[:n]),
            take(rows.column(self.value), row[:n]),
        ]
        names = ["tick_time", "rank", self.item, self.value]
        return None, TimerOutput(key[:n], pa.RecordBatch.from_arrays(columns, names=names), times[:n])

    def _tick_numbers(self, times: Numbers, ticks: Ticks) -> Numbers:
        """Return the number of ticks up to each time."""
        if ticks.origin == NEVER:
            return np.zeros(times.size, np.int64)
        return np.where(times == NEVER, 0, (times - ticks.origin) // to_microseconds(self.every))

    def _rows_to_rank(
        self,
        batch: pa.RecordBatch | None,
        slots: Numbers,
        state: State,
        keys: Numbers,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> pa.RecordBatch | None:
        """Return held rows of keys and new rows with slot and tick, or None; the held rows leave the state."""
        parts = []
        for number in keys.tolist():
            if (held := state["held"][number]) is not None:
                parts.append(held.append_column(SLOT, pa.array(np.full(held.num_rows, number))))
                state["held"][number] = None
        if batch is not None and batch.num_rows:
            parts.append(self._pending_rows(batch, slots, ticks, errors))
        return (
            concat_batches(parts if len(parts) == 1 else [decode_dictionaries(part) for part in parts])
            if parts
            else None
        )

    def _pending_rows(
        self, batch: pa.RecordBatch, slots: Numbers, ticks: Ticks, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Return the rows to rank at a later tick, with slot and tick, and reject the others."""
        n = batch.num_rows
        times, timed = microseconds(batch.column("event_time"))
        values, _ = float_column(batch.column(self.value))
        tick, late, good = np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n, np.bool_)
        bad = next_ticks(
            times, timed, values, readonly(valid_mask(batch.column(self.item))), ticks.origin,
            to_microseconds(self.every), readonly(ticks.rows), self._tick_numbers(ticks.moments, ticks), tick, late,
            good,
        )  # fmt: skip
        columns = [batch.column(self.item), batch.column(self.value), int64_column(tick), int64_column(slots)]
        rows = pa.RecordBatch.from_arrays(columns, names=[self.item, self.value, TICK, SLOT])
        last = 0 if ticks.origin == NEVER else (LATEST - ticks.origin) // to_microseconds(self.every)
        beyond = good & (tick > last)
        if beyond.any():
            errors.reject(batch, beyond, "out_of_range", "the tick after it lies after the year 9999")
            good &= ~beyond
        elif not bad:
            return rows
        errors.reject(batch, ~timed, "no_event_time", "ranking needs an event time")
        errors.reject(batch, late, "late", "the tick of its event time has passed")
        return filter_rows(rows, good)

    def _hold(self, rows: pa.RecordBatch, slots: Numbers, state: State) -> None:
        waiting = rows.drop_columns([SLOT])
        for slot in np.unique(slots).tolist():
            state["held"][slot] = waiting.filter(pa.array(slots == slot))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = 12
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(rows), pa.int64()),
                "event_time": pa.array([3, 1, 4, 4, None, 12, 9, 13, 31, 30, 33, 60], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, "", "a", "b"],
                "item": ["x", "y", None, "ü", "x", "x", "y", "", "x", "x", "y", "y"],
                "n": [1.0, 0.0, 5.0, float("nan"), 1.0, 2.0, None, float("inf"), -5.0, 6.0, 7.0, 8.0],
            }
        )
        five = timedelta(seconds=5)
        yield Case(cls(by=("key",), item="item", value="n", every=five, k=2), batch)
        yield Case(cls(item="item", value="n", every=five, k=1, zeros=True, partial=False), batch, "one key")


def _order_by_tick(tick: Numbers, slot: Numbers, keys: int) -> Numbers:
    """Return the stable order of rows by tick and slot; slots are below ``keys``."""
    if are_sorted([tick, slot], tick.size):
        return np.arange(tick.size)
    if keys <= tick.size and are_sorted([tick], tick.size):
        return order_by_number_within(run_edges(tick), np.arange(tick.size), slot, keys)
    return np.lexsort((slot, tick))


def _name_ranks(known: pa.Array, used: npt.NDArray[np.bool_]) -> Numbers:
    """Rank the used items by name."""
    places, some = np.empty(used.size, np.int64), np.flatnonzero(used)
    places[some[np.asarray(pc.sort_indices(take(known, some)))]] = np.arange(some.size)
    return places


def _normalise_zeros(items: pa.Array) -> pa.Array:
    """Turn -0.0 into 0.0, so that equal items have equal bits."""
    return pc.add(items, 0.0) if pa.types.is_floating(items.type) else items
