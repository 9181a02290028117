"""Look-up of networks by address, against the ipaddress module."""

from __future__ import annotations

import ipaddress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.text import ip_networks
from riot_ops.kernels.text.ip_networks import Networks

networks = st.one_of(
    st.builds(lambda a, p: f"{ipaddress.ip_address(a >> (32 - p) << (32 - p))}/{p}", st.integers(0, 2**32 - 1), st.integers(1, 32)),
    st.builds(lambda a, p: f"{ipaddress.IPv6Address(a << 96 >> (128 - p) << (128 - p) & 2**128 - 1)}/{p}", st.integers(0, 2**32 - 1), st.integers(1, 128)),
)  # fmt: skip


@given(st.lists(networks, max_size=12), st.lists(st.integers(0, 2**32 - 1), max_size=6), st.data())
def test_smallest_network_is_found(nets, others, data):
    table = {ipaddress.ip_network(net): i for i, net in enumerate(nets)}
    edges = [net[place] for net in table for place in (0, -1)]
    edges += [edge + step for edge in edges for step in (-1, 1) if 0 < int(edge) < 2**32 - 1]
    addresses = [*edges, *map(ipaddress.ip_address, others)]

    def place(address):
        inside = [net for net in table if net.version == address.version and address in net]
        return table[max(inside, key=lambda net: net.prefixlen)] if inside else -1

    found = Networks(zip(nets, range(len(nets)), strict=True)).find(pa.array(map(str, addresses), pa.string()))
    assert found.tolist() == [place(address) for address in addresses]


@pytest.mark.long
def test_networks_with_a_common_prefix():
    nets = [f"198.18.{k}.0/24" for k in range(0, 250, 3)] + [f"198.18.9.{16 * k}/28" for k in range(7)]
    nets += ["198.0.0.0/8", "198.19.0.0/16", "198.17.255.255/32", "198.18.255.128/25"]
    known = [ipaddress.ip_network(net) for net in nets]
    begin = int(ipaddress.IPv4Address("198.17.255.0"))
    texts = [str(ipaddress.IPv4Address(at)) for at in (*range(begin, begin + (2 << 16) + 512, 131), begin + 255)]
    found = Networks(zip(nets, range(len(nets)), strict=True)).find(pa.array(texts))
    for text, place in zip(texts, found.tolist(), strict=True):
        around = [i for i, net in enumerate(known) if ipaddress.ip_address(text) in net]
        assert place == max(around, key=lambda i: known[i].prefixlen)


@pytest.mark.parametrize("hosts", [1, 16, 17, 60, 256])
def test_networks_within_256_addresses(hosts):
    """A few networks are searched one by one, many have a table."""
    nets = ["198.18.4.0/22", *(f"198.18.5.{255 - 3 * k % 256}/32" for k in range(hosts))]
    nets += [f"198.18.{k}.0/24" for k in range(20, 40)]
    known = {int(ipaddress.ip_network(net)[0]): i for i, net in enumerate(nets) if net.endswith("/32")}
    begin = int(ipaddress.IPv4Address("198.18.5.0"))
    texts = [str(ipaddress.IPv4Address(begin + k)) for k in range(-2, 258)]
    found = Networks(zip(nets, range(len(nets)), strict=True)).find(pa.array(texts)).tolist()
    assert found == [known.get(begin + k, 0) for k in range(-2, 258)]


@given(st.lists(st.text("0123456789.:abf", max_size=16), max_size=20))
def test_valid_addresses_are_those_of_python(texts):
    found = Networks([("0.0.0.0/0", 4), ("::/0", 6)]).find(pa.array(texts, pa.string()))
    for text, place in zip(texts, found.tolist(), strict=True):
        try:
            assert place == ipaddress.ip_address(text).version
        except ValueError:
            assert place == -1


def test_parts_of_an_address_have_up_to_three_digits():
    """Also where the kernel reads eight bytes at a time, past the end of a text."""
    numbers = [
        "0",
        "7",
        "10",
        "99",
        "100",
        "255",
        "256",
        "999",
        "1000",
        "1234",
        "0001",
        "00",
        "01",
        "010",
        "",
        "a",
        "1a",
    ]
    texts = [".".join([*["1"] * k, number, *["2"] * (3 - k)]) for number in numbers for k in range(4)]
    texts += ["1.2.3", "1.2.3.4.5", "1.2.3.4.", ".1.2.3.4", "1.2.3.4 ", " 1.2.3.4", "1,2,3,4", "1.2.3.4/8"]
    found = Networks([("0.0.0.0/0", 4)]).find(pa.array([*texts, "x" * 24]))

    def known(text):
        try:
            return ipaddress.IPv4Address(text).version
        except ValueError:
            return -1

    assert found.tolist() == [*map(known, texts), -1]


SHORT = [
    "",
    "1.2.3.4",
    "1.2.3.4\0",
    "1.2.3.4\0" + "\0" * 7,
    "1.2.3.5",
    "255.255.255.255",
    "255.255.255.2555",
    "::1",
    "x",
]


@pytest.mark.parametrize("room", [0, 1, 12])
@given(st.lists(st.sampled_from([*SHORT, None]) | st.builds("{}.2.3.4".format, st.integers(0, 300)), max_size=40))
def test_repeated_addresses_are_found_with_any_cache(room, texts):
    table = Networks([("1.2.3.0/24", 0), ("1.2.3.5/32", 1), ("255.0.0.0/8", 2), ("::/0", 3), ("128.0.0.0/2", 4)])
    column = pa.array([*texts, "x" * 24], pa.string())  # bytes after the last address, for reads of eight bytes
    wanted = [int(table.find(column.slice(k, 1))[0]) for k in range(len(texts))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ip_networks, "CACHE_BITS", room)
        assert table.find(column)[:-1].tolist() == wanted
    for text, place in zip(texts, wanted, strict=True):
        try:
            assert (place == 3) == (ipaddress.ip_address(text).version == 6)
        except ValueError:
            assert place == -1


def test_many_addresses_with_few_repetitions():
    table = Networks((f"10.{k}.0.0/16", k) for k in range(16))
    numbers = [*range(3000), *range(2900, 3000), *[7] * 3000, *range(3000)]
    found = table.find(pa.array([f"10.{k >> 8}.{k & 255}.4" for k in numbers]))
    assert found.tolist() == [k >> 8 for k in numbers]
