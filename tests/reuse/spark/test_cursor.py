"""The position of a reader in several topics."""

from __future__ import annotations

from riot_ops.reuse.spark.cursor import TopicCursor
from riot_ops.reuse.spark.dispatcher import pending_bytes
from riot_ops.reuse.topic import Topic


def test_cursor_never_moves_back(tmp_path):
    topic = Topic(tmp_path / "topic")
    cursor = TopicCursor("r", {"f0": topic}, {"f0": 5})
    cursor.advance({"f0": 9})
    cursor.advance({"f0": 7})  # the end of a slow sink's delivery, after later batches were skipped
    assert cursor.at == {"f0": 9}


def test_topics_may_change_while_pending_bytes_are_counted(tmp_path):
    """Pending bytes are counted without a lock."""

    class Changing(Topic):
        def available(self, since=0):
            cursor.retain(lambda name: name == "f0")
            return super().available(since)

    topics = {name: Changing(tmp_path / name) for name in ("f0", "f1")}
    cursor = TopicCursor("r", topics, dict.fromkeys(topics, 0))
    assert pending_bytes(cursor, []) == {} and [name for name, _, _ in cursor.positions()] == ["f0"]
