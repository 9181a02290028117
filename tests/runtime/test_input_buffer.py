"""The input buffer: sizes and times of batches, back-pressure, and runs with any buffering."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import as_buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import heartbeat
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.kernels.arrays.arrow import batch_bytes
from riot_ops.runtime.input_buffer import MAX_UNCOMMITTED, WAKE, BufferedBatch, InputBuffer, rows_within
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.buffer import Gate, batches
from tests.search import depth

READINGS = {"device": "string", "value": "double"}


def numbers(first, n):
    return pa.record_batch({"seq": np.arange(first, first + n)})  # 8 bytes each


def buffered(batch, offset=0, source="in"):
    return BufferedBatch(source, {source: [batch]}, None if offset is None else {"row": offset})


def seqs(taken):
    return [n for one in taken.inputs.values() for batch in one for n in batch.column("seq").to_pylist()]


def drain(buffer):
    buffer.end()
    found = []
    while (taken := buffer.get()) is not None:
        found.append(taken)
    return found


# -- batches ---------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
    st.integers(0, 200),
    st.integers(1, 12),
)
def test_batches_equal_the_definition(sizes, ranges, capacity, most):
    """Records of any size in ranges of any length; the ranges are short enough to end in each batch."""
    texts = pa.array(["x" * size for size in sizes])
    sizes = [4 * 2 + size for size in sizes]  # a slice has one more offset than texts
    buffer = InputBuffer(ro.Buffering(capacity=capacity, queue=1 << 20), most)
    row = 0
    for n in [*ranges, len(sizes)]:
        if part := len(texts.slice(row, n)):
            batch = pa.record_batch({"seq": np.arange(row, row + part), "text": texts.slice(row, part)})
            buffer.put(buffered(batch, row + part))
            row += part
    got = drain(buffer)
    assert [n for one in got for n in seqs(one)] == list(range(len(texts)))
    for one in got:
        (batch,) = one.inputs["in"]
        assert batch.num_rows == 1 or (batch.nbytes <= capacity and batch.num_rows <= most)
        assert one.size >= batch.nbytes


@given(st.lists(st.integers(1, 25), min_size=1, max_size=20), st.integers(0, 160), st.integers(1, 30))
def test_batches_of_equal_records_equal_the_definition(ranges, capacity, most):
    buffer = InputBuffer(ro.Buffering(capacity=capacity, queue=1 << 20), most)
    row = 0
    for n in ranges:
        buffer.put(buffered(numbers(row, n), row + n))
        row += n
    got = [seqs(one) for one in drain(buffer)]
    wanted = batches([8] * row, capacity, most)
    ends = set(np.cumsum(ranges).tolist())
    if any(one[-1] + 1 not in ends for one in wanted[:-1]):  # the end of a range may have to end a batch, see below
        assert [n for one in got for n in one] == list(range(row))
        assert all(len(one) <= max(len(w) for w in wanted) for one in got)
    else:
        assert got == wanted


def test_batches_fill_across_ranges():
    buffer = InputBuffer(ro.Buffering(capacity=40), 100)
    for first, n in ((0, 3), (3, 4), (7, 1), (8, 9)):
        buffer.put(buffered(numbers(first, n), first + n))
    assert [(seqs(one), one.offset) for one in drain(buffer)] == [
        ([0, 1, 2, 3, 4], None),
        ([5, 6, 7, 8, 9], None),
        ([10, 11, 12, 13, 14], None),
        ([15, 16], {"row": 17}),
    ]


def test_some_batches_end_with_a_range():
    """Otherwise a run whose ranges never end with a batch could never commit."""
    buffer = InputBuffer(ro.Buffering(capacity=80, queue=1 << 20), 100)
    for i in range(50):
        buffer.put(buffered(numbers(7 * i, 7), 7 * (i + 1)))
    within = 0
    for one in drain(buffer):
        within = 0 if one.offset is not None else within + 1
        assert within <= MAX_UNCOMMITTED + 1
        assert one.offset is None or one.offset == {"row": seqs(one)[-1] + 1}


def test_first_record_of_a_batch_waits_for_others():
    buffer = InputBuffer(ro.Buffering(flush_after="80ms"), 100)
    begun = time.monotonic()
    buffer.put(buffered(numbers(0, 1)))
    assert buffer.get(timeout=0.01) is WAKE
    buffer.put(buffered(numbers(1, 1)))
    assert seqs(buffer.get(timeout=5)) == [0, 1]
    assert 0.08 <= time.monotonic() - begun < 1


def test_blocked_source_delays_no_batch():
    class Slow(MemorySource):
        released = threading.Event()

        def latest(self, start, limit=None):
            if start["row"]:
                self.released.wait(20)
            return super().latest(start, 1)

    source, arrived = Slow([{"device": "a", "value": 1.0}] * 2), []

    def note(stream, batch):
        arrived.append(batch.num_rows)
        source.released.set()

    flow(t.NoOp()).run(source, sinks=ro.CallbackSink(note), buffering=ro.Buffering(flush_after="5ms"))
    assert arrived == [1, 1]


def test_batch_grows_while_the_steps_are_busy():
    buffer = InputBuffer(ro.Buffering(), 100)
    for i in range(5):
        buffer.put(buffered(numbers(i, 1), i))
    assert seqs(buffer.get()) == [0, 1, 2, 3, 4]


def test_batch_after_one_in_flight_grows_to_a_minimum():
    buffer = InputBuffer(ro.Buffering(flush_after="0s"), 100)
    for i in range(4):
        buffer.put(buffered(numbers(i, 1), i))
        assert buffer.get(timeout=0.01, rows=5) is WAKE
    buffer.put(buffered(numbers(4, 1), 4))
    assert seqs(buffer.get(timeout=5, rows=5)) == [0, 1, 2, 3, 4]
    buffer.put(buffered(numbers(5, 2), 6))
    assert seqs(buffer.get(timeout=5)) == [5, 6]  # no batch is in flight any more
    buffer.put(buffered(numbers(7, 100), 106))
    assert len(seqs(buffer.get(timeout=5, rows=200))) == 100  # it is full
    buffer.put(buffered(numbers(107, 1), 107))
    buffer.end()
    assert seqs(buffer.get(timeout=5, rows=5)) == [107]


def test_few_records_after_a_slow_batch_do_not_wait():
    """They wait neither for as many records nor for the source."""
    rows = [{"device": "a", "value": 1.0}] * 40_010

    class Pausing(MemorySource):
        def latest(self, start, limit=None):
            return super().latest(start, 40_000 if start["row"] < 40_000 else 1)

    arrived = []
    flow(t.NoOp()).run(Pausing(rows), sinks=ro.CallbackSink(lambda _, batch: arrived.append(batch.num_rows)), cores=2)
    assert sum(arrived) == len(rows)


def test_reader_continues_while_the_steps_are_busy():
    class Slowly(MemorySource):
        def latest(self, start, limit=None):
            return super().latest(start, 1)

    arrived = []

    def note(stream, batch):
        arrived.append(batch.num_rows)
        time.sleep(0.1)

    flow(t.NoOp()).run(Slowly([{"device": "a", "value": 1.0}] * 30), sinks=ro.CallbackSink(note), cores=1)
    assert sum(arrived) == 30
    assert max(arrived) > 3


def test_sources_have_separate_batches_and_heartbeats_are_kept():
    schema = numbers(0, 0).schema
    buffer = InputBuffer(ro.Buffering(), 100)
    for batch in (numbers(0, 2), heartbeat(schema, 2, 60), numbers(2, 1), numbers(3, 1)):
        buffer.put(buffered(batch, 1, "a"))
        buffer.put(buffered(numbers(7, 1), 1, "b"))
    a, b = drain(buffer)
    assert [batch.num_rows for batch in a.inputs["a"]] == [2, 0, 2]
    assert a.inputs["a"][1].schema.metadata == heartbeat(schema, 2, 60).schema.metadata
    assert [batch.num_rows for batch in b.inputs["b"]] == [4]


def test_fast_source_does_not_starve_others():
    buffer = InputBuffer(ro.Buffering(capacity=80), 100)
    buffer.put(buffered(numbers(0, 30), 30, "much"))
    buffer.put(buffered(numbers(0, 1), 1, "little"))
    arrived = []
    for i in range(3, 9):
        taken = buffer.get()
        arrived.append((taken.source, taken.rows))
        buffer.put(buffered(numbers(10 * i, 10), 10 * (i + 1), "much"))
    assert arrived[:5] == [("much", 10)] * 3 + [("little", 1), ("much", 10)]


@given(st.lists(st.text(max_size=9), min_size=1, max_size=25), st.integers(0, 200))
def test_rows_within_is_maximal(texts, most):
    batch = pa.record_batch({"text": texts, "known": [len(text) % 2 == 0 for text in texts]})
    wanted = max(n for n in range(len(texts) + 1) if n == 0 or batch.slice(0, n).nbytes <= most)
    assert rows_within(batch, most) == wanted


@pytest.mark.parametrize("views", [False, True])
def test_shared_buffers_are_counted_once(views):
    words = [*(f"a sensor's long name {i:05}" for i in range(2000)), None]
    indices = np.arange(20_000) % 2001
    column = (
        pa.array([words[i] for i in indices], pa.string_view())
        if views
        else pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(words, pa.string_view()))
    )
    batch = pa.record_batch({"word": column})
    a_record = 16 + 26 if views else 4 + 16 + 26  # a slice does not count all that the records share
    assert batch_bytes(batch) == pytest.approx(a_record * 20_000, rel=0.01)
    assert batch_bytes(batch.slice(19_990)) == pytest.approx(a_record * 10, rel=0.01)
    assert sum(batch_bytes(batch.slice(i, 100)) for i in range(0, 20_000, 100)) == pytest.approx(
        batch_bytes(batch), rel=0.01
    )
    assert rows_within(batch, 1000) == pytest.approx(1000 // a_record, abs=1)
    assert batch_bytes(batch.slice(0, 0)) == 0 == batch_bytes(pa.record_batch({"w": pa.nulls(0, pa.string_view())}))
    flow = ro.Dataflow("shared")
    flow.sink("out", flow.source("rows", schema=pa.schema({"word": pa.string()})).to(t.NoOp(), id="same"))
    result = flow.run(pa.Table.from_batches([batch]), buffering=ro.Buffering(capacity=1 << 16), cores=1)
    assert result.summary.batches < 40


# -- back-pressure ---------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60),
    st.floats(0.5, 1.0),
    st.floats(0.05, 0.45),
)
def test_source_is_closed_between_high_and_low_watermark(steps, high, low):
    room = 800
    buffer, gate = (
        InputBuffer(ro.Buffering(capacity=0, queue=room, high=high, low=low), 100),
        Gate(high * room, low * room),
    )
    put = taken = 0
    for is_put, n in steps:
        for _ in range(n):
            assert buffer.closed == gate.closed
            if is_put and not gate.closed:
                buffer.put(buffered(numbers(put, 1)))
                gate.put(8)
                put += 1
            elif not is_put and taken < put:
                assert seqs(buffer.get()) == [taken]
                gate.get(8)
                taken += 1
    assert buffer.size == gate.size == 8 * (put - taken)


@pytest.mark.long
@pytest.mark.parametrize("buffering", [ro.Buffering(capacity=800, queue=4000), "immediate", "latency"])
def test_slow_consumer_gets_every_record_and_the_queue_is_bounded(buffering):
    buffering = as_buffering(buffering)
    buffer, n = InputBuffer(buffering, 1000), 6000
    rng = np.random.default_rng(7)

    def read():
        row = 0
        while row < n:
            size = min(int(rng.integers(1, 60)), n - row)
            buffer.put(buffered(numbers(row, size), row + size))
            row += size
        buffer.end()

    reader = threading.Thread(target=read)
    reader.start()
    got, blocked = [], 0
    while (taken := buffer.get(timeout=10)) is not None:
        got += seqs(taken)
        blocked += buffer.closed
        time.sleep(0.0002)
    reader.join(10)
    assert got == list(range(n))
    assert buffer.max_size <= buffering.high * buffering.room + max(buffering.capacity, 8)
    assert blocked or buffering.room > 8 * n


def test_stop_wakes_the_waiting_reader():
    buffer = InputBuffer(ro.Buffering(capacity=8, queue=8), 10)
    accepted = []
    reader = threading.Thread(target=lambda: accepted.append([buffer.put(buffered(numbers(i, 1))) for i in range(3)]))
    reader.start()
    time.sleep(0.05)
    assert reader.is_alive()
    buffer.stop()
    reader.join(5)
    assert accepted == [[True, False, False]]


def test_error_follows_the_records_before_it():
    buffer = InputBuffer(ro.Buffering(), 10)
    buffer.put(buffered(numbers(0, 2)))
    buffer.end(ConnectorError("gone"))
    assert seqs(buffer.get()) == [0, 1]
    with pytest.raises(ConnectorError, match="gone"):
        buffer.get()


def test_wake_interrupts_get():
    buffer = InputBuffer(ro.Buffering(flush_after="1min"), 10)
    buffer.put(buffered(numbers(0, 1)))
    buffer.wake()
    assert buffer.get() is WAKE
    assert buffer.get(timeout=0) is WAKE


def test_longest_flush_time_can_be_waited_for():
    buffer = InputBuffer(ro.Buffering(flush_after=timedelta(seconds=1e9)), 10)
    buffer.put(buffered(numbers(0, 1)))
    calling = threading.Timer(0.05, buffer.wake)
    calling.start()
    assert buffer.get() is WAKE
    calling.join()


# -- runs ------------------------------------------------------------------------------------------


def flow(task=None):
    made = ro.Dataflow("small")
    rows = made.source("in", schema=READINGS)
    return made.sink("out", rows.to(task or t.MovingAverage(by=("device",), window=3, partial=True), id="avg"))


def rows(n):
    return [{"device": "abé"[i % 3], "value": float(i % 11)} for i in range(n)]


any_buffering = st.builds(
    ro.Buffering,
    capacity=st.sampled_from([0, 1, 60, 1000]),
    flush_after=st.sampled_from(["0s", "2ms"]),
    queue=st.sampled_from([None, 1000, 3000]),
    high=st.floats(0.5, 1.0),
    low=st.floats(0.01, 0.4),
)
WANTED = {n: flow().run(rows(n))["avg"].to_pylist() for n in (0, 1, 50, 400)}


@pytest.mark.long
@given(any_buffering, st.sampled_from(sorted(WANTED)), st.integers(1, 100), st.sampled_from([1, 2]))
def test_results_do_not_depend_on_buffering(buffering, n, batch_size, cores):
    result = flow().run(rows(n), buffering=buffering, batch_size=batch_size, cores=cores)
    assert result["avg"].to_pylist() == WANTED[n]
    assert result.summary.messages == n


@pytest.mark.long
@settings(max_examples=depth(15))
@given(any_buffering, st.integers(1, 399), st.integers(1, 60))
def test_restart_loses_and_repeats_no_record(tmp_path_factory, buffering, cut, batch_size):
    folder = tmp_path_factory.mktemp("restart")
    records = rows(400)
    options = {
        "out": folder / "out",
        "checkpoint": folder / "state",
        "buffering": buffering,
        "batch_size": batch_size,
        "epoch_rows": 30,
    }
    source = ScriptedSource([records[:cut], ABORT, records[cut:]])
    with pytest.raises(ConnectorError):
        flow().run(source, **options)
    result = flow().run(source, **options)
    assert result["avg"].to_pylist() == WANTED[400]


def test_batch_has_at_most_capacity():
    sizes = []
    sink = ro.CallbackSink(lambda _, batch: sizes.append(batch.nbytes))
    result = flow(t.NoOp()).run(
        [{"device": "a", "value": 1.0}] * 5000, sinks=sink, buffering=ro.Buffering(capacity=1600)
    )
    assert 1600 <= result.summary.buffered <= 1600 + 0.9 * (1 << 16)
    assert max(sizes) <= 1700  # a step may add a validity bitmap that the source omits
    assert sum(sizes) > 16 * 5000
    assert len(sizes) < 200


@pytest.mark.long
def test_interrupt_and_failed_sink_wake_the_waiting_reader():
    before = threading.active_count()
    for error in (KeyboardInterrupt, ValueError):

        def fail(stream, batch, error=error):
            time.sleep(0.1)  # the reader fills the queue in the meantime
            raise error

        with pytest.raises(error):
            flow().run(rows(20_000), sinks=ro.CallbackSink(fail), buffering="immediate")
    assert threading.active_count() == before


def two_sources():
    made = ro.Dataflow("two")
    for name in ("a", "b"):
        rows_ = made.source(name, schema=READINGS)
        made.sink(f"out_{name}", rows_.to(t.RunningCount(by=("device",)), id=f"count_{name}"))
    return made


@pytest.mark.long
@settings(max_examples=depth(10))
@given(any_buffering, st.integers(1, 99), st.integers(1, 149), st.integers(1, 40))
def test_restart_with_several_sources_loses_no_record(tmp_path_factory, buffering, first, second, batch_size):
    """A run commits only when no source has a partly processed range."""
    folder = tmp_path_factory.mktemp("restart")
    options = {
        "out": folder / "out",
        "checkpoint": folder / "state",
        "buffering": buffering,
        "batch_size": batch_size,
        "epoch_rows": 20,
    }
    a, b = rows(100), rows(150)
    source = {"a": ScriptedSource([a[:first], ABORT, a[first:]]), "b": ScriptedSource([b[:second], ABORT, b[second:]])}
    for _ in range(2):  # a run that starts after a failure does not see it
        with contextlib.suppress(ConnectorError):
            two_sources().run(source, **options)
    result = two_sources().run(source, **options)
    for name, n in (("a", 100), ("b", 150)):
        found = result[f"count_{name}"].sort_by("seq")
        assert found["value"].to_pylist() == [row["value"] for row in rows(n)]
        assert found["count"].to_pylist() == [i // 3 + 1 for i in range(n)]


def test_runs_of_several_sources_can_commit():
    """For any ends of ranges and batches, all ranges are complete at times."""
    buffer = InputBuffer(ro.Buffering(capacity=80, queue=1 << 20), 100)
    for i in range(60):
        buffer.put(buffered(numbers(7 * i, 7), 7 * (i + 1), "a"))
        buffer.put(buffered(numbers(3 * i, 3), 3 * (i + 1), "b"))
    halfway, since, whole = set(), 0, 0
    for one in drain(buffer):
        (halfway.discard if one.offset is not None else halfway.add)(one.source)
        since = since + 1 if halfway else 0
        whole += not halfway
        assert since <= MAX_UNCOMMITTED + 3
    assert whole > 4
