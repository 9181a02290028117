"""Topics, with the sinks that write and the sources that read them."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
import riot_ops.tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse.topic import Topic
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.reuse.topic_source import TopicSource

SCHEMA = pa.schema([("seq", pa.int64()), ("value", pa.float64())])


def records(first, n):
    return pa.record_batch({"seq": list(range(first, first + n)), "value": [float(i) for i in range(n)]}, SCHEMA)


def write(topic, batch, *parts, stream="parse", finish=True):
    """Write a micro-batch with a file for each part."""
    sink = TopicSink(topic)
    messages = []
    for number, part in enumerate(parts):
        writer = sink.writer(batch, number)
        writer.write(stream, part)
        messages.append(writer.finish())
    if finish:
        sink.commit(batch, messages)


def read(source, start, limit=None, n=1):
    end = source.latest(start, limit)
    splits = source.splits(start, end, n)
    found = [
        i for split in splits for given in source.read_inputs("", split) for b in given["parse"] for i in numbers(b)
    ]
    return found, end


def numbers(batch):
    return batch["seq"].to_pylist()


@pytest.fixture
def topic(tmp_path):
    made = Topic(tmp_path / "topic")
    made.join("me", 0)
    return made


@pytest.fixture
def source(topic):
    return TopicSource(topic, "me", {"parse": SCHEMA})


def test_batches_are_read_in_order_and_trimmed_after_all_readers(topic, source, monkeypatch):
    topic.join("other", 1)
    for batch in range(3):
        write(topic, batch, records(10 * batch, 2), records(10 * batch + 2, 1))
    found, end = read(source, source.initial())
    assert found == [0, 1, 2, 10, 11, 12, 20, 21, 22] and end == {"batch": 3}
    assert source.count({"batch": 1}, end) == 6
    source.commit(end)
    assert topic.batches() == [1, 2], "the other reader has not read them"
    assert sorted(p.name for p in (topic.folder / "data").iterdir())[0].startswith("part-000001"), (
        "files of trimmed batches are left"
    )
    numbers = Topic.batch_numbers
    monkeypatch.setattr(
        Topic, "batch_numbers", lambda self: [0, *numbers(self)]
    )  # batch 0 is trimmed after it was listed
    assert [len(marker.files) for marker in topic.available()] == [2, 2] and len(topic.available(2)) == 1
    monkeypatch.undo()
    topic.leave("other")
    assert topic.batches() == [] and not list((topic.folder / "data").iterdir())
    assert source.initial() == {"batch": 3}, "a restart continues here"


def test_limit_selects_whole_batches_and_at_least_one(topic, source):
    for batch, n in enumerate((5, 2, 2, 9)):
        write(topic, batch, records(10 * batch, n))
    ends, at = [], {"batch": 0}
    while (end := source.latest(at, 4)) != at:
        ends.append(end["batch"])
        at = end
    assert ends == [1, 3, 4]


@given(sizes=st.lists(st.integers(0, 3), max_size=6), parts=st.integers(1, 4))
def test_splits_hold_each_record_once(tmp_path_factory, sizes, parts):
    topic = Topic(tmp_path_factory.mktemp("parts"))
    topic.join("me", 0)
    for batch, n in enumerate(sizes):
        write(topic, batch, *(records(100 * batch + 10 * part, 2) for part in range(n)))
    source = TopicSource(topic, "me", {"parse": SCHEMA})
    found, end = read(source, {"batch": 0}, n=parts)
    wanted = [100 * b + 10 * p + i for b, n in enumerate(sizes) for p in range(n) for i in range(2)]
    assert found == wanted and end == {"batch": len(sizes)}


def test_streams_of_a_batch_are_read_together(topic):
    sink = TopicSink(topic)
    writer = sink.writer(0, 0)
    for stream in ("parse", "parse@time", "unwanted"):
        writer.write(stream, records(0, 2))
    sink.commit(0, [writer.finish()])
    source = TopicSource(topic, "me", {"parse": SCHEMA, "parse@time": SCHEMA.remove(1)})
    (split,) = source.splits({"batch": 0}, {"batch": 1}, 1)
    (inputs,) = source.read_inputs("", split)
    assert {name: [b.schema.names for b in batches] for name, batches in inputs.items()} == {
        "parse": [["seq", "value"]],
        "parse@time": [["seq"]],
    }
    assert source.count({"batch": 0}, {"batch": 1}) == 4


def test_first_commit_counts(topic, source):
    write(topic, 0, records(0, 2))
    write(topic, 0, records(0, 1), records(1, 1))
    assert read(source, {"batch": 0})[0] == [0, 1]
    assert len(list((topic.folder / "data").iterdir())) == 1, "files of the second attempt are left"


def test_uncommitted_files_are_invisible_and_removed(topic, source):
    write(topic, 0, records(0, 1))
    write(topic, 1, records(1, 1), finish=False)
    os.replace(next((topic.folder / "data").glob(".part-*")), topic.folder / "data" / "part-000001-00000.arrow")
    write(topic, 1, records(1, 1), finish=False)
    TopicSink(topic).abort(1)
    assert not [*(topic.folder / "data").glob(".part-*")]
    write(topic, 1, records(1, 1), finish=False)
    assert read(source, {"batch": 0})[1] == {"batch": 1}
    TopicSink(topic).recover(1)
    assert [p.name for p in (topic.folder / "data").iterdir()] == ["part-000000-00000.arrow"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: os.truncate(f / "data/part-000001-00000.arrow", 40), "part-000001-00000.arrow has 40 bytes of"),
        (lambda f: (f / "data/part-000001-00000.arrow").unlink(), "part-000001-00000.arrow is not there"),
        (lambda f: (f / "batch-000001.json").unlink(), "lacks the marker of batch 1"),
        (lambda f: (f / "batch-000000.json").unlink(), "begins with batch 1, batch 0 is gone"),
        (lambda f: (f / "batch-000001.json").write_text('{"files": [[1'), "damaged: batch-000001.json"),
    ],
    ids=["truncated", "no file", "no marker", "no first marker", "half a marker"],
)
def test_damage_is_reported(topic, source, damage, message):
    for batch in range(3):
        write(topic, batch, records(batch, 1))
    damage(topic.folder)
    with pytest.raises(ConnectorError, match=message):
        read(source, {"batch": 0})


def test_file_of_the_right_size_with_wrong_content(topic, source):
    write(topic, 0, records(0, 1))
    file = topic.folder / "data/part-000000-00000.arrow"
    file.write_bytes(b"\0" * file.stat().st_size)
    with pytest.raises(ConnectorError, match=r"damaged: data/part-000000-00000\.arrow"):
        read(source, {"batch": 0})


def test_unread_bytes_are_those_of_the_slowest_reader(topic, source):
    assert topic.unread_bytes() == 0
    write(topic, 0, records(0, 5))
    assert topic.unread_bytes() == (topic.folder / "data/part-000000-00000.arrow").stat().st_size
    topic.join("fast", 1)
    assert topic.unread_bytes() > 0, "the other reader has read nothing"
    source.commit({"batch": 1})
    assert topic.unread_bytes() == 0


def test_end_of_a_topic(topic, source):
    write(topic, 0, records(0, 1))
    assert not source.finished({"batch": 1}) and source.waits()
    TopicSink(topic).end({})
    assert source.finished({"batch": 1}) and not source.finished({"batch": 0})
    TopicSink(topic).begin(overwrite=False)
    assert not source.finished({"batch": 1})


def test_wrong_arguments_are_refused(topic):
    with pytest.raises(ConnectorError, match="no reader 'you': join it first"):
        TopicSource(topic, "you", {"parse": SCHEMA}).initial()
    with pytest.raises(ConfigError, match="at least one stream"):
        TopicSource(topic, "me", {})
    with pytest.raises(ConfigError, match=r"letters, digits.*'\.\./x'"):
        topic.join("../x", 0)
    write(topic, 0, records(0, 1))
    wider = TopicSource(topic, "me", {"parse": SCHEMA.append(pa.field("unit", pa.string()))})
    with pytest.raises(ConnectorError, match="no field 'unit' in stream 'parse'"):
        read(wider, {"batch": 0})


def test_dataflow_over_a_topic_continues_the_one_before_it(topic):
    """The output equals that of one dataflow over both parts, with state after the boundary."""
    rows = [{"value": float(i % 7), "sensor": "ab"[i % 2]} for i in range(50)]
    schema = {"value": "double", "sensor": "string"}

    def front(flow):
        return flow.source("readings", schema=schema).to(
            t.RangeFilter(bounds={"value": (1.0, 5.0)}, by=None), id="kept"
        )

    first = ro.Dataflow("first")
    first.sink("topic", front(first))
    first.run(rows, sinks=TopicSink(topic), batch_size=8)
    second = ro.Dataflow("second")
    boundary = second.source("kept", schema={"seq": "int64", **schema})
    second.sink("out", boundary.to(t.KalmanFilter(by=("sensor",)), id="smooth"))
    fields = pa.schema([("seq", pa.int64()), ("value", pa.float64()), ("sensor", pa.string())])
    source = TopicSource(topic, "me", {"kept": fields})
    found = second.run(source)["smooth"]
    whole = ro.Dataflow("whole")
    whole.sink("out", front(whole).to(t.KalmanFilter(by=("sensor",)), id="smooth"))
    assert found.to_pylist() == whole.run(rows)["smooth"].to_pylist()
    assert not list(Path(topic.folder).glob("batch-*")), "read batches are left"
