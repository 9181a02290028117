"""Interpolation: fill gaps in a stream from the readings before them, or on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.clock import NEVER
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import is_ordinal
from riot_ops.core.parameters import Length, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import concat_batches, float_column, int_column, readonly
from riot_ops.kernels.arrays.exact import exact_numbers
from riot_ops.kernels.arrays.ordering import places_in_runs, run_edges
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import (
    Case,
    Requirement,
    State,
    StateField,
    ValueTask,
    next_ordinal,
    register,
    replace_column,
    with_field,
    with_next_ordinal,
)

__all__ = ["Interpolation"]

KIND = "obs_type"
#: Columns of held records: time or number of the record, and whether it is to be filled.
PLACE, GAP = "place@held", "gap@held"
#: Ordinal of the records that come out at the end of the stream.
AFTER_LAST_ORDINAL = 1 << 62


@kernel
def fill_mean(values: Any, wanted: Any, slots: Any, ring: Any, seen: Any, out: Any) -> None:
    """Fill gaps with the mean of a key's latest readings; ``seen`` counts to W, then cycles from W to 2 W - 1."""
    window = ring.shape[1]
    for i in range(values.size):
        x = values[i]
        out[i] = x
        if not wanted[i]:
            continue
        s = slots[i]
        if not np.isnan(x):
            ring[s, seen[s] % window] = x
            seen[s] += 1
            if seen[s] == 2 * window:
                seen[s] = window
        elif seen[s] > 0:
            n = min(seen[s], window)
            total = 0.0
            for j in range(n):
                total += ring[s, j]
            if not np.isfinite(total):
                total = 0.0
                for j in range(n):
                    total += ring[s, j] / n
                out[i] = total
            else:
                out[i] = total / n


@kernel
def extend_line(
    values: Any, wanted: Any, places: Any, placed: Any, slots: Any, y: Any, at: Any, known: Any, steps: Any, out: Any
) -> None:
    """Fill gaps along a line; ``y[s]`` and ``at[s]`` hold the last two readings of a key and their positions."""
    for i in range(values.size):
        x = values[i]
        out[i] = x
        if not wanted[i]:
            continue
        s = slots[i]
        t = steps[s]
        steps[s] += 1
        if places.size > 0:
            if not placed[i]:
                continue
            t = places[i]
        if not np.isnan(x):
            y[s, 0] = y[s, 1]
            at[s, 0] = at[s, 1]
            y[s, 1] = x
            at[s, 1] = t
            known[s] = min(known[s] + 1, 2)
        elif known[s] > 0:
            guess = y[s, 1]
            if known[s] == 2 and at[s, 1] != at[s, 0]:
                guess += (y[s, 1] - y[s, 0]) * ((t - at[s, 1]) / (at[s, 1] - at[s, 0]))
            if np.isfinite(guess):
                out[i] = guess


@kernel
def between(t: Any, t1: Any, y1: Any, t2: Any, y2: Any) -> Any:
    """Return the value at t on the line from (t1, y1) to (t2, y2); NaN if t is not between them."""
    if t1 == t2 or t < min(t1, t2) or t > max(t1, t2):
        return np.nan
    guess = y1 + (y2 - y1) * ((t - t1) / (t2 - t1))
    return guess if np.isfinite(guess) else y1 * ((t2 - t) / (t2 - t1)) + y2 * ((t - t1) / (t2 - t1))


@kernel
def close_gaps(
    values: Any, wanted: Any, times: Any, timed: Any, order: Any, edges: Any, touched: Any, max_gap: Any, y: Any,
    at: Any, known: Any, steps: Any, waiting: Any, places: Any, gaps: Any, released_by: Any, out: Any, first: Any,
    bounds: Any,
) -> None:  # fmt: skip
    """Release each record, or hold it while its key is in a gap, until the next reading; fill the gaps.

    The rows of key ``touched[k]`` are ``order[edges[k]:edges[k + 1]]``. ``waiting[s]`` counts the records that key s
    holds; -1: its gap is too long. Row i is released by row ``released_by[i]`` (-1: not yet), its time or number is
    ``places[i]``, and ``gaps[i]`` says whether it can be filled. Records that the key held before the batch are
    released by row ``first[k]``, and filled between the readings in ``bounds[k]``: their values, and the time of the
    earlier one as seen from the later.
    """
    for k in range(touched.size):
        s = touched[k]
        old = waiting[s] > 0
        first[k] = -1
        pending = edges[k]
        for p in range(edges[k], edges[k + 1]):
            i = order[p]
            x = values[i]
            out[i] = x
            places[i] = steps[s]
            there = wanted[i]
            if there:
                steps[s] += 1
                if times.size > 0:
                    places[i] = times[i]
                    there = timed[i]
            gaps[i] = there and np.isnan(x)
            reading = there and not gaps[i]
            if not reading and ((waiting[s] == 0 and gaps[i] and known[s]) or 0 < waiting[s] < max_gap):
                released_by[i] = -1
                waiting[s] += 1
                continue
            if waiting[s] > 0:
                for q in range(pending, p):
                    j = order[q]
                    released_by[j] = i
                    if reading and gaps[j]:
                        before = np.float64(at[s] - places[i])
                        out[j] = between(np.float64(places[j] - places[i]), before, y[s], 0.0, x)
                if old:
                    first[k] = i
                    bounds[k, 0] = y[s] if reading else np.nan
                    bounds[k, 1] = x
                    bounds[k, 2] = np.float64(at[s] - places[i])
                    old = False
                waiting[s] = 0 if reading else -1
            released_by[i] = i
            pending = p + 1
            if reading:
                y[s] = x
                at[s] = places[i]
                known[s] = 1
                waiting[s] = 0


@register
@dataclass(frozen=True, kw_only=True)
class Interpolation(ValueTask):
    """Replace a missing reading by an estimate from the readings of its key.

    ``mean``: ``(y1 + … + yW) / W`` of the last W readings. ``extrapolate``: the straight line through
    the last two, ``y2 + (y2 - y1) (t - t2) / (t2 - t1)``. ``linear``: the straight line from the reading before the gap
    to the one after it, ``y1 + (y2 - y1) (t - t1) / (t2 - t1)``; the records of the gap wait for that reading.

    Parameters
    ----------
    window : int, 1 to 1,048,576, default 5
        Number W of readings in the mean; fewer while the key has fewer.
    method : "mean", "extrapolate" or "linear", default "mean"
        How to estimate. The latter two use ``event_time`` where the input has that field, else the number
        of the key's records. With a single reading, or two of one time, ``extrapolate`` repeats the last one.
    max_gap : int, 1 to 1,048,576, default 10000
        With ``linear``, the maximum number of records that a key holds. A longer gap is not filled.
    fields : tuple of str or None, default None
        Observation types (column ``obs_type``) to fill; records of other types pass unchanged. None:
        fill all records.
    flag : str or None, default None
        Field to add that marks filled records.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time per reading, O(window) per gap; state per key: 8 W + 8
    bytes, ``extrapolate`` 48, ``linear`` 48 and the records of a gap.

    With ``linear``, n:m. While a key waits for a reading, all of its records do, and keep their order. They come out
    with the ``seq`` of that reading and a further ``ordinal``, but keep their event times, so that windows over them
    need an ``allowed_lateness`` of the longest gap. At the end of a bounded stream, waiting records are emitted
    unfilled.

    Missing values
    --------------
    Null and NaN are filled; they stay null until the key has a reading. Estimates never enter the history. With
    ``extrapolate`` and ``linear``, a record without event time is unchanged and does not enter the history either;
    where an extrapolation overflows float64, the value stays null, as it does with ``linear`` where a record's time is
    not between those of the two readings (see :class:`SortByEventTime`).

    Errors
    ------
    An infinite reading (of a type to fill) goes to the errors stream as ``not_finite``, and an integer that float64,
    the type of the result, does not hold as ``out_of_range``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task INP: the mean.
    .. [2] pandas, ``Series.interpolate(method="time")``: ``linear``, for gaps between two readings.

    Examples
    --------
    >>> fill = Interpolation(window=5).session()
    >>> [fill.push({"value": v})[0]["value"] for v in (None, 1.0, 2.0, None, 3.0)]
    [None, 1.0, 2.0, 1.5, 3.0]
    >>> line = Interpolation(method="linear").session()
    >>> [[row["value"] for row in line.push({"value": v})] for v in (1.0, None, None, 4.0)]
    [[1.0], [], [], [2.0, 3.0, 4.0]]
    """

    code: ClassVar[str] = "INP"
    category: ClassVar[str] = "Statistical"
    version: ClassVar[int] = 2

    window: Length = 5
    method: Literal["mean", "extrapolate", "linear"] = "mean"
    max_gap: Length = 10_000
    fields: Names | None = None
    flag: str | None = None

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.fields is None else {KIND: "text"}
        return {**super().requires(), **extra}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        schema = super().output_schema(schema)
        if self.method != "mean" and "event_time" in schema.names:
            check_time_field(self.name(), schema)
        schema = schema if self.flag is None else with_field(schema, pa.field(self.flag, pa.bool_()))
        return with_next_ordinal(schema) if self.method == "linear" else schema

    def validate(self) -> None:
        if self.method == "linear" and self.ttl is not None:
            raise ConfigError(f"ttl = {self.ttl!r} is not supported with method 'linear', which holds records")

    def expands(self) -> bool:
        return self.method == "linear"

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target} if self.flag is None else {self.target, self.flag})

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        values, rests = exact_numbers(batch.column(self.value))
        infinite = np.isinf(values) & self._wanted(batch)
        rounded = rests != 0 if rests.size else np.zeros(batch.num_rows, np.bool_)
        if not (infinite.any() or rounded.any()):
            return batch
        errors.reject(batch, infinite, "not_finite", f"{self.value} is infinite")
        errors.reject(batch, rounded, "out_of_range", f"float64, the type of the result, does not hold {self.value}")
        return batch.filter(pa.array(~(infinite | rounded)))

    def state_fields(self) -> Mapping[str, StateField]:
        if self.method == "mean":
            return {"ring": StateField("float64", self.window), "seen": StateField("int64")}
        if self.method == "linear":
            numbers = {name: StateField("int64") for name in ("at", "known", "steps", "waiting")}
            return {
                "y": StateField("float64"),
                **numbers,
                "seq": StateField("int64", initial=NEVER),
                "held": StateField("rows", initial=None, pack=concat_batches, unpack=lambda rows: [rows]),
            }
        return {
            "y": StateField("float64", 2),
            "at": StateField("int64", 2),
            "known": StateField("int64"),
            "steps": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        if self.method == "linear":
            return self._on_lines(batch, slots, state)
        values, _ = float_column(batch.column(self.value))
        wanted = self._wanted(batch)
        out = np.empty(values.size)
        if self.method == "mean":
            fill_mean(values, wanted, slots, state["ring"], state["seen"], out)
        else:
            places, placed = _NO_TIMES
            if "event_time" in batch.schema.names:
                places, placed = microseconds(batch.column("event_time"))
            extend_line(
                values, wanted, places, placed, slots, state["y"], state["at"], state["known"], state["steps"], out
            )
        filled = replace_column(batch, self.target, out)
        if self.flag is None:
            return filled
        return replace_column(filled, self.flag, pa.array(np.isnan(values) & ~np.isnan(out)))

    # -- linear ------------------------------------------------------------------------------------

    def _on_lines(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State) -> pa.RecordBatch:
        n = slots.size
        values, _ = float_column(batch.column(self.value))
        times, timed = _NO_TIMES
        if "event_time" in batch.schema.names:
            times, timed = microseconds(batch.column("event_time"))
        order = np.argsort(slots, kind="stable")
        touched, starts = np.unique(slots[order], return_index=True)
        released_by, first, places = np.empty(n, np.int64), np.empty(touched.size, np.int64), np.empty(n, np.int64)
        gaps, out, bounds = np.empty(n, np.bool_), np.empty(n), np.empty((touched.size, 3))
        close_gaps(
            values, self._wanted(batch), times, timed, order, np.append(starts, n), touched, self.max_gap, state["y"],
            state["at"], state["known"], state["steps"], state["waiting"], places, gaps, released_by, out, first,
            bounds,
        )  # fmt: skip
        if "seq" in batch.schema.names:
            state["seq"][slots] = int_column(batch.column("seq"))
        rows = batch.select([name for name in batch.schema.names if name != "seq" and not is_ordinal(name)])
        parts, filled, by = [], [], []
        for k in np.flatnonzero(first >= 0).tolist():  # gaps that began before this batch
            held = state["held"][touched[k]]
            state["held"][touched[k]] = None
            parts += held
            for part in held:
                own = float_column(part.column(self.value))[0].copy()
                after = np.asarray(part.column(PLACE)) - places[first[k]]
                _fill_held(own, np.asarray(part.column(GAP)), after, bounds[k, 0], bounds[k, 1], bounds[k, 2])
                filled.append(own)
            by.append(np.full(sum(part.num_rows for part in held), first[k]))
        self._hold(rows, np.flatnonzero(released_by < 0), slots, places, gaps, state)
        now = released_by >= 0
        pool = concat_batches([*(part.drop_columns([PLACE, GAP]) for part in parts), rows.filter(pa.array(now))])
        results, releasing = np.concatenate([*filled, out[now]]), np.concatenate([*by, released_by[now]])
        turns = np.argsort(releasing, kind="stable")
        releasing = releasing[turns]
        return self._released(batch, pool.take(pa.array(turns)), results[turns], releasing)

    def _released(
        self, batch: pa.RecordBatch, pool: pa.RecordBatch, results: npt.NDArray[np.float64], by: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Return records with their results, and with the order of the rows that released them."""
        read, _ = float_column(pool.column(self.value))
        pool = replace_column(pool, self.target, results)
        if self.flag is not None:
            pool = replace_column(pool, self.flag, pa.array(np.isnan(read) & ~np.isnan(results)))
        place = pa.array(places_in_runs(run_edges(by)))
        schema = self.output_schema(batch.schema)
        ordinal, pooled = next_ordinal(batch.schema.names), set(pool.schema.names)
        columns = [
            place if f.name == ordinal
            else pool.column(f.name) if f.name in pooled
            else batch.column(f.name).take(pa.array(by))
            for f in schema
        ]  # fmt: skip
        # in a session, held rows may know the type of a field that is all null in this batch
        fields = [f.with_type(c.type) for f, c in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _hold(
        self,
        rows: pa.RecordBatch,
        held: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        gaps: npt.NDArray[np.bool_],
        state: State,
    ) -> None:
        """Add rows to those that their keys hold."""
        if not held.size:
            return
        rows = rows.append_column(PLACE, pa.array(places)).append_column(GAP, pa.array(gaps))
        held = held[np.argsort(slots[held], kind="stable")]
        edges = np.flatnonzero(np.diff(slots[held], prepend=-1)).tolist()
        for a, b in pairwise([*edges, held.size]):
            s = int(slots[held[a]])
            if state["held"][s] is None:
                state["held"][s] = []
            state["held"][s].append(rows.take(pa.array(held[a:b])))

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        held = (
            [] if self.method != "linear" else [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        )
        if not held:
            return None
        pool = concat_batches([part for _, parts in held for part in parts])
        counts = [sum(part.num_rows for part in parts) for _, parts in held]
        values, _ = float_column(pool.column(self.value))
        out = replace_column(pool.drop_columns([PLACE, GAP]), self.target, values)
        if self.flag is not None:
            out = replace_column(out, self.flag, pa.array(np.zeros(out.num_rows, np.bool_)))
        seq = state["seq"][np.repeat([s for s, _ in held], counts)]
        if seq.min() != NEVER:
            out = out.append_column("seq", pa.array(seq))
        place = np.concatenate([np.arange(count) for count in counts])
        return out.append_column("ordinal", pa.array(AFTER_LAST_ORDINAL + place))

    def _wanted(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        if self.fields is None:
            return np.ones(batch.num_rows, np.bool_)
        column = batch.column(KIND)
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        names = pa.array([f.encode() for f in self.fields], pa.binary()).cast(column.type)
        return np.asarray(pc.is_in(column, value_set=names))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a"],
                "obs_type": ["t", "t", "t", "t", "h", None, "t", "t", "", "t"],
                "value": [10.0, -3.5, None, None, float("nan"), 1e308, float("nan"), 1e308, None, None],
            }
        )
        times = pa.array([0, 1, 2, 3, 4, 5, None, 12, 1, 30], pa.timestamp("s", tz="UTC"))
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), fields=("t", ""), flag="interpolated", window=1, output="filled"), batch)
        yield Case(cls(by=("key",), method="extrapolate"), batch)
        timed = batch.append_column("event_time", times)
        yield Case(cls(method="extrapolate", flag="interpolated"), timed)
        yield Case(cls(by=("key",), method="linear", max_gap=2), batch, "on lines")
        yield Case(cls(method="linear", fields=("t",), flag="interpolated", output="filled"), timed, "on lines in time")


@kernel
def _fill_held(own: Any, gaps: Any, after: Any, y1: Any, y2: Any, before: Any) -> None:
    """Fill the gaps among held records; times are seen from the later reading."""
    for j in range(own.size):
        if gaps[j]:
            own[j] = between(np.float64(after[j]), before, y1, 0.0, y2)


_NO_TIMES = readonly(np.empty(0, np.int64)), readonly(np.empty(0, np.bool_))
