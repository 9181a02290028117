"""The server of ``riot-ops reuse serve``: a manager that answers requests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from riot_ops.cli.reuse_endpoints import make_sink, make_source, parse_endpoint
from riot_ops.cli.reuse_requests import parse_request
from riot_ops.cli.reuse_socket import Server, make_control_folder
from riot_ops.core.errors import ConfigError, StateError, did_you_mean
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import write_atomic
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import Backend, LocalBackend, Request, ReuseManager

__all__ = ["BACKENDS", "ReuseServer"]

BACKENDS = ("local", "spark")
#: What readers of the live page may ask for, with --allow-actions.
HTTP_ACTIONS = ("submit", "explain", "remove")
#: The file that holds the name of the back end.
BACKEND = "backend"


class ReuseServer:
    """A manager with its log and socket in a folder; it continues the dataflows of an earlier manager there.

    Parameters
    ----------
    folder : path
        Folder of this manager alone. It holds ``control`` (log, socket and submitted endpoints, readable only by the
        user) and ``out/NAME`` for dataflows without chosen sinks.
    backend : "local" or "spark", optional
        By default that of the folder's earlier manager, or "local"; a different one is refused.
    policy : str, default "always"
        As for :class:`~riot_ops.reuse.ReuseManager`.
    epoch : timedelta or text such as "10s", optional
        For "local": interval between commits of output; by default 10 seconds.
    cores : int, optional
        For "spark"; by default all.

    Raises
    ------
    ConnectorError
        If another manager serves in the folder.
    """

    def __init__(
        self,
        folder: Path,
        backend: str | None = None,
        policy: Any = "always",
        epoch: Duration | None = None,
        cores: int | None = None,
    ) -> None:
        self.folder = folder.absolute()
        before = _read_text(self.folder / "control" / BACKEND)
        backend = backend or before or "local"
        if backend not in BACKENDS:
            raise ConfigError(f"--backend must be local or spark, got {backend!r}{did_you_mean(backend, BACKENDS)}")
        for option, value, of in (("epoch", epoch, "local"), ("cores", cores, "spark")):
            if value is not None and backend != of:
                raise ConfigError(f"--{option} is for --backend {of}, got {value} with {backend}")
        if before not in (None, backend):
            raise ConfigError(
                f"the dataflows in {folder} run with --backend {before}, got {backend}; leave the option out, or use "
                "another --dir"
            )
        self._control = make_control_folder(self.folder)
        self._endpoints_folder = self._control / "submitted"
        self.stopping = threading.Event()
        self._lock = threading.Condition()
        #: Folders assigned to the sinks of dataflows, which may not exist yet, with the dataflow's name.
        self._folders: dict[Path, str] = {}
        #: Names of the dataflows whose removal is under way.
        self._removing: list[str] = []
        with contextlib.ExitStack() as opened:
            opened.enter_context(FolderLock([self._control]))
            self._endpoints_folder.mkdir(exist_ok=True)
            backend_object = _create_backend(backend, epoch, cores, self._control)
            closing = opened.enter_context(contextlib.ExitStack())
            closing.callback(backend_object.close)
            self.manager = ReuseManager(backend_object, policy, log=self._control / "log", rebind=self._rebind)
            closing.pop_all()
            wanted = {self.endpoints_file(name) for name in self.manager.names}
            for path in {*self._endpoints_folder.iterdir()} - wanted:  # of removed dataflows
                path.unlink()
            opened.callback(self.manager.close)
            write_atomic(self._control / BACKEND, backend.encode())
            self._server = Server(self._control, self.handle)
            if isinstance(backend_object, LocalBackend):
                backend_object.start()
            self._opened = opened.pop_all()

    # -- running -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer requests until a stop request; raise if the back end has failed."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            while not self.stopping.wait(0.5):
                if (error := getattr(self.manager.backend, "error", None)) is not None:
                    raise error
        finally:
            self._server.shutdown()
            self._server.server_close()

    def close(self) -> None:
        """End the manager; its log remains for the next one."""
        self._opened.close()

    # -- requests ----------------------------------------------------------------------------------

    def handle(self, request: Mapping[str, Any]) -> Any:
        """Execute a request."""
        actions: dict[str, Callable[..., Any]] = {
            "submit": self._submit,
            "explain": self._explain,
            "remove": self._remove,
            "pause": self.manager.pause,
            "resume": self.manager.resume,
            "list": self._list,
            "show": lambda form: self.manager.svg() if form == "svg" else self.manager.diagram(),
            "stats": self.manager.stats,
            "usage": self._usage,
            "defragment": self.manager.defragment,
            "stop": self.stopping.set,
        }
        do, arguments = parse_request(request)
        return actions[do](**arguments)

    def act(self, request: Mapping[str, Any]) -> Any:
        """Execute a request that came over HTTP: to submit or remove dataflows, or to see what would be shared."""
        if request.get("do") not in HTTP_ACTIONS:
            raise ConfigError(f"'do' must be one of {', '.join(HTTP_ACTIONS)}, got {request.get('do')!r}")
        return self.handle(request)

    def _submit(self, dataflows: Sequence[Mapping[str, Any]]) -> Any:
        """Submit several dataflows as one action, each with its ``sources``, ``sinks`` and options."""
        requests = [self._request(**one) for one in dataflows]  # opening sources may take long
        with self._lock:  # if two requests have one name, the endpoints of the first are stored
            # a removal that is under way must end first: it would remove the endpoints of the new dataflow
            self._lock.wait_for(lambda: not {request.name for request, _ in requests} & {*self._removing})
            for request, endpoints in requests:
                if request.name not in self.manager.names:
                    self._store_endpoints(str(request.name), endpoints)
            answers = self.manager.submit_all(request for request, _ in requests)
        return [
            {**asdict(answer), "sinks": endpoints["written"], "text": str(answer)}
            for answer, (_, endpoints) in zip(answers, requests, strict=True)
        ]

    def _remove(self, name: str) -> Any:
        with self._lock:
            self._removing.append(name)
        try:
            return asdict(self.manager.remove(name))
        finally:
            with self._lock:
                self._removing.remove(name)
                self._lock.notify_all()

    def _request(
        self,
        dataflow: Mapping[str, Any],
        sources: Mapping[str, Any],
        sinks: Mapping[str, Any],
        name: str | None = None,
        **more: Any,
    ) -> tuple[Request, dict[str, dict[str, Any]]]:
        flow = Dataflow.from_dict(dataflow)
        name = flow.name if name is None else name
        endpoints = self._parse_endpoints(flow, name, sources, sinks)
        return Request(flow, *self._open_endpoints(flow, endpoints), name=name, **more), endpoints

    def _explain(
        self, dataflow: Mapping[str, Any], sources: Mapping[str, Any], sinks: Mapping[str, Any], **more: Any
    ) -> Any:
        flow = Dataflow.from_dict(dataflow)
        endpoints = self._parse_endpoints(flow, flow.name, sources, sinks)
        answer = self.manager.explain(flow, *self._open_endpoints(flow, endpoints), **more)
        return {**asdict(answer), "text": str(answer)}

    def _usage(self) -> Any:
        answer = self.manager.usage()
        return {**asdict(answer), "text": str(answer)}

    def _list(self) -> Any:
        stats = self.manager.stats()
        failed, dropped, slow = (stats.get(name, {}) for name in ("failed", "dropped", "slow"))
        return [
            {
                "name": name,
                **dataflow,
                "rows": stats.get("rows", {}).get(name, 0),
                "failed": failed.get(name),
                "dropped": sum(dropped.get(name, {}).values()),
                "waiting_bytes": slow.get(name, 0),
                "sinks": self._stored_sinks(name),
            }
            for name, dataflow in stats["dataflows"].items()
        ]

    # -- sources and sinks -------------------------------------------------------------------------

    def _parse_endpoints(
        self, flow: Dataflow, name: str, sources: Mapping[str, Any], sinks: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Parse the endpoints of a dataflow; sinks without one share a new folder."""
        chosen = {sink: parse_endpoint(value, sink, "sink") for sink, value in sinks.items()}
        missing = [node.id for node in flow.nodes_of_kind("sink") if node.id not in chosen]
        path = self.folder / "out" / _file_name(name)
        out, number = path, 1
        while out.exists() or self._folders.setdefault(out, name) != name:
            number += 1
            out = path.with_name(f"{path.name}-{number}")
        return {
            "sources": {source: parse_endpoint(value, source, "source") for source, value in sources.items()},
            "written": {**{sink: {"folder": str(out)} for sink in missing}, **chosen},
        }

    def _open_endpoints(
        self, flow: Dataflow, endpoints: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        schemas = {node.id: node.schema for node in flow.nodes_of_kind("source")}
        for name in endpoints["sources"]:
            if name not in schemas:
                raise ConfigError(f"the dataflow has no source {name!r}{did_you_mean(name, schemas)}")
        spools = self._control / "spools"
        sources = {
            name: make_source(name, endpoint, schemas[name], spools) for name, endpoint in endpoints["sources"].items()
        }
        sinks: dict[str, Any] = {}
        for name, endpoint in endpoints["written"].items():  # equal sinks are opened once
            same = next((other for other in sinks if endpoints["written"][other] == endpoint), None)
            sinks[name] = make_sink(name, endpoint) if same is None else sinks[same]
        return sources, sinks

    def _rebind(self, name: str, flow: Dataflow) -> tuple[Any, Any]:
        """Make the sources and sinks of a dataflow that resumes after a restart."""
        return self._open_endpoints(flow, self.stored_endpoints(name))

    def _store_endpoints(self, name: str, endpoints: Mapping[str, Any]) -> None:
        """Store the endpoints of a dataflow, with names of secrets, never their values."""
        write_atomic(self.endpoints_file(name), json.dumps({"name": name, **endpoints}).encode())

    def stored_endpoints(self, name: str) -> dict[str, Any]:
        try:
            endpoints: dict[str, Any] = json.loads(self.endpoints_file(name).read_text(encoding="utf-8"))
            if not isinstance(endpoints, dict) or not endpoints.keys() >= {"sources", "written"}:
                raise ValueError("it lacks sources and sinks")
        except (OSError, ValueError) as error:
            raise StateError(
                f"the sources and sinks of {name!r} cannot be read: {self.endpoints_file(name)}: {error}"
            ) from None
        return endpoints

    def _stored_sinks(self, name: str) -> Any:
        """Return the stored sinks of a dataflow, none if the file is unreadable: it must not hide others."""
        with contextlib.suppress(StateError):
            return self.stored_endpoints(name)["written"]
        return {}

    def endpoints_file(self, name: str) -> Path:
        return self._endpoints_folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _create_backend(name: str, epoch: Duration | None, cores: int | None, control: Path) -> Backend:
    if name == "local":
        return LocalBackend(epoch="10s" if epoch is None else epoch, folder=control / "local")
    from riot_ops.reuse.spark.spark_backend import SparkBackend
    from riot_ops.spark import session

    return SparkBackend(session(cores=cores), control / "spark")


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def _file_name(name: str) -> str:
    """Return a folder name for a dataflow; a hash stands for characters that paths cannot hold."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:80].strip(".") or "_"
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
