"""Assembly of a message's observations into one record."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.parameters import Duration, Names, as_names, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP, StreamSchema, stream_schema
from riot_ops.core.special_operators import AligningOperator
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.assembly import (
    COMPLETE,
    DUPLICATE,
    EXPIRED,
    NEVER,
    OPEN,
    UNKNOWN,
    match_observations,
    scatter_observations,
)
from riot_ops.kernels.arrays.exact import exact_numbers, exact_result, exact_type
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.text.csv.lines import csv_lines
from riot_ops.kernels.text.strings import name_codes
from riot_ops.task import Case, Lookback, PooledTask, Requirement, State, StateField, register
from riot_ops.tasks.join.row_alignment import align_rows, nan_to_null

__all__ = ["AssembleMessage"]

OBS_TYPE, TEXT, META = "obs_type", "text", "meta"
#: Field of buffered pieces: the stream's clock when the piece arrived.
ARRIVED = "_arrived"


class Plan(NamedTuple):
    """The expected observation types of a task, resolved."""

    schema: StreamSchema | None
    names: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    target: npt.NDArray[np.int64]  # place of each name in numbers, or after them in texts
    columns: tuple[str, ...]  # of a line


class Pieces(NamedTuple):
    """The pieces of a batch and the messages (entries) they belong to: arrays by row, then by entry."""

    pool: pa.RecordBatch
    codes: npt.NDArray[np.int32]
    arrived: npt.NDArray[np.int64]
    entry: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]
    place: npt.NDArray[np.int64]


@register
@dataclass(frozen=True, kw_only=True)
class AssembleMessage(AligningOperator, PooledTask):
    """Assemble the observations of each message into one record.

    A message is complete once an observation (a piece) of each expected type has arrived; its record is
    emitted with the last one. If a message stays incomplete for too long, its pieces are rejected, or
    emitted as an incomplete record.

    Parameters
    ----------
    schema : str, StreamSchema or None, default "city"
        Stream schema whose observed columns are expected; None: the numeric types in ``fields``.
    fields : tuple of str or None, default None
        Observation types to expect; None: all observed columns of the schema.
    layout : "wide", "csv" or "both", default "wide"
        A column per observation type; or a line of comma-separated values in schema order in the
        field ``payload``, which needs ``meta`` in the input; or both.
    timeout : timedelta or text such as "10min", or None, default None
        How long to wait for a message after its first piece, in event time as given by the newest event
        time so far. None: until the end of the stream.
    partial : bool, default False
        Whether to emit a message that is incomplete after ``timeout`` or at the end, with a boolean column
        ``complete``; otherwise its pieces are rejected.
    by : tuple of str, default ("seq",)
        Fields that identify a message.
    value : str, default "value"
        Numeric input field.
    ttl
        Not used: see ``timeout``.

    Shapes and rates
    ----------------
    N:1, one record per message; O(1) time per piece. The state, and each checkpoint, holds the pieces of
    incomplete messages.

    The input has ``obs_type``, ``value``, and ``text`` if an expected type is text. The output has
    the other fields of the message's last piece, then a column per expected type in schema order
    (with the type of ``value``, float64 for floating types, or text), or the line. A line has the schema's meta
    columns, taken from ``meta``, and the expected types; values with a comma, quote or line break are quoted.

    Missing values
    --------------
    A null value is a piece like any other, null in the record and ``null`` in the line; NaN becomes
    null. A piece without event time gets that of the piece before it.

    Errors
    ------
    ``incomplete`` (a piece of a message that timed out or ended incomplete); ``duplicate`` (the message
    has a piece of this type already, which counts); ``unknown_type`` (not expected); ``bad_meta`` (for a
    line: not as many values as the schema has meta fields). A piece that arrives after its message was
    completed or given up starts the message again, which then ends incomplete.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, application ETL, join.

    Examples
    --------
    >>> assemble = AssembleMessage(schema=None, fields=("light", "dust")).session()
    >>> pieces = [("dust", 1, 4.0), ("light", 2, 7.0), ("light", 1, 5.0)]
    >>> [assemble.push({"seq": s, "obs_type": n, "value": v}) for n, s, v in pieces]
    [[], [], [{'seq': 1, 'light': 5.0, 'dust': 4.0}]]
    >>> assemble.flush(), assemble.errors[0]["reason"], assemble.errors[0]["message"]
    ([], 'incomplete', 'the message lacks dust')
    """

    code: ClassVar[str] = "JON"
    version: ClassVar[int] = 2
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "N:1"

    schema: str | StreamSchema | None = "city"
    fields: Names | None = None
    layout: Literal["wide", "csv", "both"] = "wide"
    timeout: Duration | None = None
    partial: bool = False
    by: Names = ("seq",)
    value: str = "value"

    def validate(self) -> None:
        if self.value == OBS_TYPE:
            raise ConfigError(f"value must not be {OBS_TYPE!r}, the field with the type")
        if self.ttl is not None:
            raise ConfigError(f"assemble_message does not use ttl, got {self.ttl!r}; set timeout instead")
        if not self.by:
            raise ConfigError("by must name the fields that identify a message, got ()")
        if self.timeout is not None and as_timedelta(self.timeout) <= timedelta(0):
            raise ConfigError(f"timeout must be longer than 0, got {self.timeout!r}")
        if self.fields is not None and not 0 < len(self.fields) == len(set(self.fields)):
            raise ConfigError(f"fields must name at least one field, none twice; got {self.fields!r}")
        if self.schema is None:
            if self.fields is None or self.layout != "wide":
                wrong = f'layout = "{self.layout}"' if self.fields is not None else "fields = None"
                raise ConfigError(f'assemble_message: {wrong} needs a schema, such as "city"')
            return
        known = stream_schema(self.schema)
        for name in self.fields or ():
            if name not in known.columns:
                raise ConfigError(
                    f"fields: the schema {known.name!r} has no column {name!r}{did_you_mean(name, known.columns)}"
                )

    def requires(self) -> Mapping[str, Requirement]:
        plan = _plan(self)
        extra: dict[str, Requirement] = {TEXT: "text"} if plan.texts else {}
        if self.timeout is not None:
            extra["event_time"] = "any"
        if self.layout != "wide":
            extra[META] = "text"
        return {**super().requires(), OBS_TYPE: "text", self.value: "value", **extra}

    def writes(self) -> frozenset[str]:
        names = _plan(self).names if self.layout != "csv" else ()
        payload = ("payload",) if self.layout != "wide" else ()
        return frozenset({*names, *payload, *(("complete",) if self.partial else ())})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.timeout is not None:
            check_time_field(self.name(), schema)
        carried = [schema.field(name) for name in self._carried(schema)]
        plan = _plan(self)
        number = exact_type(schema.field(self.value).type)
        added = [pa.field(n, pa.string() if n in plan.texts else number) for n in plan.names]
        if self.layout != "wide":
            added = [*(added if self.layout == "both" else ()), pa.field("payload", pa.string())]
        if self.partial:
            added.append(pa.field("complete", pa.bool_()))
        for field in added:
            if field.name in {f.name for f in carried}:
                raise ConfigError(f"assemble_message adds the field {field.name!r}, which its input has already")
        return pa.schema([*carried, *added])

    def _carried(self, schema: pa.Schema) -> list[str]:
        dropped = {OBS_TYPE, self.value, TEXT, ARRIVED, *([META] if self.layout != "wide" else [])} - set(self.by)
        return [name for name in schema.names if name not in dropped]

    def lookback(self) -> Lookback | None:
        return Lookback() if "seq" in self.by else None

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None), "clock": StateField("int64", initial=NEVER)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        schema = _plan(self).schema
        if self.layout == "wide" or schema is None or not batch.num_rows:
            return batch
        meta = batch.column(META).cast(pa.string())
        wanted = len(schema.meta) - 1
        good = pc.equal(pc.count_substring(meta, ","), wanted).fill_null(False)
        if pc.all(good).as_py():
            return batch
        bad = ~np.asarray(good)
        message = f"meta does not hold {wanted + 1} values, as the schema {schema.name} has"
        errors.reject(batch, bad, "bad_meta", message)
        return batch.filter(good)

    def merge_aligned(self, batches: Sequence[pa.RecordBatch], state: State) -> pa.RecordBatch | None:
        plan = _plan(self)
        if self.layout != "wide" or plan.texts:
            return None
        found = align_rows(batches, plan.names, self.by, OBS_TYPE, timed=self.timeout is not None)
        if found is None:
            return None
        last, by_type = found
        added = {name: nan_to_null(one.column(self.value)) for name, one in zip(plan.names, by_type, strict=True)}
        if self.timeout is not None and last.num_rows:
            times, present = microseconds(last.column("event_time"))
            state["clock"][0] = max(state["clock"][0], times[present].max(initial=NEVER))
        if self.partial:
            added["complete"] = pa.array(np.ones(last.num_rows, np.bool_))
        schema = self.output_schema(last.schema)
        columns = [added[f.name] if f.name in added else last.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        held = 0 if state["held"][0] is None else state["held"][0].num_rows
        pieces = self._matched(batch, slots, held, state)
        done = np.flatnonzero(pieces.status)
        done = done[np.lexsort((done, pieces.status[done] == COMPLETE, pieces.place[done]))]
        wrong = np.flatnonzero(pieces.entry < 0)
        if wrong.size:
            self._reject(pieces, wrong, errors)
        rest = np.flatnonzero(_of_row(pieces, pieces.status, COMPLETE) == OPEN)
        state["held"][0] = None
        if rest.size:
            held_rows = pieces.pool.take(pa.array(rest))
            state["held"][0] = held_rows.append_column(ARRIVED, pa.array(pieces.arrived[rest]))
        return self._settled(pieces, done, errors)

    def flush_held(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch | None:
        pieces = self._matched(held, slots, held.num_rows, state)
        pieces.status[:] = EXPIRED
        out = self._settled(pieces, np.arange(pieces.status.size), errors)
        return out if out.num_rows else None

    def _matched(self, pool: pa.RecordBatch, slots: npt.NDArray[np.int64], held: int, state: State) -> Pieces:
        n = pool.num_rows
        times = arrived = np.full(n, NEVER)
        if ARRIVED in pool.schema.names:
            arrived = pool.column(ARRIVED).fill_null(NEVER).to_numpy(zero_copy_only=False).copy()
            pool = pool.drop_columns([ARRIVED])
        timeout = -1
        if self.timeout is not None:
            timeout = int(as_timedelta(self.timeout) / timedelta(microseconds=1))
            event_times, present = microseconds(pool.column("event_time"))
            times = np.where(present, event_times, NEVER)
            arrived = arrived.copy()
        codes = name_codes(pool.column(OBS_TYPE), _plan(self).names)
        keys = int(slots.max()) + 1 if n else 0
        have = np.zeros((keys, len(_plan(self).names)), np.bool_)
        entry, begun, last, place = (np.empty(n, np.int64) for _ in range(4))
        count, status = np.empty(n, np.int32), np.empty(n, np.int8)
        entries, clock = match_observations(
            slots, codes, readonly(times), arrived, held, state["clock"][0], timeout,
            have, np.full(keys, -1), entry, begun, count, last, status, place,
        )  # fmt: skip
        state["clock"][0] = clock
        begun, status, place = begun[:entries], status[:entries], place[:entries]
        if timeout >= 0:
            status[(status == OPEN) & (begun > NEVER) & (clock > begun + timeout)] = EXPIRED
            late = status == EXPIRED  # emitted before the record whose time made them late
            place[late] = np.searchsorted(arrived, begun[late] + timeout, side="right")
        return Pieces(pool, codes, arrived, entry, last[:entries], status, place)

    def _reject(self, pieces: Pieces, rows: npt.NDArray[np.int64], errors: RejectedRecords) -> None:
        types = pieces.pool.column(OBS_TYPE)
        for mark, reason, text in (
            (UNKNOWN, "unknown_type", "{} is not expected"),
            (DUPLICATE, "duplicate", "the message has {} already"),
        ):
            found = rows[pieces.entry[rows] == mark]
            names = types.take(pa.array(found)).to_pylist()
            errors.reject(pieces.pool, found, reason, [text.format(repr(name)) for name in names])

    def _settled(self, pieces: Pieces, done: npt.NDArray[np.int64], errors: RejectedRecords) -> pa.RecordBatch:
        """Make the records of entries, in the given order; with ``partial=False``, reject those timed out."""
        if not self.partial:
            given_up = done[pieces.status[done] == EXPIRED]
            if given_up.size:
                self._give_up(pieces, given_up, errors)
                done = done[pieces.status[done] == COMPLETE]
        return self._records(pieces, done)

    def _give_up(self, pieces: Pieces, entries: npt.NDArray[np.int64], errors: RejectedRecords) -> None:
        names = _plan(self).names
        place = np.full(pieces.status.size, -1)
        place[entries] = np.arange(entries.size)
        owner = _of_row(pieces, place, -1)
        rows = np.flatnonzero(owner >= 0)
        have = np.zeros((entries.size, len(names)), np.bool_)
        have[owner[rows], pieces.codes[rows]] = True
        patterns, which = np.unique(have, axis=0, return_inverse=True)
        texts = [
            "the message lacks " + ", ".join(n for n, h in zip(names, one, strict=True) if not h) for one in patterns
        ]
        errors.reject(pieces.pool, rows, "incomplete", [texts[which.ravel()[owner[i]]] for i in rows])

    def _records(self, pieces: Pieces, done: npt.NDArray[np.int64]) -> pa.RecordBatch:
        pool, plan = pieces.pool, _plan(self)
        schema = self.output_schema(pool.schema)
        row_of = np.full(pieces.status.size, -1)
        row_of[done] = np.arange(done.size)
        dtype = pool.schema.field(self.value).type
        values, rests = exact_numbers(pool.column(self.value))
        numbers = np.full((len(plan.numbers), done.size), np.nan)
        more = np.zeros(numbers.shape)
        rows = np.full((len(plan.texts), done.size), -1)
        scatter_observations(pieces.entry, pieces.codes, row_of, plan.target, values, numbers, rows)
        if rests.size:
            scatter_observations(pieces.entry, pieces.codes, row_of, plan.target, rests, more, rows)
        added: dict[str, pa.Array] = {}
        for name, high, rest in zip(plan.numbers, numbers, more, strict=True):
            added[name] = exact_result(high, rest, np.isnan(high), dtype)
        for name, places in zip(plan.texts, rows, strict=True):
            added[name] = pool.column(TEXT).take(pa.array(places, mask=places < 0)).cast(pa.string())
        last = pa.array(pieces.last[done])
        if self.layout != "wide":
            assert plan.schema is not None
            parts = pc.split_pattern(pool.column(META).take(last).cast(pa.string()), ",")
            for i, name in enumerate(plan.schema.meta):
                part = pc.list_element(parts, i)
                added[name] = pc.if_else(pc.equal(part, ""), None, part)
            added["payload"] = csv_lines([added[name] for name in plan.columns])
        if self.partial:
            added["complete"] = pa.array(pieces.status[done] == COMPLETE)
        for name in self._carried(pool.schema):
            added[name] = pool.column(name).take(last)
        return pa.RecordBatch.from_arrays([added[name] for name in schema.names], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "message": ["a", "b", "a", None, "ü", "b", "a", None, "a", "b", "ü", "ü"],
                "obs_type": ["x", "y", "y", "y", "x", "z", "z", "x", "x", "y", None, "x"],
                "value": [1.0, None, float("nan"), 4.0, 5.0, 6.0, float("inf"), 8.0, 9.0, 10.0, 11.0, 12.0],
            }
        )
        yield Case(cls(schema=None, fields=("z", "y", "x"), by=("message",)), batch)
        yield Case(cls(schema=None, fields=("x", "y"), by=("message",), partial=True), batch, "emit")
        times = pa.array([0, 1, 2, 3, None, 5, 4, 6, 70, 7, 8, 9], pa.timestamp("s", tz="UTC"))
        timed = batch.append_column("event_time", times).slice(0, 9)
        wait = timedelta(seconds=60)
        yield Case(cls(schema=None, fields=("x", "y"), by=("message",), timeout=wait), timed.slice(0, 3), "timeout")
        yield Case(cls(schema=None, fields=("x",), timeout=wait), timed.append_column("seq", pa.array(range(9))), "one")
        trip = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([0, 0, 1, 0, 1, 2], pa.int64()),
                "ordinal": pa.array([0, 1, 0, 2, 1, 0], pa.int64()),
                "event_time": pa.array([5, 5, 6, 5, 6, 7], TIMESTAMP),
                "sensor_id": ["14Ü", "14Ü", None, "14Ü", None, "7"],
                "obs_type": ["taxi_identifier", "tip_amount", "tip_amount", "hack_license", "taxi_identifier", "x"],
                "value": [None, 2.5, None, 8.0, None, 1.0],
                "text": ["14Ü", None, None, '8 "q", r', "", "x"],
                "meta": ["p,1,2,,4,5,CSH"] * 4 + ["short", None],
            }
        )
        fields = ("tip_amount", "taxi_identifier", "hack_license")
        yield Case(cls(schema="taxi", fields=fields), trip, "taxi")
        yield Case(cls(schema="taxi", fields=fields, layout="csv", partial=True), trip, "line")
        yield Case(cls(schema="taxi", fields=fields, layout="both"), trip, "both")


@functools.lru_cache(maxsize=64)
def _plan(task: AssembleMessage) -> Plan:
    schema = None if task.schema is None else stream_schema(task.schema)
    names, texts = as_names(task.fields or ()), tuple[str, ...]()
    if schema is not None:
        wanted = schema.observed if task.fields is None else task.fields
        kinds = dict(zip(schema.columns, schema.kinds, strict=True))
        names = tuple(c for c in schema.columns if c in wanted)
        texts = tuple(c for c in names if kinds[c] == "sv")
    numbers = tuple(c for c in names if c not in texts)
    columns = () if schema is None else tuple(c for c in schema.columns if c in {*schema.meta, *names})
    order = (*numbers, *texts)
    return Plan(schema, names, texts, numbers, readonly(np.array([order.index(n) for n in names])), columns)


def _of_row(pieces: Pieces, by_entry: npt.NDArray[Any], otherwise: int) -> npt.NDArray[Any]:
    """Spread values by entry to the rows of the entries; rows without an entry get ``otherwise``."""
    found: npt.NDArray[Any] = np.append(by_entry, otherwise)[np.maximum(pieces.entry, -1)]
    return found
