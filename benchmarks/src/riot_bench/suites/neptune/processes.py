"""Stages of a relay in separate processes."""

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

from riot_bench.harness.discard import DiscardSink
from riot_bench.suites.neptune.equipment import run_monitoring
from riot_bench.suites.neptune.link import LinkSink, LinkSource, accept, connect
from riot_bench.suites.neptune.messages import MessageSource, ReceivingSink, RelayResult
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.parameters import parameters_to_json
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow

__all__ = ["ProcessRelay", "drain", "listen", "measure_link_capacity", "run_stage", "stage_process"]

#: Seconds that a finished stage may take to exit.
EXIT_SECONDS = 10
#: Warm-up of jobs: readings of equipment monitoring, and seconds of relays and senders.
WARM_LINES, WARM_SECONDS = 1000, 0.1
#: Bytes of a send when the link's capacity is measured, and sends in a round.
CHUNK, CHUNKS = 1 << 20, 256


def run_stage(source: Source, sink: Sink, buffering: Buffering) -> None:
    """Run a source, a step that forwards, and a sink."""
    flow = Dataflow("relay")
    flow.sink("out", flow.source("messages", schema=source.schema).to(t.NoOp(), id="relay"))
    flow.run(source, sinks=sink, buffering=buffering, cores=1)


@contextmanager
def listen(path: Path) -> Iterator[socket.socket]:
    """Listen at a path for other processes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(16)
        yield server


@contextmanager
def stage_process(kind: str, buffering: Buffering, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """Run this module as a process that ends with the block, also after an error."""
    command = [
        sys.executable,
        "-m",
        __name__,
        kind,
        json.dumps(parameters_to_json(buffering, "buffering")),
        *map(str, arguments),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield process
    except BaseException:
        process.kill()  # it may wait for input that never arrives
        raise
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_SECONDS)
        process.kill()
        process.communicate()


class ProcessRelay:
    """Relays through another process; source and sink are in this process, so one clock times both."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> ProcessRelay:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.enter_context(stage_process("relay", Buffering(), folder / "there", folder / "back"))
        self._there, self._back = (self._stack.enter_context(listen(folder / name)) for name in ("there", "back"))
        (folder / "ready").touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, messages: MessageSource, buffering: Buffering) -> RelayResult:
        """Send messages there and back."""
        return self.counted(messages, buffering)[0]

    def counted(self, messages: MessageSource, buffering: Buffering) -> tuple[RelayResult, LinkSink]:
        """Send messages there and back; return the result and the first link with its counters."""
        received, failed = ReceivingSink(), list[BaseException]()
        text = pa.types.is_binary(messages.schema.field("filler").type)
        with accept(self._there) as out:
            settings = json.dumps([parameters_to_json(buffering, "buffering"), messages.size, text]).encode()
            out.sendall(len(settings).to_bytes(4, "little") + settings)
            sending = LinkSink(out, buffering)

            def feed() -> None:
                try:
                    run_stage(messages, sending, buffering)
                except BaseException as error:
                    failed.append(error)
                    sending.end({})

            with accept(self._back) as home:
                feeding = threading.Thread(target=feed, daemon=True)
                feeding.start()
                run_stage(LinkSource(home, messages.schema), received, buffering)
                feeding.join()
        if failed:
            raise failed[0]
        return received.result(messages.messages_read), sending


def run_relay(there: Path, back: Path) -> None:
    """Forward messages from one link to another, run by run, until the other process ends."""
    while not (there.parent / "ready").exists():
        time.sleep(0.005)
    with suppress(OSError):
        while True:
            out = connect(there)
            size = int.from_bytes(out.recv(4, socket.MSG_WAITALL), "little")
            if not size:
                return
            buffering, size, text = json.loads(out.recv(size, socket.MSG_WAITALL))
            given, schema = Buffering(**buffering), MessageSource(size, fillers=[b""] if text else None).schema
            with connect(back) as home:
                run_stage(LinkSource(out, schema), LinkSink(home, given), given)


def main(kind: str, buffering: str, arguments: Sequence[str]) -> None:
    """Run a process: a relay between links, a sender, a receiver, or one of several jobs."""
    given = Buffering(**json.loads(buffering))
    if kind == "relay":
        run_relay(Path(arguments[0]), Path(arguments[1]))
    elif kind == "send":
        place, size, seconds = arguments
        link = LinkSink(connect(Path(place)), given)
        _run_job(lambda warm: _send(link, int(size), None if warm else float(seconds), given))
    elif kind == "drain":
        drain(connect(Path(arguments[0])))
    elif kind == "relay-job":
        size, seconds = arguments
        _run_job(lambda warm: _relay_in_process(int(size), WARM_SECONDS if warm else float(seconds), given))
    else:  # equipment-job
        path = Path(arguments[0])
        _run_job(lambda warm: run_monitoring(path, given, WARM_LINES if warm else None))


def _send(link: LinkSink, size: int, seconds: float | None, buffering: Buffering) -> int:
    """Send messages for ``seconds`` and return their number; without a time, only compile."""
    if seconds is None:
        run_stage(MessageSource(size, seconds=WARM_SECONDS), DiscardSink(), buffering)
    else:
        run_stage(MessageSource(size, seconds=seconds), link, buffering)
    return link.sent


def drain(link: socket.socket) -> None:
    """Receive all bytes of a link and answer each round with a byte."""
    room = memoryview(bytearray(CHUNK))
    with link:
        while True:
            left = CHUNK * CHUNKS
            while left:
                if not (n := link.recv_into(room[: min(left, CHUNK)])):
                    return
                left -= n
            link.sendall(b".")


def measure_link_capacity(rounds: int) -> list[float]:
    """Measure Gbit/s of plain bytes to another process over a socket like those of the links, for some rounds."""
    chunk, spent = bytes(CHUNK), list[float]()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "drain"
        server = stack.enter_context(listen(place))
        stack.enter_context(stage_process("drain", Buffering(), place))
        with accept(server) as link:
            for _ in range(1 + rounds):  # the first round is the warm-up
                begun = time.perf_counter()
                for _ in range(CHUNKS):
                    link.sendall(chunk)
                if not link.recv(1):
                    raise RiotError("the process that receives over a link ended")
                spent.append(time.perf_counter() - begun)
    return [CHUNK * CHUNKS * 8 / 1e9 / seconds for seconds in spent[1:]]


def _relay_in_process(size: int, seconds: float, buffering: Buffering) -> dict[str, Any]:
    messages, sink = MessageSource(size, seconds=seconds), ReceivingSink()
    run_stage(messages, sink, buffering)
    return asdict(sink.result(messages.messages_read))


def _run_job(run: Callable[[bool], Any]) -> None:
    """Compile, wait for the signal to begin, run, and print the result; a dictionary gets the mean number of cores."""
    run(True)
    print("ready", flush=True)
    sys.stdin.readline()
    begun, used = time.perf_counter(), time.process_time()
    result = run(False)
    if isinstance(result, dict):
        result = {**result, "cores": (time.process_time() - used) / (time.perf_counter() - begun)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
