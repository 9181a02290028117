"""Field names are free: with renamed fields and parameters, a task gives the same output.

A parameter that names a field but is ignored fails here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Literal, get_origin, get_type_hints

import pytest

from riot_ops.core.order import is_ordinal
from riot_ops.ingest.step import declared_schema
from riot_ops.task import ValueTask, registered_tasks
from riot_ops.testing import exact, uncompiled
from riot_ops.testing.task_run import TaskRun

#: Tasks that read a field with the same name as one they write, so that renaming one renames both.
SKIPPED = {"ZIP"}
#: Suffixes of fields named after another field, such as class_index.
DERIVED_SUFFIXES = ("_index", "_probability", "_probabilities")


def with_derived(names):
    """Add the renames of derived fields."""
    return {name + made: other + made for name, other in names.items() for made in ("", *DERIVED_SUFFIXES)}


def swapped(known, names):
    """Rename fields in a set, or the keys of a mapping."""
    given = known.items() if isinstance(known, dict) else known
    return [(names.get(n[0], n[0]), n[1]) if isinstance(n, tuple) else names.get(n, n) for n in given]


def outcome(task, batch, names):
    """Rows, final rows and reasons of errors with renamed fields; without bytes, which may contain names."""
    names = with_derived(names)
    run = TaskRun(task)
    run.push(batch)
    rows = [run.rows, run.flush()]
    found = [[{names.get(k, k): v for k, v in row.items() if not isinstance(v, bytes)} for row in one] for one in rows]
    return exact(found), sorted(error["reason"] for error in run.errors)


def renamed(value, names):
    if isinstance(value, tuple):
        return tuple(renamed(one, names) for one in value)
    if isinstance(value, dict):
        return {renamed(name, names): one for name, one in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def other_names(case):
    """A new name for each field that a parameter of the case names, and the parameters with the new names."""
    task, batch = case.task, case.batch
    known = {*batch.schema.names, *task.output_schema(declared_schema(batch.schema, "the case")).names}
    known = {name for name in known if name not in ("seq", "event_time") and not is_ordinal(name)}
    hints = get_type_hints(type(task))
    given = {f.name: getattr(task, f.name) for f in fields(task) if get_origin(hints[f.name]) is not Literal}
    names = {value: f"{value} ü" for value in given.values() if isinstance(value, str) and value in known}
    new = {name: renamed(value, names) for name, value in given.items()}
    return names, {name: value for name, value in new.items() if value != given[name]}


KINDS = [kind for kind in registered_tasks() if kind.code not in SKIPPED]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=[kind.code for kind in KINDS])
def test_renamed_fields_give_the_same_output(kind):
    for case in kind.cases():
        names, parameters = other_names(case)
        if not names:
            continue
        batch = case.batch.rename_columns([names.get(name, name) for name in case.batch.schema.names])
        task = case.task.replace(**parameters)
        with uncompiled():
            assert outcome(task, batch, {}) == outcome(case.task, case.batch, names)
        names = with_derived(names)
        for declared in (type(task).requires, type(task).writes):
            known = declared(case.task)
            assert declared(task) == (known if known is None else type(known)(swapped(known, names))), declared.__name__


VALUE_TASKS = [
    kind
    for kind in KINDS
    if issubclass(kind, ValueTask) and (one := next(iter(kind.cases())).task).target in one.writes()
]


@pytest.mark.long
@pytest.mark.parametrize("kind", VALUE_TASKS, ids=[kind.code for kind in VALUE_TASKS])
def test_output_gives_the_same_results_in_another_field(kind):
    """With output, the result that would replace the value is in a field of its own."""
    for case in kind.cases():
        value, found = case.task.value, []
        for output in (None, "ü own"):
            run = TaskRun(case.task.replace(output=output))
            with uncompiled():
                run.push(case.batch)
                found.append([*run.rows, *run.flush()])
        here, beside = ([{name: exact(one) for name, one in row.items()} for row in rows] for rows in found)
        results = [row.pop("ü own") for row in beside]
        assert {row.pop(value) for row in beside if value in row} <= {
            exact(one) for one in case.batch[value].to_pylist()
        }
        assert [{**row, value: result} for row, result in zip(beside, results, strict=True)] == here
