"""Log processing, against a naive reference and the figures of the specification."""

from __future__ import annotations

import csv
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import log_processing
from riot_ops.streams import replay
from tests.dataflows.dspbench.line_messages import last_updates, messages, restarted, rows
from tests.reference.dspbench.log_processing import log_processing as reference
from tests.samples import MADE, expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

LOG = "dspbench/synthetic/http-server.log"
GEO = "dspbench/synthetic/geo-table.csv"
STREAMS = {
    "volume": ("minute", "count"),
    "status": ("response", "count"),
    "countries": ("country", "country_total", "city", "city_total"),
}
TABLE = [
    ("10.0.0.0/8", "FI", "Finland", "Oulu"),
    ("10.1.0.0/16", "FI", "Finland", ""),
    ("10.2.3.4/32", "KE", "Kenya", ""),
]
NOON = datetime(1998, 6, 10, 12, tzinfo=UTC)

good = st.builds(
    lambda ip, s, zone, request, status, size, rest: (
        f'{ip} - - [{NOON + timedelta(seconds=s):%d/%b/%Y:%H:%M:%S} {zone}] "{request}" {status} {size}{rest}'
    ),
    st.sampled_from(["10.0.0.1", "10.1.0.1", "10.2.3.4", "10.2.3.5", "11.0.0.1", "host", "::1"]),
    st.integers(0, 400),
    st.sampled_from(["+0000", "+0000", "-0130"]),
    st.sampled_from(["GET / HTTP/1.0", "GET /", "-", 'GET /"a" b', 'GET /\\" 200 5', "\\x16\\x03", "GET /ü"]),
    st.sampled_from([200, 304, 404, "099"]),
    st.sampled_from(["-", 0, 17]),
    st.sampled_from(["", ' "-" "agent"', ' "-" "cut']),
)
bad = st.sampled_from(
    ["", "x", 'h - - [10/Jun/1998:12:00:01 +0000] "" 200 1', "h - - [bad] \"GET\" 200 1",
     'h - - [10/Jun/1998:12:00:01 +0000] "GET" 20 1', 'h - - [10/Jun/1998:12:00:01 +0000] "GET" 2x0 1',
     'h - - [10/Jun/1998:12:00:01 +0000] "GET" 200 -5', 'h - - [10/Jun/1998:12:00:01 +0000] "GET 200 1',
     'h - - [10/Jun/1998:12:00:01] "GET /" 200 1', 'h - - 10/Jun/1998:12:00:01+0000 "GET /" 200 1',
     "h - - [10/Jun/1998:12:00:01 +0000] GET 200 1", "h - - [10/Jun/1998:12:00:01 +0000] 'GET /' 200 1"]
)  # fmt: skip
lines = st.lists(st.one_of(good, good, good, bad), max_size=14)


@pytest.fixture(scope="module")
def geo(tmp_path_factory):
    path = tmp_path_factory.mktemp("geo") / "table.csv"
    path.write_text("# network,code,country,city\n" + "".join(",".join(row) + "\n" for row in TABLE))
    return str(path)


def found(result):
    return [rows(result[name], *fields) for name, fields in STREAMS.items()]


@given(texts=lines, window=st.integers(1, 4), batch_size=st.integers(1, 5))
def test_results_equal_the_reference(geo, texts, window, batch_size):
    result = log_processing(geo=geo, window=window).run(messages(texts), batch_size=batch_size)
    *wanted, wrong = reference(texts, TABLE, window)
    assert found(result) == wanted
    assert sorted(result["errors"]["seq"].to_pylist()) == wrong


@settings(max_examples=depth(15))
@given(texts=lines.filter(any), seed=st.integers(0, 1 << 32))
def test_staged_results_are_equal(geo, texts, seed):
    choose = random.Random(seed)
    source = ro.MemorySource(messages(texts))
    staged = SimulatedQuery(
        log_processing(geo=geo, window=2), source, choose, max_records=4, partitions=choose.choice([1, 3])
    )
    *wanted, wrong = reference(texts, TABLE, 2)
    assert found(staged) == wanted
    assert sorted(staged["errors"]["seq"].to_pylist()) == wrong


@given(texts=lines, batch_size=st.integers(1, 6))
def test_updates_are_the_last_of_each_key_in_a_batch(geo, texts, batch_size):
    result = log_processing(geo=geo, emit="update").run(messages(texts), batch_size=batch_size)
    *wanted, _ = reference(texts, TABLE)
    keys = (lambda r: r[1], lambda r: r[1], lambda r: (r[1], r[3]))
    assert found(result) == [last_updates(w, key, batch_size) for w, key in zip(wanted, keys, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("staged", [False, True])
def test_log_of_the_specification(sample_data, staged):
    flow, source = log_processing(geo=str(sample_data / GEO)), replay(sample_data / LOG)
    result = SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source)
    minutes = Counter(result["volume"]["minute"].to_pylist())
    volume = expected(sample_data, made=(180, 3, 60), papers=(3000, 76, 65))
    assert (sum(minutes.values()), len(minutes), max(minutes.values())) == volume
    fullest = expected(sample_data, made=897_480_000, papers=897_481_920)
    assert minutes[datetime.fromtimestamp(fullest, UTC)] == volume[-1]
    assert Counter(result["status"]["response"].to_pylist()) == expected(
        sample_data,
        made={200: 148, 206: 4, 304: 17, 404: 9, 500: 2},
        papers={200: 2420, 206: 53, 304: 348, 404: 158, 500: 21},
    )
    countries = expected(
        sample_data,
        made={"Peru": 102, "New Zealand": 26, "Finland": 17, "Kenya": 12},
        papers={"Brazil": 658, "China": 388, "India": 450, "Ireland": 242, "Italy": 728, "United States": 314},
    )
    assert Counter(result["countries"]["country"].to_pylist()) == countries
    cities = set(zip(*(result["countries"][name].to_pylist() for name in ("country", "city")), strict=True))
    if sample_data == MADE:
        assert cities == {
            ("Peru", "Cusco"),
            ("Peru", ""),
            ("New Zealand", "Napier"),
            ("Finland", "Oulu"),
            ("Kenya", "Nakuru"),
        }
    else:
        assert {city for country, city in cities if country == "United States"} == {""}
    assert result["errors"].num_rows == 2
    with (sample_data / GEO).open() as table:
        places = [row for row in csv.reader(table) if not row[0].startswith("#")]
    *wanted, _ = reference((sample_data / LOG).read_text().splitlines(), places)
    assert found(result) == wanted


def test_restarted_run_continues(geo, tmp_path):
    texts = [f'10.{i % 3}.3.4 - - [10/Jun/1998:12:0{i % 4}:00 +0000] "GET /" {200 + i % 2} 1' for i in range(9)]
    *wanted, _ = reference(texts, TABLE, 2)
    assert found(restarted(log_processing(geo=geo, window=2), texts, 4, tmp_path)) == wanted


def test_request_is_split_and_retained(geo):
    line = '10.0.0.1 - - [10/Jun/1998:12:00:01 +0000] "{}" 200 7'
    texts = [line.format(request) for request in ("GET /a HTTP/1.0", "POST /b", "GET", "-")]
    whole = log_processing(geo=geo, keep=("request", "byte_size")).run(messages(texts))
    assert rows(whole["volume"], "request", "byte_size") == [
        (0, "GET /a HTTP/1.0", 7),
        (1, "POST /b", 7),
        (2, "GET", 7),
        (3, "-", 7),
    ]
    parts = log_processing(geo=geo, split_request=True, keep=("verb", "resource", "protocol", "ip")).run(
        messages(texts)
    )
    for name in STREAMS:
        assert rows(parts[name], "verb", "resource", "protocol", "ip") == [
            (0, "GET", "/a", "HTTP/1.0", "10.0.0.1"),
            (1, "POST", "/b", None, "10.0.0.1"),
            (2, "GET", None, None, "10.0.0.1"),
            (3, None, None, None, "10.0.0.1"),
        ]
    assert parts["errors"].num_rows == 0
    assert {*whole["status"].column_names} == {"seq", "event_time", "response", "count", "request", "byte_size"}
    assert {*log_processing().run(messages(texts))["status"].column_names} == {"seq", "event_time", "response", "count"}


def test_sample_networks_are_the_default():
    texts = [f'{ip} - - [10/Jun/1998:12:00:01 +0000] "GET /" 200 7' for ip in ("198.18.2.7", "10.0.0.1")]
    assert rows(log_processing().run(messages(texts))["countries"], "country", "city") == [
        (0, "Brazil", "Porto Alegre")
    ]


def test_misuse_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        log_processing(geo=str(tmp_path / "nowhere.csv"))
    with pytest.raises(ConfigError, match="verb"):
        log_processing(keep=("verb",)).run(messages([]))
    with pytest.raises(ConfigError, match="window = 0"):
        log_processing(window=0)


def test_lines_of_another_encoding_are_read(geo):
    line = '10.0.0.1 - - [10/Jun/1998:12:00:01 +0000] "GET /{}" 200 7'
    table = messages(["", "", ""]).set_column(1, "payload", pa.array([line.format("é").encode("latin-1"), line.format("a").encode(), line.format("\x81").encode("latin-1")]))  # fmt: skip
    for encoding, good, reasons in (
        ("utf-8", [1], {"invalid_utf8"}),
        ("latin-1", [0, 1, 2], set()),
        ("cp1252", [0, 1], {"invalid_encoding"}),
    ):
        result = log_processing(geo=geo, encoding=encoding, keep=("request",)).run(table)
        assert sorted(result["volume"]["seq"].to_pylist()) == good
        assert {*result["errors"]["reason"].to_pylist()} == reasons
    with pytest.raises(ConfigError, match="encoding must be"):
        log_processing(encoding="utf-9")
