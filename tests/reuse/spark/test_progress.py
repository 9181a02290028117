"""The position of a reader in several topics."""

from __future__ import annotations

from riot_ops.reuse.spark.progress import TopicCursor
from riot_ops.reuse.topic import Topic


def test_cursor_never_moves_back(tmp_path):
    topic = Topic(tmp_path / "topic")
    cursor = TopicCursor("r", {"f0": topic}, {"f0": 5})
    cursor.advance({"f0": 9})
    cursor.advance({"f0": 7})  # the end of a slow sink's delivery, after later batches were skipped
    assert cursor.at == {"f0": 9}
