"""Share above a reference: the percentage of a group's members whose value exceeds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.clock import to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import EARLIEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import concat_batches, float_column, int_column
from riot_ops.kernels.arrays.index import first_rows, key_numbers
from riot_ops.kernels.arrays.ordering import are_sorted
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["ShareAbove"]

Numbers = npt.NDArray[np.int64]


@kernel
def _shares(
    moments: Any, references: Any, times: Any, members: Any, values: Any, group_of: Any, current: Any, shares: Any,
    above: Any, present: Any, room: Any, at: Any, out_moment: Any, out_group: Any, out_share: Any,
) -> Any:  # fmt: skip
    """Write the changed shares of groups at each reference time from index ``at[0]`` on; return their number.

    Row i sets the value of a member to ``values[i]`` (NaN: none) from ``times[i]`` on; rows are in order of time, and
    those before ``at[1]`` have been applied. Returns early when the output has no room for another reference.
    """
    found = 0
    r = at[1]
    m = at[0]
    while m < moments.size and found + above.size <= room:
        while r < times.size and times[r] <= moments[m]:
            current[members[r]] = values[r]
            r += 1
        if np.isnan(references[m]):
            m += 1
            continue
        for g in range(above.size):
            above[g] = 0
            present[g] = 0
        for k in range(current.size):
            if not np.isnan(current[k]):
                present[group_of[k]] += 1
                if current[k] > references[m]:
                    above[group_of[k]] += 1
        for g in range(above.size):
            if present[g] > 0:
                share = 100.0 * above[g] / present[g]
                if share != shares[g]:  # NaN for a new group
                    shares[g] = share
                    out_moment[found] = m
                    out_group[found] = g
                    out_share[found] = share
                    found += 1
        m += 1
    at[0] = m
    at[1] = r
    return found


@register
@dataclass(frozen=True, kw_only=True)
class ShareAbove(KeyedTask):
    """Compute which share of each group's members has a value above a reference, and emit it when it changes.

    The input merges two streams, which the field ``scope`` distinguishes: values of members, each valid from its time
    on, and references. A reference of time t is compared with the members of each group that have a value at t:
    ``100 * (members above) / (members)``. A member whose ``count`` is 0 has no value.

    Parameters
    ----------
    group : str, default "group"
        Field with the group.
    member : tuple of str, default ("member",)
        Fields that identify a member within its group.
    value : str, default "median"
        Numeric field with the value, of a member or the reference.
    count : str, default "count"
        Numeric field: 0 where there is no value.
    reference : str, default "all"
        The ``scope`` of references; records with any other scope belong to members.
    window : timedelta or text such as "1h", default 1 hour
        Length of the window that the values cover, for ``window_start``.
    output : str, default "percentage"
        Field for the share, in percent.
    by : tuple of str, default ()
        Must be empty. To distribute the groups, use instances: partition members by group, broadcast references.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    float64[n] -> float64[m], N:M; O(members) time per reference. The state is a row per member and group, and the
    values of members that are later than the last reference.

    A result has ``seq`` and ordinals of the reference, ``window_start``, ``window_end`` (the time of the reference),
    the group and the share; the groups are in the order of their names.

    Missing values
    --------------
    A null value means none; a null reference emits nothing. A record without event time or scope is an error. Groups
    and members may be null.

    Errors
    ------
    ``no_event_time``, ``no_scope``, ``out_of_range`` (the window begins before the year 1, or float64 cannot hold the
    number).

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.
    .. [2] H. Ziekow, Z. Jerzak, *The DEBS 2014 Grand Challenge*, DEBS 2014.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> plugs = [("one", "a", 5.0), ("one", "b", 7.0), ("one", "c", 9.0), ("all", None, 6.0)]
    >>> rows = [{"event_time": noon, "scope": s, "group": 1, "member": m, "median": v, "count": 1} for s, m, v in plugs]
    >>> [(row["group"], round(row["percentage"], 1)) for row in ShareAbove().session().push_many(rows)]
    [(1, 66.7)]
    """

    code: ClassVar[str] = "SHA"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "N:M"

    group: str = "group"
    member: tuple[str, ...] = ("member",)
    value: str = "median"
    count: str = "count"
    reference: str = "all"
    window: timedelta = timedelta(hours=1)
    output: str = "percentage"

    def validate(self) -> None:
        if self.by or self.ttl is not None:
            raise ConfigError(f"share_above supports neither by nor ttl, got {self.by!r} and {self.ttl!r}")
        if self.window <= timedelta(0):
            raise ConfigError(f"window must be longer than 0, got {self.window!r}")
        if not self.member:
            raise ConfigError("member must name at least one field, got ()")

    def requires(self) -> Mapping[str, Requirement]:
        names: dict[str, Requirement] = {**dict.fromkeys((self.group, *self.member), "key"), "scope": "text"}
        return {**super().requires(), "event_time": "any", **names, self.value: "number", self.count: "number"}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str]:
        return frozenset({"window_start", "window_end", self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        out = with_next_ordinal(pa.schema([schema.field(name) for name in carried_fields(schema.names)]))
        for field in (
            pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP), schema.field(self.group),
            pa.field(self.output, pa.float64()),
        ):  # fmt: skip
            out = out.append(field)
        return out

    def state_fields(self) -> Mapping[str, StateField]:
        return {name: StateField("rows", initial=None) for name in ("members", "groups", "waiting")}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        timeless = np.asarray(batch.column("event_time").is_null())
        nameless = np.asarray(batch.column("scope").is_null()) & ~timeless
        errors.reject(batch, timeless, "no_event_time", "the event time is missing")
        errors.reject(batch, nameless, "no_scope", "the scope is missing")
        early = microseconds(batch.column("event_time"))[0] < EARLIEST + to_microseconds(self.window)
        early &= ~(timeless | nameless)
        errors.reject(batch, early, "out_of_range", "its window begins before the year 1")
        wrong = timeless | nameless | early
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        instances = np.flatnonzero(np.bincount(slots)).tolist()
        if len(instances) == 1:
            return self._process(batch, instances[0], state)
        parts = [self._process(batch.filter(pa.array(slots == one)), one, state) for one in instances]
        return concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], self.output_schema(batch.schema))

    def _process(self, batch: pa.RecordBatch, slot: int, state: State) -> pa.RecordBatch:
        """Process the records of one instance."""
        schema = self.output_schema(batch.schema)
        of_all = np.asarray(pc.equal(batch.column("scope").cast(pa.string()), self.reference))
        references = batch.select([*carried_fields(batch.schema.names), self.value]).filter(pa.array(of_all))
        references = _sorted_by_time(references, "event_time")
        rows = self._member_rows(batch).filter(pa.array(~of_all))
        if state["waiting"][slot] is not None:
            rows = concat_batches([state["waiting"][slot], rows])
        rows = _sorted_by_time(rows, "time")
        if not references.num_rows:
            state["waiting"][slot] = rows if rows.num_rows else None
            return pa.RecordBatch.from_pylist([], schema)
        names = ["group", *(f"member_{i}" for i in range(len(self.member)))]
        known = state["members"][slot]
        every = rows.select(names) if known is None else concat_batches([known.select(names), rows.select(names)])
        numbers = key_numbers([every.column(name) for name in names], every.num_rows)
        old = 0 if known is None else known.num_rows
        current = np.full(int(numbers.max()) + 1 if numbers.size else 0, np.nan)
        if known is not None:
            current[:old] = float_column(known.column("value"))[0]
        first = np.empty(current.size, np.int64)
        first_rows(numbers, 0, first)
        members = every.take(pa.array(first))
        groups, shares = self._groups(members.column("group"), state["groups"][slot])
        group_of = (
            pc.index_in(members.column("group"), value_set=groups).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        moments, _ = microseconds(references.column("event_time"))
        at, parts = np.zeros(2, np.int64), []
        while at[0] < moments.size:
            room = len(groups) + (1 << 16)
            out = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            found = _shares(
                moments, float_column(references.column(self.value))[0], int_column(rows.column("time")),
                numbers[old:], float_column(rows.column("value"))[0], group_of, current, shares,
                np.empty(len(groups), np.int64), np.empty(len(groups), np.int64), room, at, *out,
            )  # fmt: skip
            parts.append([one[:found] for one in out])
        state["members"][slot] = members.append_column("value", pa.array(current, mask=np.isnan(current)))
        state["groups"][slot] = pa.RecordBatch.from_arrays([groups, pa.array(shares)], names=["group", "share"])
        state["waiting"][slot] = rows.slice(at[1]) if at[1] < rows.num_rows else None
        moment, group, share = (np.concatenate(one) for one in zip(*parts, strict=True))
        return self._output(references, schema, moments, moment, groups.take(pa.array(group)), share)

    def _member_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Build the rows of members: time, group, member and value."""
        values, _ = float_column(batch.column(self.value))
        counts, _ = float_column(batch.column(self.count))
        times, _ = microseconds(batch.column("event_time"))
        columns = {"time": pa.array(times), "group": batch.column(self.group)}
        columns |= {f"member_{i}": batch.column(name) for i, name in enumerate(self.member)}
        return pa.RecordBatch.from_pydict({**columns, "value": pa.array(np.where(counts > 0, values, np.nan))})

    def _groups(self, names: pa.Array, known: pa.RecordBatch | None) -> tuple[pa.Array, Any]:
        """Return all groups in order, and their last shares (NaN where there is none)."""
        groups = pc.unique(names)
        groups = groups.take(pc.sort_indices(groups))
        shares = np.full(len(groups), np.nan)
        if known is not None:
            shares[pc.index_in(known.column("group"), value_set=groups).to_numpy()] = known.column("share").to_numpy()
        return groups, shares

    def _output(
        self,
        references: pa.RecordBatch,
        schema: pa.Schema,
        moments: Numbers,
        moment: Numbers,
        groups: pa.Array,
        share: Any,
    ) -> pa.RecordBatch:
        taken = references.take(pa.array(moment))
        columns = {name: taken.column(name) for name in carried_fields(references.schema.names)}
        starts = np.flatnonzero(np.diff(moment, prepend=-1))
        within = np.arange(moment.size) - np.repeat(starts, np.diff(np.append(starts, moment.size)))
        columns[next_ordinal(references.schema.names)] = pa.array(within)
        columns["window_start"] = pa.array(moments[moment] - to_microseconds(self.window)).cast(TIMESTAMP)
        columns["window_end"] = pa.array(moments[moment]).cast(TIMESTAMP)
        columns |= {self.group: groups, self.output: pa.array(share)}
        place = schema.get_field_index(self.group)
        schema = schema.set(place, schema.field(place).with_type(groups.type))  # all groups of this batch may be null
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows: list[tuple[Any, ...]] = [
            (0, "one", 1, "a", 5.0, 1), (0, "one", 1, "b", 7.0, 1), (0, "all", None, None, 6.0, 2),
            (1, "one", None, "b", 6.5, 3), (2, "one", 1, None, 6.5, 3), (1, "all", None, None, 6.5, 4),
            (None, "one", 1, "a", 9.0, 1), (2, None, 1, "a", 9.0, 1), (3, "one", 1, "b", 1.0, 0),
            (2, "all", 2, None, 6.0, 2), (3, "all", 2, None, 6.0, 2), (4, "one", 2, "a", None, 1),
            (4, "all", None, None, None, 1),
        ]  # fmt: skip
        times, scopes, groups, members, values, counts = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(len(rows)), pa.int64()),
                "event_time": pa.array(times, pa.timestamp("s", "UTC")).cast(TIMESTAMP),
                "scope": scopes,
                "group": pa.array(groups, pa.int64()),
                "member": members,
                "median": values,
                "count": pa.array(counts, pa.int64()),
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(group="member", member=("group", "scope"), output="share", window=timedelta(seconds=5)), batch)


def _sorted_by_time(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Sort the rows by a field with times; rows of one time keep their order."""
    times = int_column(batch.column(name))
    return batch if are_sorted([times], times.size) else batch.take(pa.array(np.argsort(times, kind="stable")))
