"""Spark's checkpoint folder, with a manifest of the dataflow that it belongs to."""

from __future__ import annotations

import ast
import contextlib
import json
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import PySparkException

from riot_ops.core.errors import ConfigError, ConnectorError, StateError, excerpt
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.checkpoint import MANIFEST, Checkpoint
from riot_ops.runtime.fingerprint import describe_difference, fingerprint
from riot_ops.spark.dataframe_transform import default_fuse
from riot_ops.spark.exceptions import Py4JError, Py4JJavaError
from riot_ops.spark.session import default_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCheckpoint"]

FORMAT = 2
#: Offset in Spark's log of a source from which nothing has been read.
NO_OFFSET = "-"


class Manifest(msgspec.Struct):
    """What must agree for a checkpoint to be continued; ``flow`` and ``state`` by step."""

    format: int
    partitions: int
    order: str
    fuse: str
    flow: dict[str, dict[str, Any]]
    state: dict[str, dict[str, Any]]
    checksum: int = 0
    run: str = ""  # identity of the query for its sinks; manifests of earlier versions have none

    def with_checksum(self) -> Manifest:
        """Return the manifest with the CRC-32 of all its other fields."""
        plain = msgspec.to_builtins(msgspec.structs.replace(self, checksum=0))
        if not self.run:
            del plain["run"]
        return msgspec.structs.replace(self, checksum=zlib.crc32(msgspec.json.encode(plain)))


class SparkCheckpoint:
    """A checkpoint folder in any file system that Spark supports.

    Attributes
    ----------
    folder : str
        In the form that Spark takes.
    local : Path or None
        The folder, if it is in a file system of this machine.
    """

    def __init__(self, spark: SparkSession, place: str | Path) -> None:
        self._spark = spark
        scheme = scheme_of(place)
        self.folder: str = str(place)
        try:
            system, _ = self._hadoop("")
            self.local: Path | None = local_path(place).absolute() if system.getUri().getScheme() == "file" else None
            if self.local is not None:  # Spark resolves relative paths from the folder in which its JVM was started
                self.folder = f"file:{self.local}" if scheme else str(self.local)
        except (Py4JError, PySparkException):
            raise ConfigError(
                f"checkpoint has the scheme {scheme}:, for which this Spark has no file system: add its "
                "library to the session, or give a folder (path or file:///…) that the driver and all workers see"
            ) from None

    def exists(self) -> bool:
        """Whether the folder holds a checkpoint of a query."""
        if self.local is not None and Checkpoint(self.local).exists():
            raise StateError(f"the checkpoint {self.folder} is of a local run; use a new one on Spark")
        with self._translating_errors("read"):
            system, path = self._hadoop(MANIFEST)
            return bool(system.exists(path))

    def run(self) -> str:
        """Return the identity of the query: that in the manifest, or a new one."""
        if not self.exists():
            return uuid.uuid4().hex
        return self._read().run or uuid.uuid5(uuid.NAMESPACE_URL, self.folder).hex

    def open(
        self, flow: Graph, partitions: int | None, order: str, fuse: str, run: str | None = None
    ) -> tuple[Plan, int]:
        """Check that the checkpoint belongs to this dataflow, or create it; returns the plan and the partitions."""
        found = self._read() if self.exists() else None
        if fuse == "auto" and found is not None:
            fuse = found.fuse
        if partitions is None:
            partitions = default_partitions(self._spark) if found is None else found.partitions
        if fuse == "auto":
            fuse = default_fuse(partitions)
        stages = plan(flow, fuse=fuse)  # type: ignore[arg-type]
        state = {
            f"state of step {s.id!r}": {"key": list(s.key), "stage": number}
            for number, together in enumerate(stages.shuffles, 1)
            for stage in together
            for s in stage.steps
            if isinstance(s.operator, KeyedOperator)
        }
        now = Manifest(FORMAT, partitions, order, fuse, fingerprint(flow), state, run=run or "")
        if found is None:
            self._write(now)
        else:
            self._check(found, now)
        return stages, partitions

    def _check(self, then: Manifest, now: Manifest) -> None:
        for name in ("partitions", "order", "fuse"):
            old, new = getattr(then, name), getattr(now, name)
            if old != new:
                raise StateError(
                    f"the checkpoint {self.folder} was written with {name}={old!r} and cannot be continued with "
                    f"{new!r}; use the old value or a new checkpoint"
                )
        if differs := describe_difference(then.flow, now.flow) or describe_difference(then.state, now.state):
            raise StateError(
                f"the checkpoint {self.folder} is of another dataflow: {differs}; "
                "use the old dataflow or a new checkpoint"
            )

    def next_batch(self) -> int:
        """Return the number of the micro-batch with which a query continues."""
        with self._translating_errors("read"):
            system, path = self._hadoop("commits")
            names = [entry.getPath().getName() for entry in system.listStatus(path)] if system.exists(path) else []
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1

    def forget(self) -> None:
        """Remove the files of a query that committed nothing: its first planned micro-batch and its settings.

        Otherwise Spark would continue with them, even if they made the query fail. The initial offsets of the sources
        stay.
        """
        self._remove("offsets", "state", MANIFEST)

    def forget_dataflow(self) -> None:
        """Remove the manifest of a dataflow that committed nothing."""
        self._remove(MANIFEST)

    def _remove(self, *names: str) -> None:
        with self._translating_errors("written"):
            for name in names:
                system, path = self._hadoop(name)
                system.delete(path, True)

    def ends(self, batch: int, sources: Mapping[str, Any]) -> list[Any]:
        """Return the end offset of a micro-batch for each source from Spark's log, None if nothing was read.

        Offsets of other sources than riot_ops's are returned as Spark's text.
        """
        if batch < 0:
            return [None] * len(sources)
        path = f"offsets/{batch}"
        try:
            lines = self._text(path).rstrip("\n").split("\n")[2:]  # after the version and the metadata
            found = [offset_of(text, source) for text, source in zip(lines, sources.values(), strict=True)]
        except (Py4JError, PySparkException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the checkpoint {self.folder} is damaged: {path} does not say where micro-batch {batch} ended "
                f"({_short(error)}); use a new checkpoint"
            ) from None
        return found

    def planned_ends(self, batch: int, sources: Mapping[str, Any]) -> list[Any]:
        """Return the end offsets of a micro-batch that Spark has planned, of the one before if it has not."""
        with self._translating_errors("read"):
            system, path = self._hadoop(f"offsets/{batch}")
            planned = system.exists(path)
        return self.ends(batch if planned else batch - 1, sources)

    # -- the file, in any file system ------------------------------------------------------------------

    def _read(self) -> Manifest:
        name = f"{self.folder}/{MANIFEST}"
        try:
            with self._translating_errors("read"):
                text = self._text(MANIFEST)
            found = msgspec.json.decode(text, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StateError(f"the manifest {name} is damaged: {error}; use a new checkpoint") from None
        if found.format != FORMAT:
            raise StateError(
                f"the checkpoint {self.folder} has format {found.format}, this version reads {FORMAT}; "
                "use a new checkpoint"
            )
        if found.with_checksum() != found:
            raise StateError(f"the manifest {name} is damaged: the checksum does not fit; use a new checkpoint")
        return found

    def _write(self, manifest: Manifest) -> None:
        """Write the manifest under another name and rename it, so that it is never incomplete."""
        with self._translating_errors("written"):
            system, path = self._hadoop(MANIFEST)
            _, hidden = self._hadoop(f".{MANIFEST}")
            stream = system.create(hidden, True)
            try:
                stream.write(bytearray(msgspec.json.format(msgspec.json.encode(manifest.with_checksum()))))
            finally:
                stream.close()
            renamed = system.rename(hidden, path)
        if not renamed:
            raise ConnectorError(f"the manifest {self.folder}/{MANIFEST} cannot be written")

    def _text(self, name: str) -> str:
        system, where = self._hadoop(name)
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()

    @contextlib.contextmanager
    def _translating_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise ConnectorError(
                f"the checkpoint {self.folder} cannot be {what}: {_short(error)}; it must be a folder with free space "
                "to which the driver and all workers may write"
            ) from None

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (PySpark offers no file API of its own)
        where = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        return where.getFileSystem(self._spark._jsc.hadoopConfiguration()), where  # noqa: SLF001


def offset_of(text: Any, source: Any) -> Any:
    """Parse Spark's text for a source's offset; raises ValueError and the like if it is not of this source."""
    if not isinstance(source, Source):
        return text
    if isinstance(text, str) and text.startswith("{'"):  # before Spark 4.2, progress has the text of a Python dict
        text = json.dumps(ast.literal_eval(text))
    found = json.loads(text) if isinstance(text, str) and text != NO_OFFSET else text
    if found in (None, NO_OFFSET):
        return None
    source.count(source.initial(), found["at"])
    if not isinstance(found["ended"], bool):
        raise TypeError("ended is neither true nor false")
    return found


def _short(error: Exception) -> str:
    """Return the first line of an error, that of the Java exception if there is one."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else f"{type(error).__name__}: {error}"
    return excerpt(next(iter(text.splitlines()), ""))
