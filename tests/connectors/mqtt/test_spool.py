"""The spool of received messages: its lock, and its content after a crash."""

from __future__ import annotations

import threading

import pytest

from riot_ops import ConnectorError
from riot_ops.connectors.mqtt.spool import Message, Spool


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
