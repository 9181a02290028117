"""Compiling all kernels beforehand, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import pyarrow as pa

from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.core.source import Source
from riot_ops.dataflows.applications import APPLICATIONS, RIOTBENCH, application
from riot_ops.streams import generate
from riot_ops.streams.catalog import CATALOG
from riot_ops.task import KeyedTask, find_task, registered_tasks

__all__ = ["UNITS", "units_of", "warm", "warm_unit"]

#: Applications that run on nothing but streams; the tasks of the others are warmed one by one.
SELF_CONTAINED = ("stats", "etl", *(one.code for one in APPLICATIONS.values() if one.inputs))
#: Enough that windows close.
MESSAGES = 500


def _units() -> tuple[str, ...]:
    # what takes longest first, and what shares kernels apart
    return (
        "task SML",
        "application stats",
        "task XML",
        *(f"stream {name}" for name in CATALOG),
        *(f"task {kind.code}" for kind in registered_tasks() if kind.code not in ("SML", "XML")),
        *(f"application {name}" for name in SELF_CONTAINED if name != "stats"),
    )


#: What is warmed, each in one go: ``task CODE``, ``stream NAME``, ``application NAME``.
UNITS = _units()


def units_of(names: Iterable[str]) -> tuple[str, ...]:
    """The units of some applications.

    >>> units_of(["stats", "word_count"])
    ('application stats', 'application wc')
    """
    labels = [one.code if one.inputs else one.name for one in map(application, names)]
    for label in labels:
        if label not in SELF_CONTAINED:
            raise ConfigError(f"NAME must be one of {', '.join(SELF_CONTAINED)}, got {label!r}")
    return tuple(f"application {label}" for label in dict.fromkeys(labels))


def warm(
    processes: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    units: Sequence[str] = UNITS,
) -> dict[str, str]:
    """Compile the kernels of tasks, streams and applications, except those whose machine code is kept already.

    Parameters
    ----------
    processes : int, optional
        Default: as many as there are cores for this process.
    progress : function, optional
        Called with the number of units done, the number of all units, and the name of the one just done.
    units : sequence of str, default :data:`UNITS`
        What to compile.

    Returns
    -------
    dict
        By unit why it was not warmed, such as an extra that is not installed; empty if all were.
    """
    failed = {}
    workers = processes or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(warm_unit, unit): unit for unit in units}
        for done, future in enumerate(as_completed(waiting), 1):
            unit = waiting[future]
            error = future.result()
            if error is not None:
                failed[unit] = error
            if progress is not None:
                progress(done, len(units), unit)
    return failed


def warm_unit(unit: str) -> str | None:
    """Compile the kernels of one unit in this process; returns why it could not be done.

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
        session = case.task.session()
        # twice, since kernels may see fresh state otherwise than what has grown
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
    one = application(name)
    if one.inputs:
        one.builder().run({source: generate(stream, messages=MESSAGES) for source, stream in one.inputs.items()})
        return
    for stream, entry in CATALOG.items():
        RIOTBENCH[name](stream).run(entry.generator(messages=MESSAGES))
