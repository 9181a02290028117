"""Unread batches of topics, counted while topics change."""

from __future__ import annotations

from riot_ops.reuse.spark.progress import TopicCursor
from riot_ops.reuse.spark.unread_batches import pending_bytes
from riot_ops.reuse.topic import Topic


def test_topics_may_change_while_pending_bytes_are_counted(tmp_path):
    """Pending bytes are counted without a lock."""

    class Changing(Topic):
        def available(self, since=0):
            cursor.retain(lambda name: name == "f0")
            return super().available(since)

    topics = {name: Changing(tmp_path / name) for name in ("f0", "f1")}
    cursor = TopicCursor("r", topics, dict.fromkeys(topics, 0))
    assert pending_bytes(cursor, []) == {} and [name for name, _, _ in cursor.positions()] == ["f0"]
