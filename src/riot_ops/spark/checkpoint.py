"""Spark's checkpoint folder, with a manifest of the dataflow that it belongs to."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import PySparkException

from riot_ops.core.errors import ConfigError, ConnectorError, StateError, excerpt
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.batches import ORDERS
from riot_ops.runtime.checkpoint import MANIFEST, Checkpoint
from riot_ops.runtime.fingerprint import describe_difference
from riot_ops.runtime.restart import HINT, AddedSinks, RestartReport, outlook, plan_restart
from riot_ops.spark.blocks import Block
from riot_ops.spark.dataframe_transform import assign_labels, default_fuse
from riot_ops.spark.exceptions import Py4JError, Py4JJavaError
from riot_ops.spark.generation import NO_OFFSET, NewGeneration, forged_offsets, renumbered, seed_blocks, with_watermark
from riot_ops.spark.locations import current_generation, generation_folder, hadoop_path
from riot_ops.spark.manifest import FORMAT, Manifest, describe_query, state_layout
from riot_ops.spark.session import default_partitions
from riot_ops.spark.state_reader import read_buckets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCheckpoint"]

#: By scheme, what brings its file system.
_LIBRARIES = {
    "s3": " (hadoop-aws, whose addresses begin with s3a:)",
    "s3a": " (hadoop-aws)",
    "abfss": " (hadoop-azure)",
    "gs": " (gcs-connector)",
}

_log = logging.getLogger("riot_ops")


class SparkCheckpoint:
    """A checkpoint folder in any file system that Spark supports.

    Attributes
    ----------
    folder : str
        In the form that Spark takes.
    local : Path or None
        The folder, if it is in a file system of this machine.
    """

    #: Whether micro-batches of a new generation have the numbers of Spark's that follow those of the one before.
    keeps_numbers = False

    def __init__(self, spark: SparkSession, place: str | Path) -> None:
        self._spark = spark
        self._generation: int | None = None
        self._base: int | None = None
        scheme = scheme_of(place)
        self.folder: str = str(place)
        try:
            system, _ = hadoop_path(spark, f"{self.folder}/")
            self.local: Path | None = local_path(place).absolute() if system.getUri().getScheme() == "file" else None
            if self.local is not None:  # Spark resolves relative paths from the folder in which its JVM was started
                self.folder = f"file:{self.local}" if scheme else str(self.local)
        except (Py4JError, PySparkException):
            raise ConfigError(
                f"checkpoint has the scheme {scheme}:, for which this Spark has no file system: add its "
                f"library to the session{_LIBRARIES.get(scheme, '')}, or give a folder (path or file:///…) that the "
                "driver and all workers see"
            ) from None

    @property
    def session(self) -> SparkSession:
        """The session of the query."""
        return self._spark

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
        return self._read().run or self._default_run()

    def _default_run(self) -> str:
        return uuid.uuid5(uuid.NAMESPACE_URL, self.folder).hex

    @property
    def location(self) -> str:
        """The checkpoint of Spark that the query continues: the current generation."""
        if self._generation is None:
            with self._translating_errors("read"):
                self._generation = current_generation(self._spark, self.folder)
        return generation_folder(self.folder, self._generation)

    @property
    def base(self) -> int:
        """Number of the micro-batch that Spark calls 0."""
        if self._base is None:
            self._base = 0 if self.location == self.folder else self._read().base
        return self._base

    def open(
        self,
        flow: Graph,
        partitions: int | None,
        order: str,
        fuse: str,
        run: str | None = None,
        kinds: dict[str, str] | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> tuple[Plan, int]:
        """Check that the checkpoint belongs to this dataflow, or create it; returns the plan and the partitions.

        ``kinds`` are those of the ``sources``, see :func:`~riot_ops.runtime.restart.source_kind`.
        """
        found = self._read() if self.exists() else None
        stages, now = self._manifest(flow, partitions, order, fuse, run, kinds, found)
        if found is None:
            self._write(now)
        else:
            self._check(found, now, lambda: self._outlook(flow, found, now, sources or dict.fromkeys(kinds or {})))
        return stages, now.partitions

    def _manifest(
        self,
        flow: Graph,
        partitions: int | None,
        order: str,
        fuse: str,
        run: str | None,
        kinds: dict[str, str] | None,
        found: Manifest | None,
    ) -> tuple[Plan, Manifest]:
        """Return the plan of a dataflow and its manifest; ``found`` is that of the query which it continues."""
        if fuse == "auto" and found is not None:
            fuse = found.fuse
        if partitions is None:
            partitions = default_partitions(self._spark) if found is None else found.partitions
        if fuse == "auto":
            fuse = default_fuse(partitions)
        stages = plan(flow, fuse=fuse)  # type: ignore[arg-type]
        now = describe_query(flow, stages, order, fuse, kinds or {})
        layout = state_layout(stages, assign_labels(stages, partitions))
        return stages, msgspec.structs.replace(now, partitions=partitions, run=run or "", layout=layout)

    # -- generations -----------------------------------------------------------------------------------

    def change(
        self,
        flow: Graph,
        sources: Mapping[str, Any],
        kinds: dict[str, str],
        partitions: int | None,
        order: str,
        fuse: str,
        sinks: AddedSinks | None = None,
        owner: dict[str, dict[str, Any]] | None = None,
        shuffle_partitions: int | None = None,
    ) -> RestartReport:
        """Let a changed dataflow continue: make a new generation of the checkpoint, unless nothing differs.

        At least one micro-batch must be committed. ``owner`` is that of stages whose state names its owner. By default
        there are as many shuffle partitions as buckets of keys (``partitions``).
        """
        then = self._read()
        if fuse == "auto":
            fuse = then.fuse if partitions in (None, then.partitions) else default_fuse(partitions or 1)
        stages, now = self._manifest(flow, partitions, order, fuse, then.run or self._default_run(), kinds, then)
        if then.order != order:
            self._check(then, msgspec.structs.replace(now, partitions=then.partitions, fuse=then.fuse))
        report, ended = self._plan_change(flow, then, now, sources)
        same = not describe_difference(then.flow, now.flow) and not describe_difference(then.state, now.state)
        if same and not report.options:
            return report
        states = self._states()
        report = report.with_lost({step: [*one.values()] for step, one in states.items()})
        last = self.next_batch() - 1
        places = self._places(then.sources, kinds, len(self._offset_lines(last)))
        new = NewGeneration(
            stages=stages,
            labels=assign_labels(stages, now.partitions),
            order=ORDERS[order],
            shuffle_partitions=now.partitions if shuffle_partitions is None else shuffle_partitions,
            contracts=now.steps,
            kept=report.kept,
            ended=ended,
            layout=then.layout,
            owner=owner,
            notes=now,
        )
        blocks = seed_blocks(new, states, self.location)
        self._forge(self._text(f"offsets/{last - self.base}"), last, places)  # refuses before anything is changed
        report.announce(flow.name, f"the checkpoint {self.folder}")
        if sinks is not None:
            sinks.begin(report, now.run, last + 1)
        first = last if self.keeps_numbers else 0
        self._build(new, blocks, places, last, first)
        if self.next_batch() != last + 1:
            self._discard()
            raise StateError(f"a query still writes to the checkpoint {self.folder}: stop it, and start this one again")
        self._generation = self._number() + 1
        self._write(msgspec.structs.replace(now, base=last - first))
        self._base = last - first
        self._remove_old()
        return report

    def _plan_change(
        self, flow: Graph, then: Manifest, now: Manifest, sources: Mapping[str, Any]
    ) -> tuple[RestartReport, list[str]]:
        """Return what a changed dataflow keeps, and the sources that have ended."""
        with self._translating_errors("read"):
            ends = dict(zip(then.sources, self._offset_lines(self.next_batch() - 1), strict=False))
        found = {name: json.loads(text) for name, text in ends.items() if _is_ours(text, sources.get(name))}
        positions = {name: one["at"] for name, one in found.items()}
        where = f"the checkpoint {self.folder}"
        report = plan_restart(flow, then.flow, then.steps, now.steps, then.sources, sources, positions, where)
        options = {
            name: f"{getattr(then, name)} to {getattr(now, name)}"
            for name in ("partitions", "fuse")
            if getattr(then, name) != getattr(now, name)
        }
        return replace(report, options=options), [name for name, one in found.items() if one["ended"]]

    def _states(self) -> dict[str, dict[int, list[bytes]]]:
        """Return the state of each step, by bucket."""
        with self._translating_errors("read"):
            system, path = self._hadoop("state")
            if not system.exists(path):
                return {}
        return read_buckets(self._spark, self.location)

    def _number(self) -> int:
        """Return the number of the current generation."""
        assert self.location
        assert self._generation is not None
        return self._generation

    def _places(self, then: Mapping[str, str], now: Mapping[str, str], lines: int) -> list[int | None]:
        """Return the place in the old log of each offset of the new one."""
        if [*then] == [*now]:
            return list(range(lines))
        if len(then) != lines:
            raise StateError(
                f"the checkpoint {self.folder} has {lines} positions of {len(then)} sources: where a DataFrame reads "
                "several sources of Spark, a restart cannot add or remove sources; use a new checkpoint"
            )
        return [[*then].index(name) if name in then else None for name in now]

    def _build(self, new: NewGeneration, blocks: list[Block], places: list[int | None], last: int, first: int) -> None:
        """Build Spark's checkpoint of the next generation, which counts once it has a manifest.

        There the last micro-batch, ``last``, has the number ``first``.
        """
        old, folder = self.location, self._next_folder()
        self._discard()
        try:
            new.build(self._spark, blocks, folder, f"{folder}/seed", renumbered=first > 0)
            with self._translating_errors("written"):
                seeded = self._text("offsets/0", folder)
                for name in ("seed", "sources"):
                    system, path = hadoop_path(self._spark, f"{folder}/{name}")
                    system.delete(path, True)
                number = last - self.base
                if first:
                    self._renumber(folder, first)
                if self.keeps_numbers:
                    commit = self._text("commits/0", folder)
                    self._delete(f"{folder}/commits/0", f"{folder}/offsets/0")
                    self._write_text(
                        f"{folder}/commits/{first}", with_watermark(commit, self._text(f"commits/{number}", old))
                    )
                    self._write_text(f"{folder}/metadata", self._text("metadata", old))
                for shift in (-1, 0, 1):  # before the last one, Spark wants its predecessor; after it, what was planned
                    name = f"offsets/{number + shift}"
                    if first + shift < 0 or not system.exists(hadoop_path(self._spark, f"{old}/{name}")[1]):
                        continue
                    text = self._forge(self._text(name, old), last + shift, places, seeded)
                    self._write_text(f"{folder}/offsets/{first + shift}", text)
                self._copy_sources(old, folder, places)
        except Exception:
            with contextlib.suppress(ConnectorError):
                self._discard()
            raise

    def _forge(self, old: str, batch: int, places: list[int | None], seeded: str | None = None) -> str:
        """Return an entry of the new log of offsets; see :func:`~riot_ops.spark.generation.forged_offsets`."""
        where = f"the checkpoint {self.folder}, micro-batch {batch},"
        return forged_offsets(old if seeded is None else seeded, old, places, where)

    def _renumber(self, folder: str, number: int) -> None:
        """Give the state of micro-batch 0 in a new checkpoint the version that another number has."""
        system, path = hadoop_path(self._spark, f"{folder}/state")
        files = system.listFiles(path, True) if system.exists(path) else None
        found = []
        while files is not None and files.hasNext():
            found.append(files.next().getPath())
        for one in found:
            name = renumbered(one.getName(), number)
            if name is not None and not system.rename(one, hadoop_path(self._spark, f"{one.getParent()}/{name}")[1]):
                raise ConnectorError(f"the state {one} cannot be renamed to {name}")

    def _next_folder(self) -> str:
        return generation_folder(self.folder, self._number() + 1)

    def _discard(self) -> None:
        """Remove what was built of the next generation."""
        with self._translating_errors("written"):
            self._delete(self._next_folder())

    def _delete(self, *names: str) -> None:
        for name in names:
            system, path = hadoop_path(self._spark, name)
            system.delete(path, True)

    def _copy_sources(self, old: str, new: str, places: list[int | None]) -> None:
        """Copy what Spark's own sources keep beside the log, such as the files that were seen."""
        jvm: Any = self._spark._jvm  # noqa: SLF001
        conf = self._spark._jsc.hadoopConfiguration()  # noqa: SLF001
        for number, place in enumerate(places):
            if place is None:
                continue
            system, path = hadoop_path(self._spark, f"{old}/sources/{place}")
            if system.exists(path):
                _, target = hadoop_path(self._spark, f"{new}/sources/{number}")
                system.mkdirs(target.getParent())
                jvm.org.apache.hadoop.fs.FileUtil.copy(system, path, system, target, False, conf)

    def _remove_old(self) -> None:
        """Remove the generations before the previous one; of the first one its manifest stays."""
        for generation in range(self._number() - 1):
            folder = generation_folder(self.folder, generation)
            for name in ("",) if generation else ("offsets", "commits", "state", "sources"):
                with self._translating_errors("written"):
                    system, path = hadoop_path(self._spark, f"{folder}/{name}" if name else folder)
                    system.delete(path, True)

    def _outlook(self, flow: Graph, then: Manifest, now: Manifest, sources: Mapping[str, Any]) -> str:
        """Return what ``restart="compatible"`` would do, for a refusal."""

        def report() -> RestartReport:
            planned, _ = self._plan_change(flow, then, now, sources)
            return planned.with_lost({step: [*one.values()] for step, one in self._states().items()})

        return outlook(report) if self.next_batch() else f"; or {HINT}"

    def _check(self, then: Manifest, now: Manifest, would: Callable[[], str] = lambda: "") -> None:
        """Refuse another query; ``would`` says what could be done."""
        for name in ("partitions", "order", "fuse"):
            old, new = getattr(then, name), getattr(now, name)
            if old != new:
                raise StateError(
                    f"the checkpoint {self.folder} was written with {name}={old!r} and cannot be continued with "
                    f"{new!r}; use the old value or a new checkpoint" + (would() if name != "order" else "")
                )
        if differs := describe_difference(then.flow, now.flow) or describe_difference(then.state, now.state):
            raise StateError(
                f"the checkpoint {self.folder} is of another dataflow: {differs}; "
                f"use the old dataflow or a new checkpoint{would()}"
            )

    def next_batch(self) -> int:
        """Return the number of the micro-batch with which a query continues."""
        with self._translating_errors("read"):
            system, path = self._hadoop("commits")
            names = [entry.getPath().getName() for entry in system.listStatus(path)] if system.exists(path) else []
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1 + self.base

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
        path = f"offsets/{batch - self.base}"
        try:
            pairs = zip(self._offset_lines(batch), sources.values(), strict=True)
            found = [offset_of(text, source) for text, source in pairs]
        except (Py4JError, PySparkException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the checkpoint {self.folder} is damaged: {path} does not say where micro-batch {batch} ended "
                f"({_short(error)}); use a new checkpoint"
            ) from None
        return found

    def planned_ends(self, batch: int, sources: Mapping[str, Any]) -> list[Any]:
        """Return the end offsets of a micro-batch that Spark has planned, of the one before if it has not."""
        with self._translating_errors("read"):
            system, path = self._hadoop(f"offsets/{batch - self.base}")
            planned = system.exists(path)
        return self.ends(batch if planned else batch - 1, sources)

    def _offset_lines(self, batch: int) -> list[str]:
        """Return Spark's texts of the offsets at which a micro-batch ended, one for each of Spark's sources."""
        return self._text(f"offsets/{batch - self.base}").rstrip("\n").split("\n")[2:]  # after version and metadata

    # -- the file, in any file system ------------------------------------------------------------------

    def _read(self) -> Manifest:
        name = f"{self.location}/{MANIFEST}"
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
        self._base = found.base
        return found

    def _write(self, manifest: Manifest) -> None:
        """Write the manifest under another name and rename it, so that it is never incomplete."""
        with self._translating_errors("written"):
            system, path = self._hadoop(MANIFEST)
            _, hidden = self._hadoop(f".{MANIFEST}")
            text = msgspec.json.format(msgspec.json.encode(manifest.with_checksum())).decode()
            self._write_text(hidden.toString(), text)
            renamed = system.rename(hidden, path)
        if not renamed:
            raise ConnectorError(f"the manifest {self.location}/{MANIFEST} cannot be written")

    def _write_text(self, name: str, text: str) -> None:
        system, where = hadoop_path(self._spark, name)
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _text(self, name: str, folder: str | None = None) -> str:
        system, where = self._hadoop(name) if folder is None else hadoop_path(self._spark, f"{folder}/{name}")
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
        return hadoop_path(self._spark, f"{self.location}/{name}")


def _is_ours(text: str, source: Any) -> bool:
    """Whether a text of Spark's log is an offset of a source of riot_ops."""
    return isinstance(source, Source) and text != NO_OFFSET


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
