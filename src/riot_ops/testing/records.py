# ruff: noqa: PT018 (a kit of assertions; pickles are its own)
"""Checks of bad records, of the number of output records, and of the size of the state."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.operator import NUMBER_REQUIREMENTS
from riot_ops.core.order import ordinals
from riot_ops.runtime.session import Session
from riot_ops.task import Case, KeyedTask, Task
from riot_ops.testing.task_run import (
    TaskRun,
    applies_if,
    assert_identical,
    exact,
    has_state,
    uses_stream_time,
    with_row_numbers,
)

__all__ = [
    "check_bounded_state",
    "check_derivation",
    "check_missing_and_bad_values",
    "check_selectivity",
    "check_wrong_type",
]

SOME_RECORDS = 300


def check_missing_and_bad_values(case: Case) -> None:
    """Null, NaN and infinity have the documented effect, and a rejected record leaves no trace.

    A rejected record is in the errors with a documented reason; the others are emitted as if it had
    never existed. A task computes numbers or null, never NaN.
    """
    documented = _texts(type(case.task))
    for batch in (with_row_numbers(case.batch), *_corrupted_batches(case)):
        full = TaskRun(case.task)
        out = full.push(batch)
        for error in full.errors:
            assert error["reason"] in documented, f"reason {error['reason']!r} is not documented"
            assert error["task"] == case.task.name() and error["message"], error
        for name in _written(case.task, out.schema, batch.schema):
            column = out.column(name)
            if pa.types.is_floating(column.type):
                assert not pc.any(pc.is_nan(column)).as_py(), f"NaN in {name}, missing is null"
        rejected = {e["seq"] for e in full.errors}
        numbers = [e["seq"] for e in full.errors]
        seq = batch.column("seq").to_pylist()
        assert rejected <= set(seq), f"errors name records {rejected - set(seq)} that were not in the input"
        if not isinstance(case.task, KeyedTask):
            continue
        assert len(numbers) == len(rejected), f"records were rejected twice: {numbers}"
        clean = TaskRun(case.task)
        clean.push(batch.filter(pa.array([s not in rejected for s in seq])))
        assert not clean.errors, f"more errors without the rejected records: {clean.errors}"
        rows, end, _ = full.end()
        left = sorted(exact(e) for e in full.errors if e["seq"] not in rejected)
        assert_identical((rows, end, left), clean.end(), "without the rejected records")


def _texts(kind: type[Task]) -> str:
    """Return the docstring, and those of the classes of its module that it refers to."""
    text = kind.__doc__ or ""
    module = vars(sys.modules[kind.__module__])
    return text + "".join(module[n].__doc__ or "" for n in re.findall(r":class:`(\w+)`", text) if n in module)


def _written(task: Task, out: pa.Schema, given: pa.Schema) -> list[str]:
    """Return the fields that the task computes."""
    writes = task.writes()
    if not isinstance(task, KeyedTask) or writes is None:
        known = set(given.names)
        return [n for n in out.names if n not in known]
    return [n for n in out.names if n in writes]


def _corrupted_batches(case: Case) -> Iterator[pa.RecordBatch]:
    """Return the input with null, NaN and infinity between its records, in each field that is read."""
    batch = case.batch
    n = batch.num_rows
    for name, wanted in case.task.requires().items():
        position = batch.schema.get_field_index(name)
        kind = batch.schema.field(name).type
        values: list[Any] = [None]
        if wanted in NUMBER_REQUIREMENTS and pa.types.is_floating(kind):
            values += [float("nan"), float("inf"), float("-inf")]
        if not n or not batch.schema.field(name).nullable:
            continue
        for value in values:
            # every second row is a copy with the bad value
            duplicated = batch.take(pa.array(np.repeat(np.arange(n), 2)))
            second = pa.array(np.arange(2 * n) % 2 == 1)
            bad = pc.if_else(second, pa.scalar(value, kind), duplicated.column(name))
            duplicated = duplicated.set_column(position, batch.schema.field(name), bad)
            if "seq" in duplicated.schema.names:
                duplicated = duplicated.remove_column(duplicated.schema.get_field_index("seq"))
            yield with_row_numbers(duplicated)


def _of_one_type(case: Case) -> list[str]:
    """Return the fields that can receive a value of a wrong type."""
    return [name for name, wanted in case.task.requires().items() if wanted != "any"] if case.batch.num_rows else []


@applies_if(lambda case: bool(_of_one_type(case)))
def check_wrong_type(case: Case) -> None:
    """An event with a value of the wrong type is rejected and leaves the state unchanged."""
    event = case.batch.slice(0, 1).to_pylist()[0]
    for name in _of_one_type(case):
        wanted = case.task.requires()[name]
        session = Session(case.task, ordered=False)
        session.push_many(case.batch.to_pylist())
        session.errors.clear()
        before = session.snapshot()
        for value in ("warm", [1.0], {"a": 1}) if wanted in NUMBER_REQUIREMENTS else ([1.0], {"a": 1}):
            assert session.push({**event, name: value}) == [], f"{value!r} gave a row"
            assert [e["reason"] for e in session.errors] == ["wrong_type"], session.errors
            assert repr(value) in session.errors[0]["message"] and name in session.errors[0]["message"]
            session.errors.clear()
        assert session.snapshot() == before, "a record of the wrong type changed the state"


@applies_if(lambda case: has_state(case) and case.batch.num_rows > 0)
def check_bounded_state(case: Case) -> None:
    """Ten times more records of the same keys make the state no bigger.

    A state that grows with the records, even by doubling, also grows from some to 2.5 times as many. So a state whose
    size is the same after each of these batches, to the byte, is bounded; any other gets all the records.
    """
    session = Session(case.task, ordered=False)
    random = np.random.default_rng(0)
    rows = some = 0
    sizes: list[int] = []
    while not some or rows < 10 * some:
        session.push_batch(_varied(case, random, rows))
        session.errors = []
        rows += case.batch.num_rows * 20
        if rows >= SOME_RECORDS:
            some = some or rows
            sizes.append(len(session.snapshot()))
            if rows >= 2.5 * some and len(set(sizes)) == 1:
                break
    assert sizes[-1] <= 1.25 * sizes[0] + 1024, f"the state grew from {sizes[0]} to {sizes[-1]} bytes"


def _varied(case: Case, random: np.random.Generator, place: int) -> pa.RecordBatch:
    """Return the input twenty times over, with other numbers and growing times."""
    batch = case.batch.take(pa.array(np.tile(np.arange(case.batch.num_rows), 20)))
    requires = case.task.requires()
    for i, field in enumerate(batch.schema):
        column = batch.column(i)
        if pa.types.is_floating(field.type) and requires.get(field.name) == "number":
            factors = pa.array(random.uniform(0.5, 1.0, batch.num_rows))
            column = pc.multiply(column.cast(pa.float64()), factors).cast(field.type)
        elif pa.types.is_timestamp(field.type):
            steps = pc.if_else(column.is_valid(), pa.array(np.arange(place, place + batch.num_rows)), None)
            column = steps.cast(pa.timestamp("s", tz=field.type.tz)).cast(field.type)
        elif field.name == "seq" and pa.types.is_int64(field.type) and "seq" not in getattr(case.task, "by", ()):
            column = pa.array(np.arange(place, place + batch.num_rows))
        batch = batch.set_column(i, field, column)
    return batch


def check_selectivity(case: Case) -> None:
    """The number of output rows per input row is as the task declares, and each belongs to an input message."""
    sigma = case.task.selectivity
    parts = sigma.split(":")
    assert len(parts) == 2 and parts[0] in ("1", "N") and parts[1] in ("1", "0/1", "N", "0/N", "M"), (
        f"selectivity {sigma!r} is not of a known form, such as 1:1, N:1, 1:0/1, 1:N"
    )
    run = TaskRun(case.task)
    batch = with_row_numbers(case.batch)
    run.push(batch)
    numbers = {row["seq"] for row in run.rows if row.get("seq") is not None}
    invented = numbers - set(batch.column("seq").to_pylist())
    assert not invented, f"rows were emitted for messages that were not in the input: {sorted(invented)[:3]}"
    out, given = len(run.rows) + len(run.flush()), batch.num_rows
    rejected = len({e["seq"] for e in run.errors})
    text = f"{out} rows and {rejected} errors were emitted for {given}, declared is {sigma}"
    if sigma == "1:1":
        assert out == given - rejected, text
    elif parts[1] in ("1", "0/1"):
        assert out <= given - rejected, text


def check_derivation(case: Case) -> None:
    """A task that numbers the output records of one input record by ``ordinal`` declares it; others keep the numbers.

    A task that declares it gives each record a number of its own. Timer output has ordinals of its own.
    """
    run = TaskRun(case.task)
    batch = with_row_numbers(case.batch)
    run.push(batch)
    if case.task.expands():
        places = Counter((row["seq"], *(row[name] for name in ordinals(row))) for row in (*run.rows, *run.flush()))
        assert max(places.values(), default=1) == 1, f"records of one number: {places.most_common(3)}"
        return
    given = {_places(row) for row in batch.to_pylist()}
    found = {_places(row) for row in (*run.rows, *run.flush()) if not (uses_stream_time(case) and _places(row)[0] < 0)}
    assert found <= given, f"the output has the places {min(found - given)}, which no input has; derives() is False"


def _places(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ordinals of a record in its message; without any it is the first."""
    return tuple(row[name] or 0 for name in ordinals(row)) or (0,)
