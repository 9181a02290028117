"""Click analytics, against a naive reference and the figures of the specification."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import click_analytics
from riot_ops.streams import replay
from tests.dataflows.dspbench.line_messages import last_updates, messages, restarted, rows
from tests.reference.dspbench.click_analytics import click_analytics as reference
from tests.reference.dspbench.click_analytics import parse_log
from tests.samples import expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

CLICKS = "dspbench/synthetic/click-stream.jsonl"
GEO = "dspbench/synthetic/geo-table.csv"
STREAMS = {
    "visits": ("total_count", "total_unique"),
    "locations": ("country", "country_total", "city", "city_total"),
}
TABLE = [
    ("10.0.0.0/8", "FI", "Finland", "Oulu"),
    ("10.1.0.0/16", "FI", "Finland", ""),
    ("10.2.3.4/32", "KE", "Kenya", ""),
]


def click(ip, url, client):
    return json.dumps({"ip": ip, "url": url, "clientKey": client})


good = st.builds(
    click,
    st.sampled_from(["10.0.0.1", "10.1.0.1", "10.2.3.4", "11.0.0.1", "host"]),
    st.sampled_from(["/a", "/b", "/a:b", ""]),
    st.sampled_from(["x", "b:x", "ü"]),
)
good |= st.sampled_from(['{"ip": "10.0.0.1", "url": "/a"}', '{"ip": "host", "url": "/b", "clientKey": null}'])
bad = st.sampled_from(
    [
        "",
        "{",
        "[]",
        '{"url": "/", "clientKey": "x"}',
        '{"ip": "10.0.0.1", "clientKey": "x"}',
        '{"ip": null, "url": "/", "clientKey": "x"}',
    ]
)
lines = st.lists(st.one_of(good, good, good, bad), max_size=14)


@pytest.fixture(scope="module")
def geo(tmp_path_factory):
    path = tmp_path_factory.mktemp("geo") / "table.csv"
    path.write_text("".join(",".join(row) + "\n" for row in TABLE))
    return str(path)


def found(result):
    return [rows(result[name], *fields) for name, fields in STREAMS.items()]


def test_address_identifies_clients_without_a_key(geo):
    texts = ['{"ip": "10.0.0.1", "url": "/a"}', '{"ip": "10.0.0.1", "url": "/a", "clientKey": null}',
             click("11.0.0.1", "/a", "10.0.0.1"), '{"ip": "11.0.0.1", "url": "/a"}', click("11.0.0.1", "/a", "")]  # fmt: skip
    result = click_analytics(geo=geo).run(messages(texts))
    assert rows(result["visits"], "total_count", "total_unique") == [
        (0, 1, 1),
        (1, 2, 1),
        (2, 3, 1),
        (3, 4, 2),
        (4, 5, 3),
    ]
    assert result["errors"].num_rows == 0


@given(texts=lines, batch_size=st.integers(1, 5))
def test_results_equal_the_reference(geo, texts, batch_size):
    result = click_analytics(geo=geo).run(messages(texts), batch_size=batch_size)
    *wanted, wrong = reference(texts, TABLE)
    assert found(result) == wanted
    assert sorted(result["errors"]["seq"].to_pylist()) == wrong


log_lines = st.builds(
    '{} - {} [10/Jun/1998:12:00:0{} +0000] "{}" {} {}'.format,
    st.sampled_from(["10.0.0.1", "10.1.0.1", "host"]),
    st.sampled_from(["-", "ann", "10.0.0.1"]),
    st.sampled_from("012x"),
    st.sampled_from(["GET /a HTTP/1.0", "GET /b", "GET /a", 'GET /"a" b HTTP/1.1', "-", "GET", ""]),
    st.sampled_from([200, "099", 20]),
    st.sampled_from(["-", 5, '7 "/start" "agent"']),
) | st.just(click("10.0.0.1", "/a", "x"))


@given(texts=st.lists(log_lines, max_size=14), batch_size=st.integers(1, 5))
def test_access_logs_equal_the_reference(geo, texts, batch_size):
    result = click_analytics(geo=geo, format="log").run(messages(texts), batch_size=batch_size)
    *wanted, wrong = reference(texts, TABLE, parse_log)
    assert found(result) == wanted
    assert sorted(result["errors"]["seq"].to_pylist()) == wrong


def test_users_of_an_access_log_are_clients(geo):
    line = '{} - {} [10/Jun/1998:12:{} +0000] "GET {} HTTP/1.0" 200 5'
    clicks = [("10.0.0.1", "-", "00:00", "/a"), ("10.1.0.1", "10.0.0.1", "00:30", "/a"), ("10.0.0.1", "ann", "01:00", "/a"),
              ("10.1.0.1", "ann", "03:00", "/a"), ("10.1.0.1", "ann", "03:10", "/b c")]  # fmt: skip
    texts = [line.format(*click) for click in clicks]
    visits = click_analytics(geo=geo, format="log").run(messages(texts))["visits"]
    assert visits["unique"].to_pylist() == [True, False, True, False, True]
    timed = click_analytics(geo=geo, format="log", ttl="1min").run(messages(texts))["visits"]
    assert timed["unique"].to_pylist() == [True, False, True, True, True], "in the time of the log"
    result = click_analytics(geo=geo).run(messages(texts))
    assert result["errors"]["reason"].to_pylist() == ["not_json"] * 5


@pytest.mark.long
@settings(max_examples=depth(15))
@given(texts=lines.filter(any), seed=st.integers(0, 1 << 32))
def test_staged_results_are_equal(geo, texts, seed):
    choose = random.Random(seed)
    source = ro.MemorySource(messages(texts))
    staged = SimulatedQuery(click_analytics(geo=geo), source, choose, max_records=4, partitions=choose.choice([1, 3]))
    *wanted, _ = reference(texts, TABLE)
    assert found(staged) == wanted


@given(texts=lines, batch_size=st.integers(1, 6))
def test_updates_are_the_last_of_each_key_in_a_batch(geo, texts, batch_size):
    result = click_analytics(geo=geo, emit="update").run(messages(texts), batch_size=batch_size)
    *wanted, _ = reference(texts, TABLE)
    keys = (lambda _: 0, lambda r: (r[1], r[3]))
    assert found(result) == [last_updates(w, key, batch_size) for w, key in zip(wanted, keys, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("staged", [False, True])
def test_clicks_of_the_specification(sample_data, staged):
    flow, source = click_analytics(geo=str(sample_data / GEO)), replay(sample_data / CLICKS)
    result = SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source)
    totals = expected(sample_data, made=(200, 126), papers=(3000, 1496))
    assert rows(result["visits"], *STREAMS["visits"])[-1][1:] == totals
    countries = expected(
        sample_data,
        made={"Peru": 112, "New Zealand": 29, "Finland": 18, "Kenya": 15},
        papers={"Brazil": 636, "China": 378, "India": 460, "Ireland": 235, "Italy": 683, "United States": 345},
    )
    assert Counter(result["locations"]["country"].to_pylist()) == countries
    assert result["errors"].num_rows == 1
    with (sample_data / GEO).open() as table:
        places = [row for row in csv.reader(table) if not row[0].startswith("#")]
    *wanted, _ = reference((sample_data / CLICKS).read_text().splitlines(), places)
    assert found(result) == wanted


def test_restarted_run_continues(geo, tmp_path):
    texts = [click(f"10.{i % 3}.3.4", f"/{i % 2}", f"{i % 4}") for i in range(9)]
    *wanted, _ = reference(texts, TABLE)
    assert found(restarted(click_analytics(geo=geo), texts, 4, tmp_path)) == wanted


def test_number_of_remembered_visits_may_be_bounded():
    visits = [click("10.0.0.1", f"/{i}", "x") for i in (0, 1, 2, 3, 4, 5, 0, 5)]
    bounded = click_analytics(capacity=1).run(messages(visits))["visits"]
    assert bounded["unique"].to_pylist() == [True] * 7 + [False]
    timed = messages(visits[:1] * 3).set_column(0, "event_time", pa.array([0, 50, 150], pa.timestamp("s", "UTC")))
    for ttl, uniques in (
        (None, [True, False, False]),
        ("1min", [True, False, True]),
        (timedelta(hours=1), [True, False, False]),
    ):
        assert click_analytics(ttl=ttl).run(timed)["visits"]["unique"].to_pylist() == uniques


def test_sample_networks_are_the_default():
    locations = click_analytics().run(messages([click("198.18.2.7", "/", "x"), click("10.0.0.1", "/", "x")]))
    assert rows(locations["locations"], "country", "city") == [(0, "Brazil", "Porto Alegre")]


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="either capacity or ttl"):
        click_analytics(capacity=1, ttl="1h")
    with pytest.raises(ConfigError, match="capacity"):
        click_analytics(capacity=0)
    with pytest.raises(ConfigError, match="format = 'xml'"):
        click_analytics(format="xml")


@pytest.mark.parametrize("format", ["json", "log"])
def test_lines_of_another_encoding_are_read(geo, format):
    line = json.dumps({"ip": "10.0.0.1", "url": "/é"}, ensure_ascii=False) if format == "json" else (
        '10.0.0.1 - - [10/Jun/1998:12:00:01 +0000] "GET /é" 200 7'
    )  # fmt: skip
    table = messages([""]).set_column(1, "payload", pa.array([line.encode("latin-1")]))
    assert click_analytics(geo=geo, format=format, encoding="latin-1").run(table)["visits"].num_rows == 1
    assert click_analytics(geo=geo, format=format).run(table)["errors"]["reason"].to_pylist() == ["invalid_utf8"]
    with pytest.raises(ConfigError, match="encoding must be"):
        click_analytics(format=format, encoding="utf-9")
