# ruff: noqa: S301, S603, PT017, PT018 (a kit of assertions; pickles are its own)
"""What holds for every task, as small functions over a task and an input.

Each check takes a :class:`~riot_ops.task.Case` and raises :class:`AssertionError` (or what the task
raised) where the property does not hold. Floats are compared to the last bit; NaN equals NaN.
"""

from __future__ import annotations

import atexit
import datetime as dt
import doctest
import functools
import inspect
import json
import math
import os
import pickle
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.errors import ConfigError
from riot_ops.kernels.jit import Kernel
from riot_ops.schema import StreamSchema
from riot_ops.session import Session
from riot_ops.state import KeyedState
from riot_ops.task import Case, DeadLetters, KeyedTask, Task

__all__ = ["CHECKS", "check_task", "exact", "uncompiled"]

SECTIONS = ("Parameters", "Shapes and rates", "Missing values", "Errors", "References", "Examples")
MOST_BYTES = 100_000
MANY_RECORDS = 20_000

Rows = list[dict[str, Any]]


# -- comparing and running -------------------------------------------------------------------------


def exact(value: Any) -> Any:
    """A value in a form that compares and sorts to the last bit, with NaN equal to NaN.

    >>> exact(float("nan")) == exact(float("nan")), exact(0.0) == exact(-0.0), exact(1) == exact(1.0)
    (True, False, False)
    """
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value!r} {struct.pack('>d', value).hex()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {exact(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(str(exact(v)) for v in value) + "]"
    return f"{type(value).__name__} {value!r}"


class _Run:
    """A session, and what came out of it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.session = Session(task)
        self.rows: Rows = []
        self.errors: Rows = []

    def push(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        out = self.session.push_batch(batch)
        self.rows += out.to_pylist()
        self.errors += self.session.errors
        self.session.errors = []
        return out

    def restart(self) -> None:
        """Through real bytes into a new session."""
        data = self.session.snapshot()
        self.session = Session(self.task)
        self.session.restore(data)

    def flush(self) -> Rows:
        return self.session.flush()

    def end(self) -> tuple[list[str], list[str], list[str]]:
        """Everything that came out: rows and rows of the end in order, errors sorted."""
        return list(map(exact, self.rows)), list(map(exact, self.flush())), sorted(map(exact, self.errors))


def _whole(task: Task, batch: pa.RecordBatch) -> tuple[list[str], list[str], list[str]]:
    run = _Run(task)
    run.push(batch)
    return run.end()


def _same(got: Any, wanted: Any, what: str) -> None:
    if got == wanted:
        return
    for name, a, b in zip(("rows", "rows at the end", "errors"), got, wanted, strict=False):
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{what}: {name}[{i}] differ:\n  got      {x}\n  expected {y}"
        assert len(a) == len(b), f"{what}: {len(a)} {name}, expected {len(b)}"


def _numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With a ``seq`` that tells the rows apart, as in a dataflow."""
    position = batch.schema.get_field_index("seq")
    if position >= 0:
        seq = batch.column("seq")
        if pa.types.is_int64(seq.type) and not seq.null_count and len(pc.unique(seq)) == len(seq):
            return batch
        batch = batch.remove_column(position)
    numbers = pa.array(range(batch.num_rows), pa.int64())
    schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
    return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)


def _by_keys(task: KeyedTask, rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        # 0.0 and -0.0 are one key
        parts = (row[name] for name in task.by)
        key = exact([0.0 if isinstance(v, float) and v == 0 else v for v in parts])
        found.setdefault(key, []).append(row)
    return found


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run all kernels as plain Python inside the block.

    >>> from riot_ops import tasks
    >>> with uncompiled():
    ...     rows = tasks.KalmanFilter().session().push({"value": 0.0})
    >>> rows
    [{'value': 0.0}]
    """
    kernels: dict[int, Kernel[..., Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "numba":
            kernels.update((id(v), v) for v in list(vars(module).values()) if isinstance(v, Kernel))
    compiled = [(k, k._compiled) for k in kernels.values()]  # noqa: SLF001 (the kit of the same package)
    try:
        for one, _ in compiled:
            one._compiled = one.python  # noqa: SLF001
        with np.errstate(all="ignore"):  # integers modulo 2^64 are meant
            yield
    finally:
        for one, machine_code in compiled:
            one._compiled = machine_code  # noqa: SLF001


# -- parameters ------------------------------------------------------------------------------------


def check_config_is_identity(case: Case) -> None:
    """Equal parameters make equal tasks with one hash; the repr gives the task back; it is frozen."""
    task = case.task
    again = type(task)(**{f.name: getattr(task, f.name) for f in fields(task)})
    assert again == task and hash(again) == hash(task), f"{again!r} != {task!r}"
    assert task.replace() == task
    names = {
        "datetime": dt,
        "StreamSchema": StreamSchema,
        "inf": float("inf"),
        "nan": float("nan"),
        type(task).__name__: type(task),
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
    """Through JSON and back it is the same task; an unknown parameter is refused by name with a hint."""
    task = case.task
    # descriptors only name functions; who reads one supplies them
    data = {**json.loads(json.dumps(task.to_dict())), **_functions(task)}
    again = Task.from_dict(data)
    assert type(again) is type(task) and again == task, f"{again!r} came back for {task!r}"
    assert again.to_dict() == task.to_dict()
    for f in fields(task):
        typo = f.name + f.name[-1]
        if typo in {g.name for g in fields(task)}:
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


def check_docstring(case: Case) -> None:
    """The docstring has its sections in order, documents each parameter, and its examples run."""
    _check_docstring(type(case.task))


@functools.cache
def _check_docstring(kind: type[Task]) -> None:
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
    module = sys.modules[kind.__module__]
    found = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__, module, vars(module).copy())
    examples = [test for test in found if test.examples]
    assert examples, f"{kind.__name__}: the section Examples has no doctest"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in examples:
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


def check_serialisable(case: Case) -> None:
    """Pickle and cloudpickle give an equal task, in less than 100 KB."""
    for module in _picklers():
        data = module.dumps(case.task)
        assert len(data) < MOST_BYTES, f"{len(data)} bytes, allowed are {MOST_BYTES}"
        assert pickle.loads(data) == case.task


def _picklers() -> list[Any]:
    found: list[Any] = [pickle]
    for name in ("cloudpickle", "pyspark.cloudpickle"):
        try:
            found.append(__import__(name, fromlist=["dumps"]))
            break
        except ImportError:
            continue
    return found


# -- schema ----------------------------------------------------------------------------------------


def check_schema(case: Case) -> None:
    """The output has exactly the declared fields and types, also for an empty batch and in a dataflow."""
    numbered = _numbered(case.batch)
    for batch in (case.batch, case.batch.slice(0, 0), numbered, numbered.slice(0, 0)):
        declared = case.task.output_schema(batch.schema)
        run = _Run(case.task)
        out = run.push(batch)
        assert out.schema.equals(declared), f"declared:\n{declared}\nbut the output has:\n{out.schema}"
        out.validate(full=True)
        assert batch.num_rows or not out.num_rows, "rows came out of an empty batch"
        for field, column in zip(out.schema, out.columns, strict=True):
            assert field.nullable or not column.null_count, f"nulls in {field.name}, declared as non-null"
        if isinstance(case.task, KeyedTask):
            _check_flush(case.task, batch, declared)
        changed = case.task.writes()
        for field in batch.schema:
            if changed is not None and field.name not in changed and field.name in declared.names:
                assert declared.field(field.name).type == field.type, (
                    f"the field {field.name} changes its type, but writes() does not name it"
                )
        if changed is not None:
            new = set(declared.names) - set(batch.schema.names) - changed
            assert not new, f"writes() does not name the new fields {', '.join(sorted(new))}"


def _check_flush(task: KeyedTask, batch: pa.RecordBatch, declared: pa.Schema) -> None:
    state = KeyedState(task)
    state.update(batch, DeadLetters(task.name()))
    out = state.flush()
    if out is None:
        return
    out.validate(full=True)
    for field in out.schema:
        assert field.name in declared.names, f"at the end the undeclared field {field.name} comes out"
        out.column(field.name).cast(declared.field(field.name).type)


def check_bad_input_schema(case: Case) -> None:
    """A field that is missing, or of a type that does not fit, is refused by name before any record."""
    schema = case.batch.schema
    for name, wanted in case.task.requires().items():
        bad = [schema.remove(schema.get_field_index(name))]
        if wanted != "any":
            wrong = pa.string() if wanted == "number" else pa.list_(pa.float64())
            bad.append(schema.set(schema.get_field_index(name), pa.field(name, wrong)))
        for one in bad:
            try:
                case.task.output_schema(one)
            except ConfigError as error:
                assert repr(name) in str(error), f"the field {name!r} is not named in: {error}"
            else:
                raise AssertionError(f"accepted although {name!r} is missing or wrong in {one}")


# -- running ---------------------------------------------------------------------------------------


def check_input_is_not_mutated(case: Case) -> None:
    """The buffers of the input are the same bytes afterwards."""

    def content() -> list[bytes | None]:
        return [None if b is None else b.to_pybytes() for c in case.batch.columns for b in c.buffers()]

    before = content()
    _whole(case.task, case.batch)
    assert content() == before, "the input was changed"


def check_output_is_not_mutated(case: Case) -> None:
    """What came out does not change when more is processed: it shares no memory with the state."""
    half = case.batch.num_rows // 2
    run = _Run(case.task)
    first = run.push(case.batch.slice(0, half))
    before = exact(first.to_pylist())
    run.push(case.batch.slice(half))
    run.flush()
    assert exact(first.to_pylist()) == before, "rows that had come out changed later"


def check_any_split(case: Case) -> None:
    """Cut anywhere, restart through real bytes, go on: the same to the last bit.

    Restarts from one full snapshot at each cut, and from a chain of deltas that two workers write
    in turn.
    """
    task, batch = case.task, case.batch
    wanted = _whole(task, batch)
    for cut in range(batch.num_rows + 1):
        run = _Run(task)
        run.push(batch.slice(0, cut))
        run.restart()
        run.push(batch.slice(cut))
        _same(run.end(), wanted, f"cut at {cut}")
    run = _Run(task)
    for i in range(batch.num_rows):
        run.push(batch.slice(i, 1))
        run.restart()
    _same(run.end(), wanted, "cut everywhere")
    if isinstance(task, KeyedTask):
        _check_deltas(task, batch, wanted)


def _check_deltas(task: KeyedTask, batch: pa.RecordBatch, wanted: Any) -> None:
    here, there = KeyedState(task), KeyedState(task)
    dead = DeadLetters(task.name())
    rows: Rows = []
    for i in range(batch.num_rows):
        rows += here.update(batch.slice(i, 1), dead).to_pylist()
        there.restore(here.snapshot("delta" if i else "full"))
        here, there = there, here
    flushed = here.flush()
    errors = [row for e in dead.take() for row in e.to_pylist()]
    end = [] if flushed is None else flushed.to_pylist()
    got = [exact(r) for r in rows], [exact(r) for r in end], sorted(exact(r) for r in errors)
    _same(got, wanted, "restored from deltas")


def check_key_independence(case: Case) -> None:
    """Interleaved keys give what separate runs give; without state, the order of rows makes no difference."""
    task, batch = case.task, case.batch
    whole = _Run(task)
    whole.push(batch)
    if not isinstance(task, KeyedTask):
        turned = _Run(task)
        turned.push(batch.take(pa.array(range(batch.num_rows))[::-1]))
        a, b = Counter(map(exact, turned.rows)), Counter(map(exact, whole.rows))
        assert a == b, "the order of rows matters"
        return
    if not task.by:
        return
    # a time to live is judged by the newest time of the whole stream
    ends = _by_keys(task, whole.flush()) if task.ttl is None else {}
    outputs = _by_keys(task, whole.rows)
    places: dict[str, list[int]] = {}
    for i, row in enumerate(batch.to_pylist()):
        places.setdefault(next(iter(_by_keys(task, [row]))), []).append(i)
    assert set(outputs) <= set(places), "rows came out with a key that never came in"
    for key, rows in places.items():
        alone = _Run(task)
        alone.push(batch.take(pa.array(rows)))
        end = alone.flush() if task.ttl is None else []
        _same(
            (list(map(exact, outputs.get(key, []))), list(map(exact, ends.get(key, [])))),
            (list(map(exact, alone.rows)), list(map(exact, end))),
            f"key {key}",
        )


def check_session_equals_bulk(case: Case) -> None:
    """One event at a time, the compiled bulk and the kernels as plain Python agree."""
    task, batch = case.task, case.batch
    wanted = _whole(task, batch)
    with uncompiled():
        _same(_whole(task, batch), wanted, "kernels as plain Python")
    session = Session(task)
    got = session.push_many(batch.to_pylist()) + session.flush()
    bulk = _Run(task)
    bulk.push(batch)
    expected = bulk.rows + bulk.flush()
    # events have no declared types: whole numbers may come back as floats
    assert [_loose(r) for r in got] == [_loose(r) for r in expected], (
        f"one event at a time gave\n  {got}\nthe bulk\n  {expected}"
    )
    assert Counter((e["reason"], e["message"]) for e in session.errors) == Counter(
        (e["reason"], e["message"]) for e in bulk.errors
    ), "other errors one event at a time"


def _loose(value: Any) -> Any:
    if isinstance(value, dict):
        return exact({k: _loose(v) for k, v in value.items()})
    return exact(float(value)) if isinstance(value, int) and not isinstance(value, bool) else exact(value)


def check_determinism(case: Case) -> None:
    """A process with other hash seeds gives the same bytes, those of the state included."""
    here = _digest(case)
    assert here == _digest(case), "two runs in one process differ"
    there = _elsewhere(case)
    assert there == here, "a process with another PYTHONHASHSEED gives something else"


def _digest(case: Case) -> tuple[Any, bytes]:
    run = _Run(case.task)
    run.push(case.batch)
    return run.end(), run.session.snapshot()


def _elsewhere(case: Case) -> Any:
    data = _picklers()[-1].dumps(case)
    process = _helper()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(len(data).to_bytes(8, "little") + data)
    process.stdin.flush()
    size = process.stdout.read(8)
    assert len(size) == 8, "the helper process ended; see its error output"
    result = pickle.loads(process.stdout.read(int.from_bytes(size, "little")))
    assert not isinstance(result, str), result
    return result


@functools.cache
def _helper() -> subprocess.Popen[bytes]:
    """A process with other hashes of str, that runs cases sent to it; it ends with this one."""
    seed = "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "42"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "PYTHONHASHSEED": seed,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import _serve; _serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    atexit.register(process.communicate)
    return process


def _serve() -> None:
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    while len(size := commands.read(8)) == 8:
        try:
            result: Any = _digest(pickle.loads(commands.read(int.from_bytes(size, "little"))))
        except Exception as error:
            result = f"it fails in another process: {error!r}"
        data = pickle.dumps(result)
        answers.write(len(data).to_bytes(8, "little") + data)
        answers.flush()


def check_cold_start(case: Case) -> None:
    """Before any record nothing fails: no output at the end, and an empty state that can be restored."""
    run = _Run(case.task)
    assert run.flush() == [], "rows at the end of a stream without records"
    run.restart()
    run.push(case.batch.slice(0, 0))
    run.restart()
    assert run.flush() == [], "rows at the end of a stream without records"
    run.push(case.batch)
    _same(run.end(), _whole(case.task, case.batch), "after an empty batch")


# -- bad records -----------------------------------------------------------------------------------


def check_missing_and_bad_values(case: Case) -> None:
    """Null, NaN, infinity: each gives what the docstring says, and a rejected record leaves no trace.

    A rejected record is in the errors with a documented reason; the others come out as if it had
    never been there. No NaN is made: what a task computes is a number or null.
    """
    documented = _texts(type(case.task))
    for batch in (_numbered(case.batch), *_spoilt(case)):
        whole = _Run(case.task)
        out = whole.push(batch)
        for error in whole.errors:
            assert error["reason"] in documented, f"reason {error['reason']!r} is not documented"
            assert error["task"] == case.task.name() and error["message"], error
        for name in _written(case.task, out.schema, batch.schema):
            column = out.column(name)
            if pa.types.is_floating(column.type):
                assert not pc.any(pc.is_nan(column)).as_py(), f"NaN in {name}, missing is null"
        rejected = {e["seq"] for e in whole.errors}
        numbers = [e["seq"] for e in whole.errors]
        seq = batch.column("seq").to_pylist()
        assert rejected <= set(seq), f"errors name records {rejected - set(seq)} that never came in"
        if not isinstance(case.task, KeyedTask):
            continue
        assert len(numbers) == len(rejected), f"records were rejected twice: {numbers}"
        clean = _Run(case.task)
        clean.push(batch.filter(pa.array([s not in rejected for s in seq])))
        assert not clean.errors, f"more errors without the rejected records: {clean.errors}"
        rows, end, _ = whole.end()
        _same((rows, end, []), clean.end(), "without the rejected records")


def _texts(kind: type[Task]) -> str:
    """The docstring, and those of the classes of its module that it refers to."""
    text = kind.__doc__ or ""
    module = vars(sys.modules[kind.__module__])
    return text + "".join(module[n].__doc__ or "" for n in re.findall(r":class:`(\w+)`", text) if n in module)


def _written(task: Task, out: pa.Schema, given: pa.Schema) -> list[str]:
    """Fields that the task computes."""
    writes = task.writes()
    if not isinstance(task, KeyedTask) or writes is None:
        return [n for n in out.names if n not in given.names]
    return [n for n in out.names if n in writes]


def _spoilt(case: Case) -> Iterator[pa.RecordBatch]:
    """The input with null, NaN and infinity between its records, in each field that is read."""
    batch = case.batch
    n = batch.num_rows
    for name, wanted in case.task.requires().items():
        position = batch.schema.get_field_index(name)
        kind = batch.schema.field(name).type
        values: list[Any] = [None]
        if wanted == "number" and pa.types.is_floating(kind):
            values += [float("nan"), float("inf"), float("-inf")]
        if not n or not batch.schema.field(name).nullable:
            continue
        for value in values:
            # every second row is a copy with the bad value
            doubled = batch.take(pa.array(np.repeat(np.arange(n), 2)))
            second = pa.array(np.arange(2 * n) % 2 == 1)
            bad = pc.if_else(second, pa.scalar(value, kind), doubled.column(name))
            doubled = doubled.set_column(position, batch.schema.field(name), bad)
            if "seq" in doubled.schema.names:
                doubled = doubled.remove_column(doubled.schema.get_field_index("seq"))
            yield _numbered(doubled)


def check_wrong_type(case: Case) -> None:
    """An event with a value of the wrong type goes to the errors and leaves the state as it was."""
    if not case.batch.num_rows:
        return
    event = case.batch.slice(0, 1).to_pylist()[0]
    for name, wanted in case.task.requires().items():
        if wanted == "any":
            continue
        session = Session(case.task)
        session.push_many(case.batch.to_pylist())
        session.errors.clear()
        before = session.snapshot()
        for value in ("warm", [1.0], {"a": 1}) if wanted == "number" else ([1.0], {"a": 1}):
            assert session.push({**event, name: value}) == [], f"{value!r} gave a row"
            assert [e["reason"] for e in session.errors] == ["wrong_type"], session.errors
            assert repr(value) in session.errors[0]["message"] and name in session.errors[0]["message"]
            session.errors.clear()
        assert session.snapshot() == before, "a record of the wrong type changed the state"


# -- size ------------------------------------------------------------------------------------------


def check_bounded_state(case: Case) -> None:
    """Ten times more records of the same keys make the state no bigger."""
    if not isinstance(case.task, KeyedTask) or not case.batch.num_rows:
        return
    run = _Run(case.task)
    random = np.random.default_rng(0)
    sizes = []
    rows = 0
    for until in (MANY_RECORDS // 10, MANY_RECORDS):
        while rows < until:
            run.push(_varied(case, random, rows))
            run.rows, run.errors = [], []
            rows += case.batch.num_rows * 20
        sizes.append(len(run.session.snapshot()))
    assert sizes[1] <= 1.25 * sizes[0] + 1024, f"the state grew from {sizes[0]} to {sizes[1]} bytes"


def _varied(case: Case, random: np.random.Generator, place: int) -> pa.RecordBatch:
    """The input twenty times over, with other numbers and growing times."""
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
        elif field.name == "seq" and pa.types.is_int64(field.type):
            column = pa.array(np.arange(place, place + batch.num_rows))
        batch = batch.set_column(i, field, column)
    return batch


def check_selectivity(case: Case) -> None:
    """As many rows come out per row that goes in as the task declares."""
    sigma = case.task.selectivity
    parts = sigma.split(":")
    assert len(parts) == 2 and parts[0] in ("1", "N") and parts[1] in ("1", "0/1", "N", "0/N", "M"), (
        f"selectivity {sigma!r} is not of a known form, such as 1:1, N:1, 1:0/1, 1:N"
    )
    run = _Run(case.task)
    batch = _numbered(case.batch)
    run.push(batch)
    out, given = len(run.rows) + len(run.flush()), batch.num_rows
    rejected = len({e["seq"] for e in run.errors})
    text = f"{out} rows and {rejected} errors came out for {given}, declared is {sigma}"
    if sigma == "1:1":
        assert out == given - rejected, text
    elif parts[1] in ("1", "0/1"):
        assert out <= given - rejected, text


#: All checks; each takes a :class:`~riot_ops.task.Case`.
CHECKS: tuple[Callable[[Case], None], ...] = (
    check_config_is_identity,
    check_config_roundtrip,
    check_docstring,
    check_serialisable,
    check_schema,
    check_bad_input_schema,
    check_input_is_not_mutated,
    check_output_is_not_mutated,
    check_any_split,
    check_key_independence,
    check_session_equals_bulk,
    check_determinism,
    check_cold_start,
    check_missing_and_bad_values,
    check_wrong_type,
    check_bounded_state,
    check_selectivity,
)


def check_task(kind: type[Task], checks: Sequence[Callable[[Case], None]] = CHECKS) -> int:
    """Run checks over all cases of a task class; returns how many ran.

    Examples
    --------
    >>> from riot_ops import tasks
    >>> check_task(tasks.KalmanFilter, checks=CHECKS[:2])
    6
    """
    ran = 0
    for i, case in enumerate(kind.cases()):
        for check in checks:
            try:
                check(case)
            except Exception as error:
                error.add_note(f"in {check.__name__} of {kind.__name__}, case {case.name or i}")
                raise
            ran += 1
    assert ran, f"{kind.__name__} has no cases"
    return ran
