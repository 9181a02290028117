"""Table stores behave alike: SQLite, and Azure with the emulator."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from riot_ops import ConfigError, RecordError, Secret
from riot_ops.connectors.stores import open_table
from riot_ops.connectors.stores.table import MAX_BATCH_ROWS, Row, check_row, storable_value
from riot_ops.connectors.template import encode_key
from tests.reference.stores import Table
from tests.search import depth


@pytest.fixture(params=["sqlite", "memory", pytest.param("azure", marks=pytest.mark.integration)])
def table(request, tmp_path):
    url, credential = {"sqlite": f"sqlite:///{tmp_path}/rows.db", "memory": "memory", "azure": "azure-table://"}, None
    if request.param == "azure":
        credential = Secret(request.getfixturevalue("azurite").connection)
    with open_table(url[request.param], f"t{uuid.uuid4().hex}", credential, retry="5s") as opened:
        opened.create()
        opened.create()
        yield opened


def _rows(n, partition="p", **values):
    return [Row(partition, encode_key(i), {"i": i, **values}) for i in range(n)]


def _count_writes(table, monkeypatch):
    sizes = []
    write = table.upsert_chunks

    def counted(chunks):
        sizes.extend(len(chunk) for chunk in chunks)
        return write(chunks)

    monkeypatch.setattr(table, "upsert_chunks", counted)
    return sizes


@pytest.mark.long
def test_values_are_read_back_unchanged(table):
    values = {
        "flag": True,
        "small": -1,
        "large": (1 << 63) - 1,
        "lowest": -(1 << 63),
        "number": 0.1,
        "whole": 2.0,
        "tiny": 5e-324,
        "text": "ü 日本 😀 \n\t'\"<&>",
        "empty": "",
        "bytes": bytes(range(256)),
        "time": dt.datetime(2015, 2, 1, 0, 0, 59, 123456, dt.UTC),
    }
    assert table.insert([Row("p", "r", {**values, "missing": None})]) == {}
    (found,) = table.get([("p", "r")])
    assert found == values
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in values.items()}


def test_second_insert_replaces_the_whole_row(table):
    table.insert([Row("p", "r", {"a": 1, "b": 2})])
    table.insert([Row("p", "r", {"b": 3, "c": None})])
    assert table.get([("p", "r"), ("p", "s"), ("q", "r")]) == [{"b": 3}, None, None]


def test_last_row_with_the_same_keys_wins(table):
    assert table.insert([Row("p", "r", {"a": i}) for i in range(5)]) == {}
    assert table.get([("p", "r"), ("p", "r")]) == [{"a": 4}, {"a": 4}]


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (_rows(101), [100, 1]),
        (_rows(250), [100, 100, 50]),
        (_rows(100), [100]),
        ([], []),
        (
            [r for trio in zip(_rows(101, "a"), _rows(101, "b"), _rows(101, "c"), strict=True) for r in trio],
            [1] * 3 + [100] * 3,
        ),
    ],
    ids=["101", "250", "100", "0", "three partitions"],
)
def test_batches_have_at_most_a_hundred_rows_of_one_partition(table, monkeypatch, rows, sizes):
    written = _count_writes(table, monkeypatch)
    assert table.insert(rows) == {}
    assert sorted(written) == sorted(sizes)
    for partition in {row.partition for row in rows}:
        found = table.range(partition, "0", "9")
        assert [r.values["i"] for r in found] == list(range(sum(r.partition == partition for r in rows)))


def test_smaller_batches(table, monkeypatch):
    written = _count_writes(table, monkeypatch)
    table.insert(_rows(25), batch=10)
    assert written == [10, 10, 5]


def test_range_is_half_open_and_sorted(table):
    table.insert([Row("p", encode_key(i), {"i": i}) for i in (-5, 3, 7, -1, 1000, 0)])
    table.insert([Row("q", encode_key(3), {"i": 99})])

    def span(start, end, most=None):
        return [r.values["i"] for r in table.range("p", encode_key(start), encode_key(end), most)]

    assert span(-10, 2000) == [-5, -1, 0, 3, 7, 1000]
    assert span(-1, 7) == [-1, 0, 3]
    assert span(7, 7) == span(9, 3) == span(2000, 3000) == []
    assert table.range("nobody", "0", "9") == []
    assert span(-10, 2000, 6) == [-5, -1, 0, 3, 7, 1000]
    with pytest.raises(RecordError, match="more than 5 rows"):
        span(-10, 2000, 5)


def test_invalid_rows_are_reported_and_the_others_written(table):
    rows = [
        Row("p", "good", {"a": "x"}),
        Row("p", "", {"a": 1}),
        Row("p", "a/b", {"a": 1}),
        Row("p", "ü", {"a": 1}),
        Row("p", "x" * 513, {"a": 1}),
        Row("p", "text", {"a": "ü" * 32769}),
        Row("p", "bytes", {"a": bytes(65537)}),
        Row("p", "many", {f"v{i}": i for i in range(253)}),
        Row("p", "sum", {f"v{i}": "x" * 32000 for i in range(20)}),
        Row("p", "int", {"a": 1 << 63}),
        Row("p", "inf", {"a": float("inf")}),
        Row("p" * 512, "x" * 512, {"a": "ü" * 32768}),
    ]
    refused = table.insert(rows)
    assert {i: e.reason for i, e in refused.items()} == {
        **dict.fromkeys((1, 2, 3, 4), "bad_key"),
        **dict.fromkeys((5, 6, 7, 8, 9), "too_large"),
        10: "not_finite",
    }
    assert all(table.get([(rows[i].partition, rows[i].row)])[0] for i in (0, 11))


@pytest.mark.long
def test_too_large_transaction_is_split(table):
    rows = [Row("p", encode_key(i), {"a": "ü" * 30_000, "b": "x" * 30_000}) for i in range(100)]
    assert table.insert(rows) == {}
    assert len(table.range("p", "0", "9")) == 100


KEYS = st.sampled_from(["a", "b", "b|c", encode_key(7), encode_key(-7), encode_key("ü/#?")])
VALUES = st.dictionaries(
    st.sampled_from(["x", "y"]),
    st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3), st.floats(-1, 1)),
    max_size=2,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(st.builds(Row, KEYS, KEYS, VALUES), max_size=6)),
        st.tuples(st.just("get"), st.lists(st.tuples(KEYS, KEYS), max_size=4)),
        st.tuples(st.just("range"), KEYS, KEYS, KEYS),
    ),
    max_size=8,
)


@pytest.mark.long
@given(steps=STEPS)
@settings(max_examples=depth(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_operations_equals_a_dict(table, steps):
    prefix = uuid.uuid4().hex  # separates this test within the table
    model = Table()
    for step, *arguments in steps:
        if step == "insert":
            rows = [Row(prefix + r.partition, r.row, r.values) for r in arguments[0]]
            assert table.insert(rows) == {}
            model.insert(rows)
        elif step == "get":
            keys = [(prefix + p, r) for p, r in arguments[0]]
            assert table.get(keys) == model.get(keys)
        else:
            partition, start, end = arguments
            assert table.range(prefix + partition, start, end) == model.range(prefix + partition, start, end)


@given(st.text(min_size=1, max_size=150), st.text(min_size=1, max_size=150))
def test_encoded_keys_are_accepted_and_distinct(a, b):
    if len(encode_key(a)) <= 512:
        check_row(Row(encode_key(a), f"{encode_key(a)[:200]}|{encode_key(b)[:200]}", {}))
    assert (encode_key(a) == encode_key(b)) == (a == b)


@pytest.mark.integration
@given(text=st.text(min_size=1, max_size=30))
@settings(max_examples=depth(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_can_be_a_key(table, text):
    key = encode_key(text)
    assert table.insert([Row(key, key, {"text": text})]) == {}
    assert table.get([(key, key)]) == [{"text": text}]
    assert table.range(key, key, key + "~") == [Row(key, key, {"text": text})]


def test_arrow_values_become_storable():
    naive = dt.datetime.fromisoformat("2015-02-01T00:00:00")
    zoned = dt.datetime(2015, 2, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert storable_value(naive) == storable_value(zoned) == dt.datetime(2015, 2, 1, tzinfo=dt.UTC)
    assert storable_value({"a": [1.5, None]}) == '{"a":[1.5,null]}'
    assert storable_value(dt.date(2015, 2, 1)) == "2015-02-01"
    assert storable_value(float("nan")) is None and storable_value(float("inf")) == float("inf")
    assert MAX_BATCH_ROWS == 100


@pytest.mark.parametrize("name", ["", "ab", "1abc", "a-b", "ü12", "a" * 64])
def test_invalid_table_names_are_refused(name):
    with pytest.raises(ConfigError, match="table must be"):
        open_table("memory", name)


@pytest.mark.parametrize(
    "url", ["", "azure-table://acc:hush@x", "postgresql://me:hush@h/d", "https://a?sig=hush", "file.db"]
)
def test_invalid_urls_are_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="store") as caught:
        open_table(url, "rows")
    assert "hush" not in str(caught.value)
