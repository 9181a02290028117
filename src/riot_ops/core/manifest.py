"""Manifests: which files of a folder in an object store are committed, where no rename is atomic."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from riot_ops.core.claim import CLAIMS, Claim, Holder
from riot_ops.core.compaction import check_joined
from riot_ops.core.errors import ConnectorError
from riot_ops.core.storage import CREDENTIALS, Address

__all__ = ["MANIFESTS", "ManifestFolder", "StoredPart", "committed_names"]

#: The folder of manifests.
MANIFESTS = CLAIMS
#: From so many manifests of batches on, one for all of them replaces them.
MAX_MANIFESTS = 64
#: How often the manifests are listed again that another process replaces meanwhile.
LISTINGS = 5


class StoredPart(msgspec.Struct, frozen=True):
    """A committed file: its stream and name, its batch, and what it must hold."""

    stream: str
    name: str
    batch: int
    size: int
    rows: int
    crc32: int
    since: float = 0.0  # seconds since 1970 of its commit
    first: int | None = None  # of a file that was joined of several batches, the first one


class _Name(NamedTuple):
    """The name of a manifest."""

    holder: Holder
    batch: int
    label: str
    whole: bool  # whether it replaces the manifests of earlier batches and of earlier runs

    def __str__(self) -> str:
        # numbers begin at 0, with the manifest of a run that has no batch yet
        return f"{self.holder}-{self.batch + 1:012d}-{self.label}{'.all' if self.whole else ''}.json"

    @classmethod
    def parse(cls, text: str) -> _Name | None:
        found = re.fullmatch(r"(\d+-\w+)-(\d+)-(\w+)(\.all)?\.json", text)
        holder = Holder.parse(found[1]) if found else None
        if found is None or holder is None:
            return None
        return cls(holder, int(found[2]) - 1, found[3], found[4] is not None)


class _Manifest(msgspec.Struct, frozen=True):
    format: int
    suffix: str
    batch: int
    whole: bool
    streams: list[str]
    files: list[StoredPart]


class _Checked(msgspec.Struct):
    crc32: int
    manifest: msgspec.Raw


class ManifestFolder:
    """The committed files below an address.

    Each batch has a manifest, ``_riot_ops/<holder>-<batch>-<label>.json``, which lists its files. Files in no manifest
    are not part of the output. Now and then one manifest lists all files and replaces the others. The label is that of
    a set of streams, so that sinks with different streams can share a folder. The holder is that of the
    :class:`~riot_ops.core.claim.Claim` of the run that has written it: each begins with a manifest of all files that
    count, and from then on those of runs before do not.

    Parameters
    ----------
    folder : Address
    suffix : str or None
        Suffix of the files, which tells sinks of different formats apart; None to read those of any.
    streams : set of str, optional
        The streams that this is about; by default all.
    claim : Claim, optional
        That of the run that writes; by default a new one.
    """

    def __init__(
        self, folder: Address, suffix: str | None, streams: Iterable[str] | None, claim: Claim | None = None
    ) -> None:
        self.folder = folder
        self._suffix = suffix or ""  # none is written without one
        self._streams = None if streams is None else sorted(streams)
        self._known: set[str] = set()  # the streams that are there, if none are given
        self._claim = claim or Claim(folder, self._suffix, self._streams)
        names = "\0".join([self._suffix, *(self._streams or ())])
        self._label = hashlib.blake2b(names.encode(), digest_size=5).hexdigest()

    def exists(self) -> bool:
        """Whether there is a manifest of these streams, also an empty one."""
        return any(self._concerns(one) for _, one in self._manifests())

    def parts(self) -> list[StoredPart]:
        """Return the committed files, by batch, stream and name."""
        return self._parts(self._manifests())

    def commit(self, batch: int, parts: Sequence[StoredPart]) -> None:
        """Make the files of a batch visible, in place of those of an earlier commit of it."""
        self.ensure_claim()
        if batch % MAX_MANIFESTS == MAX_MANIFESTS - 1:
            self.replace(batch, [*(one for one in self.parts() if one.batch != batch), *parts])
            return
        self._write(batch, False, parts)
        self._claim.check()

    def replace(self, batch: int, parts: Sequence[StoredPart]) -> None:
        """Make these the only committed files up to a batch."""
        self.ensure_claim()
        whole = self._write(batch, True, parts)
        self._claim.check()
        for name in self._listed():
            if name.holder == whole.holder and name.label == whole.label and name.batch <= batch and name != whole:
                self._place(name).delete()

    def recover(self, batch: int, at: int | None = None) -> None:
        """Take the folder from the runs before, and remove the files of this batch and later ones from the manifests.

        ``at`` is the number of the last batch that remains, if that is not the one before ``batch``.
        """
        check_joined(
            batch,
            [
                (f"{self.folder}/{one.stream}/{one.name}", one.first, one.batch)
                for one in self._parts(self._manifests(damaged=lambda name: name.batch >= batch and not name.whole))
                if one.first is not None
            ],
        )
        self._claim.take(self._last_number())
        # the batch of a damaged manifest comes again
        found = self._manifests(damaged=lambda name: name.batch >= batch and not name.whole)
        if self._streams is None:
            self._known = {stream for _, manifest in found for stream in manifest.streams}
        kept = [one for one in self._parts(found) if one.batch < batch]
        self._write(batch - 1 if at is None else at, True, kept)
        self._claim.clean()
        holder = self._holder()
        for name in self._listed():
            if name.holder < holder and (name.label == self._label or self._is_covered(name)):
                self._place(name).delete()

    def ensure_claim(self) -> None:
        """Take the folder from the runs before, if no runner does so before it writes."""
        if self._claim.holder is None and not self._claim.expected:
            self.recover(1 << 62, at=-1)  # no batch is removed

    def _last_number(self) -> int:
        return max((name.holder.number for name in self._listed()), default=0)

    def _is_covered(self, name: _Name) -> bool:
        """Whether all streams of a manifest are those of this run."""
        data = self._place(name).read()
        try:
            manifest = None if data is None else self._decoded(name, data)
        except ConnectorError:
            return False
        if manifest is None or manifest.suffix != self._suffix:
            return False
        return self._streams is None or set(manifest.streams) <= set(self._streams)

    def _parts(self, manifests: Sequence[tuple[_Name, _Manifest]]) -> list[StoredPart]:
        owners: dict[tuple[str, str], Holder] = {}  # by suffix and stream, the last run
        again: dict[Holder, set[int]] = {}  # by run, the batches whose own manifest counts
        for name, manifest in manifests:
            if name.whole:
                for stream in manifest.streams:
                    key = manifest.suffix, stream
                    owners[key] = max(owners.get(key, name.holder), name.holder)
            else:
                again.setdefault(name.holder, set()).add(name.batch)
        found: dict[tuple[str, str], StoredPart] = {}
        for name, manifest in manifests:
            if self._suffix not in ("", manifest.suffix):
                continue
            for one in manifest.files:
                if self._streams is not None and one.stream not in self._streams:
                    continue
                if owners.get((manifest.suffix, one.stream)) != name.holder:
                    continue
                if not name.whole or one.batch not in again.get(name.holder, ()):
                    found[one.stream, one.name] = one
        return sorted(found.values(), key=lambda one: (one.batch, one.stream, one.name))

    def _concerns(self, manifest: _Manifest) -> bool:
        if self._suffix not in ("", manifest.suffix):
            return False
        return self._streams is None or bool(set(self._streams) & set(manifest.streams))

    def _manifests(self, damaged: Callable[[_Name], bool] = lambda _: False) -> list[tuple[_Name, _Manifest]]:
        """Return the manifests that may count, each with its name, without those for which ``damaged`` is true."""
        for attempt in range(LISTINGS):
            found = []
            for name in self._counting():
                data = self._place(name).read()
                if data is None:  # another one has just replaced it
                    if attempt == LISTINGS - 1:
                        raise ConnectorError(f"{self._place(name)} disappears while it is read; read again")
                    break
                try:
                    found.append((name, self._decoded(name, data)))
                except ConnectorError:
                    if not damaged(name):
                        raise
            else:
                return found
        raise AssertionError

    def _counting(self) -> list[_Name]:
        """Return the names of manifests, without those that another one of the same streams replaces."""
        listed = self._listed()
        whole: dict[str, tuple[Holder, int]] = {}
        for name in listed:
            if name.whole:
                whole[name.label] = max(whole.get(name.label, (name.holder, name.batch)), (name.holder, name.batch))
        found = []
        for name in listed:
            if name.label in whole:
                holder, batch = whole[name.label]
                if name.holder == holder and (name.batch > batch or (name.batch == batch and name.whole)):
                    found.append(name)
        return found

    def _listed(self) -> list[_Name]:
        names = (_Name.parse(file.name) for file in (self.folder / MANIFESTS).files())
        return [name for name in names if name is not None]

    def _decoded(self, name: _Name, data: bytes) -> _Manifest:
        place = self._place(name)
        try:
            checked = msgspec.json.decode(data, type=_Checked)
            if zlib.crc32(checked.manifest) != checked.crc32:
                raise ConnectorError(f"the manifest {place} is damaged: the checksum does not fit")
            manifest = msgspec.json.decode(checked.manifest, type=_Manifest)
        except msgspec.MsgspecError as error:
            raise ConnectorError(f"the manifest {place} is damaged: {error}") from None
        if manifest.format != 1:
            raise ConnectorError(f"the manifest {place} has format {manifest.format}, this version reads 1")
        return manifest

    def _holder(self) -> Holder:
        holder = self._claim.holder
        return Holder(0, "") if holder is None else holder

    def _write(self, batch: int, whole: bool, parts: Sequence[StoredPart]) -> _Name:
        holder = self._holder()
        if not holder.token:
            self._claim.check()  # raises that another run has it
        streams = self._streams
        if streams is None:
            streams = sorted({*self._known, *(one.stream for one in parts)})
        name = _Name(holder, batch, self._label, whole)
        data = msgspec.json.encode(_Manifest(1, self._suffix, batch, whole, streams, list(parts)))
        self._place(name).write(msgspec.json.encode(_Checked(zlib.crc32(data), msgspec.Raw(data))))
        return name

    def _place(self, name: _Name) -> Address:
        return self.folder / MANIFESTS / str(name)


def committed_names(folder: Address) -> frozenset[str] | None:
    """Return the names of committed files in the folder of a stream; None if no sink with manifests writes there."""
    if folder.parent.url.endswith(("/", ":")):
        return None  # a bucket
    try:
        manifests = ManifestFolder(folder.parent, None, [folder.name])
        return frozenset(one.name for one in manifests.parts()) if manifests.exists() else None
    except ConnectorError as error:
        if CREDENTIALS in str(error):  # this user may read the folder only
            return None
        raise
