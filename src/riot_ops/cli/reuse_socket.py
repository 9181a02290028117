"""The socket of a manager that serves: a line of JSON asks, a line of JSON answers.

It is a file in a folder that its user alone may open; there is no network port.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from riot_ops.cli.reuse_requests import decoded
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError
from riot_ops.runtime.claim import claimed_by

__all__ = ["Server", "answered", "asked", "control_folder", "stopped"]

SOCKET = "socket"
POLL_SECONDS = 0.05
#: Most bytes of an address of a socket, and of what is asked.
ADDRESS = 107
MOST = 256 << 20

Answering = Callable[[Mapping[str, Any]], Any]


def control_folder(folder: Path) -> Path:
    """The folder for what only the manager's user may see; made, and closed to others."""
    control = folder / "control"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            control.mkdir(mode=0o700)
        found = control.lstat()
        if control.is_symlink() or not control.is_dir() or found.st_uid != os.getuid():
            raise ConnectorError(f"{control} is no folder of this user; use another --dir")
        control.chmod(0o700)
    except OSError as error:
        raise ConnectorError(f"{folder} cannot be used: {error}") from error
    return control


@contextlib.contextmanager
def _address(control: Path) -> Iterator[str]:
    """The socket's address: that of a file far below is told by its folder, held open."""
    path = str(control.absolute() / SOCKET)
    if len(os.fsencode(path)) <= ADDRESS:
        yield path
        return
    held = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{held}/{SOCKET}"
    finally:
        os.close(held)


def asked(folder: Path, request: Mapping[str, Any]) -> Any:
    """What the manager that serves in a folder answers.

    Raises
    ------
    ConnectorError
        Where none serves there.
    ConfigError
        With the manager's own words, where it refuses.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with _address(folder / "control") as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as file:
                line = file.readline()
        except OSError as error:
            why = "not allowed" if isinstance(error, PermissionError) else "none is there"
            raise ConnectorError(
                f"no manager can be asked in {folder} ({why}); start one: riot-ops reuse serve --dir {folder}"
            ) from None
    if not line.endswith(b"\n"):
        raise ConnectorError(
            f"the manager in {folder} has ended before it answered; see what runs when it serves again"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise ConfigError(answer["error"])
    return answer["result"]


def stopped(folder: Path, seconds: float) -> bool:
    """Have the manager in a folder end, and wait until another may serve there; whether that came to be in time."""
    owner = claimed_by(folder / "control")
    asked(folder, {"do": "stop"})
    until = time.monotonic() + seconds
    while owner and claimed_by(folder / "control") == owner:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers what is asked, each in a thread of its own; of the process that has claimed the folder."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, control: Path, answering: Answering) -> None:
        self.answering = answering
        self._control = control
        (control / SOCKET).unlink(missing_ok=True)  # of one that was killed
        with _address(control) as address:
            super().__init__(address, _Handler)
        (control / SOCKET).chmod(0o600)

    def server_close(self) -> None:
        super().server_close()
        (self._control / SOCKET).unlink(missing_ok=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has gone: that is nobody's matter here."""


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        line = self.rfile.readline(MOST)
        if not line.endswith(b"\n"):
            return  # it has gone, or never ends
        self.wfile.write(json.dumps(answered(line, self.server.answering), default=str).encode() + b"\n")


def answered(line: bytes, answering: Answering) -> dict[str, Any]:
    """What a line is answered: the ``result``, or what is wrong as ``error``."""
    try:
        return {"result": answering(decoded(line))}
    except RiotError as error:
        return {"error": "; ".join([str(error), *getattr(error, "__notes__", ())])}
    except Exception as error:  # a fault here must not leave others without their manager
        return {"error": f"{type(error).__name__}: {error}"}
