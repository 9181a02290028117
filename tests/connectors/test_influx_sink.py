"""Writing streams to InfluxDB's endpoints, whose requests a server of the tests keeps."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.connectors import InfluxSink, retry
from tests.connectors.http_server import Recorder
from tests.connectors.test_line_protocol import parse

SCHEMA = {"event_time": "timestamp[us, tz=UTC]", "device": "string", "value": "double", "n": "int64"}
ROWS = [
    {"event_time": "2026-01-01T00:00:00.000001Z", "device": "a b", "value": 1.5, "n": 7},
    {"event_time": "2026-01-01T00:00:01Z", "device": None, "value": float("nan"), "n": 8},
    {"event_time": "2026-01-01T00:00:02Z", "device": "c", "value": None, "n": None},
]
FIRST = 1_767_225_600_000_001


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)


def flow():
    made = ro.Dataflow("influx")
    made.source("in", schema=SCHEMA).filter("n is None or n != -1", id="air").to("out")
    return made


def run(server, rows=ROWS, **options):
    flow().run(rows, sinks=InfluxSink(**{"url": server.url, "database": "plant", "tags": "device", **options}))
    return server.requests


def points(request):
    return parse(request.body.decode())


@pytest.mark.parametrize(
    ("options", "path", "wanted", "login"),
    [
        ({"api": "1"}, "/write", {"db": ["plant"], "precision": ["u"]}, "Token t0k"),
        (
            {"api": "2", "org": "hall", "time_unit": "s"},
            "/api/v2/write",
            {"bucket": ["plant"], "precision": ["s"], "org": ["hall"]},
            "Token t0k",
        ),
        (
            {"api": "3", "time_unit": "ms"},
            "/api/v3/write_lp",
            {"db": ["plant"], "precision": ["millisecond"], "accept_partial": ["false"]},
            "Bearer t0k",
        ),
    ],
)
def test_endpoints(options, path, wanted, login):
    with Recorder() as server:
        (request,) = run(server, token=ro.Secret("t0k"), **options)
    assert (urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)) == (path, wanted)
    assert request.headers["Authorization"] == login
    divisor = {"us": 1, "ms": 1_000, "s": 1_000_000}[options.get("time_unit", "us")]
    assert points(request) == [
        ("air", {"device": "a b"}, {"value": 1.5, "n": 7}, FIRST // divisor),
        ("air", {}, {"n": 8}, (FIRST + 999_999) // divisor),
    ]


def test_measurement_fields_and_time_are_options():
    with Recorder() as server:
        (request,) = run(server, ROWS[:1], measurement="{stream}/{device}", tags=(), fields="n", time=None)
    assert points(request) == [("air/a b", {}, {"n": 7}, None)]


def test_requests_have_batches_of_a_size_and_are_repeated():
    with Recorder([(204, {}), (503, {})]) as server:
        found = run(server, batch_size=1)
    assert [len(points(request)) for request in found] == [1, 1, 1] and found[1].body == found[2].body


def test_rejected_records_have_tags_of_their_own():
    with Recorder() as server:
        (request,) = run(server, [{**ROWS[0], "value": "warm"}])
    ((measurement, tags, fields, time),) = points(request)
    assert (measurement, tags["task"], set(tags), time) == ("errors", "in", {"task", "reason"}, FIRST)
    assert {"seq", "message", "raw"} <= set(fields)


def test_tag_without_a_form_ends_the_run():
    with (
        Recorder() as server,
        pytest.raises(ro.ConnectorError, match=r"stream 'air'.*127\.0\.0\.1.*device of record 0"),
    ):
        run(server, [{**ROWS[0], "device": "a\nb"}])
    assert not server.requests


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://x/api/v2/write"}, "neither path nor parameters"),
        ({"database": ""}, "database must not be empty"),
        ({"org": "o", "api": "3"}, "org is for api='2'.*'3'"),
        ({"api": "4"}, "api = '4'"),
        ({"time_unit": "min"}, "time_unit = 'min'"),
        ({"tags": "a", "fields": ("a", "b")}, "'a' is both in tags and in fields"),
        ({"measurement": "{"}, "malformed"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ro.ConfigError, match=message):
        InfluxSink(**{"url": "http://x", "database": "d", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": "nothing"}, "'nothing'.*'air' lacks"),
        ({"time": "nothing"}, "'nothing'.*'air' lacks; give time=None"),
        ({"time": "n"}, "'n', must be a timestamp, got int64"),
    ],
)
def test_streams_that_do_not_fit_are_refused_before_the_run(options, message):
    with pytest.raises(ro.ConfigError, match=message):
        flow().run(ROWS, sinks=InfluxSink(**{"url": "http://127.0.0.1:9", "database": "d", **options}))


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("time", {}, True),
        ("_field", {"api": "1"}, True),
        ("_measurement", {"tags": ("_measurement",)}, True),
        ("time", {"api": "3", "fields": ("time",)}, True),
        ("_field", {"api": "3"}, False),
        ("time", {"fields": ("value",)}, False),
        ("time", {"time": "time"}, False),
    ],
)
def test_names_whose_records_the_server_drops_are_refused(name, options, refused):
    sink = InfluxSink(**{"url": "http://x", "database": "d", "time": None, **options})
    schema = pa.schema([("value", pa.float64()), (name, pa.timestamp("us", "UTC"))])
    if not refused:
        sink.check_stream("air", schema)
        return
    with pytest.raises(ro.ConfigError, match=f"drops records.*{name!r}.*'air'.*rename it"):
        sink.check_stream("air", schema)
