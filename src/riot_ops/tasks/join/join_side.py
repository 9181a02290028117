"""The common form of the records of two streams that are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import is_ordinal, ordinals
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike, arrow_type, canonical_schema, schema_pairs
from riot_ops.kernels.arrays.timestamps import check_time_field
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register
from riot_ops.tasks.join.held_rows import SIDES

__all__ = ["JoinSide"]


@register
@dataclass(frozen=True, kw_only=True)
class JoinSide(StatelessTask):
    """Bring the records of one of two streams into the common form that :class:`IntervalJoin` reads.

    ``flow.add(IntervalJoin(…), left, right)`` adds one before the join for each stream.

    Parameters
    ----------
    side : "left" or "right"
        Which stream it is.
    by : tuple of str
        Fields of the key in the common form.
    nulls : mapping of str to type, or pyarrow Schema
        Fields of the other stream in the common form, null in the records of this one.
    rename : tuple of (str, str), default ()
        Fields with other names in the common form, each with that name.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1; no state. The output has the fields of order and time, the key, the fields of the left
    and of the right stream, and the event time in ``left_time`` or ``right_time``. A further ordinal, 0 for the left
    and 1 for the right stream, orders records that a stream joined with itself makes of one.

    Missing values
    --------------
    Kept.

    Errors
    ------
    None.

    References
    ----------
    .. [1] Apache Flink, *Interval join* of the DataStream API.

    Examples
    --------
    >>> side = JoinSide(side="right", by="id", rename=(("order", "id"),), nulls={"item": "string"}).session()
    >>> side.push({"order": 7, "event_time": None, "euro": 3})
    [{'event_time': None, 'id': 7, 'item': None, 'euro': 3, 'left_time': None, 'right_time': None}]
    """

    code: ClassVar[str] = "JSD"
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Transform"

    side: Literal["left", "right"]
    by: Names
    nulls: SchemaLike = ()
    rename: tuple[tuple[str, str], ...] = ()

    def validate(self) -> None:
        object.__setattr__(self, "nulls", canonical_schema(self.name(), self.nulls, "nulls") if self.nulls else ())
        for part in (0, 1):
            names = [pair[part] for pair in self.rename]
            if len({*names}) < len(names):
                raise ConfigError(f"rename must not name a field twice, got {self.rename!r}")

    def requires(self) -> Mapping[str, Requirement]:
        old = {new: name for name, new in self.rename}
        renamed: dict[str, Requirement] = dict.fromkeys((name for name, _ in self.rename), "any")
        return {**renamed, **{old.get(name, name): "key" for name in self.by}, "event_time": "any"}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str]:
        return frozenset(
            [*SIDES, *(name for name, _ in schema_pairs(self.nulls)), *(name for pair in self.rename for name in pair)]
        )

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        own = self._own(schema)
        for name, _ in schema_pairs(self.nulls):
            if name in own:
                raise ConfigError(f"{self.name()} adds the field {name!r}, which its input has already")
        first = [n for n in ("seq", *ordinals(schema.names)) if n in schema.names]
        fields = [schema.field(n) for n in first]
        if "seq" in schema.names:
            fields.append(pa.field(next_ordinal(schema.names), pa.int64()))
        fields.append(schema.field("event_time"))
        fields += [schema.field(own[name]).with_name(name) for name in self.by]
        ours = [schema.field(old).with_name(new).with_nullable(True) for new, old in own.items() if new not in self.by]
        theirs = [pa.field(name, arrow_type(text)) for name, text in schema_pairs(self.nulls)]
        fields += [*ours, *theirs] if self.side == "left" else [*theirs, *ours]
        times = [pa.field(name, schema.field("event_time").type) for name in SIDES]
        names = [f.name for f in (*fields, *times)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"{self.name()} would make the field {twice[0]!r} twice")
        return pa.schema([*fields, *times])

    def _own(self, schema: pa.Schema) -> dict[str, str]:
        """Return the fields of this stream other than those of order and time, by their names in the common form."""
        new = dict(self.rename)
        others = [n for n in schema.names if n not in ("seq", "event_time") and not is_ordinal(n)]
        return {new.get(name, name): name for name in others}

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        schema, own = self.output_schema(batch.schema), self._own(batch.schema)
        side, n = self.side == "right", batch.num_rows
        made = {SIDES[side]: batch.column("event_time")}
        if "seq" in batch.schema.names:
            made[next_ordinal(batch.schema.names)] = pa.array(np.full(n, int(side)))
        given = {*batch.schema.names}
        columns = [
            made[f.name] if f.name in made
            else batch.column(own[f.name]) if f.name in own
            else batch.column(f.name) if f.name in given and f.name not in SIDES
            else pa.nulls(n, f.type)
            for f in schema
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(3), pa.int64()),
                "ordinal": pa.array([0, 4, 1], pa.int64()),
                "event_time": pa.array([5, None, -1], pa.timestamp("us", tz="UTC")),
                "key": ["a", None, "ü"],
                "x": [1.0, float("inf"), None],
            }
        )
        yield Case(cls(side="left", by=("key",), nulls={"y": "list<item: double>"}), batch)
        yield Case(
            cls(side="right", by=("id",), rename=(("key", "id"), ("x", "x_right")), nulls={"x": "double"}), batch
        )
