"""Failed steps and sources of a fragment, and the streams that end with them.

A worker records the error of a step, or of a source that cannot be read, before the query fails. The query then
restarts without it and replays the micro-batch in which the error occurred. The control of that micro-batch is in
Spark's log and cannot change. So failures are kept beside the control, and all parts of a query get them at its start.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Step
from riot_ops.ingest.step import IngestStep
from riot_ops.reuse.spark.files import read_json, write_json
from riot_ops.reuse.spark.spec import input_streams
from riot_ops.spark.sink import batch_number

__all__ = [
    "StepFailure",
    "clear_errors",
    "disabled",
    "read_errors",
    "read_failures",
    "record_error",
    "write_failures",
]

#: The folder with the errors of a running query, a file per step, and the file with the steps disabled because of them.
ERRORS, FAILURES = "errors", "failures.json"


class StepFailure(msgspec.Struct, frozen=True):
    """Why a step or stream is disabled, from which micro-batch on, and how many of each root were processed before."""

    why: str
    batch: int = 0
    roots: dict[str, int] = {}


class RecordedError(msgspec.Struct):
    """The error that a step, or with ``unread`` a source, raised in a micro-batch."""

    step: str
    batch: int
    why: str
    unread: bool = False


def record_error(folder: Path, step: str, error: Exception, unread: int | None = None) -> None:
    """Record a step's error in the fragment's folder, from a worker.

    For a source that could not be read, ``unread`` is the micro-batch that needed its records.
    """
    name = hashlib.sha256(step.encode()).hexdigest()
    batch = batch_number() if unread is None else unread
    record = RecordedError(step, batch, f"{type(error).__name__}: {error}", unread is not None)
    try:
        write_json(folder / ERRORS / f"{name}.json", record)
    except ConnectorError as problem:  # the query fails with the step's error, not with this one
        error.add_note(str(problem))


def read_errors(folder: Path, head: int, unread: bool = False) -> dict[str, str]:
    """Return the errors of steps since the last completed micro-batch ``head`` began, or with ``unread`` of sources.

    An earlier error does not count: Spark retried the task, and its micro-batch was completed.
    """
    found = [read_json(path, RecordedError) for path in sorted((folder / ERRORS).glob("[!.]*.json"))]
    return {one.step: one.why for one in found if one.batch >= head and one.unread == unread}


def clear_errors(folder: Path) -> None:
    """Remove the recorded errors."""
    shutil.rmtree(folder / ERRORS, ignore_errors=True)


def read_failures(folder: Path) -> dict[str, StepFailure]:
    """Read the failures of a fragment: of its own steps, and of streams that it reads."""
    path = folder / FAILURES
    return read_json(path, dict[str, StepFailure]) if path.exists() else {}


def write_failures(folder: Path, failures: Mapping[str, StepFailure]) -> None:
    """Write the failures of a fragment."""
    write_json(folder / FAILURES, failures)


def disabled(steps: Iterable[Step], failures: Mapping[str, StepFailure]) -> dict[str, StepFailure]:
    """Return ``failures`` and, of ``steps`` in topological order, those downstream of one, each with its cause."""
    found = dict(failures)
    for step in steps if found else ():
        cause = next((found[stream] for stream in sorted(input_streams(step)) if stream in found), None)
        if cause is not None:
            found.setdefault(step.id, cause)
        if step.id in found and isinstance(step.operator, IngestStep):
            found.setdefault(step.id + HEARTBEAT_SUFFIX, found[step.id])
    return found
