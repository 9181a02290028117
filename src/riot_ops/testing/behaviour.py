# ruff: noqa: S301, S603, PT018 (a kit of assertions; pickles are its own)
"""Checks of a running task: splits, restarts, keys, determinism."""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.lazy_rows import Rows as LazyRows
from riot_ops.kernels.arrays.lazy_rows import materialize as all_of
from riot_ops.kernels.arrays.lazy_rows import select
from riot_ops.runtime.operator_calls import checked_mask
from riot_ops.runtime.session import Session
from riot_ops.runtime.state import KeyedState
from riot_ops.runtime.state_table import state_table
from riot_ops.task import Case, FilterTask, KeyedTask
from riot_ops.testing.task_run import (
    Rows,
    TaskRun,
    applies_if,
    assert_identical,
    exact,
    picklers,
    rows_by_key,
    run_in_one_batch,
    uncompiled,
    uses_stream_time,
)

__all__ = [
    "check_any_split",
    "check_cold_start",
    "check_determinism",
    "check_input_is_not_mutated",
    "check_key_independence",
    "check_output_is_not_mutated",
    "check_selection",
    "check_session_equals_bulk",
]


def check_input_is_not_mutated(case: Case) -> None:
    """The buffers of the input are the same bytes afterwards."""

    def content() -> list[bytes | None]:
        return [None if b is None else b.to_pybytes() for c in case.batch.columns for b in c.buffers()]

    before = content()
    run_in_one_batch(case.task, case.batch)
    assert content() == before, "the input was changed"


def check_output_is_not_mutated(case: Case) -> None:
    """Output does not change when more is processed: it shares no memory with the state."""
    half = case.batch.num_rows // 2
    run = TaskRun(case.task)
    first = run.push(case.batch.slice(0, half))
    before = exact(first.to_pylist())
    run.push(case.batch.slice(half))
    run.flush()
    assert exact(first.to_pylist()) == before, "rows that had been emitted changed later"


def check_any_split(case: Case) -> None:
    """The output is the same to the last bit if the input is cut anywhere and the run restarts from real bytes.

    Restarts use one full snapshot at each cut, and a chain of deltas that two workers write
    in turn.
    """
    task, batch = case.task, case.batch
    wanted = run_in_one_batch(task, batch)
    for cut in range(batch.num_rows + 1):
        run = TaskRun(task)
        run.push(batch.slice(0, cut))
        run.restart()
        run.push(batch.slice(cut))
        assert_identical(run.end(), wanted, f"cut at {cut}")
    run = TaskRun(task)
    for i in range(batch.num_rows):
        run.push(batch.slice(i, 1))
        run.restart()
    assert_identical(run.end(), wanted, "cut everywhere")
    if isinstance(task, KeyedTask):
        _check_deltas(task, batch, wanted)


def _check_deltas(task: KeyedTask, batch: pa.RecordBatch, wanted: Any) -> None:
    here, there = KeyedState(task), KeyedState(task)
    errors = RejectedRecords(task.name())
    rows: Rows = []
    for i in range(batch.num_rows):
        rows += [row for out in here.update(batch.slice(i, 1), errors) for row in out.to_pylist()]
        there.restore(here.snapshot("delta" if i else "full"))
        here, there = there, here
    flushed = here.flush(errors)
    found = [row for e in errors.take() for row in e.to_pylist()]
    end = [] if flushed is None else flushed.to_pylist()
    got = [exact(r) for r in rows], [exact(r) for r in end], sorted(exact(r) for r in found)
    assert_identical(got, wanted, "restored from deltas")


@applies_if(lambda case: isinstance(case.task, KeyedTask | FilterTask))
def check_selection(case: Case) -> None:
    """A selection of rows, as a filter passes it on, gives the same output as a batch of these rows."""
    task, batch = case.task, case.batch
    if isinstance(task, FilterTask):
        here, there = RejectedRecords(task.name()), RejectedRecords(task.name())
        if (passes := checked_mask(task, batch, here)) is not None:
            wanted = exact(task.apply(batch, there).to_pylist())
            assert exact(all_of(select(batch, passes)).to_pylist()) == wanted, "other rows pass than apply returns"
            assert exact([e.to_pylist() for e in here.take()]) == exact([e.to_pylist() for e in there.take()])
    elif isinstance(task, KeyedTask):
        twice = batch.take(pa.array(np.arange(batch.num_rows).repeat(2)))
        some = LazyRows(twice, np.arange(batch.num_rows) * 2 + 1)
        assert_identical(_all_of_it(task, some), _all_of_it(task, batch), "picked rows")


def _all_of_it(task: KeyedTask, rows: Any) -> tuple[list[str], list[str], list[str]]:
    state, errors = KeyedState(task), RejectedRecords(task.name())
    out = [exact(row) for made in state.update(rows, errors) for row in made.to_pylist()]
    table = exact(state_table([state.snapshot()]).to_pylist())
    left = state.flush(errors)
    end = [] if left is None else [exact(row) for row in left.to_pylist()]
    return out, [*end, table], sorted(exact(row) for e in errors.take() for row in e.to_pylist())


@applies_if(
    lambda case: (
        not isinstance(case.task, KeyedTask)
        or (bool(case.task.by) and case.task.ttl is None and not uses_stream_time(case))
    )
)
def check_key_independence(case: Case) -> None:
    """Interleaved keys give the same output as separate runs; without state, the order of rows does not matter."""
    task, batch = case.task, case.batch
    full = TaskRun(task)
    full.push(batch)
    if not isinstance(task, KeyedTask):
        turned = TaskRun(task)
        turned.push(batch.take(pa.array(range(batch.num_rows))[::-1]))
        a, b = Counter(map(exact, turned.rows)), Counter(map(exact, full.rows))
        assert a == b, "the order of rows matters"
        return
    ends = rows_by_key(task, full.flush())
    outputs = rows_by_key(task, full.rows)
    places: dict[str, list[int]] = {}
    for i, row in enumerate(batch.to_pylist()):
        places.setdefault(next(iter(rows_by_key(task, [row]))), []).append(i)
    assert set(outputs) <= set(places), "rows were emitted with a key that was not in the input"
    for key, rows in places.items():
        alone = TaskRun(task)
        alone.push(batch.take(pa.array(rows)))
        end = alone.flush()
        assert_identical(
            (list(map(exact, outputs.get(key, []))), list(map(exact, ends.get(key, [])))),
            (list(map(exact, alone.rows)), list(map(exact, end))),
            f"key {key}",
        )


def check_session_equals_bulk(case: Case) -> None:
    """One event at a time, the compiled bulk and the kernels as plain Python agree."""
    task, batch = case.task, case.batch
    wanted = run_in_one_batch(task, batch)
    with uncompiled():
        assert_identical(run_in_one_batch(task, batch), wanted, "kernels as plain Python")
    session = Session(task, ordered=False)
    got = session.push_many(batch.to_pylist()) + session.flush()
    bulk = TaskRun(task)
    bulk.push(batch)
    expected = bulk.rows + bulk.flush()
    # events have no declared types: whole numbers may be returned as floats
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
    run = TaskRun(case.task)
    run.push(case.batch)
    return run.end(), run.session.snapshot()


def _elsewhere(case: Case) -> Any:
    data = picklers()[-1].dumps(case)
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
    """Return a process with other hashes of str that runs cases sent to it, and ends with this process."""
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
    os.dup2(2, 1)  # printed text must not mix with the answers
    while len(size := commands.read(8)) == 8:
        try:
            result: Any = _digest(pickle.loads(commands.read(int.from_bytes(size, "little"))))
        except Exception as error:
            result = f"it fails in another process: {error!r}"
        data = pickle.dumps(result)
        answers.write(len(data).to_bytes(8, "little") + data)
        answers.flush()


def check_cold_start(case: Case) -> None:
    """A run without records does not fail: no output at the end, and an empty state that can be restored."""
    run = TaskRun(case.task)
    assert run.flush() == [], "rows at the end of a stream without records"
    run.restart()
    run.push(case.batch.slice(0, 0))
    run.restart()
    assert run.flush() == [], "rows at the end of a stream without records"
    run.push(case.batch)
    assert_identical(run.end(), run_in_one_batch(case.task, case.batch), "after an empty batch")
