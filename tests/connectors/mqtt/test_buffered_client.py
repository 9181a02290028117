"""The buffered client handles what paho's own handles, however the network cuts packets."""

from __future__ import annotations

import select
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from riot_ops.connectors.mqtt import receiver
from riot_ops.connectors.mqtt.buffered_client import client_subclass


def varint(n):
    found = bytearray()
    while True:
        n, digit = divmod(n, 128)
        found.append(digit | (0x80 if n else 0))
        if not n:
            return bytes(found)


def publish(topic, payload, qos, number, flags, properties):
    """A PUBLISH packet of MQTT 5, by its specification; properties are user properties."""
    user = b"".join(
        b"\x26" + b"".join(len(t.encode()).to_bytes(2, "big") + t.encode() for t in pair) for pair in properties
    )
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + (number.to_bytes(2, "big") if qos else b"")
    body += varint(len(user)) + user + payload
    return bytes([0x30 | qos << 1 | flags]) + varint(len(body)) + body


def connected(kind):
    near, far = socket.socketpair()
    near.setblocking(False)
    client = kind(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client._sock = near
    client.due = []
    found = []
    client.on_message = lambda _client, _data, m: found.append(
        (
            m.topic,
            m.payload,
            m.qos,
            m.dup,
            m.retain,
            m.mid,
            m.properties and m.properties.json().get("UserProperty", []),
        )
    )
    return client, far, found


def handled(kind, data, cuts):
    """What a client receives of data in pieces, as PahoLink reads: while there is something to read."""
    client, far, found = connected(kind)
    unread = getattr(client, "unread", int)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        far.sendall(data[start:end])
        while unread() or select.select([client._sock], [], [], 0)[0]:
            client.loop_read()
    assert unread() == 0
    far.setblocking(False)
    try:
        answers = far.recv(1 << 20)
    except BlockingIOError:
        answers = b""
    far.close()
    client._sock.close()
    return found, client.due, answers


packets = st.builds(
    publish,
    st.text(st.characters(codec="utf-8", exclude_characters="\0#+"), min_size=1, max_size=6),
    st.binary(max_size=40) | st.integers(100, 40_000).map(bytes),
    st.sampled_from([0, 1, 1, 2]),
    st.integers(1, 65_535),
    st.sampled_from([0, 1, 8, 9]),
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.text(st.characters(codec="ascii", min_codepoint=32), max_size=4)),
        max_size=2,
    ),
)


@pytest.mark.parametrize("kind", ["buffered", "holding"])
@given(data=st.data())
def test_any_cuts_give_the_same_messages_and_answers(kind, data):
    stream = b"".join(data.draw(st.lists(packets, min_size=1, max_size=6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    held = {name: vars(receiver._client_type())[name] for name in ("_send_puback", "_send_pubrec", "_send_pubcomp")}
    plain = type("Plain", (paho.Client,), held if kind == "holding" else {})
    ours = receiver._client_type() if kind == "holding" else client_subclass("Buffered", {})
    found, due, answers = handled(ours, stream, cuts)
    wanted, wanted_due, wanted_answers = handled(plain, stream, cuts)
    assert [one[:6] for one in found] == [one[:6] for one in wanted]
    assert [one[6] or [] for one in found] == [one[6] or [] for one in wanted]
    assert (due, answers) == (wanted_due, wanted_answers)


def test_bytes_of_a_lost_connection_are_dropped():
    client, far, found = connected(client_subclass("Buffered", {}))
    whole = publish("a", b"1", 1, 7, 0, [])
    far.sendall(whole + whole[:5])
    client.loop_read()
    client.loop_read()
    assert client.unread() == 0 or len(found) == 1
    far.sendall(whole)
    other, again = socket.socketpair()
    other.setblocking(False)
    client._sock.close()
    client._sock = other
    client._in_packet = dict(client._in_packet, command=0, have_remaining=0, remaining_count=[], remaining_mult=1,
                             remaining_length=0, packet=bytearray(), to_process=0, pos=0)  # fmt: skip
    assert client.unread() == 0
    again.sendall(publish("b", b"2", 1, 8, 0, []))
    client.loop_read()
    assert [one[0] for one in found] == ["a", "b"]
    for one in (far, other, again):
        one.close()


@pytest.mark.parametrize("damage", [b"\x32\x01\x00", b"\x32\x04\x00\x09ab", b"\x32\xff\xff\xff\xff\x01"])
def test_malformed_packets_are_refused_like_by_paho(damage):
    ends = []
    for kind in (paho.Client, client_subclass("Buffered", {}), receiver._client_type()):
        client, far, found = connected(kind)
        far.sendall(damage)
        try:
            code = client.loop_read()
        except Exception as error:
            code = type(error)
        ends.append((code, found))
        far.close()
    assert ends[0] == ends[1] == ends[2]
