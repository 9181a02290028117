"""The live page of a command (``--live``), and its last state as a file (``--live-report``)."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from rich.console import Console

from riot_ops.cli.live_option import TOKEN_VARIABLE, live_url
from riot_ops.core.checks import is_loopback
from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import write_atomic
from riot_ops.core.secret import Secret
from riot_ops.monitoring.monitor import Monitor, Watchable
from riot_ops.monitoring.opentelemetry import find_provider, offer
from riot_ops.monitoring.page import report
from riot_ops.monitoring.server import LiveServer, Watched

__all__ = ["LivePage"]

_log = logging.getLogger("riot_ops")


class LivePage:
    """The page of a command that asks for one with ``--live``, ``--live-report`` or ``--otel``; else it does nothing.

    The address is taken at once, so that one in use is an error before anything has begun.

    Parameters
    ----------
    live : str, optional
        Value of ``--live``.
    file : path, optional
        Value of ``--live-report``.
    console : Console
        Where the address is printed.
    otel : bool, default False
        Value of ``--otel``: whether the metrics are offered to OpenTelemetry.
    actions : function, optional
        As for :class:`~riot_ops.monitoring.LiveServer`; a token is made if there is none.
    """

    def __init__(
        self,
        live: str | None,
        file: Path | None,
        console: Console,
        otel: bool = False,
        actions: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self._console, self._file = console, file
        self._server: LiveServer | None = None
        self._provider = find_provider() if otel else None
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ConfigError(f"--live-report must be a file in a folder that exists, got {file}")
        if live is None:
            if actions is not None:
                raise ConfigError("--allow-actions needs --live")
            return
        url = live_url(live)
        token = Secret.env(TOKEN_VARIABLE) if os.environ.get(TOKEN_VARIABLE) else None
        made = secrets.token_urlsafe(24) if token is None and actions is not None else None
        try:
            self._server = LiveServer(None, url, token if made is None else Secret(made), actions)
        except ConfigError as error:
            text = str(error).removeprefix("url").replace("give a token", f"set {TOKEN_VARIABLE} to a token")
            raise ConfigError("--live" + text.replace("leave url out", "leave the address out")) from None
        # a token of the user is not shown; one that was made is nowhere else
        shown = "" if token is None and made is None else f"?token={quote(made) if made else '…'}"
        console.print(f"live page: {self._server.url}{shown}", soft_wrap=True, highlight=False)
        if not is_loopback(self._server.host):
            console.print("it is not encrypted: use it behind a proxy with TLS", soft_wrap=True)

    @property
    def wanted(self) -> bool:
        """Whether a page or a report was asked for."""
        return any(one is not None for one in (self._server, self._file, self._provider))

    @property
    def served(self) -> bool:
        """Whether the page is served."""
        return self._server is not None

    @contextlib.contextmanager
    def watch(self, run: Watchable) -> Iterator[None]:
        """Show a run during a block, and write the report at its end, however it ends."""
        with self.show(Monitor(run)):
            yield

    @contextlib.contextmanager
    def show(self, monitor: Watched) -> Iterator[None]:
        """Show what a monitor sees during a block; the same."""
        if self._server is not None:
            self._server.watch(monitor)
        if self._provider is not None:
            offer(monitor, self._provider)
        try:
            yield
        finally:
            monitor.stop()
            if self._file is not None:
                self._write(monitor.state())

    def close(self) -> None:
        """Send the last look, and stop serving."""
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, state: dict[str, Any]) -> None:
        assert self._file is not None
        try:
            write_atomic(self._file, report(state).encode())
        except OSError as error:  # the results are there, and complete
            _log.warning("the live report %s could not be written: %s", self._file, error.strerror or error)
        else:
            self._console.print(f"live report: {self._file}", soft_wrap=True)
