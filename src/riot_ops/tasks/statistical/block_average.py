"""Mean over windows of readings: by count (tumbling or sliding) or by event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import next_sub
from riot_ops.core.parameters import Count
from riot_ops.kernels.arrow import float_column, int_column
from riot_ops.kernels.timestamps import check_time_field, from_microseconds, microseconds
from riot_ops.kernels.windows import NEVER, slide, tumble, tumble_time
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register, replace_column, with_field

__all__ = ["BlockAverage"]

#: Readings of a window where nothing is said.
READINGS = 10
#: Most windows of one key that lateness may keep open.
MAX_OPEN = 1024
ORDER = ("seq", "sub")
#: Place of what is left at the end, behind all that its last record gave.
LAST = np.iinfo(np.int64).max


@register
@dataclass(frozen=True, kw_only=True)
class BlockAverage(ValueTask):
    """Average the readings of each key over windows.

    ``mean = (x1 + … + xn) / n`` with a compensated sum.

    Parameters
    ----------
    window : int >= 1, default 10 where there is no duration
        Readings per window.
    duration : timedelta > 0 or text such as "10min", optional
        In place of window: the length of windows of event time, aligned to the epoch: ``[k d, (k + 1) d)``.
    mode : "tumbling" or "sliding", default "tumbling"
        One window after the other, or one that ends at every reading from the window-th on.
        Windows of time are tumbling.
    lateness : timedelta >= 0, default 0
        How far a record may lag behind the latest time of its key. A window of time is closed by
        the record of its own key whose time less the lateness reaches the window's end.
        At most 1,024 windows may stay open.
    partial : bool, default False
        Whether the end of a bounded stream emits windows that are not full (or not closed); with
        sliding windows, those of keys that never had a full one.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n / window], N:1 (sliding: 1:1 once full); O(1) time per reading
    (amortised where sliding). State per key: 24 bytes, sliding 8 more per reading of the window;
    of time 8 and 40 per window that can be open, ``ceil(lateness / duration) + 1``. The error of a
    mean is a few units in the last place of the mean of ``|x|``.

    A result is the record that completed the window, with the mean in the output field and the
    number of readings in ``count``. For a window of time it is the record that closed it, with the
    window's end as ``event_time``; as a record can close several, a further ``sub`` (int64) is the
    place of the window among them, where there is a ``seq``. What is left at the end has the ``seq``
    and ``sub`` of the last record in the window, in a window of time with 2^63 - 1 for the place.

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
    >>> from datetime import UTC, datetime
    >>> minutes = BlockAverage(duration="10min").session()
    >>> rows = [{"event_time": datetime(2024, 5, 1, 12, m, tzinfo=UTC), "value": float(m)} for m in (1, 4, 9, 10)]
    >>> [(f"{out['event_time']:%H:%M}", round(out["value"], 3), out["count"]) for out in minutes.push_many(rows)]
    [('12:10', 4.667, 3)]
    """

    code: ClassVar[str] = "AVG"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    window: Count | None = None
    duration: timedelta | None = None
    mode: Literal["tumbling", "sliding"] = "tumbling"
    lateness: timedelta = timedelta(0)
    partial: bool = False

    def validate(self) -> None:
        if self.window is not None and self.duration is not None:
            raise ConfigError(
                "BlockAverage takes either window (readings) or duration (event time), got "
                f"window = {self.window!r} and duration = {self.duration!r}"
            )
        if self.duration is None:
            if self.window is None:
                object.__setattr__(self, "window", READINGS)
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
            if "seq" in schema.names:
                schema = with_field(schema, pa.field(next_sub(schema.names), pa.int64()))
        return with_field(schema, pa.field("count", pa.int64()))

    def derives(self) -> bool:
        return self.duration is not None

    def writes(self) -> frozenset[str] | None:
        fields = {self.target, "count"}
        return frozenset(fields if self.duration is None else {*fields, "event_time"})

    def state_fields(self) -> Mapping[str, StateField]:
        room = 0 if self.duration is None else self._open
        fields = {
            "total": StateField("float64", room),
            "rest": StateField("float64", room),
            "n": StateField("int64", room),
        }
        if self.window is not None and self.mode == "sliding":
            fields["ring"] = StateField("float64", self.window)
        if self.partial:
            fields |= {name: StateField("int64", room, NEVER) for name in ORDER}
        if self.duration is not None or self.partial:
            fields["time"] = StateField("int64", initial=NEVER)
        return fields

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Sums as they are: ``total`` and ``rest`` are two parts of each, scaled against overflow."""
        parts = [table.column(name).combine_chunks() for name in ("total", "rest")]
        flat = [np.asarray(part if self.duration is None else part.flatten()) for part in parts]
        sums = pa.array((flat[0] + flat[1]) / self._scale)
        if self.duration is not None:
            sums = pa.FixedSizeListArray.from_arrays(sums, self._open)
        return table.drop_columns(["rest"]).set_column(table.column_names.index("total"), "total", sums)

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
            _note(batch, read, slots[read], state)
            if "event_time" in batch.schema.names:
                times, timed = microseconds(batch.column("event_time"))
                state["time"][slots[read]] = np.where(timed, times, NEVER)[read]
        counts = np.full(found, self.window, np.int64)
        return self._output(batch.take(pa.array(rows[:found])), means[:found], counts)

    def _update_time(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        assert self.duration is not None
        duration = _us(self.duration)
        values, _ = float_column(batch.column(self.value))
        times, timed = microseconds(batch.column("event_time"))
        bad = np.zeros(values.size, np.uint8)
        size = values.size + self._open
        parts = []
        row = 0
        while True:
            rows, counts, ends, places = (np.empty(size, np.int64) for _ in range(4))
            means = np.empty(size)
            found, row = tumble_time(
                values,
                times,
                timed,
                slots,
                state["total"],
                state["rest"],
                state["n"],
                state["time"],
                duration,
                _us(self.lateness),
                self._scale,
                bad,
                row,
                rows,
                means,
                counts,
                ends,
                places,
            )
            closing = batch.take(pa.array(rows[:found]))
            kind = batch.schema.field("event_time").type
            closing = replace_column(closing, "event_time", from_microseconds(ends[:found], kind))
            if "seq" in batch.schema.names:
                closing = closing.append_column(next_sub(batch.schema.names), pa.array(places[:found]))
            parts.append(self._output(closing, means[:found], counts[:found]))
            if row == values.size:
                break
        if self.partial:
            read = np.flatnonzero(~np.isnan(values) & (bad == 0))
            _note(batch, read, (slots[read], times[read] // duration % self._open), state)
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
        timed = times != NEVER  # key by key, whoever else is here
        if timed.any():
            columns["event_time"] = pc.if_else(pa.array(timed), from_microseconds(np.where(timed, times, 0)), None)
        for name in ORDER:
            if slots.size and state[name][place].min() != NEVER:
                columns[name] = pa.array(state[name][place])
        if self.duration is not None and "seq" in columns:
            columns[next_sub(columns)] = pa.array(np.full(slots.size, LAST))
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
        yield Case(cls(duration=seconds, by=("key",), partial=True), batch)
        yield Case(cls(duration=seconds, lateness=2 * seconds), batch)


def _us(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


def _note(batch: pa.RecordBatch, rows: npt.NDArray[np.int64], places: Any, state: State) -> None:
    """Keep the numbers of the last record at each place of the state."""
    for name in ORDER:
        if name in batch.schema.names:
            state[name][places] = int_column(batch.column(name))[rows]
