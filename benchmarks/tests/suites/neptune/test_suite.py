"""Neptune's suite: its checks detect faults, links deliver in order, and all measures exist."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune import compression as neptune_compression
from riot_bench.suites.neptune import processes as neptune_processes
from riot_bench.suites.neptune import relay as neptune_relay
from riot_bench.suites.neptune import relay_spark
from riot_bench.suites.neptune import suite as neptune
from riot_bench.suites.neptune.link import COMPRESSED, HEADER, LinkSink, LinkSource, connect, decode_frame, encode_frame
from riot_bench.suites.neptune.messages import FRAME, SAMPLES, MessageSource, ReceivingSink, RelayResult
from riot_bench.suites.neptune.processes import ProcessRelay, run_stage
from riot_bench.suites.neptune.relay import run_local, size_label
from riot_bench.suites.neptune.thesis import BANDWIDTH, COMPRESSION, LATENCY, THROUGHPUT
from riot_bench.suites.registry import SUITES, find_experiments

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.ipc import encode, encode_with_flag
from riot_ops.ingest.pace import PacedSource

RAW = Buffering(capacity=4096, flush_ms=2, codec=None)


# -- messages and their checks -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [50, 10_240])
def test_message_has_its_size(size):
    batch = next(MessageSource(size, total=3).read({"start": 0, "end": 3}))
    assert batch.nbytes == 3 * size
    assert batch.column("seq").to_pylist() == [0, 1, 2]
    assert abs(time.time_ns() - batch.column("sent")[0].as_py()) < 1e9


def test_messages_end_by_number_or_time_and_may_hold_anything():
    some = MessageSource(50, total=5, first=100)
    assert some.latest({"row": 0}, 3) == {"row": 3}
    assert some.finished(some.latest({"row": 3}))
    assert next(some.read({"start": 4, "end": 5})).column("seq").to_pylist() == [104]
    short = MessageSource(50, seconds=0.02)
    assert short.latest({"row": 0}, 10) == {"row": 10}
    time.sleep(0.03)
    assert short.latest({"row": 10}) == {"row": 10}
    assert short.finished({"row": 10})
    other = next(MessageSource(50, total=3, fillers=[b"a", b"bb"]).read({"start": 0, "end": 3}))
    assert other.column("filler").to_pylist() == [b"a", b"bb", b"a"]


def test_messages_count_those_given():
    some = MessageSource(50, total=9, first=100, read=150)  # three at once
    assert some.messages_read == 0
    next(some.read({"start": 0, "end": 5}))
    next(some.read({"start": 2, "end": 4}))  # again
    assert some.messages_read == 5


def test_send_time_is_the_due_time():
    some = MessageSource(50, total=20, read=150)
    found = [*some.read({"start": 10, "end": 14, "due": [1000, 1300]})]  # one each 100 us
    assert [batch.column("sent").to_pylist() for batch in found] == [[1_000_000, 1_100_000, 1_200_000], [1_300_000]]
    (one,) = some.read({"start": 7, "end": 8, "due": [1000, 1000]})
    assert one.column("sent").to_pylist() == [1_000_000]
    now = [100.0]
    paced = PacedSource(MessageSource(50, total=20), rate=2, clock=lambda: now[0])
    assert paced.latest({"row": 0}) == {"row": 1}
    now[0] += 1.75  # the source is polled late: 1, 2 and 3 were due at 100.5, 101 and 101.5
    splits = paced.splits({"row": 1}, paced.latest({"row": 1}), 1)
    sent = [t for split in splits for batch in paced.read(split) for t in batch.column("sent").to_pylist()]
    assert sent == [100_500_000_000, 101_000_000_000, 101_500_000_000]


def test_paced_latency_includes_the_wait_in_the_source():
    now = [time.time() - 2.0]
    paced = PacedSource(MessageSource(50, total=200, read=2500), rate=100, clock=lambda: now[0])
    batches, offset = [], {"row": 0}
    for wait in (0.0, 1.5):  # no poll for a second and a half, and delivery half a second later
        now[0] += wait
        start, offset = offset, paced.latest(offset)
        batches += [batch for split in paced.splits(start, offset, 1) for batch in paced.read(split)]
    assert [batch.num_rows for batch in batches] == [1, 50, 50, 50]
    found = noted(*batches).result(paced.source.messages_read, warm=0)
    assert (found.messages, found.faults) == (151, 0)
    assert 1200 < found.mean < 1800  # from 1.99 to 0.5 s
    assert 1900 < found.p99 < 2500


def batch_of(numbers, sent_ms_ago=0.0):
    sent = np.full(len(numbers), time.time_ns() - int(1e6 * sent_ms_ago))
    return pa.record_batch({"seq": pa.array(numbers, pa.int64()), "sent": sent})


def noted(*batches):
    sink = ReceivingSink()
    writer = sink.writer(0, 0)
    for batch in batches:
        writer.write("out", batch)
    sink.commit(0, [writer.finish()])
    return sink


@pytest.mark.parametrize(
    ("batches", "given", "lost", "disorder"),
    [
        ([[0, 1], [2, 3]], 4, 0, 0),
        ([[0, 1], [3, 4]], 5, 1, 1),
        ([[0, 1], [1, 2]], 3, -1, 1),
        ([[0, 1], [0, 1]], 2, -2, 1),  # a batch is duplicated
        ([[0, 1], [2, 3]], 6, 2, 0),  # the last one is lost
        ([[0, 1], [0, 1]], 4, 0, 1),  # and one twice in its place
        ([[2, 3], [0, 1]], 4, 0, 2),
        ([[0, 2, 1], [3]], 4, 0, 2),
        ([[0, 1, 3]], 4, 1, 1),
    ],
)
def test_lost_duplicated_and_disordered_messages_are_counted(batches, given, lost, disorder):
    found = noted(*map(batch_of, batches)).result(given, warm=0)
    assert (found.lost, found.disorder) == (lost, disorder)
    assert found.faults == abs(lost) + disorder
    assert found.messages == sum(map(len, batches))


def test_warm_up_is_excluded_from_measures():
    sink = ReceivingSink()  # a batch of ten each second; each takes as many ms as its number
    sink.notes = [[1000.0 + i, 10.0 * i, 10, 0, *[1e6 * i] * SAMPLES] for i in range(11)]
    found = sink.result(110, warm=0.5)
    assert found.rate == pytest.approx(10)
    assert found.mean == pytest.approx(np.mean([6, 7, 8, 9, 10]))
    assert found.deviation == pytest.approx(np.std([6, 7, 8, 9, 10]))
    assert 9.9 < found.p99 <= 10


def test_relay_in_process_loses_nothing_and_measures_its_latency():
    found = run_local(MessageSource(50, total=20_000), RAW)
    assert (found.messages, found.lost, found.disorder) == (20_000, 0, 0)
    assert 0 < found.mean < 5000
    assert found.rate > 0


# -- links -------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=9), st.none() | st.floats()), min_size=1, max_size=9),
    st.sampled_from([Buffering(), Buffering(codec=None), Buffering(ratio=0.2), Buffering(codec="zstd")]),
    st.tuples(st.integers(0, 65_535), st.integers(0, 1 << 31), st.integers(0, 1 << 62)),
)
def test_frame_roundtrip(rows, buffering, names):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )
    link, sender, first = names
    sent = encode_frame(batch, buffering, first, link, sender)
    found = decode_frame(sent[: HEADER.size], sent[HEADER.size :])
    assert found[:3] == (link, sender, first)
    assert found[3].equals(batch) or str(found[3].to_pydict()) == str(batch.to_pydict())  # NaN is not itself
    smaller = buffering.codec and (
        buffering.ratio is None or len(sent) - HEADER.size <= 0.2 * len(encode([batch], RAW))
    )
    assert HEADER.unpack(sent[: HEADER.size])[2] == (COMPRESSED if smaller else 0)


@pytest.mark.parametrize(
    ("buffering", "repetitive", "random"),
    [(RAW, 0, 0), (Buffering(), 1, 1), (Buffering(ratio=0.5), 1, 0), (Buffering(codec="zstd", ratio=0.001), 0, 0)],
)
def test_frame_flag_marks_compression(buffering, repetitive, random):
    chance = np.random.default_rng(3)
    a, b = socket.socketpair()
    link = LinkSink(a, buffering)
    for content, wanted in (([b"0" * 100] * 100, repetitive), ([chance.bytes(100) for _ in range(100)], random)):
        batch = pa.record_batch({"payload": content})
        assert HEADER.unpack(encode_frame(batch, buffering, 0)[: HEADER.size])[2] == wanted * COMPRESSED
        link.writer(0, 0).write("out", batch)
    assert (link.frames, link.compressed, link.sent) == (2, repetitive + random, 200)
    a.close()
    b.close()


def test_damaged_frame_is_refused():
    sent = encode_frame(batch_of([0, 1]), RAW, 0)
    header, payload = sent[: HEADER.size], sent[HEADER.size :]
    other = bytearray(payload)
    other[len(other) // 2] ^= 1
    for bad, text in (
        ((b"XXXX" + header[4:], payload), "a frame begins with b'XXXX', version 1"),
        ((header[:4] + b"\x02" + header[5:], payload), "version 2, not b'RIOT', version 1"),
        ((header, bytes(other)), "is damaged"),
        ((header, payload[:-1]), "is damaged"),
        ((header[:20] + b"\x03" + header[21:], payload), "has 2 records instead of 3"),
    ):
        with pytest.raises(ConnectorError, match=text):
            decode_frame(*bad)


def linked(messages, buffering, receiver=None):
    """Over a link between two dataflows of this process."""
    a, b = socket.socketpair()
    sending, received = LinkSink(a, buffering), ReceivingSink()
    thread = threading.Thread(target=run_stage, args=(messages, sending, buffering))
    thread.start()
    run_stage(LinkSource(b, messages.schema), receiver or received, buffering)
    thread.join(20)
    return sending, received.result(messages.messages_read, warm=0) if receiver is None else None


@pytest.mark.parametrize("buffering", [RAW, Buffering(), Buffering(capacity=0), Buffering(capacity=500, ratio=0.5)])
def test_link_delivers_each_message_once_and_in_order(buffering):
    total = 300 if buffering.capacity == 0 else 5000
    sending, found = linked(MessageSource(60, total=total), buffering)
    assert (found.messages, found.lost, found.disorder) == (total, 0, 0)
    assert sending.bytes > total * (60 if buffering.codec is None else 1)


def test_link_offset_follows_the_limit():
    a, b = socket.socketpair()
    source = LinkSource(b, batch_of([0]).schema)
    for first in (0, 3, 6):  # one frame per three
        a.sendall(encode_frame(batch_of([first, first + 1, first + 2]), RAW, first))
    assert source.latest({"row": 0}, 2) == {"row": 2}
    assert source.latest({"row": 2}, 3) == {"row": 5}  # one of the first frame, two of the second
    assert source.latest({"row": 5}, 50) == {"row": 9}
    assert source.latest({"row": 9}, 50) == {"row": 9}  # nothing more, for now
    a.close()
    source.close()


def test_slow_receiver_blocks_the_sender():
    ahead, seen = [], 0
    a, b = socket.socketpair()
    for one in (a, b):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    buffering = Buffering(capacity=1000, queue=2000, codec=None)
    messages = MessageSource(100, total=600)
    sending = LinkSink(a, buffering)

    class Slow(ReceivingSink):
        def writer(self, batch_id, partition):
            writer = super().writer(batch_id, partition)
            write = writer.write

            def slowly(stream, batch):
                nonlocal seen
                seen += batch.num_rows
                ahead.append(sending.sent - seen)
                time.sleep(0.002)
                write(stream, batch)

            writer.write = slowly
            return writer

    sink = Slow()
    thread = threading.Thread(target=run_stage, args=(messages, sending, buffering))
    thread.start()
    run_stage(LinkSource(b, messages.schema), sink, buffering)
    thread.join(20)
    assert sink.result(messages.messages_read, warm=0).messages == seen == messages.messages_read == 600
    assert max(ahead) < 300  # capacity of the two queues and the socket


def test_broken_link_is_an_error():
    a, b = socket.socketpair()
    a.sendall(encode_frame(batch_of([0, 1]), RAW, 0)[:-3])
    a.close()
    with pytest.raises(ConnectorError, match="ended within a frame"):
        run_stage(LinkSource(b, batch_of([0]).schema), ReceivingSink(), RAW)
    a, b = socket.socketpair()
    a.sendall(encode_frame(batch_of([0, 1]), RAW, 5))
    with pytest.raises(ConnectorError, match="the link delivered record 5 instead of 0"):
        run_stage(LinkSource(b, batch_of([0]).schema), ReceivingSink(), RAW)
    a.close()


def test_closed_receiver_wakes_a_blocked_sender():
    a, b = socket.socketpair()
    closing = threading.Timer(0.2, b.close)
    closing.start()
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        run_stage(MessageSource(1000), LinkSink(a, RAW), RAW)
    a.close()


def cut_short(sink, most):
    """A sink that drops all messages from a number on."""
    made, seen = sink.writer, 0

    def writer(batch_id, partition):
        writing = made(batch_id, partition)
        write = writing.write

        def some(stream, batch):
            nonlocal seen
            seen += batch.num_rows
            if seen <= most:
                write(stream, batch)

        writing.write = some
        return writing

    sink.writer = writer
    return sink


def test_relay_over_processes_loses_nothing_in_repeated_runs(monkeypatch):
    with ProcessRelay() as run:
        for messages in (MessageSource(50, total=4000), MessageSource(300, total=1000, fillers=[b"a" * 99, b"b" * 7])):
            found, sent = run.counted(messages, RAW)
            assert (found.messages, found.lost, found.disorder) == (messages.total, 0, 0)
            assert sent.bytes > messages.total * FRAME
            assert (sent.sent, messages.messages_read, sent.compressed) == (messages.total, messages.total, 0)
        monkeypatch.setattr(neptune_processes, "LinkSink", lambda *given: cut_short(LinkSink(*given), 3000))
        found, sent = run.counted(MessageSource(50, total=4000), RAW)
        assert (found.messages, found.lost, found.disorder) == (sent.sent, 4000 - sent.sent, 0)
        assert 1000 <= found.lost < 1100  # a batch has less than a hundred


@pytest.mark.parametrize("where", [neptune_relay, neptune_processes])
def test_relay_that_loses_its_last_messages_is_reported(monkeypatch, where):
    monkeypatch.setattr(where, "ReceivingSink", lambda: cut_short(ReceivingSink(), 3000))
    given = MessageSource(50, total=4000)
    if where is neptune_relay:
        found = run_local(given, RAW)
    else:
        monkeypatch.setattr(where, "MessageSource", lambda size, seconds: given)
        found = RelayResult(**neptune_processes._relay_in_process(50, 1.0, RAW))
    assert (found.messages, found.disorder) == (4000 - found.lost, 0)
    assert 1000 <= found.lost < 1100  # a batch has less than a hundred


# -- the suite ---------------------------------------------------------------------------------------


def test_published_bandwidth_follows_from_the_throughput():
    assert THROUGHPUT.keys() == LATENCY.keys() == BANDWIDTH.keys() == set(neptune_relay.SIZES)
    for size, rates in THROUGHPUT.items():
        for rate, width in ((rates.neptune, BANDWIDTH[size].neptune), (rates.storm, BANDWIDTH[size].storm)):
            for mine, theirs in ((rate.mean, width.mean), (rate.sd, width.sd)):
                assert mine * size * 8 / 1e9 == pytest.approx(theirs, abs=0.011)
        assert (rates.t, rates.df) == (BANDWIDTH[size].t, BANDWIDTH[size].df)
        assert rates.t > 0 > LATENCY[size].t
        assert LATENCY[size].neptune.mean < LATENCY[size].neptune.p99 < LATENCY[size].storm.mean


def made_up(rates):
    """Runs with given results."""
    left = iter(rates)

    def run(messages, buffering):
        return RelayResult(1000, next(left), 2.0, 0.5, 3.0, 0, 0)

    return run


def test_relay_has_measures_for_each_size_and_buffer(monkeypatch):
    monkeypatch.setattr(neptune_relay, "QUICK_SIZES", (50, 400))
    monkeypatch.setattr(neptune_relay, "QUICK_BUFFERS", (1 << 10, 1 << 14))
    rates = [200.0, 1.0, 210.0, 2.0, 220.0, 3.0, 5.0, 6.0, 7.0, 8.0, 8.0, 8.0, 20.0, 21.0, 22.0, 19.0, 21.0, 20.0]
    found = {m.measure: m for m in neptune_relay._sweep("local", made_up(rates), True, 0.1)}
    main = found["neptune/relay/local/50B"]
    assert (main.value, main.values, main.reach, main.published) == (210.0, (200.0, 210.0, 220.0), 2e6, 1987600.95)
    assert "Storm 200,523 ± 51,210, Welch's t = 65.84, df = 102.68" in main.against
    assert found["neptune/relay/local/50B/1KB"].values == (5.0, 6.0, 7.0)
    assert found["neptune/relay/local/50B/1KB"].published is None
    published = {name: one.published for name, one in found.items() if "/latency/" in name}
    at = "neptune/relay/local/50B"
    assert [published[f"{at}/latency/{name}"] for name in ("mean", "sd", "p99")] == [65.58, 20.21, 109.02]
    assert published[f"{at}/16KB/latency/mean"] == 10
    assert published[f"{at}/1KB/latency/mean"] is published[f"{at}/16KB/latency/p99"] is None
    assert "Storm: 22,500" in found[f"{at}/latency/p99"].against
    assert found["neptune/relay/local/50B/immediate"].values == (1.0, 2.0, 3.0)
    assert found["neptune/relay/local/50B/bandwidth"].value == pytest.approx(210 * 50 * 8 / 1e9)
    assert found["neptune/relay/local/50B/vs-immediate"].values == (200.0, 105.0, pytest.approx(220 / 3))
    assert found["neptune/relay/local/lost"].met is True
    shown = [one for e in neptune.EXPERIMENTS for f in e.figures for one in f.points(found.values())]
    assert {(series, x) for series, x, _ in shown} == {
        ("local", "50B"),
        ("local", "400B"),
        ("50B", "1KB"),
        ("50B", "16KB"),
    }


def test_duplicates_of_a_run_do_not_cancel_losses_of_another(monkeypatch):
    monkeypatch.setattr(neptune_relay, "QUICK_SIZES", (50,))
    monkeypatch.setattr(neptune_relay, "QUICK_BUFFERS", (1 << 10,))
    losses, chance = iter([0, 0, 8, -8, 0, 0, 5, -5, 0]), np.random.default_rng(0)

    def run(messages, buffering):
        return RelayResult(1000, 9.0 + chance.random(), 2.0, 0.5, 3.0, next(losses), 0)

    made = neptune_relay._sweep("local", run, True, 0.1)
    found = {m.measure.removeprefix("neptune/relay/local/"): m for m in made}
    assert (found["lost"].value, found["lost"].met) == (26, False)
    assert found["disorder"].met is True


def test_paced_run_must_keep_pace_without_losses(monkeypatch):
    monkeypatch.setattr(neptune_relay, "_sweep", lambda *_: iter(()))
    runs = []

    def result(messages, buffering):
        runs.append((getattr(messages, "rate", None), messages, buffering))
        first = len(runs) == 2
        return RelayResult(
            1000, 960_000.0 if first else 930_000.0, 2.0, 0.5, 9.0 if first else 12.0, -8 if first else 7, 1
        )

    monkeypatch.setattr(neptune_relay, "run_local", result)
    found = {m.measure.removeprefix("neptune/relay/local/50B/paced/"): m for m in neptune_relay.local_relay(True)}
    assert [(rate, buffering) for rate, _, buffering in runs[1:]] == [(1e6, Buffering.named("latency"))] * 2
    assert found["p99"].values == (9.0, 12.0)
    assert (found["rate"].value, found["rate"].reach, found["rate"].met) == (945_000, 950_000, False)
    assert (found["lost"].value, found["lost"].met) == (8 + 1 + 7 + 1, False)


def test_relay_over_links_has_its_share_of_the_link_capacity(monkeypatch):
    class Made:
        def __enter__(self):
            return made_up([1.0, *(n * 1e6 for n in (5, 0.1, 7, 0.2, 6, 0.3, 1, 0.1, 3, 0.2, 2, 0.3))])

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(neptune_relay, "QUICK_SIZES", (50, 400))
    monkeypatch.setattr(neptune_relay, "QUICK_BUFFERS", ())
    monkeypatch.setattr(neptune_relay, "ProcessRelay", Made)
    monkeypatch.setattr(neptune_relay, "measure_link_capacity", lambda rounds: [8.0, 10.0, 12.0, 9.0, 11.0][:rounds])
    found = {m.measure.removeprefix("neptune/relay/processes/"): m for m in neptune_relay.process_relay(True)}
    assert found["capacity"].values == (8.0, 10.0, 12.0, 9.0, 11.0)
    assert found["50B/share"].values == pytest.approx((0.2, 0.28, 0.24))  # 5e6 messages of 400 bits: 2 of 10 Gbit/s
    assert found["400B/share"].value == pytest.approx(0.64)
    assert (found["50B/share"].published, found["400B/share"].published) == (None, 0.932)
    shown = [one for e in neptune.EXPERIMENTS for f in e.figures for one in f.points(found.values())]
    assert not any(m.measure.endswith("share") for *_, m in shown)


def test_link_capacity_is_measured_with_plain_bytes(monkeypatch):
    monkeypatch.setattr(neptune_processes, "CHUNK", 1000)
    monkeypatch.setattr(neptune_processes, "CHUNKS", 5)
    now, ended, threads = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.25]), [], []

    @contextmanager
    def stage(kind, buffering, place):
        def other():
            neptune_processes.drain(connect(place))
            ended.append(kind)

        threads.append(threading.Thread(target=other))
        threads[0].start()
        yield None
        threads[0].join(20)

    monkeypatch.setattr(neptune_processes, "stage_process", stage)
    monkeypatch.setattr(neptune_processes, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    assert neptune_processes.measure_link_capacity(2) == pytest.approx([40_000 / 1e9 / 0.5, 40_000 / 1e9 / 0.25])
    assert ended == ["drain"]


def test_relay_on_spark_reports_losses_and_buffer_effects(monkeypatch):
    started = []

    def start(flow, session, messages, *, sinks, max_records, buffering):
        started.append((messages.total, messages.pool, max_records, buffering.capacity))
        messages.total -= 3  # the last messages are lost
        flow.run(messages, sinks=sinks)
        return SimpleNamespace(wait=lambda: None, streaming=buffering.capacity)

    def durations(capacity):
        return [9.0, 1.0, 1.25] if capacity > 1024 else [9.0, 10.0, 12.5]

    monkeypatch.setattr(relay_spark.Dataflow, "start", start)
    monkeypatch.setattr(relay_spark, "durations", durations)
    made = relay_spark.relay_measures(None, 50, 2, 100_000, (1 << 10, 1 << 17), 50_000)
    found = {m.measure.removeprefix("neptune/relay/spark/50B"): m for m in made}
    block = 1 << 20
    assert started == [
        (6000, 65_536, 2000, block),
        (3000, 20, 1000, 1 << 10),
        (3000, 2621, 1000, 1 << 17),
        (60, 65_536, 20, block),
        (7863, 65_536, 2621, block),
    ]
    assert (found["/lost"].value, found["/lost"].met) == (15, False)
    assert (found["/disorder"].value, found["/disorder"].met) == (0, True)
    assert (found[""].values, found[""].sample) == ((), (2000, 1600))  # of one run
    assert len(found["/bandwidth"].sample) == 2
    assert (found[""].published, found["/buffer-128KB"].published) == (THROUGHPUT[50].neptune.mean, None)
    assert found["/latency/p99"].published == 109.02
    assert found["/buffer-1KB"].sample == (100, 80)
    assert found["/buffer-128KB"].sample == (1000, 800)
    assert found["/micro-batch-1KB"].sample == (20, 16)
    gain = found["/vs-small-blocks"]
    assert (gain.value, gain.sample) == (10, (10, 10))
    assert gain.against == "blocks of 128KB against those of 1KB, by micro-batch"
    (figures,) = (one.figures for one in neptune.EXPERIMENTS if one.key == "neptune/relay/spark")
    wanted = {(series, x) for series in ("buffer", "micro-batch") for x in ("1KB", "128KB")}
    for figure in figures[3:]:
        assert {(series, x) for series, x, _ in figure.points(found.values())} == wanted


def test_compression_compares_all_settings(monkeypatch):
    monkeypatch.setattr(neptune_compression, "LINES", 50)
    chance = np.random.default_rng(0)
    counts = []

    class Made:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __call__(self, messages, buffering):
            return self.counted(messages, buffering)[0]

        def counted(self, messages, buffering):
            rate = (100.0 if buffering.codec is None else 50.0) + chance.random()
            counts.append(len(counts))
            compressed = 0 if buffering.codec is None else 1 if buffering.ratio == 0.2 else 3
            link = SimpleNamespace(bytes=1000 + int(chance.integers(9)), sent=10, frames=4, compressed=compressed)
            lost = {7: 3, 8: -3}.get(len(counts), 0)  # of equipment
            return RelayResult(10 - lost, rate, chance.random(), 0.1, 2.0, lost, 0), link

    monkeypatch.setattr(neptune_compression, "ProcessRelay", Made)
    found = {m.measure: m for m in neptune_compression.compression(True)}
    assert [found[f"neptune/compression/{data}/lost"].value for data in ("equipment", "mixed", "random")] == [6, 0, 0]
    assert found["neptune/compression/equipment/lost"].met is False
    shares = [found[f"neptune/compression/mixed/{mode}/compressed"].value for mode in neptune_compression.MODES]
    assert shares == [0, 0.25, 0.75, 0.75]
    for data in ("equipment", "mixed", "random"):
        for mode in neptune_compression.MODES:
            assert len(found[f"neptune/compression/{data}/{mode}/throughput"].values) == 3
            assert found[f"neptune/compression/{data}/{mode}/bytes"].value == pytest.approx(100.5, abs=0.5)
        tests = [name for name in found if re.fullmatch(rf"neptune/compression/{data}/throughput/.*/p", name)]
        assert len(tests) == 6
        assert all(COMPRESSION[data] in found[name].against for name in tests)


def test_payloads_lie_below_between_and_above_the_coefficients(monkeypatch):
    monkeypatch.setattr(neptune_compression, "LINES", 3000)  # about 1 MiB
    wanted = {
        "equipment": [False, True, True, True],
        "mixed": [False, False, True, True],
        "random": [False, False, False, True],
    }
    found = neptune_compression.payloads()
    assert found.keys() == wanted.keys()
    assert len({tuple(map(len, lines)) for lines in found.values()}) == 1
    for name, lines in found.items():
        batch = pa.record_batch({"filler": lines})
        assert [encode_with_flag([batch], mode)[1] for mode in neptune_compression.MODES.values()] == wanted[name]
    assert not set(found["mixed"]) & set(found["equipment"])
    assert found["mixed"][7][-100:] == found["equipment"][7][-100:]


def test_figures_of_the_suite_match_its_measures():
    assert "neptune" in SUITES
    assert {one.key for one in find_experiments("neptune")} == {
        *(f"neptune/relay/{name}" for name in ("local", "processes", "spark")),
        *(f"neptune/{name}" for name in ("compression", "backpressure", "backpressure/spark", "scaling")),
    }
    assert sum(one.seconds[0] for one in neptune.EXPERIMENTS) <= 240
    keys = [figure.key for one in neptune.EXPERIMENTS for figure in one.figures]
    assert len(keys) == len(set(keys))
    steps = [Measure("neptune/backpressure/step-1/1ms", 900.0, "messages/s")]
    (figure,) = next(one for one in neptune.EXPERIMENTS if one.key == "neptune/backpressure").figures
    assert [x for _, x, _ in figure.points(steps)] == ["1"]
    at = "neptune/backpressure/spark/step-2"
    steps = [Measure(f"{at}/2ms", 900.0, "messages/s"), Measure(f"{at}/batch-seconds", 1.0, "s")]
    steps.append(Measure("neptune/backpressure/spark/adaptive/step-3/batch-messages", 300.0, "messages"))
    climbed, adaptive = next(one for one in neptune.EXPERIMENTS if one.key == "neptune/backpressure/spark").figures
    assert [(x, one.unit) for _, x, one in climbed.points(steps)] == [("2", "messages/s")]
    assert [(x, one.unit) for _, x, one in adaptive.points(steps)] == [("3", "messages")]


@pytest.mark.parametrize(
    ("size", "text"), [(50, "50B"), (1024, "1KB"), (10_240, "10KB"), (1 << 20, "1MB"), (1000, "1000B")]
)
def test_size_labels(size, text):
    assert size_label(size) == text
