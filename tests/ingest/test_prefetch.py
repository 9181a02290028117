"""Prefetching: an iterator that blocks delays neither the records before nor the end of the run."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t

SCHEMA = {"device": "string", "value": "double"}


def flow():
    dataflow = ro.Dataflow("prefetch")
    return dataflow.sink("out", dataflow.source("in", schema=SCHEMA).to(t.NoOp(), id="same"))


def row(value):
    return {"device": "a", "value": value}


def batches(rows):
    schema = pa.schema([("device", pa.string()), ("value", pa.float64())])
    return pa.RecordBatchReader.from_batches(schema, (pa.RecordBatch.from_pylist([r], schema) for r in rows))


@pytest.mark.parametrize("wrap", [iter, batches], ids=["dicts", "batches"])
def test_record_does_not_wait_for_the_next(wrap):
    arrived, waited = threading.Event(), []

    def rows():
        yield row(1.0)
        waited.append(arrived.wait(5))
        yield row(2.0)

    flow().run(wrap(rows()), sinks=ro.CallbackSink(lambda s, b: arrived.set()))
    assert waited == [True]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_blocked_iterator_does_not_delay_the_end(error):
    gate, closed = threading.Event(), threading.Event()

    def rows():
        try:
            yield row(1.0)
            time.sleep(0.2)
            yield row(2.0)
            gate.wait(30)
            yield row(3.0)
        finally:
            closed.set()

    def fail(stream, batch):
        raise error

    begin = time.monotonic()
    with pytest.raises(error):
        flow().run(rows(), sinks=ro.CallbackSink(fail))
    assert time.monotonic() - begin < 2
    gate.set()
    assert closed.wait(5)


def test_unfinished_generator_is_closed():
    closed = threading.Event()

    def rows():
        try:
            while True:
                yield row(1.0)
        finally:
            closed.set()

    def fail(stream, batch):
        raise LookupError

    generator = rows()
    with pytest.raises(LookupError):
        flow().run(generator, sinks=ro.CallbackSink(fail))
    assert closed.wait(5)
