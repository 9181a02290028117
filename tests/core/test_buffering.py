"""Buffers by bytes and time, two marks, compression by ratio: the laws, and a run under any setting."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import as_buffering, check_trigger
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.payload import decode, encode
from riot_ops.core.source import heartbeat
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.kernels.arrays.arrow import size_of
from riot_ops.runtime.inbound import UNCOMMITTED, WAKE, Arrival, Inbound, fitting
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.buffer import Gate, batches
from tests.search import depth

READINGS = {"device": "string", "value": "double"}


def numbers(first, n):
    return pa.record_batch({"seq": np.arange(first, first + n)})  # 8 bytes each


def arrival(batch, offset=0, source="in"):
    return Arrival(source, {source: [batch]}, None if offset is None else {"row": offset})


def seqs(taken):
    return [n for one in taken.inputs.values() for batch in one for n in batch.column("seq").to_pylist()]


def drained(inbound):
    inbound.end()
    found = []
    while (taken := inbound.get()) is not None:
        found.append(taken)
    return found


# -- what a setting may be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"capacity": -1}, "Buffering: capacity = -1"),
        ({"capacity": 1.5}, "Buffering: capacity = 1.5"),
        ({"flush_ms": -1}, "Buffering: flush_ms = -1"),
        ({"flush_ms": float("nan")}, "Buffering: flush_ms = nan"),
        ({"flush_ms": 1.1e12}, r"Buffering: flush_ms = 1100000000000.0: .* <= 1000000000000"),
        ({"flush_ms": float("inf")}, "Buffering: flush_ms = inf"),
        ({"high": 1.1}, "Buffering: high = 1.1"),
        ({"low": 0}, "Buffering: low = 0"),
        ({"high": 0.5, "low": 0.5}, "low must be below high, got 0.5 and 0.5"),
        ({"capacity": 100, "queue": 99}, r"queue must have room for a batch of 100 bytes \(capacity\), got 99"),
        ({"capacity": 0, "queue": 0}, "queue must have room"),
        ({"codec": "gzip"}, "Buffering: codec = 'gzip'"),
        ({"ratio": 0.0}, "Buffering: ratio = 0.0"),
        ({"ratio": 1.5}, "Buffering: ratio = 1.5"),
        ({"ratio": 0.5, "codec": None}, "ratio = 0.5 needs a codec"),
        ({"trigger": "soon"}, "trigger must be a text such as '1 second', got 'soon'"),
        ({"trigger": "available now"}, "trigger must be"),
    ],
)
def test_what_is_not_allowed(wrong, text):
    with pytest.raises(ConfigError, match=text):
        ro.Buffering(**wrong)


@pytest.mark.parametrize(
    "text", ["0 seconds", "1 second", "0.2 seconds", "INTERVAL 1 hour 30 minutes", " 500  milliseconds ", "2 days"]
)
def test_intervals_of_micro_batches(text):
    assert ro.Buffering(trigger=text).trigger == text


@pytest.mark.parametrize("text", ["", "second", "1", "-1 second", "1 month", "0.5 hours", "1second", "1 second soon"])
def test_what_is_no_interval(text):
    """By the rules of Spark's parser, which would tell it when the results of an earlier run are gone."""
    with pytest.raises(ConfigError, match="trigger must be a text such as '1 second', got"):
        check_trigger(text)
    with pytest.raises(ConfigError, match="such as '1 second' or 'available now', got"):
        check_trigger(text, "available now")
    check_trigger("available now", "available now")


def test_presets():
    found = {name: as_buffering(name) for name in ro.Buffering.PRESETS}
    assert {name: (one.capacity, one.flush_ms, one.room, one.trigger) for name, one in found.items()} == {
        "throughput": (1 << 20, 10, 4 << 20, "1 second"),
        "latency": (16 << 10, 1, 64 << 10, None),
        "immediate": (0, 0, 64 << 10, None),
    }
    assert ro.Buffering(queue=9 << 20).room == 9 << 20
    for wrong in ("fast", 7):
        with pytest.raises(ConfigError, match="buffering must be a Buffering or one of throughput, latency, immediate"):
            as_buffering(wrong)


# -- the buffer --------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
    st.integers(0, 200),
    st.integers(1, 12),
)
def test_batches_are_those_of_the_definition(sizes, ranges, capacity, most):
    """Records of any size that come in ranges of any length; the ranges are short enough to end in each batch."""
    texts = pa.array(["x" * size for size in sizes])
    sizes = [4 * 2 + size for size in sizes]  # an offset more than there are texts: as slices have it
    inbound = Inbound(ro.Buffering(capacity=capacity, queue=1 << 20), most)
    row = 0
    for n in [*ranges, len(sizes)]:
        if part := len(texts.slice(row, n)):
            batch = pa.record_batch({"seq": np.arange(row, row + part), "text": texts.slice(row, part)})
            inbound.put(arrival(batch, row + part))
            row += part
    got = drained(inbound)
    assert [n for one in got for n in seqs(one)] == list(range(len(texts)))
    for one in got:
        (batch,) = one.inputs["in"]
        assert batch.num_rows == 1 or (batch.nbytes <= capacity and batch.num_rows <= most)
        assert one.size >= batch.nbytes


@given(st.lists(st.integers(1, 25), min_size=1, max_size=20), st.integers(0, 160), st.integers(1, 30))
def test_batches_of_equal_records_are_those_of_the_definition(ranges, capacity, most):
    inbound = Inbound(ro.Buffering(capacity=capacity, queue=1 << 20), most)
    row = 0
    for n in ranges:
        inbound.put(arrival(numbers(row, n), row + n))
        row += n
    got = [seqs(one) for one in drained(inbound)]
    wanted = batches([8] * row, capacity, most)
    ends = set(np.cumsum(ranges).tolist())
    if any(one[-1] + 1 not in ends for one in wanted[:-1]):  # a range may have to end a batch, see below
        assert [n for one in got for n in one] == list(range(row))
        assert all(len(one) <= max(len(w) for w in wanted) for one in got)
    else:
        assert got == wanted


def test_batches_fill_across_ranges():
    inbound = Inbound(ro.Buffering(capacity=40), 100)
    for first, n in ((0, 3), (3, 4), (7, 1), (8, 9)):
        inbound.put(arrival(numbers(first, n), first + n))
    assert [(seqs(one), one.offset) for one in drained(inbound)] == [
        ([0, 1, 2, 3, 4], None),
        ([5, 6, 7, 8, 9], None),
        ([10, 11, 12, 13, 14], None),
        ([15, 16], {"row": 17}),
    ]


def test_a_batch_ends_with_a_range_now_and_then():
    """Else a run whose ranges never end where its batches do could never commit."""
    inbound = Inbound(ro.Buffering(capacity=80, queue=1 << 20), 100)
    for i in range(50):
        inbound.put(arrival(numbers(7 * i, 7), 7 * (i + 1)))
    within = 0
    for one in drained(inbound):
        within = 0 if one.offset is not None else within + 1
        assert within <= UNCOMMITTED + 1
        assert one.offset is None or one.offset == {"row": seqs(one)[-1] + 1}


def test_the_first_record_of_a_batch_waits_so_long_and_no_longer():
    inbound = Inbound(ro.Buffering(flush_ms=80), 100)
    begun = time.monotonic()
    inbound.put(arrival(numbers(0, 1)))
    assert inbound.get(timeout=0.01) is WAKE
    inbound.put(arrival(numbers(1, 1)))
    assert seqs(inbound.get(timeout=5)) == [0, 1]
    assert 0.08 <= time.monotonic() - begun < 1


def test_a_source_that_blocks_delays_no_batch():
    class Slow(MemorySource):
        released = threading.Event()

        def latest(self, start, limit=None):
            if start["row"]:
                self.released.wait(20)
            return super().latest(start, 1)

    source, came = Slow([{"device": "a", "value": 1.0}] * 2), []

    def note(stream, batch):
        came.append(batch.num_rows)
        source.released.set()

    flow(t.NoOp()).run(source, sinks=ro.CallbackSink(note), buffering=ro.Buffering(flush_ms=5))
    assert came == [1, 1]


def test_a_batch_grows_while_the_steps_are_busy():
    inbound = Inbound(ro.Buffering(), 100)
    for i in range(5):
        inbound.put(arrival(numbers(i, 1), i))
    assert seqs(inbound.get()) == [0, 1, 2, 3, 4]


def test_a_batch_behind_one_under_way_grows_to_so_many_records_unless_no_more_can_come():
    inbound = Inbound(ro.Buffering(flush_ms=0), 100)
    for i in range(4):
        inbound.put(arrival(numbers(i, 1), i))
        assert inbound.get(timeout=0.01, rows=5) is WAKE
    inbound.put(arrival(numbers(4, 1), 4))
    assert seqs(inbound.get(timeout=5, rows=5)) == [0, 1, 2, 3, 4]
    inbound.put(arrival(numbers(5, 2), 6))
    assert seqs(inbound.get(timeout=5)) == [5, 6]  # nothing is under way any more
    inbound.put(arrival(numbers(7, 100), 106))
    assert len(seqs(inbound.get(timeout=5, rows=200))) == 100  # it is full
    inbound.put(arrival(numbers(107, 1), 107))
    inbound.end()
    assert seqs(inbound.get(timeout=5, rows=5)) == [107]


def test_a_few_records_behind_a_batch_that_takes_long_are_done_when_it_is():
    """They do not wait for as many as it had, nor for the source."""
    rows = [{"device": "a", "value": 1.0}] * 40_010

    class Pausing(MemorySource):
        def latest(self, start, limit=None):
            return super().latest(start, 40_000 if start["row"] < 40_000 else 1)

    came = []
    flow(t.NoOp()).run(Pausing(rows), sinks=ro.CallbackSink(lambda _, batch: came.append(batch.num_rows)), cores=2)
    assert sum(came) == len(rows)


def test_a_reader_goes_on_looking_while_the_steps_are_busy():
    class Slowly(MemorySource):
        def latest(self, start, limit=None):
            return super().latest(start, 1)

    came = []

    def note(stream, batch):
        came.append(batch.num_rows)
        time.sleep(0.1)

    flow(t.NoOp()).run(Slowly([{"device": "a", "value": 1.0}] * 30), sinks=ro.CallbackSink(note), cores=1)
    assert sum(came) == 30
    assert max(came) > 3


def test_sources_have_batches_of_their_own_and_heartbeats_stay():
    schema = numbers(0, 0).schema
    inbound = Inbound(ro.Buffering(), 100)
    for batch in (numbers(0, 2), heartbeat(schema, 2, 60), numbers(2, 1), numbers(3, 1)):
        inbound.put(arrival(batch, 1, "a"))
        inbound.put(arrival(numbers(7, 1), 1, "b"))
    a, b = drained(inbound)
    assert [batch.num_rows for batch in a.inputs["a"]] == [2, 0, 2]
    assert a.inputs["a"][1].schema.metadata == heartbeat(schema, 2, 60).schema.metadata
    assert [batch.num_rows for batch in b.inputs["b"]] == [4]


def test_a_source_that_gives_much_does_not_keep_others_waiting():
    inbound = Inbound(ro.Buffering(capacity=80), 100)
    inbound.put(arrival(numbers(0, 30), 30, "much"))
    inbound.put(arrival(numbers(0, 1), 1, "little"))
    came = []
    for i in range(3, 9):
        taken = inbound.get()
        came.append((taken.source, taken.rows))
        inbound.put(arrival(numbers(10 * i, 10), 10 * (i + 1), "much"))
    assert came[:5] == [("much", 10)] * 3 + [("little", 1), ("much", 10)]


@given(st.lists(st.text(max_size=9), min_size=1, max_size=25), st.integers(0, 200))
def test_as_many_records_as_fit(texts, most):
    batch = pa.record_batch({"text": texts, "known": [len(text) % 2 == 0 for text in texts]})
    wanted = max(n for n in range(len(texts) + 1) if n == 0 or batch.slice(0, n).nbytes <= most)
    assert fitting(batch, most) == wanted


@pytest.mark.parametrize("views", [False, True])
def test_what_records_share_does_not_count_for_each(views):
    words = [*(f"a sensor's long name {i:05}" for i in range(2000)), None]
    indices = np.arange(20_000) % 2001
    column = (
        pa.array([words[i] for i in indices], pa.string_view())
        if views
        else pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(words, pa.string_view()))
    )
    batch = pa.record_batch({"word": column})
    a_record = 16 + 26 if views else 4 + 16 + 26  # none of a slice has all of what they share
    assert size_of(batch) == pytest.approx(a_record * 20_000, rel=0.01)
    assert size_of(batch.slice(19_990)) == pytest.approx(a_record * 10, rel=0.01)
    assert sum(size_of(batch.slice(i, 100)) for i in range(0, 20_000, 100)) == pytest.approx(size_of(batch), rel=0.01)
    assert fitting(batch, 1000) == pytest.approx(1000 // a_record, abs=1)
    assert size_of(batch.slice(0, 0)) == 0 == size_of(pa.record_batch({"w": pa.nulls(0, pa.string_view())}))
    flow = ro.Dataflow("shared")
    flow.sink("out", flow.source("rows", schema=pa.schema({"word": pa.string()})).to(t.NoOp(), id="same"))
    result = flow.run(pa.Table.from_batches([batch]), buffering=ro.Buffering(capacity=1 << 16), cores=1)
    assert result.summary.batches < 40


# -- two marks ---------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60),
    st.floats(0.5, 1.0),
    st.floats(0.05, 0.45),
)
def test_the_source_is_held_back_between_the_marks(steps, high, low):
    room = 800
    inbound, gate = (
        Inbound(ro.Buffering(capacity=0, queue=room, high=high, low=low), 100),
        Gate(high * room, low * room),
    )
    put = taken = 0
    for is_put, n in steps:
        for _ in range(n):
            assert inbound._closed == gate.closed
            if is_put and not gate.closed:
                inbound.put(arrival(numbers(put, 1)))
                gate.put(8)
                put += 1
            elif not is_put and taken < put:
                assert seqs(inbound.get()) == [taken]
                gate.get(8)
                taken += 1
    assert inbound.size == gate.size == 8 * (put - taken)


@pytest.mark.parametrize("buffering", [ro.Buffering(capacity=800, queue=4000), "immediate", "latency"])
def test_a_slow_taker_gets_every_record_once_and_bounds_what_waits(buffering):
    buffering = as_buffering(buffering)
    inbound, n = Inbound(buffering, 1000), 6000
    rng = np.random.default_rng(7)

    def read():
        row = 0
        while row < n:
            size = min(int(rng.integers(1, 60)), n - row)
            inbound.put(arrival(numbers(row, size), row + size))
            row += size
        inbound.end()

    reader = threading.Thread(target=read)
    reader.start()
    got, blocked = [], 0
    while (taken := inbound.get(timeout=10)) is not None:
        got += seqs(taken)
        blocked += inbound._closed
        time.sleep(0.0002)
    reader.join(10)
    assert got == list(range(n))
    assert inbound.most <= buffering.high * buffering.room + max(buffering.capacity, 8)
    assert blocked or buffering.room > 8 * n


def test_stopping_wakes_who_waits():
    inbound = Inbound(ro.Buffering(capacity=8, queue=8), 10)
    told = []
    reader = threading.Thread(target=lambda: told.append([inbound.put(arrival(numbers(i, 1))) for i in range(3)]))
    reader.start()
    time.sleep(0.05)
    assert reader.is_alive()
    inbound.stop()
    reader.join(5)
    assert told == [[True, False, False]]


def test_an_error_comes_behind_what_was_read():
    inbound = Inbound(ro.Buffering(), 10)
    inbound.put(arrival(numbers(0, 2)))
    inbound.end(ConnectorError("gone"))
    assert seqs(inbound.get()) == [0, 1]
    with pytest.raises(ConnectorError, match="gone"):
        inbound.get()


def test_a_call_wakes_who_takes():
    inbound = Inbound(ro.Buffering(flush_ms=60_000), 10)
    inbound.put(arrival(numbers(0, 1)))
    inbound.wake()
    assert inbound.get() is WAKE
    assert inbound.get(timeout=0) is WAKE


def test_the_longest_time_can_be_waited_for():
    inbound = Inbound(ro.Buffering(flush_ms=1e12), 10)
    inbound.put(arrival(numbers(0, 1)))
    calling = threading.Timer(0.05, inbound.wake)
    calling.start()
    assert inbound.get() is WAKE
    calling.join()


# -- runs --------------------------------------------------------------------------------------------


def flow(task=None):
    made = ro.Dataflow("small")
    rows = made.source("in", schema=READINGS)
    return made.sink("out", rows.to(task or t.MovingAverage(by=("device",), window=3, partial=True), id="avg"))


def rows(n):
    return [{"device": "abé"[i % 3], "value": float(i % 11)} for i in range(n)]


any_buffering = st.builds(
    ro.Buffering,
    capacity=st.sampled_from([0, 1, 60, 1000]),
    flush_ms=st.sampled_from([0.0, 2.0]),
    queue=st.sampled_from([None, 1000, 3000]),
    high=st.floats(0.5, 1.0),
    low=st.floats(0.01, 0.4),
)
WANTED = {n: flow().run(rows(n))["avg"].to_pylist() for n in (0, 1, 50, 400)}


@given(any_buffering, st.sampled_from(sorted(WANTED)), st.integers(1, 100), st.sampled_from([1, 2]))
def test_results_are_the_same_for_any_setting(buffering, n, batch_size, cores):
    result = flow().run(rows(n), buffering=buffering, batch_size=batch_size, cores=cores)
    assert result["avg"].to_pylist() == WANTED[n]
    assert result.summary.messages == n


@settings(max_examples=depth(15))
@given(any_buffering, st.integers(1, 399), st.integers(1, 60))
def test_a_restart_loses_and_doubles_nothing(tmp_path_factory, buffering, cut, batch_size):
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


def test_a_batch_has_no_more_than_capacity():
    sizes = []
    sink = ro.CallbackSink(lambda _, batch: sizes.append(batch.nbytes))
    result = flow(t.NoOp()).run(
        [{"device": "a", "value": 1.0}] * 5000, sinks=sink, buffering=ro.Buffering(capacity=1600)
    )
    assert 1600 <= result.summary.buffered <= 1600 + 0.9 * (1 << 16)
    assert max(sizes) <= 1700  # a step may know which values are null, where the source does not
    assert sum(sizes) > 16 * 5000
    assert len(sizes) < 200


def test_ctrl_c_and_a_sink_that_fails_wake_a_reader_that_is_held_back():
    before = threading.active_count()
    for error in (KeyboardInterrupt, ValueError):

        def fail(stream, batch, error=error):
            time.sleep(0.1)  # what can be read meanwhile fills the queue
            raise error

        with pytest.raises(error):
            flow().run(rows(20_000), sinks=ro.CallbackSink(fail), buffering="immediate")
    assert threading.active_count() == before


# -- compression -------------------------------------------------------------------------------------

codecs = st.sampled_from([None, "lz4", "zstd"])


@given(st.lists(st.binary(max_size=200), max_size=30), codecs, st.sampled_from([None, 0.05, 0.2, 0.5, 1.0]))
def test_bytes_in_are_bytes_out(values, codec, ratio):
    batch = pa.record_batch({"payload": pa.array(values, pa.binary())})
    buffering = ro.Buffering(codec=codec, ratio=None if codec is None else ratio)
    assert decode(encode([batch, batch], buffering)) == [batch, batch]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_does_not_get_small_enough_goes_as_it_is(codec):
    rng = np.random.default_rng(3)
    constant = pa.record_batch({"payload": [b"0" * 100] * 200})
    random = pa.record_batch({"payload": [rng.bytes(100) for _ in range(200)]})
    for batch in (constant, random):
        raw = len(encode([batch], ro.Buffering(codec=None)))
        total = len(encode([batch], ro.Buffering(codec=codec)))
        for ratio in (0.01, 0.2, 0.5, 1.0):
            size = len(encode([batch], ro.Buffering(codec=codec, ratio=ratio)))
            assert size == (total if total <= ratio * raw else raw)
    assert total > 0.9 * raw
    assert len(encode([constant], ro.Buffering(codec=codec, ratio=0.2))) < 0.2 * raw


def two_sources():
    made = ro.Dataflow("two")
    for name in ("a", "b"):
        rows_ = made.source(name, schema=READINGS)
        made.sink(f"out_{name}", rows_.to(t.RunningCount(by=("device",)), id=f"count_{name}"))
    return made


@settings(max_examples=depth(10))
@given(any_buffering, st.integers(1, 99), st.integers(1, 149), st.integers(1, 40))
def test_a_restart_among_several_sources(tmp_path_factory, buffering, first, second, batch_size):
    """Nothing is committed while the range of any source is half done."""
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
    for _ in range(2):  # a run that begins behind a failure does not see it
        with contextlib.suppress(ConnectorError):
            two_sources().run(source, **options)
    result = two_sources().run(source, **options)
    for name, n in (("a", 100), ("b", 150)):
        found = result[f"count_{name}"].sort_by("seq")
        assert found["value"].to_pylist() == [row["value"] for row in rows(n)]
        assert found["count"].to_pylist() == [i // 3 + 1 for i in range(n)]


def test_runs_of_several_sources_commit_now_and_then():
    """However the ends of ranges and batches fall, there are moments at which all is whole."""
    inbound = Inbound(ro.Buffering(capacity=80, queue=1 << 20), 100)
    for i in range(60):
        inbound.put(arrival(numbers(7 * i, 7), 7 * (i + 1), "a"))
        inbound.put(arrival(numbers(3 * i, 3), 3 * (i + 1), "b"))
    halfway, since, whole = set(), 0, 0
    for one in drained(inbound):
        (halfway.discard if one.offset is not None else halfway.add)(one.source)
        since = since + 1 if halfway else 0
        whole += not halfway
        assert since <= UNCOMMITTED + 3
    assert whole > 4
