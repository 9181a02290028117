"""Median of values that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrow import float_column, joined, replace_column
from riot_ops.kernels.heaps import include, leave_out, middle
from riot_ops.kernels.index import key_numbers
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.timestamps import check_time_field, microseconds
from riot_ops.kernels.windows import NEVER
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["RunningMedian"]

Numbers = npt.NDArray[np.int64]
#: Where a value that is held stands in the heaps of its key.
PLACE, ABOVE = "_place", "_above"
#: What is wrong with a row; GONE: its value has been taken away.
FINE, UNKNOWN, LATE, GONE = 0, 1, 2, 3


@kernel
def _take_up(
    slots: Any, held: Any, base: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, head: Any,
    tail: Any, after: Any,
) -> None:  # fmt: skip
    """The heaps and queues of the values that are held."""
    n = slots.size
    for i in range(held):
        s = slots[i]
        if above[i]:
            high[base[s] + place[i]] = i
            highs[s] += 1
        else:
            low[base[s] + place[i]] = i
            lows[s] += 1
        after[i] = n
        if head[s] >= n:
            head[s] = i
        else:
            after[tail[s]] = i
        tail[s] = i


@kernel
def _follow(
    values: Any, actions: Any, slots: Any, times: Any, held: Any, each: Any, base: Any, low: Any, high: Any, place: Any,
    above: Any, lows: Any, highs: Any, head: Any, tail: Any, after: Any, last: Any, last_time: Any, wrong: Any,
    rows: Any, medians: Any, counts: Any,
) -> Any:  # fmt: skip
    """Medians and numbers of values: behind each row, or of each time when a later one begins; returns how many.

    The values of a key are a queue from ``head`` to ``tail``, each with the one ``after`` it; ``head`` behind the end
    of the rows is none. ``last`` is the last row of each key that was fine, and ``last_time`` its time.
    """
    n = values.size
    found = 0
    for i in range(held, n):
        s = slots[i]
        if not each and times[i] < last_time[s]:
            wrong[i] = LATE
            continue
        if actions[i] < 0 and (head[s] >= n or values[head[s]] != values[i]):
            wrong[i] = UNKNOWN
            continue
        if not each and last_time[s] != NEVER and times[i] > last_time[s]:
            rows[found] = last[s]
            counts[found] = lows[s] + highs[s]
            medians[found] = middle(values, low, high, base[s], lows, highs, s) if counts[found] else np.nan
            found += 1
        if actions[i] > 0:
            include(values, low, high, place, above, base[s], lows, highs, s, i)
            after[i] = n
            if head[s] >= n:
                head[s] = i
            else:
                after[tail[s]] = i
            tail[s] = i
        else:
            leave_out(values, low, high, place, above, base[s], lows, highs, s, head[s])
            wrong[head[s]] = GONE
            head[s] = after[head[s]]
        last[s] = i
        last_time[s] = times[i]
        if each:
            rows[found] = i
            counts[found] = lows[s] + highs[s]
            medians[found] = middle(values, low, high, base[s], lows, highs, s) if counts[found] else np.nan
            found += 1
    return found


@register
@dataclass(frozen=True, kw_only=True)
class RunningMedian(KeyedTask):
    """Tell the median of the values of each key, to which records add values and from which they take them.

    Of an even number of values it is the mean of the two in the middle.

    Parameters
    ----------
    value : str, default "value"
        Numeric field with the value.
    action : str or None, default "action"
        Field with what is done: a number above 0 adds the value, one below 0 takes it away: it must be that of the
        key's oldest, as :class:`SlidingWindow` gives them. None: all are added.
    emit : "each", "time" or "update", default "each"
        The median behind every record; or at the end of each event time of the key, with the last record of that
        time, when a later one has come (or at the end of the stream); or with the last record of each event time in a
        batch (a micro-batch): then what comes out depends on how the stream is cut, but for the last of each time.
    output : str, default "median"
        Field for the median.
    count : str, default "count"
        Field for the number of values.
    scope : str, optional
        A text for the field ``scope``, by which medians over several keys are told apart in one stream; by default
        there is no such field.
    partial : bool, default True
        With ``emit="time"``: whether the end of a bounded stream ends the last time of each key.
    by : tuple of str, default ()
        Key.
    ttl
        Of no use here.

    Shapes and rates
    ----------------
    float64[n] -> float64[m], 1:0/1; O(log values) time per record, and per batch O(values) to take them up (few ns
    each). The state is a row per value, and the latest records.

    Missing values
    --------------
    A null or NaN is an error. A key without values has a null for its median.

    Errors
    ------
    ``missing``, ``not_finite``; ``unknown_value``: what is to be taken away is not the oldest; with ``emit="time"``
    also ``no_event_time`` and ``late``: a record of the key with a later time came before.

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
    pooled: ClassVar[bool] = True

    value: str = "value"
    action: str | None = "action"
    emit: Literal["each", "time", "update"] = "each"
    output: str = "median"
    count: str = "count"
    scope: str | None = None
    partial: bool = True

    def validate(self) -> None:
        if self.ttl is not None:
            raise ConfigError(f"running_median has no use for ttl, got {self.ttl!r}: records say what is taken away")
        if self.output == self.count:
            raise ConfigError(f"output and count must be different fields, got {self.output!r} for both")

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.action is None else {self.action: "number"}
        if self.emit != "each":
            extra["event_time"] = "any"
        return {**super().requires(), self.value: "number", **extra}

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output, self.count} | ({"scope"} if self.scope is not None else set()))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.emit != "each":
            check_time_field(self.name(), schema)
        schema = with_field(with_field(schema, pa.field(self.output, pa.float64())), pa.field(self.count, pa.int64()))
        return schema if self.scope is None else with_field(schema, pa.field("scope", pa.string()))

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None), "latest": StateField("rows", initial=None)}

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        wrong = np.zeros(batch.num_rows, np.bool_)
        checks = []
        for name in (self.value, *([] if self.action is None else [self.action])):
            values, _ = float_column(batch.column(name))
            checks += [(np.isnan(values), "missing", f"{name} is missing")]
            checks += [(np.isinf(values), "not_finite", f"{name} is infinite")]
        if self.emit == "time":
            checks += [(np.asarray(batch.column("event_time").is_null()), "no_event_time", "it has no event time")]
        for rows, reason, message in checks:
            dead.reject(batch, rows & ~wrong, reason, message)
            wrong |= rows
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        before, latest = state["held"][0], state["latest"][0]
        held = 0 if before is None else before.num_rows
        n, new = batch.num_rows, batch.slice(held)
        new = new.drop_columns([name for name in (PLACE, ABOVE) if name in new.schema.names])
        slots, of_latest = self._numbers(batch, slots, latest)
        keys = int(max(slots.max(initial=-1), of_latest.max(initial=-1))) + 1
        values, _ = float_column(batch.column(self.value))
        actions = np.ones(n) if self.action is None else float_column(batch.column(self.action))[0]
        times = np.zeros(n, np.int64) if self.emit == "each" else microseconds(batch.column("event_time"))[0]
        sizes = np.bincount(slots, minlength=keys)
        base, head, tail = np.cumsum(sizes) - sizes, np.full(keys, n), np.full(keys, n)
        low, high, place, after, rows, counts = (np.empty(n, np.int64) for _ in range(6))
        lows, highs, above = np.zeros(keys, np.int64), np.zeros(keys, np.int64), np.empty(n, np.bool_)
        if before is not None:
            place[:held] = before.column(PLACE).to_numpy()
            above[:held] = before.column(ABOVE).to_numpy(zero_copy_only=False)
        last, last_time = np.full(keys, -1), np.full(keys, NEVER)
        if latest is not None:  # they stand before the new rows, as if these went on with them
            last[of_latest] = held - latest.num_rows + np.arange(latest.num_rows)
            last_time[of_latest] = microseconds(latest.column("event_time"))[0]
            new = joined([latest, new])
        wrong, medians = np.zeros(n, np.int8), np.empty(n)
        heaps = base, low, high, place, above, lows, highs, head, tail, after
        _take_up(slots, held, *heaps)
        found = _follow(
            values, actions, slots, times, held, self.emit != "time", *heaps, last, last_time, wrong, rows, medians,
            counts,
        )  # fmt: skip
        first = n - new.num_rows  # the number of the first of the new rows and the latest before them
        for mark, reason, text in (
            (UNKNOWN, "unknown_value", "it is not the oldest value"), (LATE, "late", "a later time has begun"),
        ):  # fmt: skip
            dead.reject(new, np.flatnonzero(wrong == mark) - first, reason, text)
        there = np.flatnonzero((wrong == FINE) & ((np.arange(n) < held) | (actions > 0)))
        kept = _only(new.schema, batch, {*self.by, self.value}, there)
        kept = kept.append_column(PLACE, pa.array(place[there])).append_column(ABOVE, pa.array(above[there]))
        if self.emit == "time":
            state["latest"][0] = new.take(pa.array(np.sort(last[last_time != NEVER]) - first))
        state["held"][0] = kept if kept.num_rows or self.emit == "time" else None
        rows, medians, counts = rows[:found], medians[:found], counts[:found]
        if self.emit == "update":
            rows, medians, counts = _last_of_times(rows, medians, counts, slots, times)
        return self._output(new.take(pa.array(rows - first)), medians, counts)

    def _numbers(self, batch: pa.RecordBatch, slots: Numbers, latest: pa.RecordBatch | None) -> tuple[Numbers, Numbers]:
        """The numbers of the keys of the rows, and of the latest rows."""
        if latest is None:
            return slots, np.empty(0, np.int64)
        columns = [joined([one.select([name]) for one in (latest, batch)]).column(0) for name in self.by]
        numbers = key_numbers(columns, latest.num_rows + batch.num_rows)
        return numbers[latest.num_rows :], numbers[: latest.num_rows]

    def end(self, held: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch | None:
        """Of each key the time that was still going on."""
        latest = state["latest"][0]
        if not self.partial or latest is None:
            return None
        slots, of_latest = self._numbers(held, slots, latest)
        values, _ = float_column(held.column(self.value))
        found = [values[slots == slot] for slot in of_latest]
        medians = np.array([np.nan if not one.size else np.median(one / 2) * 2 for one in found])
        state["held"][0] = state["latest"][0] = None
        return self._output(latest, medians, np.array([one.size for one in found], np.int64))

    def _output(self, batch: pa.RecordBatch, medians: npt.NDArray[np.float64], counts: Numbers) -> pa.RecordBatch:
        batch = replace_column(replace_column(batch, self.output, medians), self.count, pa.array(counts))
        if self.scope is None:
            return batch
        return replace_column(batch, "scope", pa.array([self.scope] * batch.num_rows, pa.string()))

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
        yield Case(cls(by=("key",), emit="time", output="middle", count="n", scope="keys"), batch)
        yield Case(cls(emit="time"), batch.filter(pc.equal(batch.column("key"), "a")))


def _only(schema: pa.Schema, batch: pa.RecordBatch, names: set[str], rows: Numbers) -> pa.RecordBatch:
    """Some columns of some rows; the others are null."""
    taken = pa.array(rows)
    columns = [batch.column(f.name).take(taken) if f.name in names else pa.nulls(rows.size, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _last_of_times(
    rows: Numbers, medians: npt.NDArray[np.float64], counts: Numbers, slots: Numbers, times: Numbers
) -> tuple[Numbers, npt.NDArray[np.float64], Numbers]:
    """The last of each key and time, in order."""
    order = np.lexsort((rows, times[rows], slots[rows]))
    s, t = slots[rows[order]], times[rows[order]]
    last = np.append((s[1:] != s[:-1]) | (t[1:] != t[:-1]), True)[: rows.size]
    kept = np.sort(order[last])
    return rows[kept], medians[kept], counts[kept]
