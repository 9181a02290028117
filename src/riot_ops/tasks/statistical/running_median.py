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
from riot_ops.kernels.arrow import float_column, int_column, replace_column
from riot_ops.kernels.heaps import include, leave_out, middle
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.timestamps import check_time_field, microseconds
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["RunningMedian"]

Numbers = npt.NDArray[np.int64]
#: Marks rows that are held: whether the value is among the values of its key, and whether the row is the last of a
#: time that may go on.
ROLE = "_role"
VALUE, LAST = 1, 2
#: What is wrong with a row.
FINE, UNKNOWN, LATE = 0, 1, 2


@kernel
def _follow(
    values: Any, actions: Any, roles: Any, slots: Any, times: Any, held: Any, each: Any, base: Any, low: Any, high: Any,
    place: Any, above: Any, lows: Any, highs: Any, head: Any, tail: Any, after: Any, last: Any, wrong: Any, rows: Any,
    medians: Any, counts: Any,
) -> Any:  # fmt: skip
    """Medians and numbers of values: behind each row, or of each time when a later one begins; returns how many.

    The values of a key are a queue from ``head`` to ``tail``, each with the one ``after`` it; ``head`` behind the end
    of the rows is none. ``last`` is the last row of each key that was fine.
    """
    n = values.size
    found = 0
    for i in range(n):
        s = slots[i]
        if i < held:
            if roles[i] & LAST:
                last[s] = i
            if not roles[i] & VALUE:
                continue
        elif not each and last[s] >= 0 and times[i] < times[last[s]]:
            wrong[i] = LATE
            continue
        if i >= held and actions[i] < 0 and (head[s] >= n or values[head[s]] != values[i]):
            wrong[i] = UNKNOWN
            continue
        if i >= held and not each and last[s] >= 0 and times[i] > times[last[s]]:
            rows[found] = last[s]
            counts[found] = lows[s] + highs[s]
            medians[found] = middle(values, low, high, base[s], lows, highs, s) if counts[found] else np.nan
            found += 1
        if i < held or actions[i] > 0:
            include(values, low, high, place, above, base[s], lows, highs, s, i)
            after[i] = n
            if head[s] >= n:
                head[s] = i
            else:
                after[tail[s]] = i
            tail[s] = i
        else:
            leave_out(values, low, high, place, above, base[s], lows, highs, s, head[s])
            wrong[head[s]] = -1  # no longer among the values
            head[s] = after[head[s]]
        if i < held:
            continue
        last[s] = i
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
    float64[n] -> float64[m], 1:0/1; O(log values) time per record, and per batch O(values) to take them up. The state
    is the records whose values are there.

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
        return {"held": StateField("rows", initial=None)}

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
        n, held = batch.num_rows, 0 if state["held"][0] is None else state["held"][0].num_rows
        roles = np.zeros(n, np.int64)
        if ROLE in batch.schema.names:
            roles, batch = int_column(batch.column(ROLE)), batch.drop_columns([ROLE])
        values, _ = float_column(batch.column(self.value))
        actions = np.ones(n) if self.action is None else float_column(batch.column(self.action))[0]
        times = np.zeros(n, np.int64) if self.emit == "each" else microseconds(batch.column("event_time"))[0]
        keys = int(slots.max()) + 1 if n else 0
        sizes = np.bincount(slots, minlength=keys)
        low, high, place, after, rows, counts = (np.empty(n, np.int64) for _ in range(6))
        lows, highs = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        last, wrong, medians = np.full(keys, -1), np.zeros(n, np.int8), np.empty(n)
        found = _follow(
            values, actions, roles, slots, times, held, self.emit != "time", np.cumsum(sizes) - sizes, low, high, place,
            np.empty(n, np.bool_), lows, highs, np.full(keys, n), np.full(keys, n), after, last, wrong, rows, medians,
            counts,
        )  # fmt: skip
        for mark, reason, text in (
            (UNKNOWN, "unknown_value", "it is not the oldest value"), (LATE, "late", "a later time has begun"),
        ):  # fmt: skip
            dead.reject(batch, wrong == mark, reason, text)
        self._hold(batch, state, held, roles, actions, wrong, last)
        rows, medians, counts = rows[:found], medians[:found], counts[:found]
        if self.emit == "update":
            rows, medians, counts = _last_of_times(rows, medians, counts, slots, times)
        return self._output(batch.take(pa.array(rows)), medians, counts)

    def end(self, held: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch | None:
        """Of each key the time that was still going on."""
        if self.emit != "time" or not self.partial:
            return None
        roles = int_column(held.column(ROLE))
        rows = np.flatnonzero(roles & LAST)
        values, _ = float_column(held.column(self.value))
        alive = (roles & VALUE) > 0
        found = [values[alive & (slots == slots[row])] for row in rows]
        medians = np.array([np.nan if not one.size else np.median(one / 2) * 2 for one in found])
        state["held"][0] = None
        counts = np.array([one.size for one in found], np.int64)
        return self._output(held.drop_columns([ROLE]).take(pa.array(rows)), medians, counts)

    def _hold(
        self, batch: pa.RecordBatch, state: State, held: int, roles: Numbers, actions: Any, wrong: Any, last: Numbers
    ) -> None:
        kept = np.where(np.arange(roles.size) < held, roles & VALUE, actions > 0).astype(np.int64)
        kept[wrong != FINE] = 0
        if self.emit == "time":
            kept[last[last >= 0]] |= LAST
        rows = np.flatnonzero(kept)
        state["held"][0] = None
        if rows.size:
            state["held"][0] = batch.take(pa.array(rows)).append_column(ROLE, pa.array(kept[rows]))

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


def _last_of_times(
    rows: Numbers, medians: npt.NDArray[np.float64], counts: Numbers, slots: Numbers, times: Numbers
) -> tuple[Numbers, npt.NDArray[np.float64], Numbers]:
    """The last of each key and time, in order."""
    order = np.lexsort((rows, times[rows], slots[rows]))
    s, t = slots[rows[order]], times[rows[order]]
    last = np.append((s[1:] != s[:-1]) | (t[1:] != t[:-1]), True)[: rows.size]
    kept = np.sort(order[last])
    return rows[kept], medians[kept], counts[kept]
