"""Sinks that block or fail, and a dataflow over numbered records."""

from __future__ import annotations

import threading
import time

import riot_ops as ro

SCHEMA = {"value": "double"}


ROWS = 400


class Gate(ro.CallbackSink):
    """A sink that blocks until it is opened, and counts its records."""

    def __init__(self, pause_s=None):
        super().__init__(self._take)
        self.opened, self.pause_s, self.seen = threading.Event(), pause_s, []

    def _take(self, stream, batch):
        if self.pause_s is None:
            assert self.opened.wait(60)
        else:
            time.sleep(self.pause_s)
        self.seen += batch.column("seq").to_pylist()


class Files(ro.CallbackSink):
    """A sink that notes committed records and its end; it raises at the batch with record ``breaks``."""

    def __init__(self, breaks=None):
        super().__init__(lambda stream, batch: None)
        self.breaks, self.seen, self.ended = breaks, [], False

    def writer(self, batch_id, partition):
        return _Held(self)

    def commit(self, batch_id, messages):
        self.seen += [n for message in messages for n in message["seq"]]

    def end(self, schemas):
        self.ended = True


class _Held:
    def __init__(self, sink):
        self.sink, self.seq = sink, []

    def write(self, stream, batch):
        found = batch.column("seq").to_pylist()
        if self.sink.breaks in found:
            raise OSError("disk full")
        self.seq += found

    def finish(self):
        return {"seq": self.seq}

    def abort(self):
        self.seq = []


def flow(name, *sinks):
    made = ro.Dataflow(name)
    stream = made.source("values", schema=SCHEMA)
    for sink in sinks or ("out",):
        made.sink(sink, stream)
    return made


def log(rows=ROWS):
    return ro.MemorySource([{"value": float(i)} for i in range(rows)])


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)
