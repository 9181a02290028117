"""An HTTP server of the tests that keeps its requests and gives scripted answers."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """A request as it came."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes


class Recorder:
    """Answers each request with the next of ``answers`` (status, headers), and with 204 after these.

    With ``certificates``, a folder of ``write_certificates``, it talks TLS, and asks for certificates of the authority
    in the file ``client_authority``.
    """

    def __init__(self, answers=(), text="", delay=None, certificates=None, client_authority=None):
        self.requests: list[Request] = []
        self.answers = list(answers)
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                recorder.requests.append(Request(self.command, self.path, dict(self.headers), body))
                if delay is not None:
                    delay.wait(10)
                status, headers = recorder.answers.pop(0) if recorder.answers else (204, {})
                said = b"" if status == 204 else text.encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_POST = answer  # noqa: N815
            do_PUT = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if certificates is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
            if client_authority is not None:
                context.load_verify_locations(client_authority)
                context.verify_mode = ssl.CERT_REQUIRED
            # the handshake belongs to the thread of the connection
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._server.handle_error = lambda *_: None
            self.url = f"https://localhost:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
