"""The socket of a manager: a client sends a request as a line of JSON and receives a line of JSON.

The socket is a file in a folder that only the user can open; no network port is used.
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

from riot_ops.cli.reuse_requests import decode_request
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError
from riot_ops.core.folder_lock import read_lock

__all__ = ["Server", "answer_line", "make_control_folder", "send_request", "stop_manager"]

SOCKET = "socket"
POLL_SECONDS = 0.05
#: Maximum length of a socket's address, and of a request.
MAX_ADDRESS_BYTES = 107
MAX_REQUEST_BYTES = 256 << 20

RequestHandler = Callable[[Mapping[str, Any]], Any]


def make_control_folder(folder: Path) -> Path:
    """Create the folder of the manager's files, which only the user can read."""
    control = folder / "control"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            control.mkdir(mode=0o700)
        status = control.lstat()
        if control.is_symlink() or not control.is_dir() or status.st_uid != os.getuid():
            raise ConnectorError(f"{control} does not belong to this user; use another --dir")
        control.chmod(0o700)
    except OSError as error:
        raise ConnectorError(f"{folder} cannot be used: {error}") from error
    return control


@contextlib.contextmanager
def _address(control: Path) -> Iterator[str]:
    """Yield the address of the socket; a path that is too long is replaced by one through the open folder."""
    path = str(control.absolute() / SOCKET)
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield path
        return
    descriptor = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def send_request(folder: Path, request: Mapping[str, Any]) -> Any:
    """Send a request to the manager that serves in a folder; return its answer.

    Raises
    ------
    ConnectorError
        If no manager serves in the folder.
    ConfigError
        If the manager refuses the request, with its reason.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with _address(folder / "control") as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as file:
                line = file.readline()
        except OSError as error:
            why = "permission denied" if isinstance(error, PermissionError) else "none is running"
            raise ConnectorError(
                f"no manager answers in {folder} ({why}); start one with riot-ops reuse serve --dir {folder}"
            ) from None
    if not line.endswith(b"\n"):
        raise ConnectorError(f"the manager in {folder} ended before it answered; start it again and check what runs")
    answer = json.loads(line)
    if "error" in answer:
        raise ConfigError(answer["error"])
    return answer["result"]


def stop_manager(folder: Path, seconds: float) -> bool:
    """Stop the manager in a folder; return whether it ended within ``seconds``, so that another may serve there."""
    owner = read_lock(folder / "control")
    send_request(folder, {"do": "stop"})
    until = time.monotonic() + seconds
    while owner and read_lock(folder / "control") == owner:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers each request in a thread; the process must hold the lock of the folder."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, control: Path, handler: RequestHandler) -> None:
        self.handler = handler
        self._control = control
        (control / SOCKET).unlink(missing_ok=True)  # left by a killed process
        with _address(control) as address:
            super().__init__(address, _Connection)
        (control / SOCKET).chmod(0o600)

    def server_close(self) -> None:
        super().server_close()
        (self._control / SOCKET).unlink(missing_ok=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have disconnected."""


class _Connection(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        line = self.rfile.readline(MAX_REQUEST_BYTES)
        if not line.endswith(b"\n"):
            return  # the client has disconnected, or the request is too long
        self.wfile.write(json.dumps(answer_line(line, self.server.handler), default=str).encode() + b"\n")


def answer_line(line: bytes, handler: RequestHandler) -> dict[str, Any]:
    """Return the answer to a line, as ``result`` or ``error``."""
    try:
        return {"result": handler(decode_request(line))}
    except RiotError as error:
        return {"error": "; ".join([str(error), *getattr(error, "__notes__", ())])}
    except Exception as error:  # a defect here must not end the manager
        return {"error": f"{type(error).__name__}: {error}"}
