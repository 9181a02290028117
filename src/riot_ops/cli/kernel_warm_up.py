"""Compiling all kernels in advance, in as many processes as there are cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields, replace

import pyarrow as pa

from riot_ops.core.errors import ConfigError, RiotError, StateError
from riot_ops.core.interrupts import defer_interrupt
from riot_ops.core.source import Source
from riot_ops.dataflows.applications import APPLICATIONS, RIOTBENCH, application
from riot_ops.kernels.arrays.arrow import concat_batches, replace_column
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.changeover import compile_immediately
from riot_ops.runtime.session import Session
from riot_ops.spark.blocks import group_by_bucket
from riot_ops.streams import generate, replay
from riot_ops.streams.catalog import CATALOG
from riot_ops.streams.files import write
from riot_ops.task import KeyedTask, find_task, registered_tasks

__all__ = ["UNITS", "units_of", "warm", "warm_unit"]

#: Applications that need no stores; the tasks of the others are warmed one by one.
SELF_CONTAINED = ("stats", "etl", *(app.code for app in APPLICATIONS.values() if app.inputs))
#: Enough messages that windows close, and enough records that errors are formatted all at once.
MESSAGES, MANY_ROWS = 500, 2_048


def _units() -> tuple[str, ...]:
    # the longest first, and units with the same kernels far apart
    return (
        "task SML",
        "application stats",
        "task XML",
        *(f"stream {name}" for name in CATALOG),
        *(f"task {kind.code}" for kind in registered_tasks() if kind.code not in ("SML", "XML")),
        *(f"application {name}" for name in SELF_CONTAINED if name != "stats"),
    )


#: The units of work: ``task CODE``, ``stream NAME``, ``application NAME``.
UNITS = _units()


def units_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the units of some applications.

    >>> units_of(["stats", "word_count"])
    ('application stats', 'application wc')
    """
    labels = [app.code if app.inputs else app.name for app in map(application, names)]
    for label in labels:
        if label not in SELF_CONTAINED:
            raise ConfigError(f"NAME must be one of {', '.join(SELF_CONTAINED)}, got {label!r}")
    return tuple(f"application {label}" for label in dict.fromkeys(labels))


def warm(
    processes: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    units: Sequence[str] = UNITS,
) -> dict[str, str]:
    """Compile the kernels of tasks, streams and applications, except those whose machine code is in the cache.

    Parameters
    ----------
    processes : int, optional
        By default as many as this process has cores.
    progress : function, optional
        Called after each unit with the number of units done, the number of all units, and the unit's name.
    units : sequence of str, default :data:`UNITS`
        What to compile.

    Returns
    -------
    dict
        The error of each unit that failed, such as an extra that is not installed.
    """
    failed = {}
    workers = processes or len(os.sched_getaffinity(0))
    # the parent ends its workers, which Ctrl-C in a terminal also reaches
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), signal.signal, ignore) as pool:
        try:
            with defer_interrupt() as check:  # a worker interrupted while it starts would print a traceback
                pending = {pool.submit(warm_unit, unit): unit for unit in units}
            check()
            for done, future in enumerate(as_completed(pending), 1):
                unit = pending[future]
                error = future.result()
                if error is not None:
                    failed[unit] = error
                if progress is not None:
                    progress(done, len(units), unit)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return failed


def warm_unit(unit: str) -> str | None:
    """Compile the kernels of a unit in this process; return the error if it failed.

    >>> warm_unit("task PI")
    """
    compile_immediately()
    kind, name = unit.split()
    try:
        {"task": _task, "stream": _stream, "application": _application}[kind](name)
    except (RiotError, ImportError, OSError) as error:
        return f"{error}"
    return None


def _task(code: str) -> None:
    for case in find_task(code).cases():
        task, batch = case.task, case.batch
        session = Session(task, ordered=False)
        # twice, since kernels may get other array types for grown state than for fresh state
        for part in (batch, batch.slice(batch.num_rows // 2)):
            session.push_batch(part)
        if isinstance(task, KeyedTask):
            for _ in range(2):  # with records that it holds, and without
                restored = Session(task, ordered=False)
                restored.restore(session.snapshot())
                restored.push_batch(batch)
                session.flush()
            _shuffle(task, batch)
            _merge(task, batch)
        elif batch.num_rows:  # many rejected records at once
            many = concat_batches([batch] * -(-MANY_ROWS // batch.num_rows))
            if "seq" in batch.schema.names:
                many = replace_column(many, "seq", pa.array(range(many.num_rows), batch.schema.field("seq").type))
            Session(task, ordered=False).push_batch(many)


def _shuffle(task: KeyedTask, batch: pa.RecordBatch) -> None:
    """Do what Spark's workers do before a shuffle."""
    if not set(task.by) <= set(batch.schema.names):
        return
    columns = [batch.column(name) for name in task.by]
    group_by_bucket(columns, batch.num_rows, 2)
    slots = key_numbers(columns, batch.num_rows)
    variants = [task]
    if "emit" in {field.name for field in fields(task)}:
        with contextlib.suppress(ConfigError):  # most tasks combine records only for this
            variants.append(replace(task, **{"emit": "update"}))
    for one in variants:
        made = one.precombine(batch, slots, int(slots.max(initial=-1)) + 1)
        if made is not None:
            Session(one, ordered=False).push_batch(made)


def _merge(task: KeyedTask, batch: pa.RecordBatch) -> None:
    """Merge the states of two sessions with the same keys, for tasks that can."""
    one, other = Session(task, ordered=False), Session(task, ordered=False)
    for session in (one, other):
        session.push_batch(batch)
    with contextlib.suppress(StateError):
        one.merge(other.snapshot())


def _stream(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for form in ("senml", "csv", "observations", "wide"):
            _read(CATALOG[name].generator(messages=MESSAGES, format=form))
            file = f"{folder}/{form}"
            write(CATALOG[name].generator(messages=MESSAGES, format=form), file)
            _read(replay(file, repeat=2))


def _read(source: Source) -> list[pa.RecordBatch]:
    start = source.initial()
    return [batch for split in source.splits(start, source.latest(start), 1) for batch in source.read(split)]


def _application(name: str) -> None:
    app = application(name)
    if app.inputs:
        app.builder().run({source: generate(stream, messages=MESSAGES) for source, stream in app.inputs.items()})
        return
    for stream, entry in CATALOG.items():
        RIOTBENCH[name](stream).run(entry.generator(messages=MESSAGES))
