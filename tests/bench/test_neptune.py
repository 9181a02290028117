"""Neptune's suite: what it checks would be noticed, links keep what they promise, and the measures are there."""

from __future__ import annotations

import re
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.bench import (
    neptune,
    neptune_compression,
    neptune_relay,
    neptune_relay_spark,
)
from riot_ops.bench.measure import Measure
from riot_ops.bench.neptune_link import COMPRESSED, HEADER, LinkSink, LinkSource, framed, unframed
from riot_ops.bench.neptune_messages import FRAME, SAMPLES, Messages, Received, Relayed
from riot_ops.bench.neptune_processes import OverProcesses, run_stage
from riot_ops.bench.neptune_published import BANDWIDTH, COMPRESSION, LATENCY, THROUGHPUT
from riot_ops.bench.neptune_relay import in_process, label
from riot_ops.bench.registry import SUITES, experiments
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError

RAW = Buffering(capacity=4096, flush_ms=2, codec=None)


# -- messages, and who checks them -------------------------------------------------------------------


@pytest.mark.parametrize("size", [50, 10_240])
def test_a_message_has_its_size(size):
    batch = next(Messages(size, total=3).read({"start": 0, "end": 3}))
    assert batch.nbytes == 3 * size
    assert batch.column("seq").to_pylist() == [0, 1, 2]
    assert abs(time.time_ns() - batch.column("sent")[0].as_py()) < 1e9


def test_messages_end_by_number_or_time_and_may_hold_anything():
    some = Messages(50, total=5, first=100)
    assert some.latest({"row": 0}, 3) == {"row": 3}
    assert some.finished(some.latest({"row": 3}))
    assert next(some.read({"start": 4, "end": 5})).column("seq").to_pylist() == [104]
    short = Messages(50, seconds=0.02)
    assert short.latest({"row": 0}, 10) == {"row": 10}
    time.sleep(0.03)
    assert short.latest({"row": 10}) == {"row": 10}
    assert short.finished({"row": 10})
    other = next(Messages(50, total=3, fillers=[b"a", b"bb"]).read({"start": 0, "end": 3}))
    assert other.column("filler").to_pylist() == [b"a", b"bb", b"a"]


def batch_of(numbers, sent_ms_ago=0.0):
    sent = np.full(len(numbers), time.time_ns() - int(1e6 * sent_ms_ago))
    return pa.record_batch({"seq": pa.array(numbers, pa.int64()), "sent": sent})


def noted(*batches):
    sink = Received()
    writer = sink.writer(0, 0)
    for batch in batches:
        writer.write("out", batch)
    sink.commit(0, [writer.finish()])
    return sink


@pytest.mark.parametrize(
    ("batches", "lost", "disorder"),
    [
        ([[0, 1], [2, 3]], 0, 0),
        ([[0, 1], [3, 4]], 1, 1),
        ([[0, 1], [1, 2]], -1, 1),
        ([[2, 3], [0, 1]], 0, 2),
        ([[0, 2, 1], [3]], 0, 2),
        ([[0, 1, 3]], 0, 1),
    ],
)
def test_what_is_lost_doubled_or_out_of_order_is_noticed(batches, lost, disorder):
    found = noted(*map(batch_of, batches)).relayed(warm=0)
    assert (found.lost, found.disorder) == (lost, disorder)
    assert found.messages == sum(map(len, batches))


def test_figures_leave_the_beginning_out():
    sink = Received()  # a batch of ten each second; each takes as many ms as its number
    sink.notes = [[1000.0 + i, 10.0 * i, 10, 0, *[1e6 * i] * SAMPLES] for i in range(11)]
    found = sink.relayed(warm=0.5)
    assert found.rate == pytest.approx(10)
    assert found.mean == pytest.approx(np.mean([6, 7, 8, 9, 10]))
    assert found.deviation == pytest.approx(np.std([6, 7, 8, 9, 10]))
    assert 9.9 < found.p99 <= 10


def test_a_relay_in_process_loses_nothing_and_is_as_late_as_it_says():
    found = in_process(Messages(50, total=20_000), RAW)
    assert (found.messages, found.lost, found.disorder) == (20_000, 0, 0)
    assert 0 < found.mean < 5000
    assert found.rate > 0


# -- links -------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=9), st.none() | st.floats()), min_size=1, max_size=9),
    st.sampled_from([Buffering(), Buffering(codec=None), Buffering(ratio=0.2), Buffering(codec="zstd")]),
    st.tuples(st.integers(0, 65_535), st.integers(0, 1 << 31), st.integers(0, 1 << 62)),
)
def test_a_frame_comes_out_as_it_went_in(rows, buffering, names):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )
    link, sender, first = names
    sent = framed(batch, buffering, first, link, sender)
    found = unframed(sent[: HEADER.size], sent[HEADER.size :])
    assert found[:3] == (link, sender, first)
    assert found[3].equals(batch) or str(found[3].to_pydict()) == str(batch.to_pydict())  # NaN is not itself
    assert HEADER.unpack(sent[: HEADER.size])[2] == (COMPRESSED if buffering.codec else 0)


def test_a_damaged_frame_is_refused():
    sent = framed(batch_of([0, 1]), RAW, 0)
    header, payload = sent[: HEADER.size], sent[HEADER.size :]
    other = bytearray(payload)
    other[len(other) // 2] ^= 1
    for bad, text in (
        ((b"XXXX" + header[4:], payload), "a link brought b'XXXX'"),
        ((header[:4] + b"\x02" + header[5:], payload), "version 2; known is"),
        ((header, bytes(other)), "is damaged"),
        ((header, payload[:-1]), "is damaged"),
        ((header[:20] + b"\x03" + header[21:], payload), "has 2 records instead of 3"),
    ):
        with pytest.raises(ConnectorError, match=text):
            unframed(*bad)


def linked(messages, buffering, receiver=None):
    """Over a link between two dataflows of this process."""
    a, b = socket.socketpair()
    sending, received = LinkSink(a, buffering), Received()
    thread = threading.Thread(target=run_stage, args=(messages, sending, buffering))
    thread.start()
    run_stage(LinkSource(b, messages.schema), receiver or received, buffering)
    thread.join(20)
    return sending, received.relayed(warm=0) if receiver is None else None


@pytest.mark.parametrize("buffering", [RAW, Buffering(), Buffering(capacity=0), Buffering(capacity=500, ratio=0.5)])
def test_a_link_hands_on_each_message_once_and_in_order(buffering):
    total = 300 if buffering.capacity == 0 else 5000
    sending, found = linked(Messages(60, total=total), buffering)
    assert (found.messages, found.lost, found.disorder) == (total, 0, 0)
    assert sending.bytes > total * (60 if buffering.codec is None else 1)


def test_a_link_tells_of_all_that_came_as_far_as_it_is_asked_for():
    a, b = socket.socketpair()
    source = LinkSource(b, batch_of([0]).schema)
    for first in (0, 3, 6):  # one frame per three
        a.sendall(framed(batch_of([first, first + 1, first + 2]), RAW, first))
    assert source.latest({"row": 0}, 2) == {"row": 2}
    assert source.latest({"row": 2}, 3) == {"row": 5}  # one of the first frame, two of the second
    assert source.latest({"row": 5}, 50) == {"row": 9}
    assert source.latest({"row": 9}, 50) == {"row": 9}  # nothing more, for now
    a.close()
    source.close()


def test_a_slow_receiver_holds_the_sender_back():
    ahead, seen = [], 0
    a, b = socket.socketpair()
    for one in (a, b):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    buffering = Buffering(capacity=1000, queue=2000, codec=None)
    messages = Messages(100, total=600)
    sending = LinkSink(a, buffering)

    class Slow(Received):
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
    assert sink.relayed(warm=0).messages == seen == 600
    assert max(ahead) < 300  # what the two queues and the socket hold


def test_a_link_that_breaks_off_is_an_error():
    a, b = socket.socketpair()
    a.sendall(framed(batch_of([0, 1]), RAW, 0)[:-3])
    a.close()
    with pytest.raises(ConnectorError, match="ended within a batch"):
        run_stage(LinkSource(b, batch_of([0]).schema), Received(), RAW)
    a, b = socket.socketpair()
    a.sendall(framed(batch_of([0, 1]), RAW, 5))
    with pytest.raises(ConnectorError, match="record 5 came over a link where 0 was due"):
        run_stage(LinkSource(b, batch_of([0]).schema), Received(), RAW)
    a.close()


def test_a_receiver_that_goes_away_wakes_a_sender_that_is_held_back():
    a, b = socket.socketpair()
    closing = threading.Timer(0.2, b.close)
    closing.start()
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        run_stage(Messages(1000), LinkSink(a, RAW), RAW)
    a.close()


def test_a_relay_over_processes_loses_nothing_in_one_run_after_the_other():
    with OverProcesses() as run:
        for messages in (Messages(50, total=4000), Messages(300, total=1000, fillers=[b"a" * 99, b"b" * 7])):
            found, sent = run.counted(messages, RAW)
            assert (found.messages, found.lost, found.disorder) == (messages.total, 0, 0)
            assert sent > messages.total * FRAME


# -- the suite ---------------------------------------------------------------------------------------


def test_published_bandwidth_is_that_of_the_throughput():
    assert THROUGHPUT.keys() == LATENCY.keys() == BANDWIDTH.keys() == set(neptune_relay.SIZES)
    for size, rates in THROUGHPUT.items():
        for rate, width in ((rates.neptune, BANDWIDTH[size].neptune), (rates.storm, BANDWIDTH[size].storm)):
            for mine, theirs in ((rate.mean, width.mean), (rate.sd, width.sd)):
                assert mine * size * 8 / 1e9 == pytest.approx(theirs, abs=0.011)
        assert (rates.t, rates.df) == (BANDWIDTH[size].t, BANDWIDTH[size].df)
        assert rates.t > 0 > LATENCY[size].t
        assert LATENCY[size].neptune.mean < LATENCY[size].neptune.p99 < LATENCY[size].storm.mean


def made_up(rates):
    """Runs that come out as they are told."""
    left = iter(rates)

    def run(messages, buffering):
        return Relayed(1000, next(left), 2.0, 0.5, 3.0, 0, 0)

    return run


def test_the_relay_has_a_figure_for_each_size_and_buffer(monkeypatch):
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
    assert found["neptune/relay/local/50B/welch-p"].met is True
    assert found["neptune/relay/local/400B/welch-p"].met is False
    assert found["neptune/relay/local/lost"].met is True
    shown = [one for e in neptune.EXPERIMENTS for f in e.figures for one in f.points(found.values())]
    assert {(series, x) for series, x, _ in shown} == {
        ("local", "50B"),
        ("local", "400B"),
        ("50B", "1KB"),
        ("50B", "16KB"),
    }


def test_the_relay_on_spark_tells_what_is_missing_and_what_a_buffer_does(monkeypatch):
    started = []

    def start(flow, session, messages, *, sinks, max_records, buffering):
        started.append((messages.total, messages.pool, max_records, buffering.capacity))
        messages.total -= 3  # what comes last is lost
        flow.run(messages, sinks=sinks)
        return SimpleNamespace(wait=lambda: None, streaming=buffering.capacity)

    def durations(capacity):
        return [9.0, 1.0, 1.25] if capacity > 1024 else [9.0, 10.0, 12.5]

    monkeypatch.setattr(neptune_relay_spark.Dataflow, "start", start)
    monkeypatch.setattr(neptune_relay_spark, "durations", durations)
    made = neptune_relay_spark.relays(None, 50, 2, 100_000, (1 << 10, 1 << 17), 50_000)
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
    assert found[""].values == (2000, 1600)
    assert (found[""].published, found["/buffer-128KB"].published) == (THROUGHPUT[50].neptune.mean, None)
    assert found["/latency/p99"].published == 109.02
    assert found["/buffer-1KB"].values == (100, 80)
    assert found["/buffer-128KB"].values == (1000, 800)
    assert found["/micro-batch-1KB"].values == (20, 16)
    assert (
        found["/welch-p"].against == "Welch, H0: blocks of 128KB are no faster than those of 1KB; t = 8.06, df = 1.02"
    )
    (figures,) = (one.figures for one in neptune.EXPERIMENTS if one.key == "neptune/relay/spark")
    wanted = {(series, x) for series in ("buffer", "micro-batch") for x in ("1KB", "128KB")}
    for figure in figures[3:]:
        assert {(series, x) for series, x, _ in figure.points(found.values())} == wanted


def test_compression_compares_all_settings(monkeypatch):
    monkeypatch.setattr(neptune_compression, "LINES", 50)
    chance = np.random.default_rng(0)

    class Made:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __call__(self, messages, buffering):
            return self.counted(messages, buffering)[0]

        def counted(self, messages, buffering):
            rate = (100.0 if buffering.codec is None else 50.0) + chance.random()
            return Relayed(10, rate, chance.random(), 0.1, 2.0, 0, 0), 1000 + int(chance.integers(9))

    monkeypatch.setattr(neptune_compression, "OverProcesses", Made)
    found = {m.measure: m for m in neptune_compression.compression(True)}
    for data in ("equipment", "random"):
        for mode in neptune_compression.MODES:
            assert len(found[f"neptune/compression/{data}/{mode}/throughput"].values) == 3
            assert found[f"neptune/compression/{data}/{mode}/bytes"].value == pytest.approx(100.5, abs=0.5)
        tests = [name for name in found if re.fullmatch(rf"neptune/compression/{data}/throughput/.*/p", name)]
        assert len(tests) == 6
        assert all(COMPRESSION[data] in found[name].against for name in tests)


def test_the_suite_is_known_and_its_figures_fit():
    assert "neptune" in SUITES
    assert {one.key for one in experiments("neptune")} == {
        *(f"neptune/relay/{name}" for name in ("local", "processes", "spark")),
        *(f"neptune/{name}" for name in ("compression", "backpressure", "backpressure/spark", "scaling")),
    }
    assert sum(one.seconds[0] for one in neptune.EXPERIMENTS) <= 240
    keys = [figure.key for one in neptune.EXPERIMENTS for figure in one.figures]
    assert len(keys) == len(set(keys))
    steps = [Measure("neptune/backpressure/step-1/1ms", 900.0, "messages/s")]
    (figure,) = next(one for one in neptune.EXPERIMENTS if one.key == "neptune/backpressure").figures
    assert [x for _, x, _ in figure.points(steps)] == ["1"]


@pytest.mark.parametrize(
    ("size", "text"), [(50, "50B"), (1024, "1KB"), (10_240, "10KB"), (1 << 20, "1MB"), (1000, "1000B")]
)
def test_labels(size, text):
    assert label(size) == text
