"""The HTTP server of the live page: the page, its events, metrics, and actions, on loopback or with a token."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.cookies
import socket
import threading
import time
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from riot_ops.core.checks import is_loopback
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError, StateError
from riot_ops.core.paths import write_atomic
from riot_ops.core.secret import Secret, check_secret
from riot_ops.monitoring.page import page, report, security_policy
from riot_ops.monitoring.prometheus import CONTENT_TYPE, metrics_text

__all__ = ["LiveServer", "Watched"]

#: Readers of events at one time; how long a reader may leave its connection unread; time between looks for news.
MAX_READERS, WRITE_SECONDS, POLL_SECONDS = 200, 10.0, 0.1
#: A comment to an idle reader, so that a connection that is gone is noticed.
KEEP_ALIVE_SECONDS = 15.0
#: How long the end waits for readers to get the last look; bytes of a request for an action.
END_SECONDS, MAX_ACTION_BYTES = 1.0, 4 << 20
PATHS = ("/", "/events", "/state.json", "/metrics")

Action = Callable[[dict[str, Any]], Any]


class Watched(Protocol):
    """What a server shows: a :class:`~riot_ops.monitoring.Monitor` or one of shared dataflows."""

    version: int

    @property
    def active(self) -> bool:
        """Whether more looks follow."""

    def state(self) -> dict[str, Any]:
        """Return all that is known."""

    def events(self, seen: int) -> tuple[int, bytes]:
        """Return what a reader lacks that has seen a version, and the version that it then has."""

    def stop(self) -> None:
        """Look a last time."""


class LiveServer:
    """Serves the live page of a monitor in threads of this process, until :meth:`close`.

    ``/`` is the page, ``/events`` what it draws as server-sent events, ``/state.json`` all of it once, and ``/metrics``
    Prometheus text.

    Parameters
    ----------
    monitor : Monitor, optional
        What it shows; without one the page waits for :meth:`watch`, so that it has its address before a run begins.
    url : str, default "http://127.0.0.1"
        Address to serve on, with a port unless a free one will do. One that other machines reach needs ``token``.
    token : Secret, optional
        What a reader has to give: as ``?token=…`` in the address of the page, or in the header
        ``Authorization: Bearer …``.
    actions : function, optional
        Carries out what readers ask for with ``POST /actions``: gets the JSON object, and returns JSON-able data or
        raises :class:`~riot_ops.core.errors.RiotError`. Needs ``token``. Without it nothing can be changed over HTTP.

    Raises
    ------
    ConfigError
        If other machines would reach the page without a token, or ``url`` is no address.
    ConnectorError
        If the address is in use.

    Examples
    --------
    >>> server = LiveServer()
    >>> server.url.startswith("http://127.0.0.1:")
    True
    >>> server.close()
    """

    def __init__(
        self,
        monitor: Watched | None = None,
        url: str = "http://127.0.0.1",
        token: Secret | None = None,
        actions: Action | None = None,
    ) -> None:
        self.watched = monitor
        self.actions = actions
        host, port = _host_and_port(url)
        secret = check_secret("the live page", "token", token)
        self.token = None if secret is None else secret.reveal()
        if self.token is None and not is_loopback(host):
            raise ConfigError(f"url={url!r} can be reached from other machines: give a token, or leave url out")
        if self.token is None and actions is not None:
            raise ConfigError("actions need a token: other users of this machine reach the page, too")
        self.host = host
        self.closing = threading.Event()
        self.readers = _Readers()
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

    @property
    def monitor(self) -> Watched:
        """What it shows; :class:`~riot_ops.core.errors.StateError` before the first :meth:`watch`."""
        if self.watched is None:
            raise StateError("the live page has nothing to show yet: the run has not begun")
        return self.watched

    def watch(self, monitor: Watched) -> None:
        """Show a monitor from now on; open pages follow."""
        self.watched = monitor

    def save(self, path: str | Path) -> None:
        """Write the page with what it shows now to a file, which needs no server."""
        write_atomic(Path(path), report(self.monitor.state()).encode())

    def close(self) -> None:
        """Look a last time, send that to the readers, and stop serving; may be called twice."""
        if self.watched is not None:
            self.watched.stop()
        if not self.closing.is_set():
            self.closing.set()
            self.readers.wait_until_gone(END_SECONDS)
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


class _Readers:
    """Counts the connections that get events."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def enter(self) -> bool:
        """Add a reader, unless there are too many."""
        with self._changed:
            if self.count >= MAX_READERS:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait_until_gone(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.count == 0, seconds)


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
        given = parse_qs(url.query).get("token", [])
        if not live.accepts_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, "this server is asked for by another name\n")
        elif not (self._has_cookie() or self._has_token(*given)):
            self._answer(HTTPStatus.UNAUTHORIZED, "open the address with ?token=…\n", {"WWW-Authenticate": "Bearer"})
        elif url.path == "/" and given:
            cookie = f"{self._cookie_name()}={_digest(live.token, 'cookie')}; HttpOnly; SameSite=Strict; Path=/"
            self._answer(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie})
        elif url.path == "/":
            headers = {"Content-Security-Policy": security_policy()}
            proof = None if live.actions is None else _digest(live.token, "action")
            self._answer(HTTPStatus.OK, page(proof), headers, "text/html; charset=utf-8")
        elif url.path == "/events":
            self._send_events()
        elif url.path not in PATHS:
            self._answer(HTTPStatus.NOT_FOUND, f"there are {', '.join(PATHS)}\n")
        elif live.watched is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "the run has not begun\n", {"Retry-After": "1"})
        elif url.path == "/state.json":
            self._answer(HTTPStatus.OK, msgspec.json.encode(live.watched.state()), {}, "application/json")
        else:
            self._answer(HTTPStatus.OK, metrics_text(live.watched.state()), {}, CONTENT_TYPE)

    do_HEAD = do_GET  # noqa: N815 (a name of the standard library)

    def do_POST(self) -> None:
        """Carry out an action, for the page itself or who has the token; pages of other sites can ask for none."""
        live, path = self.server.live, urlsplit(self.path).path
        self.close_connection = True  # the request may have a body that is not read
        length = self.headers.get("Content-Length", "")
        if path != "/actions" or live.actions is None:
            known = path in PATHS
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            self._answer(status, "nothing can be changed here\n", {"Allow": "GET, HEAD"} if known else None)
        elif not live.accepts_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, "this server is asked for by another name\n")
        elif not (self._has_token() or self._has_cookie()):
            self._answer(HTTPStatus.UNAUTHORIZED, "a token is needed\n", {"WWW-Authenticate": "Bearer"})
        elif not self._is_own_request():
            self._answer(HTTPStatus.FORBIDDEN, "another site asks for this\n")
        elif self.headers.get_content_type() != "application/json":
            self._answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is application/json\n")
        elif not (length.isascii() and length.isdigit()):
            self._answer(HTTPStatus.LENGTH_REQUIRED, "a request needs its Content-Length\n")
        elif int(length) > MAX_ACTION_BYTES:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_ACTION_BYTES} bytes\n")
        else:
            status, answer = _carry_out(live.actions, self.rfile.read(int(length)))
            self._answer(status, msgspec.json.encode(answer, enc_hook=str), {}, "application/json")

    def _is_own_request(self) -> bool:
        """Whether the page asks, which knows a proof that other sites cannot read; or a client with the token."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        own = origin is not None and urlsplit(origin).netloc == self.headers.get("Host")
        if (origin is not None and not own) or site != "same-origin":
            return False
        given = self.headers.get("X-Riot-Ops-Proof", "").encode("latin-1", "replace")
        proof = _digest(self.server.live.token, "action").encode()
        return self._has_token() or (own and hmac.compare_digest(given, proof))

    def _has_token(self, *given: str) -> bool:
        """Whether the token is among those given, or in the header; True if none is needed."""
        token = self.server.live.token
        if token is None:
            return True
        scheme, _, bearer = (self.headers.get("Authorization") or "").partition(" ")
        found = [one.encode() for one in given]
        found += [bearer.encode("latin-1")] if scheme.lower() == "bearer" else []  # as headers are read
        return any(hmac.compare_digest(one, token.encode()) for one in found)

    def _has_cookie(self) -> bool:
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        with contextlib.suppress(http.cookies.CookieError):
            cookies.load(self.headers.get("Cookie") or "")
        found = cookies.get(self._cookie_name())
        wanted = _digest(self.server.live.token, "cookie")
        return found is not None and hmac.compare_digest(found.value.encode(), wanted.encode())

    def _cookie_name(self) -> str:
        return f"riot_ops_token_{self.server.live.port}"  # cookies do not distinguish ports

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
        if not live.readers.enter():
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many readers\n", {"Retry-After": "5"})
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self._write_events(live)
        except OSError:
            pass  # the reader has gone, or has not read for long
        finally:
            live.readers.leave()

    def _write_events(self, live: LiveServer) -> None:
        watched, version, sent_at = live.watched, 0, time.monotonic()
        while True:
            closing = live.closing.is_set()  # read first: the last look was before
            if live.watched is not watched:
                watched, version = live.watched, 0
            if watched is not None and watched.version != version:
                version, events = watched.events(version)
                self.wfile.write(events)
                sent_at = time.monotonic()
                if not watched.active:
                    self.wfile.write(b"event: end\ndata: {}\n\n")
                    return
            elif time.monotonic() - sent_at > KEEP_ALIVE_SECONDS:
                self.wfile.write(b": still here\n\n")
                sent_at = time.monotonic()
            if closing:
                return
            live.closing.wait(POLL_SECONDS)

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


def _digest(token: str | None, purpose: str) -> str:
    """Return what stands for the token in a cookie or in the page, from which nobody gets the token."""
    return hmac.new((token or "").encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _carry_out(action: Action, body: bytes) -> tuple[HTTPStatus, Any]:
    try:
        request = msgspec.json.decode(body)
        if not isinstance(request, dict):
            raise ConfigError(f"a request must be a JSON object, got {type(request).__name__}")
        return HTTPStatus.OK, {"result": action(request)}
    except msgspec.DecodeError as error:
        return HTTPStatus.BAD_REQUEST, {"error": f"a request must be JSON: {error}"}
    except RiotError as error:
        return HTTPStatus.BAD_REQUEST, {"error": "; ".join([str(error), *getattr(error, "__notes__", ())])}
    except Exception as error:  # a defect of an action must not end the server, nor tell secrets
        return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": type(error).__name__}
