"""Checkpoints of a local run: source offsets, state, and the number of committed epochs.

Each checkpoint is a file named by its number of epochs. It appears by a rename, and the one before stays until then.
A checksum covers the whole file. A damaged one is refused, never skipped in silence: after the user removes it, a run
continues from the one before, takes back the output since then and writes it again, provided that the sources still
have the records.

In an object store, which shows a file when it is complete, it is written under its own name. As nothing can be locked
there, a run takes a claim before it continues: from then on the checkpoints of runs before it do not count, except
those that were there.
"""

from __future__ import annotations

import os
import re
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.claim import Claim, Holder
from riot_ops.core.errors import ConnectorError, StateError
from riot_ops.core.paths import check_regular, make_folder, sync
from riot_ops.core.storage import Address
from riot_ops.runtime.fingerprint import StepContract

__all__ = ["Checkpoint", "CheckpointData"]

MAGIC = b"riot_ops checkpoint 1\n"
#: Follows the magic: length of the body, and its CRC-32.
HEADER = struct.Struct("<QI")
#: Number of checkpoints to keep.
RETAINED = 2
#: File that marks the checkpoint of a query on Spark.
MANIFEST = "riot_ops.json"


class CheckpointData(msgspec.Struct):
    """Content of a checkpoint.

    Attributes
    ----------
    epoch : int
        Epochs whose output is committed.
    ended : bool
        Whether the sources had ended.
    offsets : dict of str to offset
        Offset of each source.
    flow : dict
        See :func:`riot_ops.runtime.fingerprint.fingerprint`.
    state : dict of str to bytes
        Snapshot of each keyed step.
    run : str
        Identity of the run for its sinks; empty in a checkpoint of an earlier version.
    steps : dict of str to StepContract
        What identifies the state of each keyed step, for a restart of a changed dataflow; empty in a checkpoint of an
        earlier version.
    sources : dict of str to str
        Kind of each source, by which its offset is read; empty in a checkpoint of an earlier version.
    """

    epoch: int
    ended: bool
    offsets: dict[str, dict[str, Any]]
    flow: dict[str, Any]
    state: dict[str, bytes]
    run: str = ""
    steps: dict[str, StepContract] = {}
    sources: dict[str, str] = {}


class Checkpoint:
    """A folder of checkpoints, on a disk or in an object store; the newest one counts."""

    def __init__(self, folder: Path | Address) -> None:
        self.folder = folder
        self._claim = Claim(folder) if isinstance(folder, Address) else None
        self._continues: list[str] = []  # files of earlier runs that count, once it is claimed
        self._claimed = False

    def claim(self) -> None:
        """Take a checkpoint in an object store from the runs before, which can no longer write to it.

        Raises
        ------
        ConnectorError
            If another run does the same at the same time.
        """
        if self._claim is None or self._claimed:
            return
        self._claim.take()
        self._continues = [path.name for path in self._files()]
        self._claim.settle(self._continues)
        self._claim.clean()
        self._claimed = True

    @property
    def default_run(self) -> str:
        """The identity of a run whose checkpoint has none: that of its folder."""
        name = str(self.folder.absolute() if isinstance(self.folder, Path) else self.folder)
        return uuid.uuid5(uuid.NAMESPACE_URL, name).hex

    def exists(self) -> bool:
        """Whether the folder holds a checkpoint."""
        return bool(self._files())

    def paths(self) -> Sequence[Path | Address]:
        """Return the files, the newest last."""
        return self._files()

    def latest_path(self) -> Path | Address | None:
        """Return the file that a run continues from, if there is one."""
        marker = self.folder / MANIFEST
        if marker.size() is not None if isinstance(marker, Address) else marker.exists():
            raise StateError(f"the checkpoint {self.folder} is of a query on Spark; use a new one in process")
        found = self._files()
        return found[-1] if found else None

    def path_of(self, epoch: int) -> Path | Address | None:
        """Return the file with this many epochs, if it is still there."""
        return next((path for path in reversed(self._files()) if _number(path.name) == epoch), None)

    def read(self, path: Path | Address) -> CheckpointData:
        """Read a file; raises :class:`StateError` if it differs in any way from the written one."""
        try:
            if isinstance(path, Path):
                check_regular(path)
            data = path.read() if isinstance(path, Address) else path.read_bytes()
        except ConnectorError:
            raise
        except OSError as error:
            raise ConnectorError(f"the checkpoint {path} cannot be read: {error}") from error
        if data is None:
            raise ConnectorError(f"the checkpoint {path} is missing")
        start = len(MAGIC) + HEADER.size
        if not data.startswith(MAGIC) or len(data) < start:
            raise self._damaged(path, "its format is not that of this version")
        length, checksum = HEADER.unpack_from(data, len(MAGIC))
        body = memoryview(data)[start:]
        if len(body) != length:
            raise self._damaged(path, f"it has {len(body):,} bytes instead of {length:,}")
        if zlib.crc32(body) != checksum:
            raise self._damaged(path, "the checksum does not fit")
        try:
            saved = msgspec.msgpack.decode(body, type=CheckpointData)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._damaged(path, str(error)) from None
        if _number(path.name) != saved.epoch:
            raise self._damaged(path, f"it is of epoch {saved.epoch}")
        return saved

    def write(self, saved: CheckpointData) -> None:
        """Write a checkpoint, and remove all but the newest ones."""
        body = msgspec.msgpack.encode(saved)
        head = MAGIC + HEADER.pack(len(body), zlib.crc32(body))
        if isinstance(self.folder, Address):
            self._store(self.folder, saved.epoch, head + body)
            return
        path = self.folder / f"state-{saved.epoch:012d}.msgpack"
        hidden = self.folder / f".{path.name}"
        try:
            make_folder(self.folder)
            with open(hidden, "wb") as file:
                file.write(head)
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
            sync(self.folder)  # after this a source may forget the records before it
            for old in self._local_files(self.folder)[:-RETAINED]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise ConnectorError(
                f"the checkpoint {path} cannot be written: {error}; make room or give another folder as checkpoint="
            ) from error

    def _store(self, folder: Address, epoch: int, data: bytes) -> None:
        self.claim()
        assert self._claim is not None
        holder = self._claim.holder
        assert holder is not None
        (folder / f"state-{epoch:012d}-{holder}.msgpack").write(data)
        self._claim.check()  # the run that has it now may not have read this
        kept = {one.name for one in self._stored_files(folder)[-RETAINED:]}
        for name in _stored_names(folder):
            if name not in kept and _holder(name) <= holder:
                (folder / name).delete()

    def _files(self) -> Sequence[Path | Address]:
        folder = self.folder
        return self._stored_files(folder) if isinstance(folder, Address) else self._local_files(folder)

    def _local_files(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.glob("state-*.msgpack") if _number(path.name) >= 0)

    def _stored_files(self, folder: Address) -> list[Address]:
        """Return the files that count: those of the last run, and those that were there when it began."""
        names = _stored_names(folder)
        assert self._claim is not None
        if self._claimed:
            last, continues = self._claim.holder, self._continues
        else:
            last, continues = None, names  # there may be no claim yet
            for holder in self._claim.holders():
                content = self._claim.read(holder)
                if content is not None and content.continues is not None:
                    last, continues = holder, content.continues
                    break  # others have only begun
        counting = [name for name in names if name in continues or _holder(name) == last]
        return [folder / name for name in sorted(counting, key=lambda name: (_holder(name), _number(name)))]

    def _damaged(self, path: Path | Address, what: str) -> StateError:
        files = self._files()
        before = files[: files.index(path)] if path in files else []
        way = (
            f"remove it to continue from the one before, {before[-1].name}: output since then is written again"
            if before
            else "use a new checkpoint"
        )
        return StateError(f"the checkpoint {path} is damaged: {what}; {way}")


def _stored_names(folder: Address) -> list[str]:
    return [one.name for one in folder.files() if _number(one.name) >= 0]


def _number(name: str) -> int:
    found = re.fullmatch(r"state-(\d{12,})(-\w+-\w+)?\.msgpack", name)
    return int(found[1]) if found else -1


def _holder(name: str) -> Holder:
    """Return the run that wrote a file; that before all others if its name does not tell."""
    return Holder.parse(name.partition(".")[0].partition("-")[2].partition("-")[2]) or Holder(0, "")
