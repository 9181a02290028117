"""Running median of values that are added and removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import concat_batches, float_column, replace_column
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.kernels.arrays.ordering import group_by_slot
from riot_ops.kernels.arrays.rows import take_rows
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.median_heaps import insert, median, rebalance, remove_oldest
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["RunningMedian"]

Numbers = npt.NDArray[np.int64]
#: Initial entries of a key's ring.
INITIAL_CAPACITY = 8
#: Why a row is rejected.
UNKNOWN, LATE = 1, 2


@kernel
def _medians_by_row(
    xs: Any, actions: Any, slots: Any, times: Any, order: Any, update: Any, values: Any, low: Any, high: Any,
    place: Any, above: Any, lows: Any, highs: Any, head: Any, room: Any, last: Any, wrong: Any, emitted: Any,
    medians: Any, counts: Any,
) -> Any:  # fmt: skip
    """Compute median and number of values after each row; mark the rows to emit, with ``update`` the last of each time.

    ``order`` groups the rows by key. Returns whether the times of some key decrease: then ``emitted`` is not complete.
    """
    time_decreases = False
    for k in range(order.size):
        i = np.uint64(order[np.uint64(k)])
        s = slots[i]
        if actions[i] < 0 and (lows[s] + highs[s] == 0 or values[s, head[s]] != xs[i]):
            wrong[i] = UNKNOWN
            continue
        if actions[i] > 0:
            insert(values, low, high, place, above, lows, highs, head, room, s, xs[i])
        else:
            remove_oldest(values, low, high, place, above, lows, highs, head, room, s)
        rebalance(values, low, high, place, above, lows, highs, s)
        counts[i] = lows[s] + highs[s]
        medians[i] = median(values, low, high, lows, highs, s)
        emitted[i] = True
        if update and last[s] >= 0:
            before = np.uint64(last[s])
            time_decreases |= times[i] < times[before]
            emitted[before] = times[i] != times[before]
        last[s] = np.int64(i)
    return time_decreases


@kernel
def _medians_by_time(
    xs: Any, actions: Any, slots: Any, times: Any, values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any,
    highs: Any, head: Any, room: Any, last: Any, last_time: Any, wrong: Any, rows: Any, medians: Any, counts: Any,
) -> Any:  # fmt: skip
    """Compute median and number of values of each event time when a later one begins; return the number of results.

    ``last`` is the last valid row of each key (-1 - s: a row of an earlier batch) and ``last_time`` its time.
    """
    found = 0
    for i in range(xs.size):
        s = slots[i]
        if times[i] < last_time[s]:
            wrong[i] = LATE
            continue
        if actions[i] < 0 and (lows[s] + highs[s] == 0 or values[s, head[s]] != xs[i]):
            wrong[i] = UNKNOWN
            continue
        if last_time[s] != NEVER and times[i] > last_time[s]:
            rows[found] = last[s]
            counts[found] = lows[s] + highs[s]
            rebalance(values, low, high, place, above, lows, highs, s)
            medians[found] = median(values, low, high, lows, highs, s)
            found += 1
        if actions[i] > 0:
            insert(values, low, high, place, above, lows, highs, head, room, s, xs[i])
        else:
            remove_oldest(values, low, high, place, above, lows, highs, head, room, s)
        last[s] = i
        last_time[s] = times[i]
    return found


@register
@dataclass(frozen=True, kw_only=True)
class RunningMedian(KeyedTask):
    """Compute the running median of each key's values; records add values and remove them.

    The median of an even number of values is the mean of the two middle ones. It is float64: one of the values, or the
    float64 nearest to the exact mean. A number that float64 cannot hold is rejected.

    Parameters
    ----------
    value : str, default "value"
        Numeric field with the value.
    action : str or None, default "action"
        Field with the action: a number above 0 adds the value; one below 0 removes it, which must be the key's oldest,
        as :class:`SlidingWindow` emits them. None: every record adds its value.
    emit : "each", "final" or "update", default "each"
        Emit the median after every record; or once per event time of the key, with the last record of that time, when
        a later time begins (or the stream ends); or with the last record of each event time in a (micro-)batch: then
        the output depends on how the stream is cut, except for the last record of each time.
    output : str, default "median"
        Field for the median.
    count : str, default "count"
        Field for the number of values.
    tag : str, optional
        Text for the field ``scope``, which distinguishes medians over several keys in one stream; by default the field
        is not added.
    partial : bool, default True
        With ``emit="final"``: whether the end of a bounded stream emits the last time of each key.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[m], 1:0/1; O(log values) time per record, the state of a key is 21 bytes per value, for the
    largest number of values that any key of the bucket has had (rounded up to a power of two).

    Missing values
    --------------
    A null or NaN is an error. The median of a key without values is null.

    Errors
    ------
    ``missing``, ``not_finite``; ``out_of_range``: float64 cannot hold the number; ``unknown_value``: the value to
    remove is not the oldest; with ``emit="final"`` also ``no_event_time`` and ``late``: a record of the key with a
    later time came earlier.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.
    .. [2] H. Ziekow, Z. Jerzak, *The DEBS 2014 Grand Challenge*, DEBS 2014.

    Examples
    --------
    >>> loads = RunningMedian().session()
    >>> steps = [(5.0, 1), (1.0, 1), (9.0, 1), (5.0, -1), (1.0, -1)]
    >>> [row["median"] for v, a in steps for row in loads.push({"value": v, "action": a})]
    [5.0, 3.0, 5.0, 5.0, 9.0]
    """

    code: ClassVar[str] = "RMD"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "1:0/1"

    value: str = "value"
    action: str | None = "action"
    emit: Literal["each", "final", "update"] = "each"
    output: str = "median"
    count: str = "count"
    tag: str | None = None
    partial: bool = True

    def validate(self) -> None:
        if self.output == self.count:
            raise ConfigError(f"output and count must be different fields, got {self.output!r} for both")

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.action is None else {self.action: "number"}
        if self.emit != "each":
            extra["event_time"] = "any"
        return {**super().requires(), self.value: "number", **extra}

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output, self.count} | ({"scope"} if self.tag is not None else set()))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.emit != "each":
            check_time_field(self.name(), schema)
        schema = with_field(with_field(schema, pa.field(self.output, pa.float64())), pa.field(self.count, pa.int64()))
        return schema if self.tag is None else with_field(schema, pa.field("scope", pa.string()))

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {name: StateField("int64") for name in ("lows", "highs", "head")}
        fields |= {"room": StateField("int64", initial=INITIAL_CAPACITY)}
        dtypes = {"values": "float64", "low": "int32", "high": "int32", "place": "int32", "above": "bool"}
        fields |= {name: StateField(dtype, INITIAL_CAPACITY, growable=True) for name, dtype in dtypes.items()}
        if self.emit == "final":
            fields |= {"latest": StateField("rows", initial=None), "latest_time": StateField("int64", initial=NEVER)}
        return fields

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        wrong = np.zeros(batch.num_rows, np.bool_)
        checks = []
        for name in (self.value, *([] if self.action is None else [self.action])):
            values, _ = float_column(batch.column(name))
            checks += [(np.isnan(values), "missing", f"{name} is missing")]
            checks += [(np.isinf(values), "not_finite", f"{name} is infinite")]
        if self.emit == "final":
            checks += [(np.asarray(batch.column("event_time").is_null()), "no_event_time", "the event time is missing")]
        for rows, reason, message in checks:
            errors.reject(batch, rows & ~wrong, reason, message)
            wrong |= rows
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        n = batch.num_rows
        xs, _ = float_column(batch.column(self.value))
        actions = np.ones(n) if self.action is None else float_column(batch.column(self.action))[0]
        times = np.zeros(n, np.int64) if self.emit == "each" else microseconds(batch.column("event_time"))[0]
        heaps = self._widened_heaps(state, slots[actions > 0])
        wrong, medians, counts = np.zeros(n, np.int8), np.empty(n), np.empty(n, np.int64)
        last = -1 - np.arange(state["head"].size)
        if self.emit != "final":
            emitted, order, update = np.zeros(n, np.bool_), group_by_slot(slots, last.size), self.emit == "update"
            out: list[Any] = [last, wrong, emitted, medians, counts]
            time_decreases = _medians_by_row(xs, actions, slots, times, order, update, *heaps, *out)
            errors.reject(batch, wrong == UNKNOWN, "unknown_value", "the removed value is not the oldest")
            rows = np.flatnonzero(emitted if not time_decreases else wrong == 0)
            if time_decreases:
                rows = _last_rows_of_times(rows, slots, times)
            if rows.size == n:
                return self._output(batch, medians, counts)
            return self._output(take_rows(batch, rows), medians[rows], counts[rows])
        rows = np.empty(n, np.int64)
        out = [last, state["latest_time"], wrong, rows, medians, counts]
        found = _medians_by_time(xs, actions, slots, times, *heaps, *out)
        for mark, reason, text in (
            (UNKNOWN, "unknown_value", "the removed value is not the oldest"), (LATE, "late", "a later time has begun"),
        ):  # fmt: skip
            errors.reject(batch, wrong == mark, reason, text)
        rows, medians, counts = rows[:found], medians[:found], counts[:found]
        before = [state["latest"][-1 - row] for row in rows if row < 0]  # in the order of their keys' rows
        taken = concat_batches([*before, batch])
        places = np.where(rows < 0, np.cumsum(rows < 0) - 1, rows + len(before))
        for s in np.flatnonzero(last >= 0):
            state["latest"][s] = batch.take(pa.array([last[s]]))
        return self._output(taken.take(pa.array(places)), medians, counts)

    def _widened_heaps(self, state: State, added: Numbers) -> list[Any]:
        """Return the arrays of the heaps, widened for the most values that a key can reach in the batch."""
        sizes = np.bincount(added, minlength=state["head"].size) + state["lows"] + state["highs"]
        width = int(max(sizes.max(initial=0), state["room"].max(initial=INITIAL_CAPACITY)))
        for name, field in self.state_fields().items():
            if field.growable:
                state[name] = field.widen(state[name], width)
        return [state[name] for name in ("values", "low", "high", "place", "above", "lows", "highs", "head", "room")]

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Emit the event time that is still open of each key."""
        if self.emit != "final" or not self.partial:
            return None
        slots = [s for s, row in enumerate(state["latest"]) if row is not None]
        if not slots:
            return None
        medians = np.empty(len(slots))
        for i, s in enumerate(slots):
            rebalance(*[*(state[name] for name in ("values", "low", "high", "place", "above", "lows", "highs")), s])
            medians[i] = median(*[*(state[name] for name in ("values", "low", "high", "lows", "highs")), s])
        counts = (state["lows"] + state["highs"])[slots]
        return self._output(concat_batches([state["latest"][s] for s in slots]), medians, counts)

    def _output(self, batch: pa.RecordBatch, medians: npt.NDArray[np.float64], counts: Numbers) -> pa.RecordBatch:
        batch = replace_column(replace_column(batch, self.output, medians), self.count, pa.array(counts))
        if self.tag is None:
            return batch
        return replace_column(batch, "scope", pa.repeat(pa.scalar(self.tag, pa.string()), batch.num_rows))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = [
            (0, "a", 4, 1), (0, "b", 1, 1), (1, "a", 2, 1), (1, "a", 9, 1), (None, "b", 5, 1), (2, None, 3, 1),
            (1, "a", 4, -1), (3, "a", 2, -1), (3, "b", 1, -1), (3, "a", 7, -1), (0, "a", 9, -1), (4, "a", 9, -1),
            (5, None, 3, -1), (5, "b", 5, -1), (5, "b", None, 1),
        ]  # fmt: skip
        times, keys, values, actions = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(len(rows)), pa.int64()),
                "event_time": pa.array(times, pa.timestamp("s", "UTC")).cast(TIMESTAMP),
                "key": keys,
                "value": pa.array(values, pa.int64()),
                "action": pa.array(actions, pa.int64()),
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), emit="final", output="middle", count="n", tag="keys"), batch)
        yield Case(cls(emit="final"), batch.filter(pc.equal(batch.column("key"), "a")))


def _last_rows_of_times(rows: Numbers, slots: Numbers, times: Numbers) -> Numbers:
    """Select the last of the given rows of each key and time, in order."""
    of = key_numbers([pa.array(slots[rows]), pa.array(times[rows])], rows.size)
    return rows[latest_rows(of, rows.size)]
