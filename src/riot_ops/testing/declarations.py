# ruff: noqa: S301, PT017, PT018 (a kit of assertions; pickles are its own)
"""Checks of a task's declarations: parameters, documentation, schemas."""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import doctest
import inspect
import json
import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, fields
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import NUMBER_REQUIREMENTS
from riot_ops.core.order import TIMER_ORDINALS, is_ordinal, next_ordinal
from riot_ops.core.parameters import as_names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import StreamSchema
from riot_ops.core.secret import Secret
from riot_ops.ingest.step import declared_schema as as_declared
from riot_ops.runtime.state import KeyedState
from riot_ops.task import Case, KeyedTask, Task
from riot_ops.testing.task_run import TaskRun, applies_if, exact, picklers, uses_stream_time, with_row_numbers

__all__ = [
    "check_bad_input_schema",
    "check_config_is_identity",
    "check_config_roundtrip",
    "check_docstring",
    "check_schema",
    "check_serialisable",
    "check_writes",
]

SECTIONS = ("Parameters", "Shapes and rates", "Missing values", "Errors", "References", "Examples")
MAX_BYTES = 100_000


def check_config_is_identity(case: Case) -> None:
    """Equal parameters make equal tasks with equal hashes; the repr evaluates to an equal task; a task is frozen."""
    task = case.task
    again = type(task)(**{f.name: getattr(task, f.name) for f in fields(task)})
    assert again == task and hash(again) == hash(task), f"{again!r} != {task!r}"
    assert task.replace() == task
    names = {
        "datetime": dt,
        "StreamSchema": StreamSchema,
        "Secret": Secret,
        "inf": float("inf"),
        "nan": float("nan"),
        **{type(one).__name__: type(one) for one in (task, *(getattr(task, f.name) for f in fields(task)))},
    }
    code = repr(task)
    for name, function in _functions(task).items():  # a function has no repr that is code
        code, names[f"{name}_"] = code.replace(repr(function), f"{name}_"), function
    twin = eval(code, names)  # noqa: S307 (the repr of a task is code that makes it)
    assert twin == task, f"eval(repr(task)) differs from {task!r}"
    for f in fields(task):
        try:
            setattr(task, f.name, None)
        except FrozenInstanceError:
            continue
        raise AssertionError(f"{f.name} can be changed after construction")


def check_config_roundtrip(case: Case) -> None:
    """JSON and back gives an equal task; an unknown parameter is refused by name with a hint."""
    task = case.task
    # descriptors only name functions; the reader supplies them
    data = {**json.loads(json.dumps(task.to_dict())), **_functions(task)}
    again = Task.from_dict(data)
    assert type(again) is type(task) and again == task, f"{again!r} was restored from JSON for {task!r}"
    assert again.to_dict() == task.to_dict()
    for name in data.keys() - {"task"}:
        typo = name + name[-1]
        if typo in data:
            continue
        try:
            Task.from_dict({**data, typo: 1})
        except ConfigError as error:
            text = str(error)
            assert repr(typo) in text and "did you mean" in text, f"no hint for {typo!r} in: {text}"
        else:
            raise AssertionError(f"the unknown parameter {typo!r} was accepted")


def _functions(task: Task) -> dict[str, Any]:
    return {f.name: getattr(task, f.name) for f in fields(task) if callable(getattr(task, f.name))}


def _first(case: Case) -> bool:
    """Whether it is the first case of its task."""
    first = next(iter(type(case.task).cases()))
    return case.task == first.task and exact(case.batch.to_pylist()) == exact(first.batch.to_pylist())


@applies_if(_first)
def check_docstring(case: Case) -> None:
    """The docstring has its sections in order, documents each parameter with its default, and its examples run."""
    kind = type(case.task)
    text = inspect.cleandoc(kind.__doc__ or "")
    assert text and not text.startswith(f"{kind.__name__}("), f"{kind.__name__} has no docstring"
    places = []
    for section in SECTIONS:
        heading = re.search(rf"^{section}\n-{{{len(section)}}}$", text, re.MULTILINE)
        assert heading, f"{kind.__name__}: the docstring lacks the section {section!r}"
        places.append(heading.start())
    assert places == sorted(places), f"{kind.__name__}: the order of sections is {', '.join(SECTIONS)}"
    parameters = text[places[0] : places[1]]
    named = {
        name.strip()
        for line in re.findall(r"^(\w[\w, ]*?)(?: :.*)?$", parameters, re.MULTILINE)
        for name in line.split(",")
    }
    missing = [f.name for f in fields(kind) if f.name not in named]
    assert not missing, f"{kind.__name__}: not documented: {', '.join(missing)}"
    given = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    for name, stated in _defaults(parameters):
        default = given.get(name)
        if default == dt.timedelta(0):
            default = 0
        assert name not in given or default == stated, f"{name} is {default!r} by default, documented is {stated!r}"
    module = sys.modules[kind.__module__]
    found = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__, module, vars(module).copy())
    examples = [test for test in found if test.examples]
    assert examples, f"{kind.__name__}: the section Examples has no doctest"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in examples:
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


def _defaults(parameters: str) -> Iterator[tuple[str, Any]]:
    """``(name, value)`` of each documented default that is a literal, as in ``a, b : int, default 1 and 2``."""
    for names, text in re.findall(r"^(\w[\w, ]*?) : .*?\bdefault (.+)$", parameters, re.MULTILINE):
        several = names.split(", ")
        for name, value in zip(several, text.split(" and ") if len(several) > 1 else [text], strict=False):
            with contextlib.suppress(ValueError, SyntaxError):  # described in words
                yield name, ast.literal_eval(value)


def check_serialisable(case: Case) -> None:
    """Pickle and cloudpickle give an equal task, in less than 100 KB."""
    for module in picklers():
        data = module.dumps(case.task)
        assert len(data) < MAX_BYTES, f"{len(data)} bytes, allowed are {MAX_BYTES}"
        assert pickle.loads(data) == case.task


def check_schema(case: Case) -> None:
    """The output has exactly the declared fields and types, also for an empty batch and in a dataflow."""
    with_seq = with_row_numbers(case.batch)
    for batch in (case.batch, case.batch.slice(0, 0), with_seq, with_seq.slice(0, 0)):
        given = as_declared(batch.schema, "the case")  # as the runner passes it
        declared_schema = case.task.output_schema(given)
        run = TaskRun(case.task)
        out = run.push(batch)
        assert out.schema.equals(declared_schema), f"declared:\n{declared_schema}\nbut the output has:\n{out.schema}"
        out.validate(full=True)
        assert batch.num_rows or not out.num_rows, "rows were emitted for an empty batch"
        for field, column in zip(out.schema, out.columns, strict=True):
            assert field.nullable or not column.null_count, f"nulls in {field.name}, declared as non-null"
        if isinstance(case.task, KeyedTask):
            _check_flush(case.task, batch, declared_schema)
        changed = case.task.writes()
        for field in given:
            if changed is not None and field.name not in changed and field.name in declared_schema.names:
                assert declared_schema.field(field.name).type == field.type, (
                    f"the field {field.name} changes its type, but writes() does not name it"
                )
        if changed is not None:
            place = {next_ordinal(batch.schema.names)} if case.task.expands() else set()
            place |= set(TIMER_ORDINALS) if uses_stream_time(case) else set()
            new = set(declared_schema.names) - set(batch.schema.names) - changed - place
            assert not new, f"writes() does not name the new fields {', '.join(sorted(new))}"


def _check_flush(task: KeyedTask, batch: pa.RecordBatch, declared_schema: pa.Schema) -> None:
    state = KeyedState(task)
    state.update(batch, RejectedRecords(task.name()))
    out = state.flush()
    if out is None:
        return
    out.validate(full=True)
    for field in out.schema:
        assert field.name in declared_schema.names, f"the undeclared field {field.name} is emitted at the end"
        out.column(field.name).cast(declared_schema.field(field.name).type)


@applies_if(lambda case: case.task.writes() is not None)
def check_writes(case: Case) -> None:
    """A field that ``writes()`` does not name has, in each output record, the value of a record that it came from.

    The planner believes it: a step that is keyed by the field may then run without another shuffle.
    """
    task, batch = case.task, with_row_numbers(case.batch)
    written = {"seq", "event_time", *(task.writes() or ())}
    kept = [name for name in batch.schema.names if name not in written and not is_ordinal(name)]
    places = as_names(task.by) if isinstance(task, KeyedTask) else ("seq",)
    given: dict[str, set[str]] = {}
    for row in batch.to_pylist():
        for name in kept:
            given.setdefault(f"{name} {exact([row[place] for place in places])}", set()).add(exact(row[name]))
    run = TaskRun(task)
    run.push(batch)
    for row in run.rows:
        for name in (name for name in kept if name in row):
            found = given.get(f"{name} {exact([row.get(place) for place in places])}", ())
            assert exact(row[name]) in found, f"{name} becomes {row[name]!r}, but writes() does not name it"


@applies_if(lambda case: bool(case.task.requires()))
def check_bad_input_schema(case: Case) -> None:
    """A field that is missing, or of a type that does not fit, is refused by name before any record."""
    schema = case.batch.schema
    for name, wanted in case.task.requires().items():
        bad = [schema.remove(schema.get_field_index(name))]
        if wanted != "any":
            wrong = pa.string() if wanted in NUMBER_REQUIREMENTS else pa.list_(pa.float64())
            bad.append(schema.set(schema.get_field_index(name), pa.field(name, wrong)))
        for one in bad:
            try:
                case.task.output_schema(one)
            except ConfigError as error:
                assert repr(name) in str(error), f"the field {name!r} is not named in: {error}"
            else:
                raise AssertionError(f"accepted although {name!r} is missing or wrong in {one}")
