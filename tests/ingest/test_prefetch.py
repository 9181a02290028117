"""Prefetching: an iterator that blocks delays neither the records before nor the end of the run."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.ingest.prefetch import Prefetcher

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


def test_item_ends_the_wait_of_its_reader():
    come = threading.Event()

    def items():
        come.wait(10)
        yield 1

    prefetcher = Prefetcher(items(), 100)
    assert prefetcher.take() == []
    come.set()
    found = []
    while (group := prefetcher.take()) is not None:
        found += group
    assert found == [1]


@pytest.mark.long
def test_idle_iterator_is_asked_rarely(monkeypatch):
    come, looks, take = threading.Event(), [], Prefetcher.take

    def rows():
        yield row(1.0)
        come.wait(20)
        yield row(2.0)

    monkeypatch.setattr(Prefetcher, "take", lambda self: (looks.append(time.monotonic()), take(self))[1])
    threading.Timer(1.5, come.set).start()
    result = flow().run(rows())
    assert result["same"].num_rows == 2
    assert len([at for at in looks if looks[0] + 0.3 < at < looks[0] + 1.3]) <= 70
