"""Parsing of access logs, against regular expressions and lines of real servers."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.samples import expected

TEXT_PARTS = ("host", "ident", "user", "request", "status", "size", "referrer", "agent", "method", "resource",
              "protocol", "client")  # fmt: skip
EVERY = {name: (name, "string", None) for name in TEXT_PARTS} | {"time": ("time", "log")}
LINE = 'h - - [10/Jun/1998:12:00:01 +0000] "{}" {} {}'
NOON = datetime(1998, 6, 10, 12, 0, 1, tzinfo=UTC)


def read(lines, **options):
    """``(records, [(line, reason)])``."""
    session = t.ParseAccessLog(**{"schema": EVERY, **options}).session()
    lines = [line.encode() if isinstance(line, str) else line for line in lines]
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(len(lines)), pa.int64()), "payload": pa.array(lines, pa.binary())}
    )
    return session.push_batch(batch).to_pylist(), [(e["seq"], e["reason"]) for e in session.errors]


def parts(line):
    rows, errors = read([line])
    assert not errors, line
    return {name: value for name, value in rows[0].items() if value is not None and name not in ("seq", "time")}


def test_common_and_combined_format_are_read():
    common = {
        "host": "127.0.0.1", "user": "frank", "request": "GET /apache_pb.gif HTTP/1.0", "status": "200",
        "size": "2326", "method": "GET", "resource": "/apache_pb.gif", "protocol": "HTTP/1.0", "client": "frank",
    }  # fmt: skip
    line = '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
    assert parts(line) == common
    combined = f'{line} "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
    assert parts(combined) == common | {
        "referrer": "http://www.example.com/start.html",
        "agent": "Mozilla/4.08 [en] (Win98; I ;Nav)",
    }
    assert parts(f'{line} "-" "x \\"y\\" z\\\\" 17') == common | {"agent": 'x \\"y\\" z\\\\'}
    assert parts(f'{line} any "other" text') == common
    assert parts(f'{line} "cut of') == common | {"referrer": "cut of"}
    assert read([line])[0][0]["time"] == datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)


def test_dashes_are_missing_except_as_host_and_request():
    line = '- - - [10/Jun/1998:12:00:01 +0000] "-" 408 - "-" "-"'
    assert parts(line) == {"host": "-", "request": "-", "status": "408", "client": "-"}
    fields = {"who": ("user", "string"), "size": ("size", "int64", 0)}
    rows, errors = read([line, LINE.format("-", 408, "-").replace("h - -", "h - x")], schema=fields)
    assert ([(r["who"], r["size"]) for r in rows], errors) == ([("x", 0)], [(0, "missing")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-", (None, None, None)),
        ("GET", ("GET", None, None)),
        ("GET /a", ("GET", "/a", None)),
        ("GET /a b  c HTTP/1.1", ("GET", "/a b  c", "HTTP/1.1")),
        ("GET HTTP/1.1", ("GET", None, "HTTP/1.1")),
        (" GET  /a  HTTP/1.1 ", ("GET", "/a", "HTTP/1.1")),
        ('GET /"a" HTTP/1.0', ("GET", '/"a"', "HTTP/1.0")),
        ('GET /" 200 HTTP/1.0', ("GET", '/" 200', "HTTP/1.0")),
        ('GET /\\" 200 5 HTTP/1.0', ("GET", '/\\" 200 5', "HTTP/1.0")),
        ('GET /a\\" 20 HTTP/1.0', ("GET", '/a\\" 20', "HTTP/1.0")),
        ('"', ('"', None, None)),
        ('"GET /"', ('"GET', '/"', None)),
        ("GET /C:\\dir\\", ("GET", "/C:\\dir\\", None)),
        ("\\x16\\x03\\x01", ("\\x16\\x03\\x01", None, None)),
        ("GET /naïve HTTP/1.0", ("GET", "/naïve", "HTTP/1.0")),
        ("GET /[x] y", ("GET", "/[x] y", None)),
        ("PRI * HTTP/2.0", ("PRI", "*", "HTTP/2.0")),
    ],
)
def test_requests_of_any_form_are_read_and_split(text, words):
    for tail in ("", ' "ref" "agent"'):
        found = read([LINE.format(text, 200, 5) + tail])[0][0]
        assert found["request"] == text
        assert (found["method"], found["resource"], found["protocol"]) == words
        assert (found["status"], found["size"]) == ("200", "5")


@pytest.mark.parametrize("status", ["000", "099", "100", "200", "600", "999"])
def test_any_status_of_three_digits_is_read(status):
    rows, _ = read([LINE.format("GET /", status, 5)], schema={"status": ("status", "int64")})
    assert rows[0]["status"] == int(status)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "malformed"),
        ("x", "malformed"),
        ("1.5,2.5,3.5", "malformed"),
        ('{"a": 1}', "malformed"),
        (LINE.format("", 400, 0), "missing"),
        (LINE.format("GET /", 20, 5), "malformed"),
        (LINE.format("GET /", 2000, 5), "malformed"),
        (LINE.format("GET /", "2x0", 5), "malformed"),
        (LINE.format("GET /", "-20", 5), "malformed"),
        (LINE.format("GET /", "+20", 5), "malformed"),
        (LINE.format("GET /", "-", 5), "malformed"),
        (LINE.format("GET /", 200, -5), "malformed"),
        (LINE.format("GET /", 200, "+5"), "malformed"),
        (LINE.format("GET /", 200, "5.0"), "malformed"),
        (LINE.format("GET /", 200, "--"), "malformed"),
        (LINE.format("GET /", 200, ""), "malformed"),
        (LINE.format("GET /", 200, 5)[:-2], "malformed"),
        (LINE.format("GET /", 200, "9" * 19), "bad_number"),
        (LINE.format("GET /", 200, 5).replace("] ", "]"), "malformed"),
        (LINE.format("GET /", 200, 5).replace("h - -", "h -"), "malformed"),
        (LINE.format("GET /", 200, 5).replace("h - -", "h - - -"), "malformed"),
        (LINE.format("GET /", 200, 5).replace("h - -", "h  - -"), "malformed"),
        (" " + LINE.format("GET /", 200, 5), "malformed"),
        (LINE.format("GET /", 200, 5).replace("[", "").replace("]", ""), "malformed"),
        (LINE.format("GET /", 200, 5).replace("]", ""), "malformed"),
        (LINE.format("GET /", 200, 5).replace("[", ""), "malformed"),
        (LINE.format("GET /", 200, 5).replace('"', ""), "malformed"),
        (LINE.format("GET", 200, 5).replace('"', ""), "malformed"),
        (LINE.format("GET /", 200, 5).replace('"', "'"), "malformed"),
        (LINE.format("GET /", 200, 5).replace('"GET', "GET"), "malformed"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', "]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', " UTC]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', "+0000]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', " Z]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', " +00:00]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace(' +0000]', " +2400]"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace("Jun", "Jux"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace("10/Jun", "31/Jun"), "bad_time"),
        (LINE.format("GET /", 200, 5).replace("10/Jun/1998:12:00:01", "1998-06-10T12:00:01"), "bad_time"),
        (LINE.format("GET /", 200, 5).encode() + b"\xe9", "malformed"),
        (LINE.format("GET /", 200, 5).encode() + b" \xe9", "invalid_utf8"),
        (None, "missing"),
    ],
)  # fmt: skip
def test_other_lines_are_rejected(line, reason):
    fields = {"at": ("time", "log"), "request": ("request", "string"), "size": ("size", "int64", 0)}
    wrong = "invalid_utf8" if isinstance(line, bytes) else reason
    assert read([line], schema=fields) == ([], [(0, wrong)])
    good = LINE.format("GET /", 200, 5)
    rows, errors = read([good, good, line, good], schema=fields)  # beside good lines, which the fast path reads
    assert ([row["seq"] for row in rows], errors) == ([0, 1, 3], [(2, wrong)])


def test_line_breaks_and_byte_order_marks_are_ignored():
    line = LINE.format("GET /", 200, 5)
    rows, errors = read([line + "\n", line + "\r\n", "\ufeff" + line, line + ' "r" "a"\r\n'])
    assert errors == []
    assert [(row["host"], row["size"]) for row in rows] == [("h", "5")] * 4
    assert rows[3]["agent"] == "a"


END = re.compile(r'" (\d{3}) (-|\d+)(?: |$)', re.ASCII)
pieces = st.sampled_from(
    ["GET", "/", '"', '\\"', "\\", " ", " ", "200 5", '" 200 5', '\\" 404 -', "]", "[", "-", "ü", "x"]
)


def naive(line):
    """Request, status and size of a line by a regular expression; None if it has none."""
    if not line.startswith(LINE[:36]):
        return None
    rest = line[36:]
    ends = [found for i in range(len(rest)) if (found := END.match(rest, i))]
    if not ends:
        return None
    before = [rest[: found.start()] for found in ends]
    plain = [i for i, text in enumerate(before) if (len(text) - len(text.rstrip("\\"))) % 2 == 0]
    first = (plain or [0])[0]
    return before[first] or None, ends[first][1], None if ends[first][2] == "-" else ends[first][2]


@given(st.lists(st.lists(pieces, max_size=8).map("".join), min_size=1, max_size=6))
def test_end_of_a_request_equals_regular_expressions(texts):
    lines = [LINE.format(text, 200, 5) for text in texts] + [LINE[:36] + text for text in texts]
    rows, errors = read(lines)
    found = {row["seq"]: (row["request"], row["status"], row["size"]) for row in rows}
    assert found == {i: one for i, line in enumerate(lines) if (one := naive(line)) is not None}
    assert {reason for _, reason in errors} <= {"malformed"}


@given(st.lists(st.lists(pieces, max_size=8).map("".join), min_size=1, max_size=6))
def test_fast_path_equals_slow_path(texts):
    good = LINE.format("GET / HTTP/1.0", 200, 5)
    lines = [line for text in texts for line in (LINE.format(text, 200, "-"), LINE.format(text, 404, 7) + ' "r" "a"')]
    plain, errors = read([good] * len(lines) + lines)
    slow, wrong = read(["ü" + line for line in [good] * len(lines) + lines])  # not ASCII: not on the fast path
    for row in slow:
        row["host"], row["client"] = row["host"][1:], row["client"][1:]
    assert (plain, errors) == (slow, wrong)


def test_log_of_the_benchmark_is_read(sample_data):
    lines = (sample_data / "dspbench/synthetic/http-server.log").read_bytes().splitlines()
    rows, errors = read(lines)
    assert (len(rows), len(errors)) == (expected(sample_data, made=180, papers=3000), 2)
    assert {row["protocol"] for row in rows} == {"HTTP/1.0"}


def test_unknown_parts_are_refused():
    with pytest.raises(ConfigError, match=r"part of 'x' must be one of host, .* got 'hots' .* did you mean \"host\""):
        t.ParseAccessLog(schema={"x": ("hots", "string")})
    for part in (0, ("host", "user"), None):
        with pytest.raises(ConfigError, match="part of 'x'"):
            t.ParseAccessLog(schema={"x": (part, "string")})


def test_fields_keep_and_field_are_used():
    task = t.ParseAccessLog(schema={"ip": ("host", "string")}, field="line", keep=("site",))
    row = {"line": LINE.format("GET /", 200, 5), "site": "s", "other": 1}
    assert task.session().push(row) == [{"site": "s", "ip": "h"}]
    assert t.Task.from_dict(task.to_dict()) == task


def test_bad_optional_parts_become_the_default_with_a_reason():
    task = t.ParseAccessLog(schema={"ip": ("host", "string"), "at": ("time", "log", None)}, problems="why")
    (row,) = task.session().push({"payload": '192.0.2.1 - - [99/Jun/1998:12:00:01 +0000] "GET /a HTTP/1.0" 200 5'})
    assert (row["ip"], row["at"]) == ("192.0.2.1", None)
    assert row["why"].startswith("bad_time: at: ")


def test_first_bracket_closes_the_time_in_any_line():
    log = t.ParseAccessLog(schema={"host": ("host", "string")}).session()
    for page in ("/a", "/ü"):
        assert log.push({"payload": f'h - - [10/Jun/1998:12:00:01 ]0000] "GET {page}" 200 5'}) == []
    assert [error["reason"] for error in log.errors] == ["malformed"] * 2
