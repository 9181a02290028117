"""The spool of received messages: its lock, and its content after a crash."""

from __future__ import annotations

import threading

import pytest

from riot_ops import ConnectorError
from riot_ops.connectors.mqtt.spool import RECENT_BYTES, Message, Spool, read_messages


def test_spool_waits_for_a_closing_writer(tmp_path):
    first = Spool(tmp_path / "s", 4 << 20)
    ends = threading.Timer(0.2, first.close)
    ends.start()
    Spool(tmp_path / "s", 4 << 20).close()
    assert not ends.is_alive()


def test_spool_keeps_complete_blocks_after_a_crash(tmp_path):
    """A truncated block is removed; the blocks before it stay."""
    spool = Spool(tmp_path / "s", 4 << 20)
    spool.append([Message(1, "a", b"one")])
    whole = (tmp_path / "s" / f"{0:020d}.spool").stat().st_size
    spool.append([Message(2, "a", b"two"), Message(3, None, b"", 7)], forget=True)
    spool.close()
    path = tmp_path / "s" / f"{0:020d}.spool"
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        again = Spool(tmp_path / "s", 4 << 20)
        assert again.end == 1 and not again.unreleased
        again.append([Message(9, "b", b"new")])
        assert again.end == 2
        again.close()
    path.write_bytes(data + b"\0" * 100)
    again = Spool(tmp_path / "s", 4 << 20)
    assert again.end == 3 and again.unreleased == {7}
    again.close()
    path.write_bytes(data[: whole - 3] + b"\xff" + data[whole - 2 :])
    with pytest.raises(ConnectorError, match="damaged"):
        Spool(tmp_path / "s", 4 << 20)


def texts(blocks):
    return [m.payload for messages in blocks for m in messages]


def test_recent_messages_equal_those_on_disk(tmp_path):
    spool = Spool(tmp_path / "s", 4 << 20)
    n = 0
    for size in (1, 3, 2, 1, 4):
        spool.append([Message(i, "a", b"%d" % i) for i in range(n, n + size)])
        n += size
    spool.append(released=[7])  # a block without messages
    for start in range(n + 1):
        for end in range(start, n + 1):
            on_disk = texts(m for _, m in read_messages(spool.folder, start, end))
            assert texts(spool.recent(start, end)) == on_disk == [b"%d" % i for i in range(start, end)]
    assert spool.recent(0, n + 1) is None
    spool.commit(5)
    assert spool.recent(2, n) is None and texts(spool.recent(5, n)) == [b"%d" % i for i in range(5, n)]
    spool.close()
    again = Spool(tmp_path / "s", 4 << 20)
    assert again.recent(0, n) is None  # they are on disk only
    again.append([Message(0, "a", b"new")])
    assert texts(again.recent(n, n + 1)) == [b"new"] and again.recent(n - 1, n + 1) is None
    again.close()


@pytest.mark.parametrize("payload", [b"", b"x" * 100_000])
def test_recent_messages_take_bounded_memory(tmp_path, payload):
    spool = Spool(tmp_path / "s", 64 << 20)
    n = 2 * RECENT_BYTES // (len(payload) + 200)
    for i in range(0, n, 10):
        spool.append([Message(i, "a", payload)] * 10)
    assert spool.recent(0, spool.end) is None
    first = next(i for i in range(spool.end) if spool.recent(i, spool.end) is not None)
    assert 0.3 * n < first < 0.7 * n
    spool.close()
