"""Run a task over an input, and compare its output to the last bit."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.jit import KERNELS
from riot_ops.runtime.session import Session
from riot_ops.task import Case, KeyedTask, Task

__all__ = [
    "Check",
    "Rows",
    "TaskRun",
    "applies",
    "applies_if",
    "assert_identical",
    "exact",
    "has_state",
    "picklers",
    "rows_by_key",
    "run_in_one_batch",
    "uncompiled",
    "uses_stream_time",
    "with_row_numbers",
]

Rows = list[dict[str, Any]]
Check = Callable[[Case], None]


def applies_if(condition: Callable[[Case], bool]) -> Callable[[Check], Check]:
    """Restrict a check to some cases."""

    def mark(check: Check) -> Check:
        check.applies = condition  # type: ignore[attr-defined]
        return check

    return mark


def applies(check: Check, case: Case) -> bool:
    """Whether a check applies to a case.

    >>> from riot_ops import tasks
    >>> from riot_ops.testing.checks import check_merge
    >>> [applies(check_merge, next(iter(kind.cases()))) for kind in (tasks.NoOp, tasks.KalmanFilter)]
    [False, True]
    """
    condition: Callable[[Case], bool] | None = getattr(check, "applies", None)
    return condition is None or condition(case)


def has_state(case: Case) -> bool:
    """Whether the task has state."""
    return isinstance(case.task, KeyedTask)


def uses_stream_time(case: Case) -> bool:
    """Whether the task uses stream time: records of other keys then make its timers due."""
    return isinstance(case.task, KeyedTask) and case.task.clock() is not None


def exact(value: Any) -> Any:
    """Return a value in a form that compares and sorts to the last bit, with NaN equal to NaN.

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


class TaskRun:
    """A session and its output."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.session: Session = Session(task, ordered=False)
        self.rows: Rows = []
        self.errors: Rows = []

    def push(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        out = self.session.push_batch(batch)
        self.rows += out.to_pylist()
        self.errors += self.session.errors
        self.session.errors = []
        return out

    def restart(self) -> None:
        """Restore the state, through real bytes, in a new session."""
        data = self.session.snapshot()
        self.session = Session(self.task, ordered=False)
        self.session.restore(data)

    def flush(self) -> Rows:
        rows = self.session.flush()
        self.errors += self.session.errors
        self.session.errors = []
        return rows

    def end(self) -> tuple[list[str], list[str], list[str]]:
        """Return the complete output: rows and rows of the end in order, errors sorted."""
        return list(map(exact, self.rows)), list(map(exact, self.flush())), sorted(map(exact, self.errors))


def run_in_one_batch(task: Task, batch: pa.RecordBatch) -> tuple[list[str], list[str], list[str]]:
    """Return the output of a run over the whole input."""
    run = TaskRun(task)
    run.push(batch)
    return run.end()


def assert_identical(got: Any, wanted: Any, what: str) -> None:
    """Assert that two such results are equal; name the first row that differs."""
    if got == wanted:
        return
    for name, a, b in zip(("rows", "rows at the end", "errors"), got, wanted, strict=False):
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{what}: {name}[{i}] differ:\n  got      {x}\n  expected {y}"
        assert len(a) == len(b), f"{what}: {len(a)} {name}, expected {len(b)}"


def with_row_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add a ``seq`` that identifies the rows, as in a dataflow."""
    position = batch.schema.get_field_index("seq")
    if position >= 0:
        seq = batch.column("seq")
        if pa.types.is_int64(seq.type) and not seq.null_count and len(pc.unique(seq)) == len(seq):
            return batch
        batch = batch.remove_column(position)
    numbers = pa.array(range(batch.num_rows), pa.int64())
    schema = batch.schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
    return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)


def rows_by_key(task: KeyedTask, rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """Return rows by their key."""
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
    compiled = [(kernel, kernel._compiled) for kernel in list(KERNELS)]  # noqa: SLF001 (the kit of the same package)
    try:
        for one, _ in compiled:
            one._compiled = one.python  # noqa: SLF001
        with np.errstate(all="ignore"):  # integers modulo 2^64 are meant
            yield
    finally:
        for one, machine_code in compiled:
            one._compiled = machine_code  # noqa: SLF001


def picklers() -> list[Any]:
    """Return the modules that can send a task to a worker; the last one also supports functions."""
    found: list[Any] = [pickle]
    for name in ("cloudpickle", "pyspark.cloudpickle"):
        try:
            found.append(__import__(name, fromlist=["dumps"]))
            break
        except ImportError:
            continue
    return found
