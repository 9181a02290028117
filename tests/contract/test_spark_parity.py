"""Every task gives on Spark, cut into micro-batches, what it gives in process."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.task import KeyedTask, Task, tasks
from riot_ops.testing import exact

pytestmark = pytest.mark.spark

#: What cannot hold, by case, and why.
CANNOT: dict[str, str] = {}

SOURCES_PER_FLOW = 8


@dataclass
class Group:
    """Cases whose inputs have one schema; they share a source with the records of them all."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)

    def table(self) -> pa.Table:
        table = pa.Table.from_batches(self.batches)
        return table.set_column(0, self.schema.field(0), pa.array(range(table.num_rows), pa.int64()))


@functools.cache
def _groups() -> list[Group]:
    groups: list[Group] = []
    for kind in tasks():
        for i, case in enumerate(kind.cases()):
            batch = case.batch
            if "seq" in batch.schema.names:
                batch = batch.remove_column(batch.schema.get_field_index("seq"))
            schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
            batch = pa.RecordBatch.from_arrays([pa.array(range(batch.num_rows)), *batch.columns], schema=schema)
            group = next((g for g in groups if g.schema.equals(schema)), None)
            if group is None:
                group = Group(schema)
                groups.append(group)
            if not any(exact(b.to_pylist()) == exact(batch.to_pylist()) for b in group.batches):
                group.batches.append(batch)
            group.tasks[f"{kind.code}-{i}"] = case.task
    return groups


def _flows() -> list[list[Group]]:
    # tasks with state, which need stages of their own, apart from the others
    ordered = sorted(_groups(), key=lambda g: not any(isinstance(t, KeyedTask) for t in g.tasks.values()))
    return [ordered[i : i + SOURCES_PER_FLOW] for i in range(0, len(ordered), SOURCES_PER_FLOW)]


@pytest.fixture(scope="module")
def run(spark):
    @functools.cache
    def run(number: int) -> tuple[Any, Any]:
        flow = ro.Dataflow(f"parity{number}")
        tables = {}
        for i, group in enumerate(_flows()[number]):
            source = flow.source(f"in{i}", schema=group.schema)
            tables[f"in{i}"] = group.table()
            flow.sink(f"out{i}", *(source.to(task, id=label) for label, task in group.tasks.items()))
        most = max(t.num_rows for t in tables.values())
        local = flow.run(tables, batch_size=7)
        query = flow.start(spark, tables, max_records=-(-most // 2))
        query.wait(timeout_s=180)
        assert not query.active, "it did not end"
        return query, local

    return run


def _cases():
    for number, groups in enumerate(_flows()):
        for group in groups:
            for label in group.tasks:
                reason = CANNOT.get(label)
                marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
                yield pytest.param(number, label, id=label, marks=marks)


def _rows(result: Any, label: str) -> tuple[Counter[str], Counter[str]]:
    errors = [e for e in result["errors"].to_pylist() if e["task"] == label]
    return Counter(map(exact, result[label].to_pylist())), Counter(map(exact, errors))


@pytest.mark.parametrize(("number", "label"), list(_cases()))
def test_spark_gives_what_the_local_run_gives(run, number, label):
    on_spark, local = run(number)
    for got, wanted, what in zip(_rows(on_spark, label), _rows(local, label), ("records", "errors"), strict=True):
        more, less = got - wanted, wanted - got
        assert not more and not less, f"{what} too many: {list(more)[:3]}\nmissing: {list(less)[:3]}"
    assert on_spark[label].schema.equals(local[label].schema)
