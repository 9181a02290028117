"""Mean over windows of readings: by count (tumbling or sliding) or by event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import float_column, int_column, readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.timestamps import check_time_field, from_microseconds, microseconds
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

__all__ = ["BlockAverage"]

#: Most windows of one key that lateness may keep open.
MAX_OPEN = 1024
NEVER = np.iinfo(np.int64).min
ORDER = ("seq", "sub")


@kernel
def add(total: Any, rest: Any, x: Any) -> Any:
    """Neumaier's step: the sum of total and x, and what rounding has taken from it so far."""
    t = total + x
    if abs(total) >= abs(x):
        rest += (total - t) + x
    else:
        rest += (x - t) + total
    return t, rest


@kernel
def tumble(
    values: Any, slots: Any, total: Any, rest: Any, n: Any, window: Any, scale: Any, rows: Any, means: Any
) -> Any:
    """Means of full windows and the rows that filled them; returns how many."""
    out = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        total[s], rest[s] = add(total[s], rest[s], values[i] * scale)
        n[s] += 1
        if n[s] == window:
            rows[out] = i
            means[out] = (total[s] + rest[s]) / (window * scale)
            out += 1
            total[s] = 0.0
            rest[s] = 0.0
            n[s] = 0
    return out


@kernel
def slide(
    values: Any, slots: Any, ring: Any, total: Any, rest: Any, n: Any, window: Any, scale: Any, rows: Any, means: Any
) -> Any:
    """As :func:`tumble` for windows that end at every reading.

    Readings come in blocks of the window's length. A window is the tail of one block and the head
    of the next: the ring holds sums over tails of the last block where the current one has not
    overwritten them, so that nothing is ever subtracted and no error can build up.
    """
    out = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        place = n[s] % window
        x = values[i] * scale
        total[s], rest[s] = add(total[s], rest[s], x)
        ring[s, place] = x
        n[s] += 1
        if n[s] >= window:
            tail = ring[s, place + 1] if place + 1 < window else 0.0
            rows[out] = i
            means[out] = (total[s] + (rest[s] + tail)) / (window * scale)
            out += 1
        if place + 1 == window:
            t = 0.0
            c = 0.0
            for j in range(window - 1, -1, -1):
                t, c = add(t, c, ring[s, j])
                ring[s, j] = t + c
            total[s] = 0.0
            rest[s] = 0.0
    return out


@kernel
def tumble_time(
    values: Any,
    times: Any,
    timed: Any,
    seq: Any,
    sub: Any,
    slots: Any,
    total: Any,
    rest: Any,
    n: Any,
    last_seq: Any,
    last_sub: Any,
    newest: Any,
    duration: Any,
    lateness: Any,
    scale: Any,
    bad: Any,
    start: Any,
    rows: Any,
    means: Any,
    counts: Any,
    ends: Any,
    seqs: Any,
    subs: Any,
) -> Any:
    """Means of windows of event time that rows from ``start`` on close.

    ``bad`` is set to 1 for late rows and 2 for rows without time. Returns the number of results
    and the row reached: one before which the space for results ran out, or the end.
    """
    room = n.shape[1]
    out = 0
    for i in range(start, values.size):
        if out + room > rows.size:
            return out, i
        missing = np.isnan(values[i])
        if not timed[i]:
            if not missing:
                bad[i] = 2
            continue
        s = slots[i]
        t = times[i]
        known = newest[s] != NEVER
        if known and not missing and (t // duration + 1) * duration <= newest[s] - lateness:
            bad[i] = 1
            continue
        if known and t > newest[s]:
            w = (newest[s] - lateness) // duration
            final = newest[s] // duration
            while w <= final and (w + 1) * duration <= t - lateness:
                p = w % room
                if n[s, p] > 0:
                    rows[out] = i
                    means[out] = (total[s, p] + rest[s, p]) / (n[s, p] * scale)
                    counts[out] = n[s, p]
                    ends[out] = (w + 1) * duration
                    seqs[out] = last_seq[s, p]
                    subs[out] = last_sub[s, p]
                    out += 1
                    total[s, p] = 0.0
                    rest[s, p] = 0.0
                    n[s, p] = 0
                w += 1
        if not known or t > newest[s]:
            newest[s] = t
        if not missing:
            p = (t // duration) % room
            total[s, p], rest[s, p] = add(total[s, p], rest[s, p], values[i] * scale)
            n[s, p] += 1
            last_seq[s, p] = seq[i]
            last_sub[s, p] = sub[i]
    return out, values.size


@register
@dataclass(frozen=True, kw_only=True)
class BlockAverage(KeyedTask):
    """Average the readings of each key over windows.

    ``mean = (x1 + … + xn) / n`` with a compensated sum.

    Parameters
    ----------
    window : int >= 1 or None, default 10
        Readings per window; None for windows of time.
    duration : timedelta > 0 or None, default None
        Length of windows of event time, aligned to the epoch: ``[k d, (k + 1) d)``. Needs
        ``window=None``.
    mode : "tumbling" or "sliding", default "tumbling"
        One window after the other, or one that ends at every reading from the window-th on.
        Windows of time are tumbling.
    lateness : timedelta >= 0, default 0
        How far a record may lag behind the latest time of its key. A window of time is closed by
        the record of its own key whose time less the lateness reaches the window's end.
        At most 1,000 windows may stay open.
    partial : bool, default False
        Whether the end of a bounded stream emits windows that are not full (or not closed); with
        sliding windows, those of keys that never had a full one.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n / window], N:1 (sliding: 1:1 once full); O(1) time per reading
    (amortised where sliding). State per key: 24 bytes, sliding 8 more per reading of the window;
    of time 8 and 40 per window that can be open, ``ceil(lateness / duration) + 1``. The error of a
    mean is a few units in the last place of the mean of ``|x|``.

    A result is the record that completed the window, with the mean in the output field and the
    number of readings in ``count``. For a window of time ``event_time`` is its end, and ``seq``
    and ``sub`` are those of the last record in it; the other fields are those of the record that
    closed it.

    Missing values
    --------------
    A null or NaN reading is skipped. (Its event time counts: it can close a window.)

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``, in windows of time a reading
    without event time as ``no_event_time``, one whose window is closed as ``late``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task AVG.
    .. [2] A. Neumaier, *Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen*,
       ZAMM 54, 1974, method IV.

    Examples
    --------
    >>> average = BlockAverage(window=3).session()
    >>> [out["value"] for v in range(1, 8) for out in average.push({"value": v})]
    [2.0, 5.0]
    >>> sliding = BlockAverage(window=3, mode="sliding").session()
    >>> [out["value"] for v in range(1, 8) for out in sliding.push({"value": v})]
    [2.0, 3.0, 4.0, 5.0, 6.0]
    """

    code: ClassVar[str] = "AVG"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    window: Count | None = 10
    duration: timedelta | None = None
    mode: Literal["tumbling", "sliding"] = "tumbling"
    lateness: timedelta = timedelta(0)
    partial: bool = False

    def validate(self) -> None:
        if (self.window is None) == (self.duration is None):
            raise ConfigError(
                "BlockAverage needs either window (readings) or duration (event time): got "
                f"window = {self.window!r}, duration = {self.duration!r}; for windows of "
                "time set window to None"
            )
        if self.duration is None:
            if self.lateness != timedelta(0):
                raise ConfigError(f"lateness = {self.lateness!r} is for windows of time; set duration")
            return
        if self.duration <= timedelta(0):
            raise ConfigError(f"duration must be longer than 0, got {self.duration!r}")
        if self.mode == "sliding":
            raise ConfigError("windows of time are tumbling; mode = 'sliding' needs a window of readings")
        if self.lateness < timedelta(0):
            raise ConfigError(f"lateness must not be negative, got {self.lateness!r}")
        if self._open > MAX_OPEN:
            raise ConfigError(
                f"lateness = {self.lateness!r} keeps {self._open} windows of "
                f"{self.duration!r} open for each key; at most {MAX_OPEN} are allowed"
            )

    @property
    def _open(self) -> int:
        """Most windows of time of one key that can be open at once."""
        assert self.duration is not None
        return -(-self.lateness // self.duration) + 1

    @property
    def _scale(self) -> float:
        """A power of two by which readings are multiplied, so that no sum of finite ones overflows."""
        return 2.0**-40 if self.window is None else 2.0 ** -(self.window - 1).bit_length()

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.duration is None else {"event_time": "any"}
        return {**super().requires(), **extra}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        schema = super().output_schema(schema)
        if self.duration is not None:
            check_time_field(self.name(), schema)
        return with_field(schema, pa.field("count", pa.int64()))

    def writes(self) -> frozenset[str] | None:
        fields = {self.target, "count"}
        return frozenset(fields if self.duration is None else {*fields, "event_time", *ORDER})

    def state_fields(self) -> Mapping[str, StateField]:
        room = 0 if self.duration is None else self._open
        fields = {
            "total": StateField("float64", room),
            "rest": StateField("float64", room),
            "n": StateField("int64", room),
        }
        if self.window is not None and self.mode == "sliding":
            fields["ring"] = StateField("float64", self.window)
        if self.duration is not None or self.partial:
            fields |= {name: StateField("int64", room, NEVER) for name in ORDER}
            fields["time"] = StateField("int64", initial=NEVER)
        return fields

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        if self.duration is not None:
            return self._update_time(batch, slots, state, dead)
        values, _ = float_column(batch.column(self.value))
        rows, means = np.empty(values.size, np.int64), np.empty(values.size)
        if self.mode == "sliding":
            found = slide(
                values,
                slots,
                state["ring"],
                state["total"],
                state["rest"],
                state["n"],
                self.window,
                self._scale,
                rows,
                means,
            )
        else:
            found = tumble(
                values, slots, state["total"], state["rest"], state["n"], self.window, self._scale, rows, means
            )
        if self.partial:
            read = np.flatnonzero(~np.isnan(values))
            for name in (*ORDER, "time"):
                column = "event_time" if name == "time" else name
                if column in batch.schema.names:
                    state[name][slots[read]] = _numbers(batch, column)[read]
        counts = np.full(found, self.window, np.int64)
        return self._output(batch.take(pa.array(rows[:found])), means[:found], counts)

    def _update_time(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        assert self.duration is not None
        values, _ = float_column(batch.column(self.value))
        times, timed = microseconds(batch.column("event_time"))
        names = batch.schema.names
        seq, sub = (_numbers(batch, name) if name in names else readonly(np.full(values.size, NEVER)) for name in ORDER)
        bad = np.zeros(values.size, np.uint8)
        size = values.size + self._open
        parts = []
        row = 0
        while True:
            rows, counts, ends, seqs, subs = (np.empty(size, np.int64) for _ in range(5))
            means = np.empty(size)
            found, row = tumble_time(
                values,
                times,
                timed,
                seq,
                sub,
                slots,
                state["total"],
                state["rest"],
                state["n"],
                state["seq"],
                state["sub"],
                state["time"],
                _us(self.duration),
                _us(self.lateness),
                self._scale,
                bad,
                row,
                rows,
                means,
                counts,
                ends,
                seqs,
                subs,
            )
            out = self._output(batch.take(pa.array(rows[:found])), means[:found], counts[:found])
            kind = batch.schema.field("event_time").type
            parts.append(
                _set(
                    out,
                    event_time=from_microseconds(ends[:found], kind),
                    **{
                        name: pa.array(a[:found]).cast(batch.schema.field(name).type)
                        for name, a in zip(ORDER, (seqs, subs), strict=True)
                        if name in names
                    },
                )
            )
            if row == values.size:
                break
        dead.reject(batch, bad == 1, "late", "the window of its event time is closed")
        dead.reject(batch, bad == 2, "no_event_time", "a window of time needs an event time")
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _output(
        self, batch: pa.RecordBatch, means: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        return replace_column(replace_column(batch, self.target, means), "count", pa.array(counts))

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        if not self.partial:
            return None
        n = state["n"]
        if self.duration is None:
            slots = np.flatnonzero((n > 0) & (n < self.window))
            place: Any = slots
            times = state["time"][slots]
        else:
            duration, room = _us(self.duration), self._open
            first = (state["time"] - _us(self.lateness)) // duration
            windows = first[:, None] + np.arange(room)
            slots, j = np.nonzero(np.take_along_axis(n, windows % room, axis=1) > 0)
            place = (slots, windows[slots, j] % room)
            times = (windows[slots, j] + 1) * duration
        columns = {
            name: column.take(pa.array(slots)) for name, column in zip(keys.schema.names, keys.columns, strict=True)
        }
        if slots.size and times.min() != NEVER:
            columns["event_time"] = from_microseconds(times)
        for name in ORDER:
            if slots.size and state[name][place].min() != NEVER:
                columns[name] = pa.array(state[name][place])
        columns[self.target] = pa.array((state["total"][place] + state["rest"][place]) / (n[place] * self._scale))
        columns["count"] = pa.array(n[place])
        return pa.RecordBatch.from_pydict(columns)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = [10.0, -3.5, 12.0, None, float("nan"), 1e308, 4.0, 11.0, 1e308, 0.5]
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": pa.array([0, 1, 2, 3, 4, 5, None, 12, 1, 30], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, ""],
                "value": values,
            }
        )
        yield Case(cls(window=2, by=("key",)), batch)
        yield Case(cls(window=3, mode="sliding", output="mean", partial=True), batch)
        seconds = timedelta(seconds=5)
        yield Case(cls(window=None, duration=seconds, by=("key",), partial=True), batch)
        yield Case(cls(window=None, duration=seconds, lateness=2 * seconds), batch)


def _us(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


def _numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    if name == "event_time":
        times, timed = microseconds(batch.column(name))
        return np.where(timed, times, NEVER)
    return int_column(batch.column(name))


def _set(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name, column in columns.items():
        batch = replace_column(batch, name, column)
    return batch
