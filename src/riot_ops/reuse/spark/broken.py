"""Steps that raise, and sources that cannot be read: it is noted which, before the query fails; that goes on without.

What the query then replays is the micro-batch in which it happened. Its control is in Spark's log and stays as it was,
so what gives nothing any more stands beside it, and is told to all parts of a query when it is started.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.graph.lowering import BEATS, Step
from riot_ops.ingest.step import Intake
from riot_ops.reuse.spark.control import read_json, reads, write_json
from riot_ops.spark.sink import batch_number

__all__ = ["Broken", "forget_raised", "note_raised", "raised", "read_broken", "silenced", "write_broken"]

#: What steps of a running query have raised, by step; and what has been taken out for that.
RAISED, BROKEN = "raised", "broken.json"


class Broken(msgspec.Struct, frozen=True):
    """Why something gives nothing more, from which micro-batch on, and how many of each root came before that."""

    why: str
    batch: int = 0
    roots: dict[str, int] = {}


class Raised(msgspec.Struct):
    """What a step raised, or with ``unread`` a source, in which micro-batch."""

    step: str
    batch: int
    why: str
    unread: bool = False


def note_raised(folder: Path, step: str, error: Exception, unread: int | None = None) -> None:
    """Leave word in a fragment's folder, from a worker; of a source with the micro-batch that was to be read."""
    name = hashlib.sha256(step.encode()).hexdigest()
    batch = batch_number() if unread is None else unread
    what = Raised(step, batch, f"{type(error).__name__}: {error}", unread is not None)
    try:
        write_json(folder / RAISED / f"{name}.json", what)
    except ConnectorError as problem:  # the query fails all the same
        error.add_note(str(problem))


def raised(folder: Path, head: int, unread: bool = False) -> dict[str, str]:
    """By step, what it raised since the newest micro-batch that was done began: a task that ran again did not fail.

    With ``unread`` the same by source.
    """
    found = [read_json(path, Raised) for path in sorted((folder / RAISED).glob("[!.]*.json"))]
    return {one.step: one.why for one in found if one.batch >= head and one.unread == unread}


def forget_raised(folder: Path) -> None:
    """Begin anew."""
    shutil.rmtree(folder / RAISED, ignore_errors=True)


def read_broken(folder: Path) -> dict[str, Broken]:
    """What gives nothing more in a fragment: its own steps, and streams that it reads."""
    path = folder / BROKEN
    return read_json(path, dict[str, Broken]) if path.exists() else {}


def write_broken(folder: Path, broken: Mapping[str, Broken]) -> None:
    """Keep that."""
    write_json(folder / BROKEN, broken)


def silenced(steps: Iterable[Step], broken: Mapping[str, Broken]) -> dict[str, Broken]:
    """That, and of some steps, each after its inputs, those that need it, each with what has silenced it."""
    found = dict(broken)
    for step in steps if found else ():
        cause = next((found[stream] for stream in sorted(reads(step)) if stream in found), None)
        if cause is not None:
            found.setdefault(step.id, cause)
        if step.id in found and isinstance(step.operator, Intake):
            found.setdefault(step.id + BEATS, found[step.id])
    return found
