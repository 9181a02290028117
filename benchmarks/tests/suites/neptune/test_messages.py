"""Neptune's messages: their sizes, due times and the counts of lost, duplicated and disordered ones."""

from __future__ import annotations

import time

import numpy as np
import pytest
from riot_bench.suites.neptune.messages import SAMPLES, MessageSource, ReceivingSink

from benchmarks.tests.suites.neptune.message_batches import batch_of
from riot_ops.ingest.pace import PacedSource


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
