"""What riot_ops keeps beside Spark's own checkpoint: a manifest of the dataflow that it belongs to."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from riot_ops.core.errors import ConfigError, ConnectorError, StateError, excerpt
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.checkpoint import MANIFEST, Checkpoint
from riot_ops.runtime.identity import difference, identity
from riot_ops.spark.dataframe_transform import usual_fuse
from riot_ops.spark.session import usual_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCheckpoint"]

FORMAT = 2
#: In Spark's log, for a source of which nothing has been read.
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

    def sealed(self) -> Manifest:
        """With the CRC-32 of all the rest."""
        plain = msgspec.structs.replace(self, checksum=0)
        return msgspec.structs.replace(plain, checksum=zlib.crc32(msgspec.json.encode(plain)))


class SparkCheckpoint:
    """A folder wherever Spark keeps its checkpoints.

    Attributes
    ----------
    folder : str
        As Spark is to be told.
    local : Path or None
        The folder, where it is in a file system of this machine.
    """

    def __init__(self, spark: SparkSession, place: str | Path) -> None:
        self._spark = spark
        scheme = scheme_of(place)
        self.folder = str(place)
        try:
            system, _ = self._hadoop("")
            self.local = local_path(place).absolute() if system.getUri().getScheme() == "file" else None
            if self.local is not None:  # Spark would start from the folder in which its JVM was started
                self.folder = f"file:{self.local}" if scheme else str(self.local)
        except (Py4JError, PySparkException):
            raise ConfigError(
                f"checkpoint is an address of the kind {scheme}:, for which this Spark has no file system: add its "
                "library to the session, or give a folder (path or file:///…) that the driver and all workers see"
            ) from None

    def exists(self) -> bool:
        """Whether a query can go on from here."""
        if self.local is not None and Checkpoint(self.local).holds_something():
            raise StateError(f"the checkpoint {self.folder} is of a run in process; use a new one on Spark")
        with self._reached("read"):
            system, path = self._hadoop(MANIFEST)
            return bool(system.exists(path))

    def open(self, flow: Graph, partitions: int | None, order: str, fuse: str) -> tuple[Plan, int]:
        """Check that the checkpoint is this dataflow's own, or make it so; the plan and the number of partitions."""
        found = self._read() if self.exists() else None
        if fuse == "auto" and found is not None:
            fuse = found.fuse
        if partitions is None:
            partitions = usual_partitions(self._spark) if found is None else found.partitions
        if fuse == "auto":
            fuse = usual_fuse(partitions)
        stages = plan(flow, fuse=fuse)  # type: ignore[arg-type]
        state = {
            f"state of step {s.id!r}": {"key": list(s.key), "stage": number}
            for number, together in enumerate(stages.shuffles, 1)
            for stage in together
            for s in stage.steps
            if isinstance(s.operator, KeyedOperator)
        }
        now = Manifest(FORMAT, partitions, order, fuse, identity(flow), state)
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
        if differs := difference(then.flow, now.flow) or difference(then.state, now.state):
            raise StateError(
                f"the checkpoint {self.folder} is of another dataflow: {differs}; "
                "use the old dataflow or a new checkpoint"
            )

    def next_batch(self) -> int:
        """The number of the micro-batch that a query continues with."""
        with self._reached("read"):
            system, path = self._hadoop("commits")
            names = [entry.getPath().getName() for entry in system.listStatus(path)] if system.exists(path) else []
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1

    def forget(self) -> None:
        """Remove what a query left that has committed nothing: what it was to do first, and with which settings.

        Otherwise Spark would take those up again, even if they were why it failed. Where sources began stays noted.
        """
        with self._reached("written"):
            for name in ("offsets", "state", MANIFEST):
                system, path = self._hadoop(name)
                system.delete(path, True)

    def ends(self, batch: int, sources: Mapping[str, Any]) -> list[Any]:
        """Where a micro-batch ends in each source, None for nothing; from Spark's log.

        What sources other than riot_ops's call an offset is theirs to read.
        """
        if batch < 0:
            return [None] * len(sources)
        path = f"offsets/{batch}"
        try:
            lines = self._text(path).splitlines()[2:]  # the first two tell of other things
            found = [offset_of(text, source) for text, source in zip(lines, sources.values(), strict=True)]
        except (Py4JError, PySparkException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the checkpoint {self.folder} is damaged: {path} does not say where micro-batch {batch} ended "
                f"({_short(error)}); use a new checkpoint"
            ) from None
        return found

    # -- the file, wherever Spark keeps its checkpoints ------------------------------------------------

    def _read(self) -> Manifest:
        name = f"{self.folder}/{MANIFEST}"
        try:
            with self._reached("read"):
                text = self._text(MANIFEST)
            found = msgspec.json.decode(text, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StateError(f"the manifest {name} is damaged: {error}; use a new checkpoint") from None
        if found.format != FORMAT:
            raise StateError(
                f"the checkpoint {self.folder} has format {found.format}, this version reads {FORMAT}; "
                "use a new checkpoint"
            )
        if found.sealed() != found:
            raise StateError(f"the manifest {name} is damaged: the checksum does not fit; use a new checkpoint")
        return found

    def _write(self, manifest: Manifest) -> None:
        """Write a file under another name and rename it, so that there is none that is not whole."""
        with self._reached("written"):
            system, path = self._hadoop(MANIFEST)
            _, hidden = self._hadoop(f".{MANIFEST}")
            stream = system.create(hidden, True)
            try:
                stream.write(bytearray(msgspec.json.format(msgspec.json.encode(manifest.sealed()))))
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
    def _reached(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise ConnectorError(
                f"the checkpoint {self.folder} cannot be {what}: {_short(error)}; it must be a folder with room in "
                "it, that the driver and all workers may write"
            ) from None

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (PySpark offers no file API of its own)
        where = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        return where.getFileSystem(self._spark._jsc.hadoopConfiguration()), where  # noqa: SLF001


def offset_of(text: Any, source: Any) -> Any:
    """What Spark tells of a source's offset; ValueError and the like where it is none of the source's."""
    if not isinstance(source, Source):
        return text
    found = json.loads(text) if isinstance(text, str) and text != NO_OFFSET else text
    if found in (None, NO_OFFSET):
        return None
    source.count(source.initial(), found["at"])
    if not isinstance(found["ended"], bool):
        raise TypeError("ended is neither true nor false")
    return found


def _short(error: Exception) -> str:
    """The first line of what went wrong, in Java's words where it was there."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else f"{type(error).__name__}: {error}"
    return excerpt(next(iter(text.splitlines()), ""))
