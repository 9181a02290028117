"""Countries and cities of addresses; databases in MaxMind's format are written here by its specification."""

from __future__ import annotations

import ipaddress
import struct
import subprocess
import sys

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.tables import Networks

ISO = {"iso": "country_code", "country": "country", "city": "city"}


def places(path=None, on_missing="drop", columns=("country", "city"), **options):
    return t.Lookup(table=Networks(path), on="ip", columns=columns, on_missing=on_missing, **options)


def addresses(*texts):
    return [{"ip": text} for text in texts]


def test_table_file_is_read_and_reloaded(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('# net,code,country,city\n\n10.0.0.0/8,KR,"Korea, South",\n2001:db8::/32,FI,Finland,Oulu\r\n')
    session = places(str(path), columns={"iso": "country_code", "land": "country", "town": "city"}).session()
    out = session.push_many(addresses("10.1.1.1", "2001:db8::7", "11.0.0.1", None))
    assert [tuple(row.values()) for row in out] == [
        ("10.1.1.1", "KR", "Korea, South", ""),
        ("2001:db8::7", "FI", "Finland", "Oulu"),
    ]
    assert [*out[0]] == ["ip", "iso", "land", "town"]
    path.write_text("10.0.0.0/8,KR,Korea,Busan,more\n")  # a new version of the file
    with pytest.raises(ConfigError, match=r"line 1 of .*table\.csv"):
        session.push({"ip": "10.0.0.1"})


@pytest.mark.parametrize(("missing", "rows", "errors"), [("drop", 1, 0), ("null", 3, 0), ("reject", 1, 2)], ids=str)
def test_missing_option_decides_about_unknown_addresses(missing, rows, errors):
    session = places(on_missing=missing).session()
    out = session.push_many(addresses("198.18.0.1", "10.0.0.1", "nobody"))
    assert len(out) == rows
    assert [e["reason"] for e in session.errors] == ["unknown_key"] * errors
    if missing == "null":
        assert out[1] == {"ip": "10.0.0.1", "country": None, "city": None}


def test_wrong_tables_and_parameters_are_refused(tmp_path):
    for text, message in (("", "no network"), ("10.0.0.1/8,a,b,c", "without host bits"), ("10.0.0.0/8,a,b", "line 1")):
        path = tmp_path / f"{len(text)}.csv"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            Networks(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        Networks(str(tmp_path / "gone.csv"))
    with pytest.raises(ConfigError, match="no column 'town'"):
        places(columns="town")
    with pytest.raises(ConfigError, match="one field with the address"):
        t.Lookup(table=Networks(), on=("ip", "port"))


# -- MaxMind's format ----------------------------------------------------------------------------------


def encoded(value):
    """Encode data of a database: texts, maps, lists, and integers as pairs of bits and value."""
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
    """Write a database of version 4 networks: a tree of the bits of addresses, the data, the metadata."""
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


def test_maxmind_database_is_read(tmp_path):
    pytest.importorskip("maxminddb")
    brazil = {"country": {"iso_code": "BR", "names": {"en": "Brazil"}}, "city": {"names": {"en": "São Paulo"}}}
    united = {"country": {"iso_code": "US", "names": {"en": "United States"}}}
    path = tmp_path / "City.MMDB"
    database(
        path, [("8.8.0.0/16", brazil), ("9.0.0.0/8", united), ("10.0.0.0/8", united), ("11.0.0.0/8", {"city": {}})]
    )
    session = places(str(path), "null", ISO).session()
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
        Networks(str(path))


@pytest.mark.long
def test_missing_library_for_databases_names_the_extra(tmp_path):
    path = tmp_path / "city.mmdb"
    path.write_bytes(b"")
    code = f"import sys; sys.modules['maxminddb'] = None\nfrom riot_ops import tables\ntables.Networks({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'riot-ops[geo]'" in done.stderr


def test_keep_selects_the_fields_of_the_record():
    records = pa.record_batch({"seq": [4], "ip": ["198.18.0.1"], "n": [7], "m": [8]})
    found = {"country": "United States", "city": ""}
    every = {"ip": "198.18.0.1", "n": 7, "m": 8}
    for keep, wanted in ((None, every), ((), {}), (("m", "ip"), {"m": 8, "ip": "198.18.0.1"})):
        task = places(keep=keep)
        (row,) = (made := task.session().push_batch(records)).to_pylist()
        assert row == {"seq": 4, **wanted, **found} and [*row] == ["seq", *wanted, *found]
        assert made.schema == task.output_schema(records.schema)
    with pytest.raises(ConfigError, match="gone"):
        places(keep=("gone",)).output_schema(records.schema)


@pytest.mark.parametrize("missing", ["drop", "null", "reject"])
def test_coded_names_equal_plain_names(missing):
    texts = ["198.18.0.1", "10.0.0.1", None, "198.18.7.1", "198.18.0.2", "203.0.113.9"]
    for some in (texts, texts[1:3], texts[:1], []):
        records = pa.record_batch({"ip": pa.array(some, pa.string())})
        plain, numbered = (places(None, missing, ISO, coded=c).session() for c in (False, True))
        wanted, made = plain.push_batch(records), numbered.push_batch(records)
        assert made.to_pylist() == wanted.to_pylist() and len(plain.errors) == len(numbered.errors)
        for name in ("iso", "country", "city"):
            column = made.column(name)
            assert pa.types.is_dictionary(column.type) and column.dictionary.unique().equals(column.dictionary)


def test_database_without_the_addresses_gives_nulls(tmp_path):
    pytest.importorskip("maxminddb")
    path = tmp_path / "city.mmdb"
    database(path, [("10.0.0.0/8", {"city": {}})])
    session = places(str(path), "null", coded=True).session()
    assert session.push({"ip": "1.2.3.4"}) == [{"ip": "1.2.3.4", "country": None, "city": None}]
    assert session.push({"ip": None}) == [{"ip": None, "country": None, "city": None}]
