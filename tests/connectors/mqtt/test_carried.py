"""Messages that travel with the splits of their source."""

from __future__ import annotations

import pickle
import shutil

import pytest

import riot_ops as ro
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt import carried
from riot_ops.connectors.mqtt.carried import CarriedMessages
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.spool import Message, Spool, end_within
from tests.connectors.mqtt.tools import until


@pytest.fixture
def source(tmp_path):
    url = f"memory://{tmp_path.name}"
    one = MQTTSource(url=url, topics=("#",), client_id="me", spool=str(tmp_path / "spool"), messages=30)
    one.open()
    for i in range(30):
        MemoryBroker.of(url).publish("a", b"%d" % i * 1000)
    until(lambda: one.latest({"seq": 0}) == {"seq": 30})
    yield one
    one.close()


def test_splits_hold_the_messages(source, tmp_path):
    there = source.carried()
    assert isinstance(there, CarriedMessages) and there.local_files() == []
    assert source.local_files() == [str(tmp_path / "spool")]
    wanted = [batch.to_pylist() for split in source.splits({"seq": 3}, {"seq": 30}, 4) for batch in source.read(split)]
    sent = pickle.dumps((there, there.splits({"seq": 3}, {"seq": 30}, 4)))
    source.close()
    shutil.rmtree(tmp_path / "spool")
    reader, splits = pickle.loads(sent)
    assert [batch.to_pylist() for split in splits for batch in reader.read(split)] == wanted
    assert sum(map(len, wanted)) == 27


def test_a_source_with_heartbeats_is_carried(source):
    there = ro.HeartbeatSource(source, idle="1h").carried()
    assert isinstance(there.source, CarriedMessages) and there.local_files() == []
    start = there.initial()
    end = there.latest(start)
    (split,) = there.splits(start, end, 1)
    assert [b.num_rows for b in there.read(split)] == [30] and there.initial() == start


def test_a_range_ends_after_so_many_bytes(source, monkeypatch):
    there = source.carried()
    assert there.latest({"seq": 0}) == {"seq": 30} and there.latest({"seq": 0}, 7) == {"seq": 7}
    monkeypatch.setattr(carried, "MAX_BYTES", 1)
    at, ends = {"seq": 0}, []
    while (end := there.latest(at)) != at:
        ends.append(end["seq"])
        at = end
    assert ends[-1] == 30 and ends == sorted(set(ends))
    assert there.finished(at)


def test_range_of_several_segments(tmp_path):
    spool = Spool(tmp_path, 4 << 20)  # segments of 1 MiB
    for _ in range(40):
        spool.append([Message(0, "a", bytes(50_000))] * 2)
    assert len(list(tmp_path.glob("*.spool"))) > 2
    for start, size, end in ((0, 1, 2), (1, 1, 2), (0, 350_000, 6), (50, 350_000, 56), (0, 1 << 30, 80), (79, 1, 80)):
        assert end_within(tmp_path, start, 80, size) == end, (start, size)
    assert end_within(tmp_path, 0, 5, 1 << 30) == 5
    spool.commit(40)
    assert end_within(tmp_path, 40, 80, 1) == 42
    spool.close()
