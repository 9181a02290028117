"""Compiling all kernels in advance, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import pyarrow as pa

from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.core.interrupts import defer_interrupt
from riot_ops.core.source import Source
from riot_ops.dataflows.applications import APPLICATIONS, RIOTBENCH, application
from riot_ops.runtime.session import Session
from riot_ops.streams import generate
from riot_ops.streams.catalog import CATALOG
from riot_ops.task import KeyedTask, find_task, registered_tasks

__all__ = ["UNITS", "units_of", "warm", "warm_unit"]

#: Applications that need no stores; the tasks of the others are warmed one by one.
SELF_CONTAINED = ("stats", "etl", *(app.code for app in APPLICATIONS.values() if app.inputs))
#: Enough messages that windows close.
MESSAGES = 500


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
    kind, name = unit.split()
    try:
        {"task": _task, "stream": _stream, "application": _application}[kind](name)
    except (RiotError, ImportError, OSError) as error:
        return f"{error}"
    return None


def _task(code: str) -> None:
    for case in find_task(code).cases():
        session = Session(case.task, ordered=False)
        # twice, since kernels may get other array types for grown state than for fresh state
        for part in (case.batch, case.batch.slice(case.batch.num_rows // 2)):
            session.push_batch(part)
        if isinstance(case.task, KeyedTask):
            session.flush()
            case.task.session().restore(session.snapshot())


def _stream(name: str) -> None:
    for form in ("senml", "csv", "observations", "wide"):
        source = CATALOG[name].generator(messages=MESSAGES, format=form)
        _read(source)


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
