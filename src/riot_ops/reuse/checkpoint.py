"""Checkpoints of the back end in process, from which another back end continues.

A checkpoint is of one point in time: the offset of each source, the state of each step and, for each dataflow, the
epoch of its sinks. It is written when all sinks have committed their records of that point. A back end that continues
discards later output and produces it again. While records of a slow sink wait in files, no checkpoint is written: a
restart then begins further back, and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.paths import local_path
from riot_ops.reuse.driver import poll_until
from riot_ops.reuse.shared_source import SharedSource
from riot_ops.reuse.sink_queue import Barrier, SinkPosition
from riot_ops.runtime.checkpoint import Checkpoint, CheckpointData

__all__ = ["FORMAT", "LocalCheckpoint", "Snapshot"]

FORMAT = "riot_ops.reuse.local/1"
POLL_SECONDS = 0.005


class SourceSnapshot(msgspec.Struct):
    """A shared source: by member, the running steps that read it and the number of its next message."""

    readers: dict[str, list[str]]
    next: dict[str, int]
    rows: int


class Snapshot(msgspec.Struct):
    """The content of a checkpoint except offsets and state.

    Attributes
    ----------
    readings : dict of str to SourceSnapshot
        Shared sources by name.
    dataflows : dict of str to SinkPosition
        Where the sinks of each dataflow stand.
    broken : dict of str to str
        By failed step, its error; it has missed records since.
    taken, flushed, messages, spared
        As in the back end.
    """

    format: str
    readings: dict[str, SourceSnapshot] = {}
    dataflows: dict[str, SinkPosition] = {}
    broken: dict[str, str] = {}
    taken: dict[str, int] = {}
    flushed: list[str] = []
    messages: int = 0
    spared: int = 0


class LocalCheckpoint:
    """The folder of checkpoints of a local back end.

    Attributes
    ----------
    snapshot : Snapshot
        The checkpoint that was found; later the one written last.
    store : Checkpoint
        The files.

    Raises
    ------
    ConnectorError
        If another back end uses the folder.
    StateError
        If a file there is damaged or not a checkpoint of a local back end.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = local_path(folder, "folder").absolute()
        self.store = Checkpoint(self.folder)
        self._lock = FolderLock([self.folder])
        try:
            path = self.store.latest_path()
            self._saved = CheckpointData(0, False, {}, {}, {}) if path is None else self.store.read(path)
            self.snapshot = Snapshot(FORMAT) if path is None else msgspec.convert(self._saved.flow, Snapshot)
            if self.snapshot.format != FORMAT:
                raise ValueError(f"its format is {self.snapshot.format!r}")
        except (ValueError, msgspec.ValidationError) as error:
            self._lock.release()
            raise StateError(f"the folder {folder} holds something else: {error}; use a new one") from None
        except BaseException:
            self._lock.release()
            raise
        self._pending: tuple[CheckpointData, Snapshot, dict[str, Barrier], Callable[[], None]] | None = None

    # -- recovery ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Number of the checkpoint written last; 0 if there is none."""
        return self._saved.epoch

    def sink_position(self, name: str) -> SinkPosition:
        """Return the epoch at which the sinks of a dataflow continue; without a checkpoint, the first one."""
        return self.snapshot.dataflows.get(name, SinkPosition(0 if self._saved.epoch else None))

    @property
    def state(self) -> Mapping[str, bytes]:
        """Kept state by step."""
        return self._saved.state

    def source_names(self) -> dict[str, str]:
        """By running step that reads a source, the name of the shared source."""
        return {
            s: name for name, one in self.snapshot.readings.items() for steps in one.readers.values() for s in steps
        }

    def restore(self, source: SharedSource) -> None:
        """Set a shared source to the position of the one that the same steps read."""
        for name, kept in self.snapshot.readings.items():
            members = {
                m: own for m, steps in source.readers.items() for own in kept.readers if steps & {*kept.readers[own]}
            }
            if members:
                source.offset = self._saved.offsets[name]
                source.next |= {member: kept.next[own] for member, own in members.items()}
                source.rows = kept.rows
                return

    # -- writing -----------------------------------------------------------------------------------

    def save(
        self,
        snapshot: Snapshot,
        sources: Mapping[str, SharedSource],
        state: dict[str, bytes],
        barriers: Mapping[str, Barrier | None],
        then: Callable[[], None],
        wait_s: float,
    ) -> bool:
        """Write a checkpoint when all sinks have reached their barriers, then call ``then``.

        Return whether that happened within ``wait_s`` seconds; otherwise a later :meth:`flush` does it. The checkpoint
        is dropped if the one before it is still pending by then, or if a barrier is None.
        """
        until = time.monotonic() + wait_s
        reachable = {name: barrier for name, barrier in barriers.items() if barrier is not None}
        if not poll_until(self.flush, until, POLL_SECONDS) or len(reachable) < len(barriers):
            return False
        offsets = {}
        for name, source in sources.items():
            if source.offset is None:
                continue  # not opened yet: a restart opens it as well
            offsets[name] = source.offset
            readers = {member: sorted(steps) for member, steps in source.readers.items()}
            snapshot.readings[name] = SourceSnapshot(readers, dict(source.next), source.rows)
        self._pending = CheckpointData(0, False, offsets, {}, state), snapshot, reachable, then
        return poll_until(self.flush, until, POLL_SECONDS)

    def flush(self) -> bool:
        """Write the pending checkpoint if all sinks have reached their barriers; return whether none is pending."""
        if self._pending is None:
            return True
        data, snapshot, barriers, then = self._pending
        positions = {name: barrier.position() for name, barrier in barriers.items()}
        snapshot.dataflows = {name: position for name, position in positions.items() if position is not None}
        if len(snapshot.dataflows) < len(positions):
            return False
        self._write(data, snapshot)
        self._pending = None
        then()
        return True

    def forget(self, names: Iterable[str]) -> None:
        """Drop the sinks' positions of removed dataflows: new dataflows take their names."""
        for name in names:
            if self._pending is not None:
                self._pending[2].pop(name, None)
            if name in self.snapshot.dataflows:
                left = {other: at for other, at in self.snapshot.dataflows.items() if other != name}
                self._write(
                    msgspec.structs.replace(self._saved), msgspec.structs.replace(self.snapshot, dataflows=left)
                )

    def _write(self, data: CheckpointData, snapshot: Snapshot) -> None:
        data.epoch, data.flow = self._saved.epoch + 1, msgspec.to_builtins(snapshot)
        self.store.write(data)
        self._saved, self.snapshot = data, snapshot

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()
