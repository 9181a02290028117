"""A manager that serves: what ``riot-ops reuse serve`` runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from riot_ops.cli.reuse_endpoints import end, made_sink, made_source
from riot_ops.cli.reuse_requests import requested
from riot_ops.cli.reuse_socket import Server, control_folder
from riot_ops.core.errors import ConfigError, StateError, did_you_mean
from riot_ops.core.paths import write_whole
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import Backend, LocalBackend, Request, ReuseManager
from riot_ops.runtime.claim import Claim

__all__ = ["BACKENDS", "ReuseServer"]

BACKENDS = ("local", "spark")
#: The file that says which one it is.
BACKEND = "backend"


class ReuseServer:
    """A manager, its log and its socket in a folder; one that was there before goes on.

    Parameters
    ----------
    folder : path
        Of this manager alone. Below it stand ``control`` (log, socket, what was submitted; for its user alone) and, for
        dataflows that do not say where, ``out/NAME``.
    backend : "local" or "spark", optional
        By default that of the one before, whose dataflows are there, at first "local"; another is refused.
    policy : str, default "always"
        As for :class:`~riot_ops.reuse.ReuseManager`.
    epoch_s : float, seconds, optional
        How often output is committed in process; by default every 10.
    cores : int, optional
        For Spark; by default all.

    Raises
    ------
    ConnectorError
        Where another manager serves in the folder.
    """

    def __init__(
        self,
        folder: Path,
        backend: str | None = None,
        policy: Any = "always",
        epoch_s: float | None = None,
        cores: int | None = None,
    ) -> None:
        self.folder = folder.absolute()
        before = _text(self.folder / "control" / BACKEND)
        backend = backend or before or "local"
        if backend not in BACKENDS:
            raise ConfigError(f"--backend must be local or spark, got {backend!r}{did_you_mean(backend, BACKENDS)}")
        for option, value, of in (("epoch", epoch_s, "local"), ("cores", cores, "spark")):
            if value is not None and backend != of:
                raise ConfigError(f"--{option} is for --backend {of}, got {value} with {backend}")
        if before not in (None, backend):
            raise ConfigError(
                f"what is in {folder} runs with --backend {before}, got {backend}; leave it out, or use another folder"
            )
        self._control = control_folder(self.folder)
        self._kept = self._control / "submitted"
        self.over = threading.Event()
        self._lock = threading.Condition()
        #: Folders for sinks, which may not be there yet, and the names of the dataflows for which they are.
        self._folders: dict[Path, str] = {}
        #: The dataflows that are being removed just now.
        self._going: list[str] = []
        with contextlib.ExitStack() as opened:
            opened.enter_context(Claim([self._control]))
            self._kept.mkdir(exist_ok=True)
            made = _backend(backend, epoch_s, cores, self._control)
            closing = opened.enter_context(contextlib.ExitStack())
            closing.callback(made.close)
            self.manager = ReuseManager(made, policy, log=self._control / "log", rebind=self._rebound)
            closing.pop_all()
            wanted = {self._path(name) for name in self.manager.names}
            for path in {*self._kept.iterdir()} - wanted:  # of those that are gone
                path.unlink()
            opened.callback(self.manager.close)
            write_whole(self._control / BACKEND, backend.encode())
            self._server = Server(self._control, self.answer)
            if isinstance(made, LocalBackend):
                made.start()
            self._opened = opened.pop_all()

    # -- running -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer until somebody says stop; raises where the back end has failed."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            while not self.over.wait(0.5):
                if (error := getattr(self.manager.backend, "error", None)) is not None:
                    raise error
        finally:
            self._server.shutdown()
            self._server.server_close()

    def close(self) -> None:
        """End it; the log stays, and the next one goes on."""
        self._opened.close()

    # -- requests ----------------------------------------------------------------------------------

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Do what a request asks."""
        known: dict[str, Callable[..., Any]] = {
            "submit": self._submit,
            "explain": self._explain,
            "remove": self._remove,
            "pause": self.manager.pause,
            "resume": self.manager.resume,
            "list": self._list,
            "show": lambda form: self.manager.svg() if form == "svg" else self.manager.diagram(),
            "stats": self.manager.stats,
            "defragment": self.manager.defragment,
            "stop": self.over.set,
        }
        do, what = requested(request)
        return known[do](**what)

    def _submit(self, dataflows: Sequence[Mapping[str, Any]]) -> Any:
        """Several dataflows as one action: each with its ``sources`` and ``sinks``, and what else a request tells."""
        requests = [self._request(**one) for one in dataflows]  # which may take as long as sources do to open
        with self._lock:  # of two who take one name at once, what is kept is that of the first
            # whether a name is taken is known when who goes has gone: else what it had would be kept for who comes
            self._lock.wait_for(lambda: not {request.name for request, _ in requests} & {*self._going})
            for request, ends in requests:
                if request.name not in self.manager.names:
                    self._keep(str(request.name), ends)
            answers = self.manager.submit_all(request for request, _ in requests)
        return [
            {**asdict(answer), "sinks": ends["written"], "text": str(answer)}
            for answer, (_, ends) in zip(answers, requests, strict=True)
        ]

    def _remove(self, name: str) -> Any:
        with self._lock:
            self._going.append(name)
        try:
            return asdict(self.manager.remove(name))
        finally:
            with self._lock:
                self._going.remove(name)
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
        ends = self._ends(flow, name, sources, sinks)
        return Request(flow, *self._bound(flow, ends), name=name, **more), ends

    def _explain(
        self, dataflow: Mapping[str, Any], sources: Mapping[str, Any], sinks: Mapping[str, Any], **more: Any
    ) -> Any:
        flow = Dataflow.from_dict(dataflow)
        ends = self._ends(flow, flow.name, sources, sinks)
        answer = self.manager.explain(flow, *self._bound(flow, ends), **more)
        return {**asdict(answer), "text": str(answer)}

    def _list(self) -> Any:
        found = self.manager.stats()
        failed, dropped, slow = (found.get(what, {}) for what in ("failed", "dropped", "slow"))
        return [
            {
                "name": name,
                **what,
                "rows": found.get("rows", {}).get(name, 0),
                "failed": failed.get(name),
                "dropped": sum(dropped.get(name, {}).values()),
                "waiting_bytes": slow.get(name, 0),
                "sinks": self._written(name),
            }
            for name, what in found["dataflows"].items()
        ]

    # -- sources and sinks -------------------------------------------------------------------------

    def _ends(
        self, flow: Dataflow, name: str, sources: Mapping[str, Any], sinks: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """What a dataflow reads and writes; sinks that are not told are one new folder of its own."""
        own = {one: end(given, one, "sink") for one, given in sinks.items()}
        missing = [node.id for node in flow.kind("sink") if node.id not in own]
        path = self.folder / "out" / _file_name(name)
        out, number = path, 1
        while out.exists() or self._folders.setdefault(out, name) != name:
            number += 1
            out = path.with_name(f"{path.name}-{number}")
        return {
            "sources": {one: end(given, one, "source") for one, given in sources.items()},
            "written": {**{one: {"folder": str(out)} for one in missing}, **own},
        }

    def _bound(self, flow: Dataflow, ends: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        schemas = {node.id: node.schema for node in flow.kind("source")}
        for one in ends["sources"]:
            if one not in schemas:
                raise ConfigError(f"the dataflow has no source {one!r}{did_you_mean(one, schemas)}")
        spools = self._control / "spools"
        sources = {one: made_source(one, given, schemas[one], spools) for one, given in ends["sources"].items()}
        sinks: dict[str, Any] = {}
        for one, given in ends["written"].items():  # equal ones are one
            same = next((other for other in sinks if ends["written"][other] == given), None)
            sinks[one] = made_sink(one, given) if same is None else sinks[same]
        return sources, sinks

    def _rebound(self, name: str, flow: Dataflow) -> tuple[Any, Any]:
        """Sources and sinks of a dataflow that is taken up again."""
        return self._bound(flow, self._known(name))

    def _keep(self, name: str, ends: Mapping[str, Any]) -> None:
        """Have what was submitted on disk: names of secrets stand in it, never these."""
        write_whole(self._path(name), json.dumps({"name": name, **ends}).encode())

    def _known(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path(name).read_text(encoding="utf-8"))
            if not isinstance(found, dict) or not found.keys() >= {"sources", "written"}:
                raise ValueError("it holds something else")
        except (OSError, ValueError) as error:
            raise StateError(f"what {name!r} reads and writes is not known: {self._path(name)}: {error}") from None
        return found

    def _written(self, name: str) -> Any:
        """Where a dataflow writes, as far as that is known: who looks gets to see all others."""
        with contextlib.suppress(StateError):
            return self._known(name)["written"]
        return {}

    def _path(self, name: str) -> Path:
        return self._kept / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _backend(name: str, epoch_s: float | None, cores: int | None, control: Path) -> Backend:
    if name == "local":
        return LocalBackend(epoch_s=10.0 if epoch_s is None else epoch_s, folder=control / "local")
    from riot_ops.reuse.spark.session import SparkBackend
    from riot_ops.spark import session

    return SparkBackend(session(cores=cores), control / "spark")


def _text(path: Path) -> str | None:
    """What stands in a file, if it is there, and in a folder of this user."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def _file_name(name: str) -> str:
    """A name that can be a folder's: what cannot stand in one is told by a hash."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:80].strip(".") or "_"
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
