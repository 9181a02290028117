"""A sink whose committed output outlives its process, and a killed manager."""

from __future__ import annotations

import pyarrow as pa

import riot_ops as ro
from riot_ops.core.sink import Sink, Writer
from riot_ops.reuse import LocalBackend, ReuseManager

SCHEMA = {"value": "double"}


VALUES = [float(i) for i in range(60)]


class Tape(Sink):
    """Keeps committed output, as files do; uncommitted output is lost with the process."""

    def __init__(self, hold=None):
        self.epochs = {}
        self.hold = hold

    def writer(self, batch_id, partition):
        return TapeWriter(self.hold)

    def commit(self, batch_id, messages):
        assert batch_id not in self.epochs
        self.epochs[batch_id] = messages[0]

    def begin(self, overwrite):
        assert not self.epochs, "it holds the output of an earlier run"

    def recover(self, batch_id):
        self.epochs = {n: made for n, made in self.epochs.items() if n < batch_id}

    def table(self, stream):
        batches = [batch for _, made in sorted(self.epochs.items()) for name, batch in made if name == stream]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    __getitem__ = table

    def values(self, stream):
        return [] if not self.table(stream).num_rows else self.table(stream)["value"].to_pylist()


class TapeWriter(Writer):
    def __init__(self, hold):
        self.made, self.hold = [], hold

    def write(self, stream, batch):
        if self.hold is not None:
            self.hold(stream, batch)
        self.made.append((stream, batch))

    def finish(self):
        return self.made


def flow(name, *tasks):
    made = ro.Dataflow(name)
    stream = made.source("in", schema=SCHEMA)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return made.sink("out", stream)


def gone(manager):
    """Simulate the end of the process: nothing more is committed or checkpointed."""
    manager.backend.sinks.halt()
    manager.backend.checkpoint.close()
    manager.journal.close()


def opened(tmp_path, sinks, rows=VALUES, **options):
    backend = LocalBackend(10, epoch="10000d", folder=tmp_path / "kept", **options)
    source = ro.MemorySource([{"value": v} for v in rows])
    manager = ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks[name]))
    return manager, source
