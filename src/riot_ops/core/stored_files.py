"""The files of a sink in an object store: uploaded under their final names, made visible by manifests."""

from __future__ import annotations

import re
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa

from riot_ops.core.claim import Claim
from riot_ops.core.compaction import CommittedFile, compaction_groups, files_changed, first_open_batch, joined_name
from riot_ops.core.errors import ConnectorError
from riot_ops.core.file_writer import BufferedWriter, OpenFile, TableWriter
from riot_ops.core.manifest import ManifestFolder, StoredPart
from riot_ops.core.sink import Message
from riot_ops.core.storage import CHUNK, Address

__all__ = ["EMPTY", "WAITING", "Joining", "StoredFiles", "StoredWriter", "earlier_output"]

#: Name of the file without rows that represents a stream without records.
EMPTY = "empty"
#: Files of batches that wait to be rolled into one have hidden names.
WAITING = ".waiting"
#: Bytes of a file that stay in memory until it is uploaded; a larger one waits in a temporary file.
MAX_MEMORY = 32 << 20


def earlier_output(folder: object) -> str:
    """Return the message that refuses a folder with output."""
    return (
        f"{folder} holds the output of an earlier run: use another folder, "
        "continue with that run's checkpoint, or pass overwrite=True"
    )


@dataclass(frozen=True)
class Joining:
    """When the files of several batches become one, and what writes it."""

    roll_bytes: int | None
    roll_interval: timedelta | None
    write: Callable[[Sequence[Any], BinaryIO], None]

    def is_due(self, parts: Sequence[StoredPart]) -> bool:
        """Whether files are large or old enough."""
        oldest = min(one.since for one in parts)
        return (self.roll_bytes is not None and sum(one.size for one in parts) >= self.roll_bytes) or (
            self.roll_interval is not None and time.time() - oldest >= self.roll_interval.total_seconds()
        )


class StoredWriter(BufferedWriter):
    """Uploads one file per stream when all of it is there, so that an upload can be repeated.

    Parameters
    ----------
    folder : Address
    open_file : function
        Creates a file.
    name_of : function
        Returns the name of the file of a stream: that of every attempt to write its records.
    partition : int
        The number of the writer in its batch.
    """

    def __init__(self, folder: Address, open_file: OpenFile, name_of: Callable[[str], str], partition: int) -> None:
        super().__init__(folder, open_file, partition)
        self._name_of = name_of

    def _create(self, stream: str, schema: pa.Schema) -> tuple[Any, TableWriter]:
        file = temporary_file()
        return file, self._open_file(file, schema)

    def _publish(self, stream: str) -> tuple[Any, ...]:
        file, _ = self._open[stream]
        name = self._name_of(stream)
        size, checksum = upload(file, self._folder / stream / name)
        file.close()
        return name, size, self._total[stream], checksum

    def _discard(self, place: Any) -> None:
        place.close()


class StoredFiles:
    """The files of a sink below an address.

    Parameters
    ----------
    folder : Address
    suffix : str
        Suffix of the files.
    schemas : mapping of str to schema, optional
        The streams of the sink; by default all in the folder.
    open_file : function
        Creates a file.
    joining : Joining, optional
        When files are joined; by default each stays as it is.
    claim : Claim, optional
        That of the run that writes; by default a new one.
    """

    def __init__(
        self,
        folder: Address,
        suffix: str,
        schemas: Mapping[str, pa.Schema] | None,
        open_file: OpenFile,
        joining: Joining | None = None,
        claim: Claim | None = None,
    ) -> None:
        self._folder = folder
        self._suffix = suffix
        self._streams = None if schemas is None else set(schemas)
        self._open_file = open_file
        self._joining = joining
        self._claim = claim or Claim(folder, suffix, self._streams)
        self._manifests = ManifestFolder(folder, suffix, self._streams, self._claim)

    def files(self) -> list[tuple[int, str, Address]]:
        """Return the committed files as ``(batch, stream, address)`` in order."""
        return [(one.batch, one.stream, self._place(one)) for one in self._manifests.parts()]

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        """Make a batch visible; joins the files of earlier batches that are due."""
        now = time.time()
        parts = [
            StoredPart(stream, name, batch_id, size, rows, checksum, now)
            for message in messages
            for stream, name, size, rows, checksum in message["files"]
        ]
        if self._joining is None:
            self._manifests.commit(batch_id, parts)
            return
        self._manifests.ensure_claim()
        others = [one for one in self._manifests.parts() if one.batch != batch_id]
        # earlier batches are final: no restart replaces them
        kept, obsolete = self._joined(others, self._joining.is_due)
        self._replace(batch_id, [*kept, *parts], obsolete)

    def begin(self, overwrite: bool) -> None:
        """Start a new run."""
        held = bool(self._manifests.parts()) or (
            not self._manifests.exists() and bool(self._unlisted(self._streams or ()))
        )
        if held and not overwrite:
            raise ConnectorError(earlier_output(self._folder))
        self.recover(0)  # from now on files in no manifest are known as left by this run

    def recover(self, batch_id: int) -> None:
        """Remove the output from a batch on, and files that no manifest lists."""
        self._manifests.recover(batch_id)
        if self._joining is None and any(_waits(one) for one in self._manifests.parts()):  # the run before joined them
            self._show(batch_id - 1, self._manifests.parts())
        self._remove_unlisted(self._streams or ())

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Show the files that wait, and make streams without records readable."""
        parts = self._manifests.parts()
        waiting = [one for one in parts if _waits(one)]
        if self._joining is not None and waiting:
            # a query that was stopped may write its last batch again
            last = max(one.batch for one in waiting)
            final = [one for one in parts if one.batch < last]
            kept, obsolete = self._joined(final, lambda _: True)
            latest = max(one.batch for one in parts)
            self._show(latest, [*kept, *(one for one in parts if one.batch >= last)], obsolete)
        present = {one.stream for one in parts}
        for stream, schema in schemas.items():
            if stream not in present:
                with temporary_file() as file:
                    self._open_file(file, schema).close()
                    upload(file, self._folder / stream / f"{EMPTY}.{self._suffix}")

    def optimize(
        self, target_bytes: int, form_of: Callable[[Address], object], write: Callable[[Sequence[Any], BinaryIO], None]
    ) -> dict[str, dict[str, int]]:
        """Join small files; see :meth:`riot_ops.core.file_sink.FileSink.optimize`."""
        before = self._manifests.parts()
        if not before:
            return {}
        last = max(one.batch for one in before)
        self._manifests.recover(last + 1)
        parts = self._manifests.parts()  # a run may have committed meanwhile, but cannot from now on
        until = first_open_batch(one.batch for one in parts)
        result, kept, obsolete = {}, {(one.stream, one.name): one for one in parts}, []
        for stream in sorted({one.stream for one in parts}):
            shown = [one for one in parts if one.stream == stream and not _waits(one)]
            files = [CommittedFile(one.batch, one.size, self._place(one)) for one in shown]
            groups = compaction_groups(files, target_bytes, until, form_of)
            for first, members in groups:
                replaced = [kept.pop((stream, file.place.name)) for file in members]
                obsolete += replaced
                final = members[-1].batch
                name = joined_name(first, final, self._suffix, self._claim.token)
                size, checksum = self._join(stream, name, [file.place for file in members], write)
                count = sum(one.rows for one in replaced)
                part = StoredPart(stream, name, final, size, count, checksum, time.time(), first)
                kept[stream, name] = part
            result[stream] = files_changed(groups)
        self._replace(last, list(kept.values()), obsolete)
        self._remove_unlisted(result)  # of a call that was interrupted
        return result

    def _join(
        self, stream: str, name: str, places: Sequence[Address], write: Callable[[Sequence[Any], BinaryIO], None]
    ) -> tuple[int, int]:
        place = self._folder / stream / name
        try:
            with temporary_file() as file:
                write(places, file)
                return upload(file, place)
        except ConnectorError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise ConnectorError(f"cannot join files of stream {stream!r} into {place}: {error}") from error

    def _place(self, part: StoredPart) -> Address:
        return self._folder / part.stream / part.name

    def _remove_unlisted(self, streams: Iterable[str]) -> None:
        leftover = self._unlisted(streams)
        self._claim.check()  # else they may be those of a run that has started meanwhile
        for place in leftover:
            place.delete()

    def _unlisted(self, streams: Iterable[str]) -> list[Address]:
        """Return the files of the sink's kind in streams that are in no manifest."""
        suffix = re.escape(self._suffix)
        pattern = re.compile(
            rf"part-\d+-\w+(-\w+){{0,2}}\.{suffix}|{EMPTY}\.{suffix}|{re.escape(WAITING)}-\d+-\w+(-\w+)?"
        )
        found = [
            (stream, file.name)
            for stream in sorted(streams)
            for file in (self._folder / stream).files()
            if pattern.fullmatch(file.name)
        ]
        listed = {(one.stream, one.name) for one in self._manifests.parts()}
        return [self._folder / stream / name for stream, name in found if (stream, name) not in listed]

    def _replace(self, batch_id: int, parts: Sequence[StoredPart], obsolete: Sequence[StoredPart]) -> None:
        """Write the manifest of all files, then remove those that it replaces."""
        self._manifests.replace(batch_id, parts)
        for one in obsolete:
            self._place(one).delete()

    def _joined(
        self, parts: Sequence[StoredPart], due: Callable[[Sequence[StoredPart]], bool]
    ) -> tuple[list[StoredPart], list[StoredPart]]:
        """Join the waiting files of each stream that are due; returns all files and those that were joined."""
        assert self._joining is not None
        kept, obsolete = [one for one in parts if not _waits(one)], []
        for stream in sorted({one.stream for one in parts}):
            waiting = [one for one in parts if one.stream == stream and _waits(one)]
            if not waiting or not due(waiting):
                kept += waiting
                continue
            last = waiting[-1].batch
            name = f"part-{last:06d}-rolled-{self._claim.token}.{self._suffix}"
            size, checksum = self._join(stream, name, [self._place(one) for one in waiting], self._joining.write)
            kept.append(StoredPart(stream, name, last, size, sum(one.rows for one in waiting), checksum, time.time()))
            obsolete += waiting
        return sorted(kept, key=lambda one: (one.batch, one.stream, one.name)), obsolete

    def _show(self, batch_id: int, parts: Sequence[StoredPart], obsolete: Sequence[StoredPart] = ()) -> None:
        """Give waiting files their names without joining them."""
        shown, hidden = [], list(obsolete)
        for one in parts:
            if _waits(one):
                hidden.append(one)
                named = msgspec.structs.replace(one, name=f"{one.name.replace(WAITING, 'part', 1)}.{self._suffix}")
                data = self._place(one).read()
                if data is None:
                    raise ConnectorError(f"{self._place(one)} is missing, which a manifest lists")
                self._place(named).write(data)
                one = named
            shown.append(one)
        self._replace(batch_id, shown, hidden)


def _waits(part: StoredPart) -> bool:
    return part.name.startswith(WAITING)


def temporary_file() -> BinaryIO:
    """Return a file in memory, on disk once it is large."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(MAX_MEMORY))


def upload(file: BinaryIO, place: Address) -> tuple[int, int]:
    """Upload a file; returns its size and CRC-32."""
    file.seek(0)
    size = checksum = 0
    while chunk := file.read(CHUNK):
        size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
    place.write(file)
    return size, checksum
