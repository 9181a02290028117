"""Sending records over HTTP without riot_ops, and a server in a process of its own that keeps what it gets."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

__all__ = ["keeping_server", "post_json", "post_lines", "take_bodies"]

#: What ends the head of a request.
END = b"\r\n\r\n"
#: Longest wait for an answer.
TIMEOUT_S = 60.0


@contextmanager
def keeping_server() -> Iterator[str]:
    """Start a server on loopback that keeps the body of each POST until a GET takes all; yield its address."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (this module)
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def take_bodies(url: str) -> bytes:
    """Return the bodies that the server has kept, one after the other, and let it forget them."""
    import urllib3

    return bytes(urllib3.request("GET", url, timeout=TIMEOUT_S).data)


def _pool() -> Any:
    import urllib3

    return urllib3.PoolManager(timeout=TIMEOUT_S, retries=urllib3.Retry(3, status_forcelist=(429, 503)))


def _post(pool: Any, url: str, body: bytes, content_type: str) -> None:
    answer = pool.request("POST", url, body=body, headers={"Content-Type": content_type})
    if answer.status >= 300:
        raise OSError(f"the server answers {answer.status}")


def post_json(url: str, batches: Sequence[pa.RecordBatch], size: int) -> float:
    """Send rows as JSON arrays of ``size`` objects; return the seconds until all are accepted."""
    import orjson

    start, pool = time.perf_counter(), _pool()
    for batch in batches:
        for first in range(0, batch.num_rows, size):
            body = orjson.dumps(batch.slice(first, size).to_pylist())
            _post(pool, url, body, "application/json")
    return time.perf_counter() - start


def post_lines(url: str, batches: Sequence[pa.RecordBatch], size: int) -> float:
    """Send readings in InfluxDB's line protocol, ``size`` in a request; return the seconds until all are accepted."""
    start, pool = time.perf_counter(), _pool()
    for batch in batches:
        for first in range(0, batch.num_rows, size):
            part = batch.slice(first, size)
            times = part.column("event_time").cast(pa.int64()).to_pylist()
            names = ("sensor_id", "obs_type", "number", "value")
            columns = [part.column(name).to_pylist() for name in names]
            body = "".join(
                f"readings,sensor_id={sensor},obs_type={kind} number={number}i,value={value!r} {at}\n"
                for sensor, kind, number, value, at in zip(*columns, times, strict=True)
            )
            _post(pool, url, body.encode(), "text/plain; charset=utf-8")
    return time.perf_counter() - start


def _serve() -> None:
    """Answer each connection in a thread, with little work for a request: the clients are measured."""
    kept: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer, args=(connection, kept), daemon=True).start()


def _answer(connection: socket.socket, kept: list[bytes]) -> None:
    buffer = bytearray()
    while True:
        while END not in buffer:
            if not (data := connection.recv(1 << 20)):
                return
            buffer += data
        head, _, rest = bytes(buffer).partition(END)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields.get(b"content-length", 0))
        pieces, got = [rest], len(rest)
        while got < length:
            if not (data := connection.recv(1 << 20)):
                return
            pieces.append(data)
            got += len(data)
        content = b"".join(pieces)
        buffer = bytearray(content[length:])
        if head.startswith(b"GET"):
            found = b"".join(kept)
            kept.clear()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(found), found))
        else:
            kept.append(content[:length])
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


if __name__ == "__main__":
    _serve()
