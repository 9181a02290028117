"""Manifests: which files of a folder in an object store are committed, where no rename is atomic."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.storage import CREDENTIALS, Address

__all__ = ["MANIFESTS", "ManifestFolder", "StoredPart", "committed_names"]

#: The folder of manifests, which Spark and others pass over for its name.
MANIFESTS = "_riot_ops"
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


class _Manifest(msgspec.Struct, frozen=True):
    format: int
    suffix: str
    batch: int
    whole: bool  # whether it replaces the manifests of earlier batches
    streams: list[str]
    files: list[StoredPart]


class _Checked(msgspec.Struct):
    crc32: int
    manifest: msgspec.Raw


class ManifestFolder:
    """The committed files below an address.

    Each batch has a manifest, ``_riot_ops/<batch>-<label>.json``, which lists its files. Files in no manifest are not
    part of the output. Now and then one manifest lists all files and replaces the others. The label is that of a set of
    streams, so that sinks with different streams can share a folder.

    Parameters
    ----------
    folder : Address
    suffix : str or None
        Suffix of the files, which tells sinks of different formats apart; None to read those of any.
    streams : set of str, optional
        The streams that this is about; by default all.
    """

    def __init__(self, folder: Address, suffix: str | None, streams: Iterable[str] | None) -> None:
        self.folder = folder
        self._suffix = suffix or ""  # none is written without one
        self._streams = None if streams is None else sorted(streams)
        names = "\0".join([self._suffix, *(self._streams or ())])
        self._label = hashlib.blake2b(names.encode(), digest_size=5).hexdigest()

    def exists(self) -> bool:
        """Whether there is a manifest of these streams, also an empty one."""
        return any(self._concerns(one) for _, one in self._manifests())

    def parts(self) -> list[StoredPart]:
        """Return the committed files, by batch, stream and name."""
        found = {
            (one.stream, one.name): one
            for _, manifest in self._manifests()
            if self._suffix in ("", manifest.suffix)
            for one in manifest.files
            if self._streams is None or one.stream in self._streams
        }
        return sorted(found.values(), key=lambda one: (one.batch, one.stream, one.name))

    def commit(self, batch: int, parts: Sequence[StoredPart]) -> None:
        """Make the files of a batch visible, in place of those of an earlier commit of it."""
        self._write(_Manifest(1, self._suffix, batch, False, self._streams or [], list(parts)))
        if batch % MAX_MANIFESTS == MAX_MANIFESTS - 1:
            self.replace(batch, self.parts())

    def replace(self, batch: int, parts: Sequence[StoredPart]) -> None:
        """Make these the only committed files up to a batch."""
        whole = _Manifest(1, self._suffix, batch, True, self._streams or [], list(parts))
        self._write(whole)
        for name, manifest in self._listed():
            if name != self._name(whole) and self._is_mine(name) and manifest <= batch:
                self._place(name).delete()

    def recover(self, batch: int) -> None:
        """Remove the files of this batch and later ones from the manifests; those of other streams stay."""
        counting = {name for name, _ in self._counting()}
        for name, _ in self._listed():  # they would count again after the one that replaces them has gone
            if name not in counting and self._is_mine(name):
                self._place(name).delete()
        for name, manifest in self._manifests(damaged=lambda name, number: number >= batch and self._is_mine(name)):
            if not self._concerns(manifest):
                continue
            mine = set(self._streams or manifest.streams)
            kept = [one for one in manifest.files if one.batch < batch or one.stream not in mine]
            if len(kept) == len(manifest.files) and manifest.batch < batch:
                continue
            if kept:
                last = max(one.batch for one in kept)
                number = min(manifest.batch, batch - 1) if manifest.whole and last < batch else manifest.batch
                changed = msgspec.structs.replace(manifest, files=kept, batch=number)
                self._put(self._place(self._renumbered(name, number)), changed)
                if number != manifest.batch:
                    self._place(name).delete()
            else:
                self._place(name).delete()

    def _is_mine(self, name: str) -> bool:
        return name.partition("-")[2].partition(".")[0] == self._label

    def _renumbered(self, name: str, number: int) -> str:
        return f"{number + 1:012d}-{name.partition('-')[2]}"

    def _concerns(self, manifest: _Manifest) -> bool:
        if self._suffix not in ("", manifest.suffix):
            return False
        return self._streams is None or bool(set(self._streams) & set(manifest.streams))

    def _manifests(self, damaged: Callable[[str, int], bool] = lambda *_: False) -> list[tuple[str, _Manifest]]:
        """Return the manifests that count, each with its name; those for which ``damaged`` is true are removed."""
        for attempt in range(LISTINGS):
            found = []
            for name, number in self._counting():
                data = self._place(name).read()
                if data is None:  # another one has just replaced it
                    if attempt == LISTINGS - 1:
                        raise ConnectorError(f"{self._place(name)} disappears while it is read; read again")
                    break
                try:
                    found.append((name, self._decoded(name, data)))
                except ConnectorError:
                    if not damaged(name, number):
                        raise
                    self._place(name).delete()
            else:
                return found
        raise AssertionError

    def _counting(self) -> list[tuple[str, int]]:
        """Return the names and batches of manifests, without those that another one replaces."""
        listed = self._listed()
        whole: dict[str, int] = {}
        for name, number in listed:
            label, _, kind = name.partition("-")[2].partition(".")
            if kind == "all.json":
                whole[label] = max(whole.get(label, -2), number)
        found = []
        for name, number in listed:
            label, _, kind = name.partition("-")[2].partition(".")
            if number > whole.get(label, -2) or (number == whole[label] and kind == "all.json"):
                found.append((name, number))
        return found

    def _listed(self) -> list[tuple[str, int]]:
        found = []
        for file in (self.folder / MANIFESTS).files():
            number, _, rest = file.name.partition("-")
            if number.isdigit() and rest.endswith(".json"):
                found.append((file.name, int(number) - 1))
        return found

    def _decoded(self, name: str, data: bytes) -> _Manifest:
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

    def _name(self, manifest: _Manifest) -> str:
        # numbers begin at 0, with the manifest of a run that has no batch yet
        return f"{manifest.batch + 1:012d}-{self._label}{'.all' if manifest.whole else ''}.json"

    def _write(self, manifest: _Manifest) -> None:
        self._put(self._place(self._name(manifest)), manifest)

    def _put(self, place: Address, manifest: _Manifest) -> None:
        data = msgspec.json.encode(manifest)
        place.write(msgspec.json.encode(_Checked(zlib.crc32(data), msgspec.Raw(data))))

    def _place(self, name: str) -> Address:
        return self.folder / MANIFESTS / name


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
