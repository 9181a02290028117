"""Garbage in: every message is either parsed or in the errors stream with a reason; nothing is lost."""

import json

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.schema import RAW

GOOD = (
    b'1422748800000,{"e":[{"u":"string","n":"source","sv":"s1"},{"v":"8","u":"far","n":"temperature"},'
    b'{"v":"53.7","u":"per","n":"humidity"},{"v":"0","u":"per","n":"light"},{"v":"411.02","u":"per","n":"dust"},'
    b'{"v":"140","u":"per","n":"airquality_raw"}],"bt":1422748800000}'
)

SENML = {
    "truncated": (GOOD[:120], "malformed"),
    "half a number": (GOOD[:-3], "malformed"),
    "empty line": (b"", "empty"),
    "blank line": (b"  \r\n", "empty"),
    "null payload": (None, "empty"),
    "not JSON": (b"temperature=8", "malformed"),
    "a list": (b"[1, 2, 3]", "malformed"),
    "wrong type of e": (b'{"e": "text", "bt": 1}', "malformed"),
    "wrong type of value": (GOOD.replace(b'"v":"8"', b'"v":[8]'), None),
    "NaN": (GOOD.replace(b'"v":"8"', b'"v":"NaN"'), "not_a_number"),
    "infinite": (GOOD.replace(b'"v":"8"', b'"v":"-inf"'), "not_a_number"),
    "a word": (GOOD.replace(b'"v":"8"', b'"v":"warm"'), "not_a_number"),
    "huge number": (GOOD.replace(b'"v":"8"', b'"v":"1e999"'), "out_of_range"),
    "invalid UTF-8": (GOOD.replace(b"s1", b"s\xff\xfe"), "invalid_utf8"),
    "deep nesting": (b'{"e":' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
    "no id": (GOOD.replace(b'"n":"source"', b'"n":"other"'), "missing_id"),
    "binary": (bytes(range(256)), None),
}


BAD_READINGS = ("wrong type of value", "NaN", "infinite", "a word", "huge number")


def city_flow():
    flow = ro.Dataflow("garbage")
    by = ("sensor_id", "obs_type")
    obs = flow.source("lines").to(t.ParseSenML(schema="city"), id="parse")
    flow.sink("out", obs, obs.to(t.KalmanFilter(by=by), id="kalman"))
    return flow


def city_input():
    payloads = []
    for bad, _ in SENML.values():
        payloads += [GOOD, bad]
    return pa.table(
        {
            "seq": range(len(payloads)),
            "event_time": pa.nulls(len(payloads), RAW.field("event_time").type),
            "payload": pa.array(payloads, pa.binary()),
        },
        schema=RAW,
    )


def check(errors, rows):
    reasons = {row["seq"]: row["reason"] for row in errors.to_pylist()}
    for place, (name, (_, wanted)) in enumerate(SENML.items()):
        assert 2 * place + 1 in reasons, f"{name} is lost"
        if wanted is not None:
            assert reasons[2 * place + 1] == wanted, name
    assert len(reasons) == len(errors) == len(SENML)
    # of a message with one bad reading the four others are taken
    assert rows == 5 * len(SENML) + 4 * len(BAD_READINGS)
    for row in errors.to_pylist():
        assert row["task"] == "parse"
        assert row["message"]


def test_senml_garbage_in_process():
    result = city_flow().run(source=city_input(), batch_size=7)
    check(result.errors, result["kalman"].num_rows)
    raw = {row["seq"]: row["raw"] for row in result.errors.to_pylist()}
    assert raw[1] == GOOD[:120].decode()  # the whole record, to be repaired and sent again


@pytest.mark.spark
def test_senml_garbage_on_spark(spark):
    query = city_flow().start(spark, city_input(), max_records=20)
    summary = query.wait("2min")
    check(query["errors"], query["kalman"].num_rows)
    assert summary.errors == len(SENML)
    assert sum(summary.reasons.values()) == len(SENML)


def test_file_of_garbage(tmp_path):
    path = tmp_path / "städte.csv"
    path.write_bytes(b"\n".join([GOOD, b"", b"\x00\xff", GOOD, b"x" * 100_000]))
    result = city_flow().run(source=ro.streams.replay(path))
    assert result["parse"].num_rows == 10
    assert sorted(result.errors["seq"].to_pylist()) == [1, 2, 4]


XML = {
    "bomb": (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>', "forbidden_doctype"),
    "external entity": (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "forbidden_doctype"),
    "truncated": (b"<class><student>", "malformed"),
    "not XML": (b"hello", "malformed"),
    "deep": (b"<a>" * 500 + b"</a>" * 500, "too_deep"),
    "large": (b"<a>" + b"x" * (2 << 20) + b"</a>", "too_large"),
}


def test_xml_garbage():
    flow = ro.Dataflow("xml")
    flow.sink("out", flow.source("documents").to(t.ParseXML(), id="xml"))
    good = b"<class><student rollno='1'><firstname>a</firstname></student></class>"
    payloads = [p for bad, _ in XML.values() for p in (good, bad)]
    result = flow.run(
        source=pa.table(
            {
                "seq": range(len(payloads)),
                "event_time": pa.nulls(len(payloads), RAW.field("event_time").type),
                "payload": pa.array(payloads, pa.binary()),
            },
            schema=RAW,
        )
    )
    reasons = {row["seq"]: row["reason"] for row in result.errors.to_pylist()}
    assert reasons == {2 * i + 1: wanted for i, (_, wanted) in enumerate(XML.values())}
    assert result["xml"].num_rows == len(XML)


def test_wrong_types_reach_a_keyed_task():
    flow = ro.Dataflow("keyed")
    rows = flow.source("rows", schema={"device": "string", "value": "double"})
    flow.sink("out", rows.to(t.KalmanFilter(by=("device",)), id="kalman"))
    given = [
        {"device": "ü", "value": 1.0},
        {"device": None, "value": float("inf")},
        {"device": "", "value": float("nan")},
        {"device": "a", "value": -1e308},
        {"device": "a", "value": "warm"},
    ]
    result = flow.run(source=given)
    errors = {row["reason"]: row for row in result.errors.to_pylist()}
    assert {reason: row["task"] for reason, row in errors.items()} == {"not_finite": "kalman", "wrong_type": "rows"}
    assert json.loads(errors["not_finite"]["raw"])["device"] is None
    assert result["kalman"].num_rows == 3
