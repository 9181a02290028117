"""The HTTP server of the live page: the page, its events, and metrics, on loopback or with a token."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.cookies
import socket
import threading
import time
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from riot_ops.core.checks import is_loopback
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import write_atomic
from riot_ops.core.secret import Secret, check_secret
from riot_ops.monitoring.monitor import Monitor
from riot_ops.monitoring.page import page, report, security_policy
from riot_ops.monitoring.prometheus import CONTENT_TYPE, metrics_text

__all__ = ["LiveServer"]

#: Readers of events at one time; how long a reader may leave its connection unread; time between looks for news.
MAX_READERS, WRITE_SECONDS, POLL_SECONDS = 200, 10.0, 0.1
#: A comment to an idle reader, so that a connection that is gone is noticed.
KEEP_ALIVE_SECONDS = 15.0
COOKIE = "riot_ops_token"


class LiveServer:
    """Serves the live page of a monitor in threads of this process, until :meth:`close`.

    ``/`` is the page, ``/events`` what it draws as server-sent events, ``/state.json`` all of it once, and ``/metrics``
    Prometheus text.

    Parameters
    ----------
    monitor : Monitor
    url : str, default "http://127.0.0.1"
        Address to serve on, with a port unless a free one will do. One that other machines reach needs ``token``.
    token : Secret, optional
        What a reader has to give: as ``?token=…`` in the address of the page, or in the header
        ``Authorization: Bearer …``.

    Raises
    ------
    ConfigError
        If other machines would reach the page without a token, or ``url`` is no address.
    ConnectorError
        If the address is in use.
    """

    def __init__(self, monitor: Monitor, url: str = "http://127.0.0.1", token: Secret | None = None) -> None:
        self.monitor = monitor
        host, port = _host_and_port(url)
        secret = check_secret("the live page", "token", token)
        self.token = None if secret is None else secret.reveal()
        if self.token is None and not is_loopback(host):
            raise ConfigError(f"url={url!r} can be reached from other machines: give a token, or leave url out")
        self.host = host
        self.closing = threading.Event()
        self.readers = threading.Semaphore(MAX_READERS)
        try:
            self._server = _Server(self, (host, port))
        except OSError as error:
            raise ConnectorError(
                f"the live page cannot be served on {host}:{port}: {error.strerror or error}"
            ) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True, name="riot_ops-live"
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page, without the token."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/"

    def save(self, path: str | Path) -> None:
        """Write the page with what it shows now to a file, which needs no server."""
        write_atomic(Path(path), report(self.monitor.state()).encode())

    def close(self) -> None:
        """Stop serving and looking; may be called twice."""
        self.monitor.stop()
        if not self.closing.is_set():
            self.closing.set()
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LiveServer({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener">live page</a>'

    def accepts_host(self, header: str | None) -> bool:
        """Whether a request names this server; else a page of another site could read it by a name of its own."""
        if not is_loopback(self.host):
            return True
        name = urlsplit(f"//{header or ''}").hostname or ""
        return name in ("localhost", self.host) or is_loopback(name)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, live: LiveServer, address: tuple[str, int]) -> None:
        self.live = live
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a reader that has gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "riot_ops", ""
    timeout = WRITE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        live = self.server.live
        url = urlsplit(self.path)
        if not live.accepts_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, "this server is asked for by another name\n")
        elif not self._is_allowed(parse_qs(url.query)):
            self._answer(HTTPStatus.UNAUTHORIZED, "open the address with ?token=…\n", {"WWW-Authenticate": "Bearer"})
        elif url.path == "/" and "token" in parse_qs(url.query):
            cookie = f"{COOKIE}={_cookie_value(live.token)}; HttpOnly; SameSite=Strict; Path=/"
            self._answer(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie})
        elif url.path == "/":
            headers = {"Content-Security-Policy": security_policy()}
            self._answer(HTTPStatus.OK, page(), headers, "text/html; charset=utf-8")
        elif url.path == "/state.json":
            self._answer(HTTPStatus.OK, msgspec.json.encode(live.monitor.state()), {}, "application/json")
        elif url.path == "/metrics":
            self._answer(HTTPStatus.OK, metrics_text(live.monitor.state()), {}, CONTENT_TYPE)
        elif url.path == "/events":
            self._send_events()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there are /, /events, /state.json and /metrics\n")

    do_HEAD = do_GET  # noqa: N815 (a name of the standard library)

    def _is_allowed(self, query: dict[str, list[str]]) -> bool:
        token = self.server.live.token
        if token is None:
            return True
        scheme, _, given = (self.headers.get("Authorization") or "").partition(" ")
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        with contextlib.suppress(http.cookies.CookieError):
            cookies.load(self.headers.get("Cookie") or "")
        found = [one.encode() for one in query.get("token", [])]
        found += [given.encode("latin-1")] if scheme.lower() == "bearer" else []  # as headers are read
        if COOKIE in cookies and hmac.compare_digest(cookies[COOKIE].value.encode(), _cookie_value(token).encode()):
            return True
        return any(hmac.compare_digest(one, token.encode()) for one in found)

    def _answer(
        self,
        status: HTTPStatus,
        body: str | bytes,
        headers: dict[str, str] | None = None,
        content_type: str = "text/plain; charset=utf-8",
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {
            "Content-Type": content_type,
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_events(self) -> None:
        """Send looks until the run or the connection ends; a slow reader misses some, and gets the whole state."""
        live = self.server.live
        if not live.readers.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many readers\n", {"Retry-After": "5"})
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command == "HEAD":
                return
            version, sent_at = 0, time.monotonic()
            while not live.closing.is_set():
                if live.monitor.version != version:
                    version, events = live.monitor.events(version)
                    self.wfile.write(events)
                    sent_at = time.monotonic()
                    if not live.monitor.active:
                        self.wfile.write(b"event: end\ndata: {}\n\n")
                        return
                elif time.monotonic() - sent_at > KEEP_ALIVE_SECONDS:
                    self.wfile.write(b": still here\n\n")
                    sent_at = time.monotonic()
                live.closing.wait(POLL_SECONDS)
        except OSError:
            pass  # the reader has gone, or has not read for long
        finally:
            live.readers.release()

    def log_message(self, format: str, *args: Any) -> None:
        pass  # a token could be in the address


def _host_and_port(url: str) -> tuple[str, int]:
    """Return where to serve; port 0 takes a free one."""
    try:
        parts = urlsplit(url)
        bare = parts.path in ("", "/") and not parts.query and parts.username is None
        if parts.scheme == "http" and parts.hostname and bare:
            return parts.hostname, parts.port or 0
    except ValueError:  # of the port
        pass
    raise ConfigError(f"url must be like 'http://127.0.0.1:8080' or 'http://0.0.0.0', got {url!r}")


def _cookie_value(token: str | None) -> str:
    """Return what the browser keeps instead of the token, which may hold any characters."""
    return hashlib.sha256(f"cookie {token}".encode()).hexdigest()
