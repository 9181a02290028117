"""Files of the driver that the workers of a cluster must see as well: found, and looked for on each of its slots.

Otherwise each worker would write to a disk of its own, or fail at its first record, long after the start.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.spark.session_check import is_one_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FILE_PARAMETERS",
    "FOLDER_PARAMETERS",
    "DriverFile",
    "check_driver_files",
    "check_visible",
    "files_of_tasks",
    "source_files",
]

#: Fields of tasks and tables that name a file to read. One word has one meaning, so names suffice.
FILE_PARAMETERS = frozenset(
    ("ca_file", "certificate", "lexicon", "model", "models", "path", "private_key", "stop_words", "table")
)
#: Those that name a folder, which workers write to or read from, or an address that may be one.
FOLDER_PARAMETERS = frozenset(("store", "to", "url"))
#: Beginnings of texts that stand for themselves: JSON, and files of more than a line.
INLINE = ("{", "[")

SHARED = "it must be {what} that the driver and all workers share under this path"


@dataclass(frozen=True)
class DriverFile:
    """A file or folder by path, the parameter that names it, and what to do if workers do not see it.

    ``marked``: whether the driver's own folder must be the one that workers see, which a file in it shows. Otherwise
    each worker must have something at the path.
    """

    what: str
    path: str
    remedy: str
    marked: bool = False


def check_driver_files(
    spark: SparkSession,
    flow: Graph,
    *,
    sinks: Mapping[str, Sink] | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Raise :class:`ConfigError` unless the workers of a cluster see all files that a query needs there.

    Parameters
    ----------
    sinks : mapping by name, optional
    checkpoint : Path, optional
        The folder of the checkpoint, if it is in the file system of the machines.
    """
    if is_one_process(spark):
        return
    found = list(files_of_tasks(flow))
    for name, sink in (sinks or {}).items():
        if not sink.in_process:
            found += [_sink_folder(name, folder) for folder in sink.worker_folders()]
    if checkpoint is not None:
        remedy = f"{SHARED.format(what='a folder')}, or a URI of a store such as s3a:// or hdfs://"
        found.append(DriverFile(f"the checkpoint {checkpoint} of the driver", str(checkpoint), remedy, marked=True))
    check_visible(spark, found)


def source_files(sources: Mapping[str, Any]) -> list[DriverFile]:
    """Find the files that reading the sources of a query needs."""
    return [
        _source_file(name, path)
        for name, source in sources.items()
        if isinstance(source, Source)
        for path in source.local_files()
    ]


def _source_file(name: str, path: str) -> DriverFile:
    return DriverFile(
        f"{path}, which the source {name!r} reads",
        path,
        f"{SHARED.format(what='a file')}, or what it holds must come from a broker or a store",
    )


def _sink_folder(name: str, folder: Path) -> DriverFile:
    return DriverFile(
        f"{folder}, to which the sink {name!r} writes",
        str(folder),
        f"{SHARED.format(what='a folder')}, or the address of an object store such as s3://bucket/folder; otherwise "
        "use a sink that is reached over the network, such as PublishMQTT, a DataFrame of flow.frames, or memory, "
        "which brings the records to the driver",
        marked=True,
    )


# -- what tasks need -----------------------------------------------------------------------------------


def files_of_tasks(flow: Graph) -> Iterator[DriverFile]:
    """Find the files and folders that parameters of the tasks of a dataflow name."""
    for node in flow.nodes_of_kind("task"):
        for name, path in _named_paths(node.task):
            folder = name.rpartition(".")[2] in FOLDER_PARAMETERS
            remedy = SHARED.format(what="a folder" if folder else "a file")
            if folder:
                remedy += ", or the address of a broker, a store or a database in the network"
            else:
                remedy += ", or be copied to each of them"
            yield DriverFile(f"{path}, {name} of the step {node.id!r}", path, remedy, marked=folder)


def _named_paths(owner: Any) -> Iterator[tuple[str, str]]:
    """Yield parameter and path for what an object's fields name, and those of objects in its fields."""
    if not is_dataclass(owner):
        return
    for field in fields(owner):
        value = getattr(owner, field.name, None)
        if field.name in FILE_PARAMETERS and not (field.name == "model" and getattr(owner, "store", None)):
            if not (field.name == "table" and hasattr(owner, "store")):  # the name of a table in a store
                yield from ((field.name, path) for path in _files(value))
        elif field.name in FOLDER_PARAMETERS and isinstance(value, str) and (path := _folder(value)):
            yield field.name, path
        if is_dataclass(value) and not isinstance(value, type):
            yield from ((f"{field.name}.{name}", path) for name, path in _named_paths(value))


def _files(value: Any) -> Iterator[str]:
    if isinstance(value, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        value = dict(value)  # a mapping is held as pairs
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _files(one)
    elif isinstance(value, (str, Path)):
        text = str(value)
        if text and scheme_of(text) in ("", "file") and "\n" not in text and not text.lstrip().startswith(INLINE):
            yield str(local_path(text))


def _folder(url: str) -> str:
    """Return the folder of an address, empty if it is not one of the file system."""
    scheme, separator, rest = url.partition("://")
    if scheme.partition("+")[0] == "sqlite" and separator:
        return str(Path(rest[1:]).parent) if rest[1:] else ""
    if separator:
        return str(local_path(url)) if scheme == "file" else ""
    return "" if url == "memory" or scheme_of(url) not in ("", "file") else str(local_path(url))


# -- looking -------------------------------------------------------------------------------------------


def check_visible(spark: SparkSession, files: Iterable[DriverFile]) -> None:
    """Raise :class:`ConfigError` for files that a slot of the cluster does not see, with what to do."""
    unique = list(dict.fromkeys(files))
    if not unique:
        return
    marks: dict[DriverFile, Path] = {}
    made: list[Path] = []
    try:
        for file in unique:
            if file.marked:
                marks[file] = _mark(file, made)
        paths = [str(marks.get(file, file.path)) for file in unique]
        context = spark.sparkContext
        slots = context.defaultParallelism
        seen = context.parallelize(range(slots), slots).map(_finder(paths)).collect()
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # it may hold something by now
                folder.rmdir()
    missing = [file for file, *found in zip(unique, *(one for _, one in seen), strict=True) if not all(found)]
    if missing:
        hosts = sorted({host for host, one in seen if not all(one)})
        raise ConfigError(
            f"the workers of this cluster ({', '.join(hosts)}) do not see "
            + "; ".join(f"{file.what}: {file.remedy}" for file in missing)
        )


def _mark(file: DriverFile, made: list[Path]) -> Path:
    """Put a file into a folder; ``made`` gets the folders that did not exist."""
    folder = Path(file.path)
    mark = folder / f".riot_ops-{uuid.uuid4().hex}"
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        made += reversed(missing)
        mark.touch()
    except OSError as error:
        raise ConnectorError(f"{file.what} cannot be written: {error}") from None
    return mark


def _finder(paths: list[str]) -> Any:
    # a nested function is pickled by value, not as the name of a module that may be missing
    def find(_: int) -> tuple[str, list[bool]]:
        import os
        import socket

        return socket.gethostname(), [os.path.exists(path) for path in paths]

    return find
