"""Places of addresses, against the ipaddress module; databases of MaxMind's format, written here by its specification."""

from __future__ import annotations

import ipaddress
import struct
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.text import addresses as kernel_of_addresses
from riot_ops.kernels.text.addresses import Networks

networks = st.one_of(
    st.builds(lambda a, p: f"{ipaddress.ip_address(a >> (32 - p) << (32 - p))}/{p}", st.integers(0, 2**32 - 1), st.integers(1, 32)),
    st.builds(lambda a, p: f"{ipaddress.IPv6Address(a << 96 >> (128 - p) << (128 - p) & 2**128 - 1)}/{p}", st.integers(0, 2**32 - 1), st.integers(1, 128)),
)  # fmt: skip


@given(st.lists(networks, max_size=12), st.lists(st.integers(0, 2**32 - 1), max_size=6), st.data())
def test_the_smallest_network_counts(nets, others, data):
    table = {ipaddress.ip_network(net): i for i, net in enumerate(nets)}
    edges = [net[place] for net in table for place in (0, -1)]
    edges += [edge + step for edge in edges for step in (-1, 1) if 0 < int(edge) < 2**32 - 1]
    addresses = [*edges, *map(ipaddress.ip_address, others)]

    def place(address):
        inside = [net for net in table if net.version == address.version and address in net]
        return table[max(inside, key=lambda net: net.prefixlen)] if inside else -1

    found = Networks(zip(nets, range(len(nets)), strict=True)).find(pa.array(map(str, addresses), pa.string()))
    assert found.tolist() == [place(address) for address in addresses]


def test_many_networks_that_begin_with_the_same_bits():
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
def test_many_networks_within_256_addresses(hosts):
    """Few of them are looked for one among the other, of many there is a table."""
    nets = ["198.18.4.0/22", *(f"198.18.5.{255 - 3 * k % 256}/32" for k in range(hosts))]
    nets += [f"198.18.{k}.0/24" for k in range(20, 40)]
    known = {int(ipaddress.ip_network(net)[0]): i for i, net in enumerate(nets) if net.endswith("/32")}
    begin = int(ipaddress.IPv4Address("198.18.5.0"))
    texts = [str(ipaddress.IPv4Address(begin + k)) for k in range(-2, 258)]
    found = Networks(zip(nets, range(len(nets)), strict=True)).find(pa.array(texts)).tolist()
    assert found == [known.get(begin + k, 0) for k in range(-2, 258)]


@given(st.lists(st.text("0123456789.:abf", max_size=16), max_size=20))
def test_what_is_an_address_is_what_python_says(texts):
    found = Networks([("0.0.0.0/0", 4), ("::/0", 6)]).find(pa.array(texts, pa.string()))
    for text, place in zip(texts, found.tolist(), strict=True):
        try:
            assert place == ipaddress.ip_address(text).version
        except ValueError:
            assert place == -1


def test_numbers_of_an_address_have_up_to_three_digits():
    """Also where eight bytes are looked at together, which there must be room behind a text for."""
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
def test_addresses_that_come_again(room, texts):
    table = Networks([("1.2.3.0/24", 0), ("1.2.3.5/32", 1), ("255.0.0.0/8", 2), ("::/0", 3), ("128.0.0.0/2", 4)])
    column = pa.array([*texts, "x" * 24], pa.string())  # behind the last ones there is room
    wanted = [int(table.find(column.slice(k, 1))[0]) for k in range(len(texts))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_of_addresses, "REMEMBERED", room)
        assert table.find(column)[:-1].tolist() == wanted
    for text, place in zip(texts, wanted, strict=True):
        try:
            assert (place == 3) == (ipaddress.ip_address(text).version == 6)
        except ValueError:
            assert place == -1


def test_addresses_of_which_few_come_again():
    table = Networks((f"10.{k}.0.0/16", k) for k in range(16))
    numbers = [*range(3000), *range(2900, 3000), *[7] * 3000, *range(3000)]
    found = table.find(pa.array([f"10.{k >> 8}.{k & 255}.4" for k in numbers]))
    assert found.tolist() == [k >> 8 for k in numbers]


def addresses(*texts):
    return [{"ip": text} for text in texts]


def test_a_table_in_a_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('# net,code,country,city\n\n10.0.0.0/8,KR,"Korea, South",\n2001:db8::/32,FI,Finland,Oulu\r\n')
    session = t.LookupGeo(table=str(path), country="land", city="town", country_code="iso").session()
    out = session.push_many(addresses("10.1.1.1", "2001:db8::7", "11.0.0.1", None))
    assert [tuple(row.values()) for row in out] == [
        ("10.1.1.1", "KR", "Korea, South", ""),
        ("2001:db8::7", "FI", "Finland", "Oulu"),
    ]
    assert [*out[0]] == ["ip", "iso", "land", "town"]
    path.write_text("10.0.0.0/8,KR,Korea,Busan,more\n")  # the file has another version
    with pytest.raises(ConfigError, match=r"line 1 of .*table\.csv"):
        session.push({"ip": "10.0.0.1"})


@pytest.mark.parametrize(("missing", "rows", "errors"), [("drop", 1, 0), ("null", 3, 0), ("reject", 1, 2)], ids=str)
def test_what_becomes_of_others(missing, rows, errors):
    session = t.LookupGeo(missing=missing).session()
    out = session.push_many(addresses("198.18.0.1", "10.0.0.1", "nobody"))
    assert len(out) == rows
    assert [e["reason"] for e in session.errors] == ["unknown_address"] * errors
    if missing == "null":
        assert out[1] == {"ip": "10.0.0.1", "country": None, "city": None}


def test_misuse_is_refused(tmp_path):
    for text, said in (("", "no network"), ("10.0.0.1/8,a,b,c", "host bits"), ("10.0.0.0/8,a,b", "line 1")):
        path = tmp_path / f"{len(text)}.csv"
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            t.LookupGeo(table=str(path))
    with pytest.raises(ConfigError, match="different fields"):
        t.LookupGeo(country="place", city="place")
    with pytest.raises(ConfigError, match="missing"):
        t.LookupGeo(missing="keep")
    with pytest.raises(ConfigError, match="cannot be read"):
        t.LookupGeo(table=str(tmp_path / "gone.csv"))


# -- MaxMind's format ----------------------------------------------------------------------------------


def encoded(value):
    """Data of a database: texts, maps, lists, and whole numbers with the bits that they have."""
    if isinstance(value, str):
        return _control(2, len(value.encode())) + value.encode()
    if isinstance(value, dict):
        return _control(7, len(value)) + b"".join(encoded(k) + encoded(v) for k, v in value.items())
    if isinstance(value, list):
        return _control(11, len(value)) + b"".join(map(encoded, value))
    bits, number = value
    data = struct.pack(">Q", number).lstrip(b"\0")
    return _control({16: 5, 32: 6, 64: 9}[bits], len(data)) + data


def _control(kind, size):
    assert size < 285
    length = (bytes([size - 29]), 29) if size >= 29 else (b"", size)
    return (bytes([kind << 5 | length[1]]) if kind < 8 else bytes([length[1], kind - 7])) + length[0]


def database(path, entries):
    """A database of version 4 networks: a tree of the bits of addresses, then data, then what it is."""
    nodes, data, places = [[None, None]], b"", {}
    for text, record in entries:
        net = ipaddress.ip_network(text)
        bits = f"{int(net.network_address):032b}"[: net.prefixlen]
        at = 0
        for bit in bits[:-1]:
            if nodes[at][int(bit)] is None:
                nodes.append([None, None])
                nodes[at][int(bit)] = ("node", len(nodes) - 1)
            at = nodes[at][int(bit)][1]
        places.setdefault(text, len(data))
        nodes[at][int(bits[-1])] = ("data", places[text])
        data += encoded(record)
    n = len(nodes)
    number = {None: lambda _: n, "node": lambda at: at, "data": lambda at: n + 16 + at}
    tree = b"".join(
        b"".join(struct.pack(">I", number[one and one[0]](one and one[1]))[1:] for one in node) for node in nodes
    )
    meta = {
        "binary_format_major_version": (16, 2), "binary_format_minor_version": (16, 0), "build_epoch": (64, 1),
        "node_count": (32, n), "database_type": "Test", "ip_version": (16, 4), "record_size": (16, 24),
        "languages": ["en"], "description": {"en": "test"},
    }  # fmt: skip
    path.write_bytes(tree + bytes(16) + data + b"\xab\xcd\xefMaxMind.com" + encoded(meta))


def test_a_database(tmp_path):
    pytest.importorskip("maxminddb")
    brazil = {"country": {"iso_code": "BR", "names": {"en": "Brazil"}}, "city": {"names": {"en": "São Paulo"}}}
    united = {"country": {"iso_code": "US", "names": {"en": "United States"}}}
    path = tmp_path / "City.MMDB"
    database(
        path, [("8.8.0.0/16", brazil), ("9.0.0.0/8", united), ("10.0.0.0/8", united), ("11.0.0.0/8", {"city": {}})]
    )
    session = t.LookupGeo(table=str(path), country_code="iso", missing="null").session()
    out = session.push_many(
        addresses("8.8.4.4", "9.1.1.1", "8.8.4.4", "10.0.0.1", "11.0.0.1", "12.0.0.1", "x", None, "::1")
    )
    assert [(row["iso"], row["country"], row["city"]) for row in out] == [
        ("BR", "Brazil", "São Paulo"),
        ("US", "United States", ""),
        ("BR", "Brazil", "São Paulo"),
        *[(None, None, None)] * 6,
    ]
    path.write_bytes(b"no database")
    with pytest.raises(ConfigError, match="cannot be read"):
        t.LookupGeo(table=str(path))


def test_without_the_library_for_databases(tmp_path):
    path = tmp_path / "city.mmdb"
    path.write_bytes(b"")
    code = (
        "import sys; sys.modules['maxminddb'] = None\n"
        "from riot_ops import tasks as t\n"
        f"t.LookupGeo(table={str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'riot_ops[geo]'" in done.stderr


def test_what_is_kept_of_a_record():
    records = pa.record_batch({"seq": [4], "ip": ["198.18.0.1"], "n": [7], "m": [8]})
    places = {"country": "United States", "city": ""}
    every = {"ip": "198.18.0.1", "n": 7, "m": 8}
    for keep, wanted in ((None, every), ((), {}), (("m", "ip"), {"m": 8, "ip": "198.18.0.1"})):
        task = t.LookupGeo(keep=keep)
        (row,) = (made := task.session().push_batch(records)).to_pylist()
        assert row == {"seq": 4, **wanted, **places} and [*row] == ["seq", *wanted, *places]
        assert made.schema == task.output_schema(records.schema)
    with pytest.raises(ConfigError, match="gone"):
        t.LookupGeo(keep=("gone",)).output_schema(records.schema)


@pytest.mark.parametrize("missing", ["drop", "null", "reject"])
def test_names_as_numbers_are_the_names(missing):
    texts = ["198.18.0.1", "10.0.0.1", None, "198.18.7.1", "198.18.0.2", "203.0.113.9"]
    for some in (texts, texts[1:3], texts[:1], []):
        records = pa.record_batch({"ip": pa.array(some, pa.string())})
        plain, numbered = (t.LookupGeo(missing=missing, country_code="iso", coded=c).session() for c in (False, True))
        wanted, made = plain.push_batch(records), numbered.push_batch(records)
        assert made.to_pylist() == wanted.to_pylist() and len(plain.errors) == len(numbered.errors)
        for name in ("iso", "country", "city"):
            column = made.column(name)
            assert pa.types.is_dictionary(column.type) and column.dictionary.unique().equals(column.dictionary)


def test_a_database_that_knows_none_of_the_addresses(tmp_path):
    pytest.importorskip("maxminddb")
    path = tmp_path / "city.mmdb"
    database(path, [("10.0.0.0/8", {"city": {}})])
    session = t.LookupGeo(table=str(path), missing="null", coded=True).session()
    assert session.push({"ip": "1.2.3.4"}) == [{"ip": "1.2.3.4", "country": None, "city": None}]
    assert session.push({"ip": None}) == [{"ip": None, "country": None, "city": None}]
