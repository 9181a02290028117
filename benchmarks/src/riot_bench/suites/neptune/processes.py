"""Stages of a relay in processes of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.harness.data import Discard
from riot_bench.suites.neptune.equipment import monitored
from riot_bench.suites.neptune.link import LinkSink, LinkSource, accepted, connected
from riot_bench.suites.neptune.messages import Messages, Received, Relayed
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow

__all__ = ["OverProcesses", "capacity", "drain", "listening", "run_stage", "stage"]

#: How long a stage that has nothing left to do may take to end.
ENDING_SECONDS = 10
#: Readings that a job takes before it counts, and how long relays and senders do.
WARM_LINES, WARM_SECONDS = 1000, 0.1
#: Bytes that are sent at once where the link itself is measured, and how often in a round.
CHUNK, CHUNKS = 1 << 20, 256


def run_stage(source: Source, sink: Sink, buffering: Buffering) -> None:
    """A source, a step that hands on, a sink."""
    flow = Dataflow("relay")
    flow.sink("out", flow.source("messages", schema=source.schema).to(t.NoOp(), id="relay"))
    flow.run(source, sinks=sink, buffering=buffering, cores=1)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A place that other processes call."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(16)
        yield server


@contextmanager
def stage(kind: str, buffering: Buffering, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """A process of this module; ended with the block, whatever happens in it."""
    command = [sys.executable, "-m", __name__, kind, json.dumps(asdict(buffering)), *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield process
    except BaseException:
        process.kill()  # it may wait for a word that does not come
        raise
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        process.kill()
        process.communicate()


class OverProcesses:
    """Relays of which source and sink are in this process, whose clock times both ends, and the relay in another."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> OverProcesses:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.enter_context(stage("relay", Buffering(), folder / "there", folder / "back"))
        self._there, self._back = (self._stack.enter_context(listening(folder / name)) for name in ("there", "back"))
        (folder / "ready").touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, messages: Messages, buffering: Buffering) -> Relayed:
        """Let messages go there and back."""
        return self.counted(messages, buffering)[0]

    def counted(self, messages: Messages, buffering: Buffering) -> tuple[Relayed, LinkSink]:
        """What came of it, and the first link, which counts what went over it."""
        received, failed = Received(), list[BaseException]()
        text = pa.types.is_binary(messages.schema.field("filler").type)
        with accepted(self._there) as out:
            told = json.dumps([asdict(buffering), messages.size, text]).encode()
            out.sendall(len(told).to_bytes(4, "little") + told)
            sending = LinkSink(out, buffering)

            def feed() -> None:
                try:
                    run_stage(messages, sending, buffering)
                except BaseException as error:
                    failed.append(error)
                    sending.end({})

            with accepted(self._back) as home:
                feeding = threading.Thread(target=feed, daemon=True)
                feeding.start()
                run_stage(LinkSource(home, messages.schema), received, buffering)
                feeding.join()
        if failed:
            raise failed[0]
        return received.relayed(messages.given), sending


def relay(there: Path, back: Path) -> None:
    """Hand on what comes from one link to the other, one run after the other, until nobody listens any more."""
    while not (there.parent / "ready").exists():
        time.sleep(0.005)
    with suppress(OSError):
        while True:
            out = connected(there)
            size = int.from_bytes(out.recv(4, socket.MSG_WAITALL), "little")
            if not size:
                return
            buffering, size, text = json.loads(out.recv(size, socket.MSG_WAITALL))
            given, schema = Buffering(**buffering), Messages(size, fillers=[b""] if text else None).schema
            with connected(back) as home:
                run_stage(LinkSource(out, schema), LinkSink(home, given), given)


def main(kind: str, buffering: str, arguments: Sequence[str]) -> None:
    """What a process of its own does: hand on from one link to another, send, take, or be one of several jobs."""
    given = Buffering(**json.loads(buffering))
    if kind == "relay":
        relay(Path(arguments[0]), Path(arguments[1]))
    elif kind == "send":
        place, size, seconds = arguments
        link = LinkSink(connected(Path(place)), given)
        _job(lambda warm: _sent(link, int(size), None if warm else float(seconds), given))
    elif kind == "drain":
        drain(connected(Path(arguments[0])))
    elif kind == "relay-job":
        size, seconds = arguments
        _job(lambda warm: _relayed(int(size), WARM_SECONDS if warm else float(seconds), given))
    else:  # equipment-job
        path = Path(arguments[0])
        _job(lambda warm: monitored(path, given, WARM_LINES if warm else None))


def _sent(link: LinkSink, size: int, seconds: float | None, buffering: Buffering) -> int:
    """How many messages went over a link; without a time none, but all is compiled."""
    if seconds is None:
        run_stage(Messages(size, seconds=WARM_SECONDS), Discard(), buffering)
    else:
        run_stage(Messages(size, seconds=seconds), link, buffering)
    return link.sent


def drain(link: socket.socket) -> None:
    """Take what comes over a link, and answer each round of it by a byte."""
    room = memoryview(bytearray(CHUNK))
    with link:
        while True:
            left = CHUNK * CHUNKS
            while left:
                if not (n := link.recv_into(room[: min(left, CHUNK)])):
                    return
                left -= n
            link.sendall(b".")


def capacity(rounds: int) -> list[float]:
    """Gbit/s of plain bytes from this process to another one, over a socket like those of the links, in some rounds."""
    chunk, spent = bytes(CHUNK), list[float]()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "drain"
        server = stack.enter_context(listening(place))
        stack.enter_context(stage("drain", Buffering(), place))
        with accepted(server) as link:
            for _ in range(1 + rounds):  # the first one warms
                begun = time.perf_counter()
                for _ in range(CHUNKS):
                    link.sendall(chunk)
                if not link.recv(1):
                    raise RiotError("a process that takes what comes over a link ended")
                spent.append(time.perf_counter() - begun)
    return [CHUNK * CHUNKS * 8 / 1e9 / seconds for seconds in spent[1:]]


def _relayed(size: int, seconds: float, buffering: Buffering) -> dict[str, Any]:
    messages, sink = Messages(size, seconds=seconds), Received()
    run_stage(messages, sink, buffering)
    return asdict(sink.relayed(messages.given))


def _job(run: Callable[[bool], Any]) -> None:
    """Compile, wait for the word to begin, and tell what came of it."""
    run(True)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(run(False)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
