"""What a back end in process keeps in a folder, so that another goes on from there.

A checkpoint is of one moment: where each source stands, the state of each step, and for each dataflow the epoch in
which its sinks stand. Output that came later is taken back when another goes on, and made again. It is written when all
sinks have committed what they had got at its moment. While one is so far behind that records wait for it in files, none
is written: whoever goes on begins further back, and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.core.paths import local_path
from riot_ops.reuse.outlet import Mark, Stood
from riot_ops.reuse.reading import Reading
from riot_ops.reuse.turning import waited
from riot_ops.runtime.checkpoint import Checkpoint, Saved
from riot_ops.runtime.claim import Claim

__all__ = ["FORMAT", "Keeping", "Moment"]

FORMAT = "riot_ops.reuse.local/1"
POLL_SECONDS = 0.005


class ReadingKept(msgspec.Struct):
    """A reading: by source in it the running steps that take its records, and the number of its next message."""

    readers: dict[str, list[str]]
    next: dict[str, int]
    rows: int


class Moment(msgspec.Struct):
    """All that is kept of a moment, but for offsets and state.

    Attributes
    ----------
    readings : dict of str to ReadingKept
        By the name of each.
    dataflows : dict of str to Stood
        Where each one's sinks stand.
    broken : dict of str to str
        By step that has raised, what: it lacks records since.
    taken, flushed, messages, spared
        As in the back end.
    """

    format: str
    readings: dict[str, ReadingKept] = {}
    dataflows: dict[str, Stood] = {}
    broken: dict[str, str] = {}
    taken: dict[str, int] = {}
    flushed: list[str] = []
    messages: int = 0
    spared: int = 0


class Keeping:
    """The folder.

    Attributes
    ----------
    moment : Moment
        What was found; later the last that was written.

    Raises
    ------
    ConnectorError
        Where another back end has it.
    StateError
        Where what is there is damaged, or something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self._checkpoint = Checkpoint(local_path(folder, "folder").absolute())
        self._claim = Claim([self._checkpoint.folder])
        try:
            path = self._checkpoint.newest()
            self._saved = Saved(0, False, {}, {}, {}) if path is None else self._checkpoint.read(path)
            self.moment = Moment(FORMAT) if path is None else msgspec.convert(self._saved.flow, Moment)
            if self.moment.format != FORMAT:
                raise ValueError(f"its format is {self.moment.format!r}")
        except (ValueError, msgspec.ValidationError) as error:
            self._claim.release()
            raise StateError(f"the folder {folder} holds something else: {error}; use a new one") from None
        except BaseException:
            self._claim.release()
            raise
        self._pending: tuple[Saved, Moment, dict[str, Mark], Callable[[], None]] | None = None

    # -- going on ----------------------------------------------------------------------------------

    def dataflow(self, name: str) -> Stood:
        """Where its sinks go on; of one that came when nothing could be kept, all is made again."""
        return self.moment.dataflows.get(name, Stood(0 if self._saved.epoch else None))

    @property
    def state(self) -> Mapping[str, bytes]:
        """Snapshots by step."""
        return self._saved.state

    def readings(self) -> dict[str, str]:
        """By running step that takes records of a source, the name of its reading."""
        return {s: name for name, one in self.moment.readings.items() for steps in one.readers.values() for s in steps}

    def place(self, reading: Reading) -> None:
        """Have a reading go on where one was that the same steps read."""
        for name, kept in self.moment.readings.items():
            places = {
                m: own for m, steps in reading.readers.items() for own in kept.readers if steps & {*kept.readers[own]}
            }
            if places:
                reading.offset = self._saved.offsets[name]
                reading.next |= {member: kept.next[own] for member, own in places.items()}
                reading.rows = kept.rows
                return

    # -- keeping -----------------------------------------------------------------------------------

    def take(
        self,
        moment: Moment,
        readings: Mapping[str, Reading],
        state: dict[str, bytes],
        marks: Mapping[str, Mark | None],
        then: Callable[[], None],
        wait_s: float,
    ) -> bool:
        """Keep a moment as soon as all marks are there, and then call ``then``; whether that is so in so many seconds.

        Nothing of it will be kept where one before is still to be by then, or a mark is missing.
        """
        until = time.monotonic() + wait_s
        there = {name: mark for name, mark in marks.items() if mark is not None}
        if not waited(self.settle, until, POLL_SECONDS) or len(there) < len(marks):
            return False
        offsets = {}
        for name, one in readings.items():
            if one.offset is None:
                continue  # whoever goes on has to begin it as well
            offsets[name] = one.offset
            readers = {member: sorted(steps) for member, steps in one.readers.items()}
            moment.readings[name] = ReadingKept(readers, dict(one.next), one.rows)
        self._pending = Saved(0, False, offsets, {}, state), moment, there, then
        return waited(self.settle, until, POLL_SECONDS)

    def settle(self) -> bool:
        """Write what is to be written, if all sinks have got there; whether nothing is left to be."""
        if self._pending is None:
            return True
        saved, moment, marks, then = self._pending
        places = {name: mark.place() for name, mark in marks.items()}
        moment.dataflows = {name: place for name, place in places.items() if place is not None}
        if len(moment.dataflows) < len(places):
            return False
        self._write(saved, moment)
        self._pending = None
        then()
        return True

    def forget(self, names: Iterable[str]) -> None:
        """Have no dataflow of these names kept: whoever has had them is gone, and others come."""
        for name in names:
            if self._pending is not None:
                self._pending[2].pop(name, None)
            if name in self.moment.dataflows:
                left = {other: place for other, place in self.moment.dataflows.items() if other != name}
                self._write(msgspec.structs.replace(self._saved), msgspec.structs.replace(self.moment, dataflows=left))

    def _write(self, saved: Saved, moment: Moment) -> None:
        saved.epoch, saved.flow = self._saved.epoch + 1, msgspec.to_builtins(moment)
        self._checkpoint.write(saved)
        self._saved, self.moment = saved, moment

    def close(self) -> None:
        """Let another have the folder."""
        self._claim.release()
