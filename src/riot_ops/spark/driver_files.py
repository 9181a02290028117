"""Files and servers of the driver that the workers of a cluster need as well, looked for from each of its slots.

Otherwise each worker would write to a disk of its own, or fail at its first record, long after the start.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from riot_ops.core.checks import is_loopback
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source, WrappedSource
from riot_ops.graph.graph import Graph
from riot_ops.spark.session_check import is_one_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FILE_PARAMETERS",
    "FOLDER_PARAMETERS",
    "DriverFile",
    "DriverServer",
    "check_driver_files",
    "check_sources",
    "files_of_options",
    "files_of_tasks",
    "servers_of",
    "source_files",
]

#: Fields of tasks and tables that name a file to read. One word has one meaning, so names suffice.
FILE_PARAMETERS = frozenset(
    ("ca_file", "certificate", "lexicon", "model", "models", "path", "private_key", "stop_words", "table")
)
#: Those that name a folder, which workers write to or read from, or an address that may be one.
FOLDER_PARAMETERS = frozenset(("store", "to", "url"))
#: Those that name files by which a connection identifies itself and its server.
CERTIFICATE_PARAMETERS = frozenset(("ca_file", "certificate", "private_key"))
#: Those that hold the address of a server.
ADDRESS_PARAMETERS = frozenset(("folder", "servers", "store", "url"))
#: Settings of libraries, whose values may be files or addresses.
OPTION_PARAMETERS = frozenset(("client_options", "options", "settings", "storage_options"))
#: Ports of addresses that name none.
PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883, "postgresql": 5432}
#: How long to wait for a server of this machine, and from a worker.
CONNECT_SECONDS, WORKER_CONNECT_SECONDS = 1.0, 5.0
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


@dataclass(frozen=True)
class DriverServer:
    """A server on the driver's machine, by a loopback address, and the parameter that names it."""

    what: str
    host: str
    port: int


def check_driver_files(
    spark: SparkSession,
    flow: Graph,
    *,
    sinks: Mapping[str, Sink] | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Raise :class:`ConfigError` unless the workers of a cluster see all files and servers that a query needs there.

    Parameters
    ----------
    sinks : mapping by name, optional
    checkpoint : Path, optional
        The folder of the checkpoint, if it is in the file system of the machines.
    """
    if is_one_process(spark):
        return
    _refuse_memory(flow, sinks or {})
    found = list(files_of_tasks(flow))
    servers: list[DriverServer] = []
    for node in flow.nodes_of_kind("task"):
        found += files_of_options(node.task, f"the step {node.id!r}", certificates=False)
        servers += servers_of(node.task, f"the step {node.id!r}")
    for name, sink in (sinks or {}).items():
        if not sink.in_process:
            found += [_sink_folder(name, folder) for folder in sink.worker_folders()]
            found += files_of_options(sink, f"the sink {name!r}")
            servers += servers_of(sink, f"the sink {name!r}")
    if checkpoint is not None:
        remedy = f"{SHARED.format(what='a folder')}, or a URI of a store such as s3a:// or hdfs://"
        found.append(DriverFile(f"the checkpoint {checkpoint} of the driver", str(checkpoint), remedy, marked=True))
    _check_visible(spark, found, servers)


def check_sources(spark: SparkSession, sources: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` unless the workers of a cluster see the files and servers of a query's sources."""
    servers = [
        server
        for name, source in sources.items()
        if isinstance(source, Source)
        for server in servers_of(source, f"the source {name!r}")
    ]
    _check_visible(spark, source_files(sources), servers)


def source_files(sources: Mapping[str, Any]) -> list[DriverFile]:
    """Find the files that reading the sources of a query needs."""
    found = []
    for name, source in sources.items():
        if isinstance(source, Source):
            found += [_source_file(name, path) for path in source.local_files()]
            found += files_of_options(source, f"the source {name!r}")
    return found


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
        return "" if _in_memory(url) else str(Path(rest[1:]).parent)
    if separator:
        return str(local_path(url)) if scheme == "file" else ""
    return "" if url == "memory" or scheme_of(url) not in ("", "file") else str(local_path(url))


# -- what connections need -----------------------------------------------------------------------------


def files_of_options(owner: Any, what: str, *, certificates: bool = True) -> Iterator[DriverFile]:
    """Find the certificates of a connection, and the files that the settings of its library name.

    A setting names a file if its value is an absolute path at which this machine has a file.
    """
    for name, value in _parameters(owner):
        last = name.rpartition(".")[2]
        paths: list[tuple[str, str]] = []
        if certificates and last in CERTIFICATE_PARAMETERS:
            paths = [(name, path) for path in _files(value)]
        elif last in OPTION_PARAMETERS:
            paths = [
                (f"{name}[{key!r}]", text) for key, text in _settings(value) if text[:1] == "/" and Path(text).is_file()
            ]
        for parameter, path in paths:
            remedy = f"{SHARED.format(what='a file')}, or be copied to each of them"
            yield DriverFile(f"{path}, {parameter} of {what}", path, remedy)


def servers_of(owner: Any, what: str) -> Iterator[DriverServer]:
    """Find the servers on this machine that the parameters of a task, a source or a sink name by loopback addresses."""
    for name, value in _parameters(owner):
        last = name.rpartition(".")[2]
        texts: list[tuple[str, str]] = []
        if last in ADDRESS_PARAMETERS:
            given = value if isinstance(value, tuple) else (value,)
            texts = [(name, one) for one in given if isinstance(one, str)]
        elif last in OPTION_PARAMETERS:
            texts = [(f"{name}[{key!r}]", text) for key, text in _settings(value)]
        for parameter, text in texts:
            for host, port in _loopback(text, last == "servers"):
                yield DriverServer(f"{parameter} of {what}", host, port)


def _parameters(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds by name, and what objects in it hold, but not a source that the driver reads."""
    if isinstance(owner, Source) and _is_carried(owner):
        return
    if is_dataclass(owner):
        held = {field.name: getattr(owner, field.name, None) for field in fields(owner)}
    else:
        held = vars(owner) if isinstance(owner, (Source, Sink)) else {}
    for name, value in held.items():
        if isinstance(value, type):
            continue
        yield name, value
        if is_dataclass(value) or isinstance(value, (Source, Sink)):
            yield from ((f"{name}.{inner}", one) for inner, one in _parameters(value))


def _is_carried(source: Source) -> bool:
    """Whether the splits of a source hold its records, so that the driver reads it."""
    return type(source).carried not in (Source.carried, WrappedSource.carried) and source.carried() is source


def _settings(value: Any) -> list[tuple[str, str]]:
    """Return the settings of a library that are text; others may be secrets."""
    pairs = value.items() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return [(one[0], one[1]) for one in pairs if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], str)]


def _loopback(text: str, bare: bool) -> Iterator[tuple[str, int]]:
    """Yield host and port of an address if its host is the loopback of each machine; ``bare``: it has no scheme."""
    try:
        parts = urlsplit(f"//{text}" if bare else text)
        host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme.partition("+")[0], 0)
    except ValueError:
        return
    if port and is_loopback(host):
        yield host, port


def _refuse_memory(flow: Graph, sinks: Mapping[str, Sink]) -> None:
    """Raise :class:`ConfigError` for a step or sink that writes to the memory of a worker, where nothing reads it."""
    owners: list[tuple[str, Any]] = [(f"the step {one.id!r}", one.task) for one in flow.nodes_of_kind("task")]
    owners = [(what, task) for what, task in owners if getattr(task, "category", "") == "IO"]
    owners += [(f"the sink {name!r}", sink) for name, sink in sinks.items() if not sink.in_process]
    for what, owner in owners:
        for name, value in _parameters(owner):
            if name in ("url", "store") and isinstance(value, str) and _in_memory(value):
                raise ConfigError(
                    f"{name} of {what} is {value}, in the memory of a process: each worker of this cluster has "
                    "another one. Give the address of a broker, a store or a database in the network"
                )


def _in_memory(url: str) -> bool:
    scheme, _, rest = url.partition("://")
    return scheme == "memory" or (scheme.partition("+")[0] == "sqlite" and rest in ("", "/", "/:memory:"))


# -- looking -------------------------------------------------------------------------------------------


def _check_visible(spark: SparkSession, files: Iterable[DriverFile], servers: Iterable[DriverServer]) -> None:
    """Raise :class:`ConfigError` for files and servers that a slot of the cluster does not see, with what to do."""
    unique = list(dict.fromkeys(files))
    # a server that is down, or that each worker has for itself, is not one of the driver
    here = [one for one in dict.fromkeys(servers) if _answers(one.host, one.port)]
    if not unique and not here:
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
        finder = _finder(paths, [(one.host, one.port) for one in here], WORKER_CONNECT_SECONDS)
        seen = context.parallelize(range(slots), slots).map(finder).collect()
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # it may hold something by now
                folder.rmdir()
    remedies = [f"{file.what}: {file.remedy}" for file in unique]
    remedies += [
        f"{one.host}:{one.port}, {one.what}: the server is on the driver's machine, and for a worker this address is "
        "the worker's own; give the address that the machine has in the network"
        for one in here
    ]
    missing = [text for text, *found in zip(remedies, *(one for _, one in seen), strict=True) if not all(found)]
    if missing:
        hosts = sorted({host for host, one in seen if not all(one)})
        raise ConfigError(f"the workers of this cluster ({', '.join(hosts)}) do not see {'; '.join(missing)}")


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


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


def _finder(paths: list[str], servers: list[tuple[str, int]], seconds: float) -> Any:
    # nested functions are pickled by value, not as names of a module that may be missing
    def answers(address: tuple[str, int]) -> bool:
        import socket

        try:
            with socket.create_connection(address, seconds):
                return True
        except OSError:
            return False

    def find(_: int) -> tuple[str, list[bool]]:
        import os
        import socket

        return socket.gethostname(), [*map(os.path.exists, paths), *map(answers, servers)]

    return find
