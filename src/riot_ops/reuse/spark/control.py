"""Control of a running query: which streams it forwards and which of its steps are idle.

Each version is a small numbered file in the query's folder. The number of the newest one is part of the offset of the
query's source. So Spark logs it, a replayed micro-batch sees the same version, and a new version alone causes a
micro-batch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from riot_ops.reuse.spark.files import read_json, write_json

__all__ = ["Control", "ControlVersions"]


class Control(msgspec.Struct, frozen=True):
    """One version of a query's control.

    Attributes
    ----------
    forward : tuple of str
        The streams that the query writes to its topic, sorted.
    resting : tuple of str
        The steps that it skips, sorted.
    hold : bool
        Whether it stops reading. The first micro-batch with ``hold`` exports the state that another query resumes from.
    layout : str
        Name of the layout, where steps have joined since the query was started.
    """

    forward: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    hold: bool = False
    layout: str = ""


@dataclass(frozen=True)
class ControlVersions:
    """The versions in a folder, numbered from 0; a written version never changes."""

    folder: Path

    def newest(self) -> int:
        """Return the number of the newest version; -1 without any."""
        return max((int(p.stem) for p in self.folder.glob("*.json") if p.stem.isdigit()), default=-1)

    def expedite(self, version: int) -> None:
        """Request that the query applies a version before its next trigger."""
        with suppress(OSError):  # then the query applies it at its next trigger
            self._expedite_path(version).touch()

    def has_expedited(self, since: int) -> bool:
        """Return whether a version after ``since`` is to be applied before the next trigger."""
        version = since + 1
        while self._path(version).exists():
            if self._expedite_path(version).exists():
                return True
            version += 1
        return False

    def read(self, version: int) -> Control:
        """Read a version."""
        return read_json(self._path(version), Control)

    def write(self, control: Control) -> int:
        """Add a version unless the newest one is equal; returns the number of the newest."""
        newest = self.newest()
        if newest >= 0 and self.read(newest) == control:
            return newest
        write_json(self._path(newest + 1), control)
        return newest + 1

    def _path(self, version: int) -> Path:
        return self.folder / f"{version:06d}.json"

    def _expedite_path(self, version: int) -> Path:
        return self.folder / f"{version:06d}.expedited"
