"""The checkpoint of a run in process: where its sources stand, its state, and how much output is committed.

Each is a file of its own, named by the number of epochs that are committed with it, and appears whole by a
rename; the one before stays until the next is there. A checksum covers all of it. A damaged one is refused and
never passed over in silence: who removes it goes on from the one before, and output since then is taken back
and written again, provided that the sources still have the records.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConnectorError, StateError
from riot_ops.core.paths import make_folder, sync

__all__ = ["Checkpoint", "Saved"]

MAGIC = b"riot_ops checkpoint 1\n"
#: Behind it: length of what follows, and its CRC-32.
HEAD = struct.Struct("<QI")
#: How many are kept.
KEPT = 2
#: What a query on Spark has in its checkpoint.
MANIFEST = "riot_ops.json"


class Saved(msgspec.Struct):
    """What is in a checkpoint.

    Attributes
    ----------
    epoch : int
        Epochs whose output is committed.
    ended : bool
        Whether the sources had ended.
    offsets : dict of str to offset
        Where each source stands.
    flow : dict
        See :func:`riot_ops.runtime.identity.identity`.
    state : dict of str to bytes
        Snapshot of each keyed step.
    """

    epoch: int
    ended: bool
    offsets: dict[str, dict[str, Any]]
    flow: dict[str, Any]
    state: dict[str, bytes]


class Checkpoint:
    """A folder of checkpoints, of which the newest counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds_something(self) -> bool:
        """Whether a run has begun here."""
        return bool(self._files())

    def newest(self) -> Path | None:
        """The file that a run continues from, if there is one."""
        if (self.folder / MANIFEST).exists():
            raise StateError(f"the checkpoint {self.folder} is of a query on Spark; use a new one in process")
        found = self._files()
        return found[-1] if found else None

    def read(self, path: Path) -> Saved:
        """What is in a file; raises :class:`StateError` where it is not exactly what was written."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConnectorError(f"the checkpoint {path} cannot be read: {error}") from error
        start = len(MAGIC) + HEAD.size
        if not data.startswith(MAGIC) or len(data) < start:
            raise self._damaged(path, "it does not begin like one of this version")
        length, checksum = HEAD.unpack_from(data, len(MAGIC))
        body = memoryview(data)[start:]
        if len(body) != length:
            raise self._damaged(path, f"it has {len(body):,} bytes instead of {length:,}")
        if zlib.crc32(body) != checksum:
            raise self._damaged(path, "the checksum does not fit")
        try:
            saved = msgspec.msgpack.decode(body, type=Saved)
        except msgspec.MsgspecError as error:
            raise self._damaged(path, str(error)) from None
        if _number(path) != saved.epoch:
            raise self._damaged(path, f"it is of epoch {saved.epoch}")
        return saved

    def write(self, saved: Saved) -> None:
        """Save, and remove what is older than the one before."""
        body = msgspec.msgpack.encode(saved)
        path = self.folder / f"state-{saved.epoch:012d}.msgpack"
        hidden = self.folder / f".{path.name}"
        try:
            make_folder(self.folder)
            with open(hidden, "wb") as file:
                file.write(MAGIC + HEAD.pack(len(body), zlib.crc32(body)))
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
            sync(self.folder)  # a source may forget what is before, once this is on disk
            for old in self._files()[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise ConnectorError(
                f"the checkpoint {path} cannot be written: {error}; make room or give another folder as checkpoint="
            ) from error

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("state-*.msgpack") if _number(path) >= 0)

    def _damaged(self, path: Path, what: str) -> StateError:
        before = [one for one in self._files() if one.name < path.name]
        way = (
            f"remove it to continue from the one before, {before[-1].name}: output since then is written again"
            if before
            else "use a new checkpoint"
        )
        return StateError(f"the checkpoint {path} is damaged: {what}; {way}")


def _number(path: Path) -> int:
    found = re.fullmatch(r"state-(\d{12,})\.msgpack", path.name)
    return int(found[1]) if found else -1
