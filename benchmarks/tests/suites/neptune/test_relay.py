"""Neptune's relay in process and over processes: losses, latency, rates and targets."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from riot_bench.suites.neptune import processes as neptune_processes
from riot_bench.suites.neptune import relay as neptune_relay
from riot_bench.suites.neptune import suite as neptune
from riot_bench.suites.neptune.link import LinkSink, connect
from riot_bench.suites.neptune.messages import FRAME, MessageSource, ReceivingSink, RelayResult
from riot_bench.suites.neptune.processes import ProcessRelay
from riot_bench.suites.neptune.relay import run_local, size_label
from riot_bench.suites.neptune.thesis import BANDWIDTH, LATENCY, THROUGHPUT

from riot_ops.core.buffering import Buffering

RAW = Buffering(capacity=4096, flush_after="2ms", codec=None)


def test_relay_in_process_loses_nothing_and_measures_its_latency():
    found = run_local(MessageSource(50, total=20_000), RAW)
    assert (found.messages, found.lost, found.disorder) == (20_000, 0, 0)
    assert 0 < found.mean < 5000
    assert found.rate > 0


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


@pytest.mark.parametrize(
    ("size", "text"), [(50, "50B"), (1024, "1KB"), (10_240, "10KB"), (1 << 20, "1MB"), (1000, "1000B")]
)
def test_size_labels(size, text):
    assert size_label(size) == text
