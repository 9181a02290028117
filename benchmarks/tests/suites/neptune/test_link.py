"""Neptune's links: frames, order, back pressure and broken connections."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.suites.neptune.link import COMPRESSED, HEADER, LinkSink, LinkSource, decode_frame, encode_frame
from riot_bench.suites.neptune.messages import MessageSource, ReceivingSink
from riot_bench.suites.neptune.processes import run_stage

from benchmarks.tests.suites.neptune.message_batches import batch_of
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.ipc import encode

RAW = Buffering(capacity=4096, flush_after="2ms", codec=None)


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=9), st.none() | st.floats()), min_size=1, max_size=9),
    st.sampled_from([Buffering(), Buffering(codec=None), Buffering(ratio=0.2), Buffering(codec="zstd")]),
    st.tuples(st.integers(0, 65_535), st.integers(0, 1 << 31), st.integers(0, 1 << 62)),
)
def test_frame_roundtrip(rows, buffering, names):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )
    link, sender, first = names
    sent = encode_frame(batch, buffering, first, link, sender)
    found = decode_frame(sent[: HEADER.size], sent[HEADER.size :])
    assert found[:3] == (link, sender, first)
    assert found[3].equals(batch) or str(found[3].to_pydict()) == str(batch.to_pydict())  # NaN is not itself
    smaller = buffering.codec and (
        buffering.ratio is None or len(sent) - HEADER.size <= 0.2 * len(encode([batch], RAW))
    )
    assert HEADER.unpack(sent[: HEADER.size])[2] == (COMPRESSED if smaller else 0)


@pytest.mark.parametrize(
    ("buffering", "repetitive", "random"),
    [(RAW, 0, 0), (Buffering(), 1, 1), (Buffering(ratio=0.5), 1, 0), (Buffering(codec="zstd", ratio=0.001), 0, 0)],
)
def test_frame_flag_marks_compression(buffering, repetitive, random):
    chance = np.random.default_rng(3)
    a, b = socket.socketpair()
    link = LinkSink(a, buffering)
    for content, wanted in (([b"0" * 100] * 100, repetitive), ([chance.bytes(100) for _ in range(100)], random)):
        batch = pa.record_batch({"payload": content})
        assert HEADER.unpack(encode_frame(batch, buffering, 0)[: HEADER.size])[2] == wanted * COMPRESSED
        link.writer(0, 0).write("out", batch)
    assert (link.frames, link.compressed, link.sent) == (2, repetitive + random, 200)
    a.close()
    b.close()


def test_damaged_frame_is_refused():
    sent = encode_frame(batch_of([0, 1]), RAW, 0)
    header, payload = sent[: HEADER.size], sent[HEADER.size :]
    other = bytearray(payload)
    other[len(other) // 2] ^= 1
    for bad, text in (
        ((b"XXXX" + header[4:], payload), "a frame begins with b'XXXX', version 1"),
        ((header[:4] + b"\x02" + header[5:], payload), "version 2, not b'RIOT', version 1"),
        ((header, bytes(other)), "is damaged"),
        ((header, payload[:-1]), "is damaged"),
        ((header[:20] + b"\x03" + header[21:], payload), "has 2 records instead of 3"),
    ):
        with pytest.raises(ConnectorError, match=text):
            decode_frame(*bad)


def linked(messages, buffering, receiver=None):
    """Over a link between two dataflows of this process."""
    a, b = socket.socketpair()
    sending, received = LinkSink(a, buffering), ReceivingSink()
    thread = threading.Thread(target=run_stage, args=(messages, sending, buffering))
    thread.start()
    run_stage(LinkSource(b, messages.schema), receiver or received, buffering)
    thread.join(20)
    return sending, received.result(messages.messages_read, warm=0) if receiver is None else None


@pytest.mark.parametrize("buffering", [RAW, Buffering(), Buffering(capacity=0), Buffering(capacity=500, ratio=0.5)])
def test_link_delivers_each_message_once_and_in_order(buffering):
    total = 300 if buffering.capacity == 0 else 5000
    sending, found = linked(MessageSource(60, total=total), buffering)
    assert (found.messages, found.lost, found.disorder) == (total, 0, 0)
    assert sending.bytes > total * (60 if buffering.codec is None else 1)


def test_link_offset_follows_the_limit():
    a, b = socket.socketpair()
    source = LinkSource(b, batch_of([0]).schema)
    for first in (0, 3, 6):  # one frame per three
        a.sendall(encode_frame(batch_of([first, first + 1, first + 2]), RAW, first))
    assert source.latest({"row": 0}, 2) == {"row": 2}
    assert source.latest({"row": 2}, 3) == {"row": 5}  # one of the first frame, two of the second
    assert source.latest({"row": 5}, 50) == {"row": 9}
    assert source.latest({"row": 9}, 50) == {"row": 9}  # nothing more, for now
    a.close()
    source.close()


def test_slow_receiver_blocks_the_sender():
    ahead, seen = [], 0
    a, b = socket.socketpair()
    for one in (a, b):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    buffering = Buffering(capacity=1000, queue=2000, codec=None)
    messages = MessageSource(100, total=600)
    sending = LinkSink(a, buffering)

    class Slow(ReceivingSink):
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
    assert sink.result(messages.messages_read, warm=0).messages == seen == messages.messages_read == 600
    assert max(ahead) < 300  # capacity of the two queues and the socket


def test_broken_link_is_an_error():
    a, b = socket.socketpair()
    a.sendall(encode_frame(batch_of([0, 1]), RAW, 0)[:-3])
    a.close()
    with pytest.raises(ConnectorError, match="ended within a frame"):
        run_stage(LinkSource(b, batch_of([0]).schema), ReceivingSink(), RAW)
    a, b = socket.socketpair()
    a.sendall(encode_frame(batch_of([0, 1]), RAW, 5))
    with pytest.raises(ConnectorError, match="the link delivered record 5 instead of 0"):
        run_stage(LinkSource(b, batch_of([0]).schema), ReceivingSink(), RAW)
    a.close()


def test_closed_receiver_wakes_a_blocked_sender():
    a, b = socket.socketpair()
    closing = threading.Timer(0.2, b.close)
    closing.start()
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        run_stage(MessageSource(1000), LinkSink(a, RAW), RAW)
    a.close()
