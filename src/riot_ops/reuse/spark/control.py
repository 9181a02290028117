"""What a running query is told to forward, and which of its steps rest: small numbered files beside it.

The number of the newest is a part of the offset of the query's source. So Spark logs it, a micro-batch that runs again
sees the same, and a new one alone makes a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import make_folder, write_whole
from riot_ops.graph.lowering import BEATS, Step
from riot_ops.ingest.step import Intake

__all__ = ["Control", "Controls", "awake", "read_json", "reads", "write_bytes", "write_json"]

T = TypeVar("T")


class Control(msgspec.Struct, frozen=True):
    """The streams that go to the topic, and the steps that are passed over, both sorted.

    With ``hold`` nothing more is read; the micro-batch in which that begins leaves what another query goes on from.
    ``layout`` names the steps, where some have joined since the query was started.
    """

    forward: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    hold: bool = False
    layout: str = ""


@dataclass(frozen=True)
class Controls:
    """The versions in a folder, numbered from 0 on; one that is there never changes."""

    folder: Path

    def newest(self) -> int:
        """The number of the newest version."""
        return max((int(p.stem) for p in self.folder.glob("*.json") if p.stem.isdigit()), default=-1)

    def hurry(self, version: int) -> None:
        """Somebody waits until this one is taken up."""
        with suppress(OSError):  # then it is with the next tick
            self._hurry(version).touch()

    def hurries(self, since: int) -> bool:
        """Whether somebody waits for one behind this."""
        version = since + 1
        while self._path(version).exists():
            if self._hurry(version).exists():
                return True
            version += 1
        return False

    def read(self, version: int) -> Control:
        """What a version says."""
        return read_json(self._path(version), Control)

    def write(self, control: Control) -> int:
        """Make a version the newest, if it differs from the one that is; returns the number of the newest."""
        newest = self.newest()
        if newest >= 0 and self.read(newest) == control:
            return newest
        write_json(self._path(newest + 1), control)
        return newest + 1

    def _path(self, version: int) -> Path:
        return self.folder / f"{version:06d}.json"

    def _hurry(self, version: int) -> Path:
        return self.folder / f"{version:06d}.awaited"


def awake(steps: Iterable[Step], wanted: Set[str]) -> set[str]:
    """The steps, each after its inputs, without which some of the wanted streams would not come to be."""
    found: set[str] = set()
    needed = set(wanted)
    for step in reversed(list(steps)):
        if step.id in needed or (isinstance(step.operator, Intake) and step.id + BEATS in needed):
            found.add(step.id)
            needed.update(reads(step))
    return found


def reads(step: Step) -> set[str]:
    """The streams that a step reads, those of marks included."""
    if isinstance(step.operator, Intake):
        return set()
    return {*step.inputs, *(step.clock.streams if step.clock is not None else ())}


def write_json(path: Path, content: msgspec.Struct | Mapping[str, object]) -> None:
    """Make a small file appear whole, and stay after a power cut."""
    write_bytes(path, msgspec.json.encode(content))


def write_bytes(path: Path, data: bytes) -> None:
    """The same for any bytes."""
    try:
        make_folder(path.parent)
        write_whole(path, data)
    except OSError as error:
        raise ConnectorError(f"{path} cannot be written: {error}; make room") from error


def read_json(path: Path, kind: type[T]) -> T:
    """What such a file says."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConnectorError(f"{path} cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise ConnectorError(f"{path} is damaged: {error}") from None
