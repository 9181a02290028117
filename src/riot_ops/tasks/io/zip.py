"""Packing of charts and other files into zip archives."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Count
from riot_ops.core.paths import local_path
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import byte_spans
from riot_ops.kernels.arrays.bounded_blocks import assign_blocks
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.task import Case, PooledTask, Requirement, State, StateField, register
from riot_ops.tasks.io.zip_archive import FIRST_SECOND, ZipEntry, zip_bytes
from riot_ops.tasks.plot.plot_lines import file_name

__all__ = ["Zip"]

#: Limits for the parameters ``size`` and ``max_bytes``.
MAX_ENTRIES, MAX_ARCHIVE_BYTES = 65_535, 1 << 30


@register
@dataclass(frozen=True, kw_only=True)
class Zip(PooledTask):
    """Pack files into zip archives, and emit the archives, or write them to a folder and emit their paths.

    An archive is complete with ``size`` entries, or if one more would exceed ``max_bytes``. The remaining
    entries are emitted at the end of the stream.

    Parameters
    ----------
    to : str or None, default None
        Folder for the archives, created if missing. On a cluster all workers must share it. None: the records have
        the archives, for a following upload.
    size : int, 1 to 65535, default 100
        Most entries per archive.
    max_bytes : int, 1 to 2**30, default 67108864
        Most bytes of all entries together, before compression.
    field : str, default "data"
        Binary or text field with the content of an entry.
    entry : str or None, default "name"
        Text field with the name of an entry; None: names are entry-1, entry-2 and so on.
    prefix : str, default "archive"
        Prefix of the names of archives.
    compress : bool, default True
        Whether to deflate the entries.
    by : tuple of str, default ()
        Key; each key has its own archives.
    ttl
        Not used.

    Shapes and rates
    ----------------
    N:1, one record per archive: the key, ``seq``, ``ordinal`` and ``event_time`` of its last entry if
    the input has them, ``name``, ``data`` (binary, the archive), or with ``to`` its ``path`` (text) and its
    size in ``bytes`` (int64), and ``entries`` (int64). O(bytes) time; the state is the entries of incomplete archives.

    The same entries make the same bytes, and the name of an archive ends with a hash of its content
    (prefix, key, milliseconds of the event time, hash, joined by ~), so an archive made again after a
    crash replaces the same one. Files are written atomically; until the batch is committed, a file may exist without
    its record. Names of entries are made safe to unpack (no absolute paths, ``..``
    or duplicates); their time is the event time.

    Missing values
    --------------
    An entry without a name is called entry; one without event time is dated 1980.

    Errors
    ------
    ``missing`` (null content); ``too_big`` (an entry above ``max_bytes``). A folder that cannot be written to stops the
    dataflow with a :class:`ConnectorError`.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, tasks RZP and, to a folder, LZP.

    Examples
    --------
    >>> import io, zipfile
    >>> pack = Zip(size=2).session()
    >>> pack.push({"name": "a.svg", "data": b"<svg/>"})
    []
    >>> row = pack.push({"name": "b.svg", "data": b"<svg/>"})[0]
    >>> zipfile.ZipFile(io.BytesIO(row["data"])).namelist(), row["entries"]
    (['a.svg', 'b.svg'], 2)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     row = Zip(to=folder, size=1).session().push({"name": "a.svg", "data": b"<svg/>"})[0]
    ...     zipfile.ZipFile(row["path"]).namelist()
    ['a.svg']
    """

    code: ClassVar[str] = "ZIP"
    category: ClassVar[str] = "IO"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    to: str | None = None
    size: Count = 100
    max_bytes: Count = 64 << 20
    field: str = "data"
    entry: str | None = "name"
    prefix: str = "archive"
    compress: bool = True

    def validate(self) -> None:
        if self.ttl is not None:
            raise ConfigError(f"{self.name()} does not use ttl, got {self.ttl!r}")
        if self.size > MAX_ENTRIES:
            raise ConfigError(f"size must be at most {MAX_ENTRIES}, got {self.size}")
        if self.max_bytes > MAX_ARCHIVE_BYTES:
            raise ConfigError(f"max_bytes must be at most {MAX_ARCHIVE_BYTES}, got {self.max_bytes}")
        if self.to is not None:
            folder = local_path(self.to, "to")
            if not self.to or (folder.exists() and not folder.is_dir()):
                raise ConfigError(f"to must name a folder, got {self.to!r}")
        conflicts = sorted({f.name for f in self._added_fields()} & set(self.by))
        if conflicts:
            raise ConfigError(f"{self.name()} adds the field {conflicts[0]!r}; the key must not have that name")

    def requires(self) -> Mapping[str, Requirement]:
        named: dict[str, Requirement] = {} if self.entry is None else {self.entry: "text"}
        return {**super().requires(), self.field: "text", **named}

    def writes(self) -> frozenset[str]:
        return frozenset(field.name for field in self._added_fields())

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        own = [schema.field(n) for n in carried_fields(schema.names) if n not in self.by]
        return pa.schema([*own, *(schema.field(n) for n in self.by), *self._added_fields()])

    def _added_fields(self) -> list[pa.Field]:
        files = [pa.field("path", pa.string()), pa.field("bytes", pa.int64())]
        own = [pa.field("data", pa.binary())] if self.to is None else files
        return [pa.field("name", pa.string()), *own, pa.field("entries", pa.int64())]

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        lengths = pc.binary_length(_binary(batch.column(self.field))).fill_null(-1)
        lengths = lengths.to_numpy(zero_copy_only=False)
        names = batch.column(self.entry) if self.entry is not None else None
        errors.reject(batch, lengths < 0, "missing", f"{self.field} is null", names)
        big = np.flatnonzero(lengths > self.max_bytes)
        texts = [f"{self.field} has {lengths[i]} bytes, at most {self.max_bytes} are allowed" for i in big]
        errors.reject(batch, big, "too_big", texts, names)
        good = (lengths >= 0) & (lengths <= self.max_bytes)
        return batch if good.all() else batch.filter(pa.array(good))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        block, closed = self._blocks(batch, slots)
        full = np.flatnonzero(closed >= 0)
        rest = np.flatnonzero(closed[block] < 0)
        state["held"][0] = batch.take(pa.array(rest)) if rest.size else None
        return self._archives(batch, block, full[np.argsort(closed[full], kind="stable")])

    def flush_held(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch | None:
        block, closed = self._blocks(held, slots)
        return self._archives(held, block, np.arange(closed.size))

    def _blocks(
        self, pool: pa.RecordBatch, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        _, starts, ends, _ = byte_spans(_binary(pool.column(self.field)))
        n = pool.num_rows
        keys = int(slots.max()) + 1 if n else 0
        block, closed = np.empty(n, np.int64), np.empty(n, np.int64)
        current, count, total = (np.zeros(keys, np.int64) for _ in range(3))
        found = assign_blocks(slots, ends - starts, self.size, self.max_bytes, current, count, total, block, closed)
        return block, closed[:found]

    def _archives(
        self, pool: pa.RecordBatch, block: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        schema = self.output_schema(pool.schema)
        order = np.argsort(block, kind="stable")
        edges = np.searchsorted(block[order], np.append(wanted[:, None], wanted[:, None] + 1, axis=1))
        members = [order[a:b] for a, b in edges.tolist()]
        last = pool.take(pa.array([rows[-1] for rows in members], pa.int64()))
        stamps: list[int | None] = [None] * len(members)
        if "event_time" in pool.schema.names:
            times, present = microseconds(last.column("event_time"))
            stamps = [int(t) // 1000 if p else None for t, p in zip(times, present, strict=True)]
        keys = [last.column(name).to_pylist() for name in self.by]
        archive_rows = []
        for i, rows in enumerate(members):
            content = zip_bytes(self._entries(pool.take(pa.array(rows))), self.compress)
            digest = hashlib.blake2b(content, digest_size=8).hexdigest()
            parts = [self.prefix, *(k[i] for k in keys), *([] if stamps[i] is None else [stamps[i]]), digest]
            archive_rows.append(self._row(file_name(parts, ".zip"), content, len(rows)))
        fields = self._added_fields()
        columns = {
            f.name: pa.array(values, f.type)
            for f, values in zip(fields, _columns(archive_rows, len(fields)), strict=True)
        }
        return pa.RecordBatch.from_arrays(
            [columns[n] if n in columns else last.column(n) for n in schema.names], schema=schema
        )

    def _entries(self, rows: pa.RecordBatch) -> Iterable[ZipEntry]:
        data = _binary(rows.column(self.field)).to_pylist()
        names = [f"entry-{i + 1}" for i in range(len(data))]
        if self.entry is not None:
            given = _binary(rows.column(self.entry)).to_pylist()
            names = [(name or b"").decode("utf-8", "backslashreplace") for name in given]
        seconds = np.full(len(data), FIRST_SECOND)
        if "event_time" in rows.schema.names:
            times, present = microseconds(rows.column("event_time"))
            seconds = np.where(present, times // 1_000_000, FIRST_SECOND)
        return map(ZipEntry, names, data, seconds.tolist())

    def _row(self, name: str, content: bytes, entries: int) -> Sequence[Any]:
        """Return the values of the added fields for a complete archive."""
        if self.to is None:
            return name, content, entries
        path = local_path(self.to, "to").absolute() / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".zip-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(temporary, 0o644)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise ConnectorError(f"cannot write the archive {path}: {error}") from error
        return name, str(path), len(content), entries

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(8), pa.int64()),
                "event_time": pa.array([0, 10**15, None, 5 * 10**15, 1, 2, 3, 4], TIMESTAMP),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a"],
                "name": ["a.svg", "../x/ü.svg", "a.svg", None, "", "C:\\b\x00.svg", "b", "A.SVG"],
                "data": [b"<svg/>", b"", b"\xff\x00", None, b"x" * 50, b"abc", b"abcd", b"<svg/>"],
            }
        )
        yield Case(cls(size=2, by=("key",)), batch)
        yield Case(cls(max_bytes=49, compress=False), batch, "bytes")
        yield Case(cls(field="name", entry=None, size=3, by=("key",)), batch.select(["key", "name"]), "text")
        yield Case(cls(size=2, by=("key",), to=_case_folder()), batch, "folder")


@functools.cache
def _case_folder() -> str:
    """Create a folder for the contract suite; it is removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="riot_ops-zip-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _columns(rows: list[Sequence[Any]], n: int) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(n)]


def _binary(column: pa.Array) -> pa.Array:
    return (column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column).cast(pa.binary())
