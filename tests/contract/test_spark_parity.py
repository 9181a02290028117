"""Every task gives the same output on Spark, in micro-batches, as in process."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import riot_ops as ro
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.ingest.step import declared_schema
from riot_ops.task import StatelessTask, Task, registered_tasks
from riot_ops.testing import exact

pytestmark = pytest.mark.spark

#: Cases that cannot agree, with the reason.
CANNOT: dict[str, str] = {}


@dataclass
class Group:
    """Cases whose inputs have the same schema; each case processes the records of all."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)

    def table(self) -> pa.Table:
        table = pa.Table.from_batches(self.batches)
        return table.set_column(0, self.schema.field(0), pa.array(range(table.num_rows), pa.int64()))


@functools.cache
def _groups() -> list[Group]:
    groups: list[Group] = []
    for kind in registered_tasks():
        for i, case in enumerate(kind.cases()):
            batch = case.batch
            if "seq" in batch.schema.names:
                batch = batch.remove_column(batch.schema.get_field_index("seq"))
            schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
            batch = pa.RecordBatch.from_arrays([pa.array(range(batch.num_rows)), *batch.columns], schema=schema)
            schema = declared_schema(schema, kind.code)  # as from a source
            batch = pa.Table.from_batches([batch]).cast(schema).to_batches()[0]
            group = next((g for g in groups if g.schema.equals(schema)), None)
            if group is None:
                group = Group(schema)
                groups.append(group)
            if not any(exact(b.to_pylist()) == exact(batch.to_pylist()) for b in group.batches):
                group.batches.append(batch)
            group.tasks[f"{kind.code}-{i}"] = case.task
    return groups


def _picks(groups: list[Group]) -> tuple[pa.Table, type[StatelessTask]]:
    """One table with the records of all groups, in separate columns per group, and a task that picks one group.

    One source is enough then; Spark starts processes for each source. Records of a group are spread evenly.
    """
    rows = sorted(((i + 0.5) / len(t), g, i) for g, t in enumerate(map(Group.table, groups)) for i in range(len(t)))
    columns = {"seq": pa.array(range(len(rows))), "group": pa.array([g for _, g, _ in rows])}
    for g, group in enumerate(groups):
        places = pa.array([i if g == group_of_row else None for _, group_of_row, i in rows], pa.int64())
        for name, column in zip(group.schema.names[1:], group.table().columns[1:], strict=True):
            columns[f"{g}:{name}"] = column.combine_chunks().take(places)
    schemas = [group.schema for group in groups]

    @dataclass(frozen=True, kw_only=True)
    class Pick(StatelessTask):
        """Pick the records of a group, with the group's schema."""

        group: int

        def writes(self) -> frozenset[str]:
            return frozenset(schemas[self.group].names)

        def output_schema(self, schema: pa.Schema) -> pa.Schema:
            return schemas[self.group]

        def apply(self, batch: pa.RecordBatch, rejects: RejectedRecords) -> pa.RecordBatch:
            found = batch.filter(pc.equal(batch["group"], self.group))
            fields = schemas[self.group]
            columns = [found["seq"], *(found[f"{self.group}:{name}"] for name in fields.names[1:])]
            return pa.RecordBatch.from_arrays(columns, schema=fields)

    return pa.table(columns), Pick


@pytest.fixture(scope="module")
def both(spark) -> tuple[Any, Any]:
    table, pick = _picks(_groups())
    flow = ro.Dataflow("parity")
    source = flow.source("in", schema=table.schema)
    for i, group in enumerate(_groups()):
        records = source.to(pick(group=i), id=f"in{i}")
        flow.sink(f"sink{i}", *(records.to(task, id=label) for label, task in group.tasks.items()))
    local, on_spark = ro.MemorySink(), ro.MemorySink()
    flow.run(table, sinks=local, batch_size=97)
    query = flow.start(spark, table, sinks=on_spark, max_records=-(-len(table) // 2))
    query.wait(timeout="3min")
    assert not query.active, "the query did not end"
    return _found(on_spark), _found(local)


def _cases():
    for group in _groups():
        for label in group.tasks:
            reason = CANNOT.get(label)
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            yield pytest.param(label, id=label, marks=marks)


def _found(sink: ro.MemorySink) -> dict[str, tuple[Counter[str], Counter[str], pa.Schema]]:
    """Records, errors and schema of each case."""
    errors: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sink.table("errors").to_pylist():
        errors[row["task"]][exact(row)] += 1
    streams = {label: sink.table(label) for group in _groups() for label in group.tasks}
    return {s: (Counter(map(exact, table.to_pylist())), errors[s], table.schema) for s, table in streams.items()}


@pytest.mark.parametrize("label", list(_cases()))
def test_spark_gives_the_output_of_the_local_run(both, label):
    (*on_spark, schema), (*local, wanted_schema) = (found[label] for found in both)
    for got, wanted, what in zip(on_spark, local, ("records", "errors"), strict=True):
        more, less = got - wanted, wanted - got
        assert not more and not less, f"unexpected {what}: {list(more)[:3]}\nmissing: {list(less)[:3]}"
    assert schema.equals(wanted_schema)
