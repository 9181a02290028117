# ruff: noqa: PT017 (a kit of assertions)
"""Checks of states: parts of one state are merged, any other state is refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.errors import StateError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.snapshot import pack_snapshot
from riot_ops.runtime.state import KeyedState
from riot_ops.task import Case, KeyedTask, Task
from riot_ops.testing.task_run import TaskRun, applies_if, assert_identical, exact, has_state

__all__ = ["check_kept_state", "check_merge", "check_state_versions", "keep_state"]


@applies_if(has_state)
def check_merge(case: Case) -> None:
    """Sketches of parts of a stream give, merged in any order, that of the whole, to the last bit.

    A task whose states cannot be merged refuses it and changes nothing.
    """
    task, batch = case.task, case.batch
    assert isinstance(task, KeyedTask)
    place = np.arange(batch.num_rows)
    for part_of in (3 * place // max(batch.num_rows, 1), place % 3):
        parts = [_over(task, batch, part_of == i) for i in range(3)]
        before = [_content(part) for part in parts]
        merged = _over(task, batch, part_of == 0)
        try:
            merged.merge(parts[1])
        except StateError as error:
            assert f"{task.name()} cannot be merged" in str(error), f"refused with: {error}"
            assert _content(merged) == before[0], "a merge that was refused has changed the state"
            return
        whole = _content(_over(task, batch, place >= 0))
        for order in itertools.permutations(range(3)):
            a, b, c = (_over(task, batch, part_of == i) for i in order)
            a.merge(b)
            a.merge(c)
            assert _content(a) == whole, f"parts merged in the order {order} differ from one pass"
        a, b, c = (_over(task, batch, part_of == i) for i in range(3))
        b.merge(c)
        a.merge(b)
        assert _content(a) == whole, "merging is not associative"
        a.merge(KeyedState(task))
        assert _content(a) == whole, "merging an empty state changes something"
        empty = KeyedState(task)
        empty.merge(a)
        assert _content(empty) == whole, "an empty state differs from the state merged into it"
        a.update(batch, RejectedRecords(task.name()))
        assert _content(empty) == whole, "merged states share memory"
        merged.merge(parts[2])
        assert [_content(part) for part in parts] == before, "merging changes the merged state"


def _over(task: KeyedTask, batch: pa.RecordBatch, rows: Any) -> KeyedState:
    state = KeyedState(task)
    state.update(batch.filter(pa.array(rows)), RejectedRecords(task.name()))
    return state


def _content(state: KeyedState) -> dict[str, str]:
    """State by key, without regard to the order of keys."""
    fresh = KeyedState(state.task)
    fresh.restore(state.snapshot())
    keys = fresh.keys().to_pylist() or [{}] * fresh.size
    arrays = {
        name: [
            one if (pack := fresh.fields[name].pack) is None or one is None else pack(one)
            for one in array[: fresh.size]
        ]
        for name, array in fresh.arrays.items()
    }
    return {
        exact(key): exact({n: a[i].tolist() if hasattr(a[i], "tolist") else a[i] for n, a in arrays.items()})
        for i, key in enumerate(keys)
    }


@applies_if(has_state)
def check_state_versions(case: Case) -> None:
    """Only the state of the same task, version and parameters is loaded; anything else changes nothing.

    A refused state raises :class:`~riot_ops.core.errors.StateError`, which names the difference.
    """
    task, batch = case.task, case.batch
    assert isinstance(task, KeyedTask)
    run = TaskRun(task)
    run.push(batch)
    data = run.session.snapshot()
    session = TaskRun(task).session
    session.push_batch(batch)
    before = session.snapshot()
    for other, text in _others(data, task):
        try:
            session.restore(other)
        except StateError as error:
            assert text in str(error), f"the refusal does not say {text!r}: {error}"
        else:
            raise AssertionError(f"state was loaded although it should say {text!r}")
        assert session.snapshot() == before, f"state was refused ({text}), but has changed the earlier state"
    again = TaskRun(task)
    again.session.restore(data)
    run.rows = []
    for one in (run, again):
        one.errors = []
        one.push(batch)
    assert_identical(again.end(), run.end(), "after loading a state")


def _others(data: bytes, task: KeyedTask) -> Iterator[tuple[bytes, str]]:
    """State of another task, version or parameter, or damaged state; and the message of its refusal."""
    _, new, rows, keys = msgspec.msgpack.decode(data, type=tuple[int, int, bytes, bytes])
    with pa.ipc.open_stream(rows) as reader:
        batch = reader.read_next_batch()
    ((name, value),) = batch.schema.metadata.items()
    identity = json.loads(value)

    def written(**changes: Any) -> bytes:
        sink = pa.BufferOutputStream()
        text = json.dumps({**identity, **changes})
        changed = batch.replace_schema_metadata({name: text.encode()})
        with pa.ipc.new_stream(sink, changed.schema) as writer:
            writer.write_batch(changed)
        return pack_snapshot(new, memoryview(sink.getvalue()), keys)

    for version in (task.version + 1, task.version - 1):
        yield written(version=version), f"version {version!r}, this is version {task.version!r}"
    yield written(task="another"), f"task 'another', this is task {task.name()!r}"
    yield written(format="0"), "format '0', this is format"
    for parameter, value in identity["parameters"].items():
        yield written(parameters={**identity["parameters"], parameter: [value]}), f"{parameter} was {[value]!r}"
    yield written(fields={**identity["fields"], "more": ["int64", 0]}), "another state layout"
    flipped = [data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :] for i in range(0, len(data), len(data) // 20)]
    for damaged in (b"", bytes(4), b"state", data[: len(data) // 2], data[:-1], data[1:], data + data, *flipped):
        yield damaged, "damaged or not riot_ops state"


def keep_state(case: Case) -> bytes:
    """Keep the state in the middle of an input, the rest of the input and its output: for later releases to load.

    A task that cannot be rebuilt from its descriptor, such as one with a function, raises ConfigError.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> kept = keep_state(next(iter(t.KalmanFilter.cases())))
    >>> type(kept)
    <class 'bytes'>
    """
    descriptor = case.task.to_dict()
    Task.from_dict(descriptor)
    half = case.batch.num_rows // 2
    run = TaskRun(case.task)
    run.push(case.batch.slice(0, half))
    state = run.session.snapshot()
    run.rows, run.errors = [], []
    run.push(case.batch.slice(half))
    rows, end, errors = run.end()
    rest = pa.Table.from_batches([case.batch.slice(half)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rest.schema) as writer:
        writer.write_table(rest)
    return msgspec.msgpack.encode(
        {
            "task": descriptor,
            "version": case.task.version,
            "state": state,
            "rest": sink.getvalue().to_pybytes(),
            "out": [rows, end, errors],
        }
    )


def check_kept_state(data: bytes) -> None:
    """Load what :func:`keep_state` kept, and check that the rest of the output is the same.

    State of another version of the task is refused with an error that names both. Fractions may differ
    in their last digits, as they do between processors.

    >>> from riot_ops import tasks
    >>> check_kept_state(keep_state(next(iter(tasks.KalmanFilter.cases()))))
    """
    kept = msgspec.msgpack.decode(data)
    task = Task.from_dict(kept["task"])
    run = TaskRun(task)
    if task.version != kept["version"]:
        try:
            run.session.restore(kept["state"])
        except StateError as error:
            assert f"version {kept['version']!r}, this is version {task.version!r}" in str(error), str(error)
            return
        raise AssertionError(f"version {task.version} of {task.name()} loads state of version {kept['version']}")
    run.session.restore(kept["state"])
    with pa.ipc.open_stream(kept["rest"]) as reader:
        for batch in reader:
            run.push(batch)
    what = f"state of {task.name()} that was kept"
    now = run.end()
    assert_identical(_texts(now), _texts(kept["out"]), what)
    a, b = _fractions(now), _fractions(kept["out"])
    assert np.allclose(a, b, rtol=1e-9, atol=0, equal_nan=True), f"{what}: {a} was emitted, it was {b}"


#: A number with a point in a text, and its bits, if they follow.
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?(?: [0-9a-f]{16})?")


def _texts(results: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[_FRACTION.sub("#", row) for row in rows] for rows in results]


def _fractions(results: Sequence[Sequence[str]]) -> list[float]:
    return [float(text.partition(" ")[0]) for rows in results for row in rows for text in _FRACTION.findall(row)]
