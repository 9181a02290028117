from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import OBSERVATIONS, SCHEMAS, TIMESTAMP, StreamSchema, stream_schema
from riot_ops.kernels.text.senml import messages as senml
from riot_ops.task import Task
from riot_ops.tasks.parse.parse_senml import ParseSenML
from tests.reference import parse_senml as reference
from tests.samples import expected
from tests.search import depth

CITY = ParseSenML(schema="city")
WHOLE = ParseSenML(schema="city", on_error="message")
SECONDS = ParseSenML(schema="city", time_unit="s")
FULL_PARSE = senml.parse_messages


def line(temperature: str = '"8"', source: str = '"s1"', more: str = "", bt: str = ',"bt":1422748800000') -> str:
    return (
        '{"e":[{"u":"string","n":"source","sv":'
        + source
        + '},{"v":'
        + temperature
        + ',"u":"far","n":"temperature"},{"v":"53.7","u":"per","n":"humidity"}'
        + more
        + "]"
        + bt
        + "}"
    )


def batch_of(payloads: list[Any], kind: pa.DataType | None = None, **more: pa.Array) -> pa.RecordBatch:
    payloads = [p.encode() if isinstance(p, str) else p for p in payloads]
    columns = {
        "seq": pa.array(range(len(payloads)), pa.int64()),
        **more,
        "payload": pa.array(payloads, kind or pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def run(task: Task, payloads: list[Any], **more: pa.Array) -> tuple[pa.RecordBatch, dict[int, str]]:
    rejects = RejectedRecords("t")
    batch = batch_of(payloads, **more)
    out = task.apply(batch, rejects)  # type: ignore[attr-defined]
    out.validate(full=True)
    assert out.schema.equals(task.output_schema(batch.schema))
    found: dict[int, set[str]] = {}
    for rows in rejects.take():
        for row in rows.to_pylist():
            found.setdefault(row["seq"], set()).add(row["reason"])
    return out, {seq: min(reasons) for seq, reasons in found.items()}


def same(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    columns = zip(a.columns, b.columns, strict=True)
    return a.schema.equals(b.schema) and all(bits(x) == bits(y) for x, y in columns)


def bits(column: pa.Array) -> list[Any]:
    return [
        struct.pack("<d", v) if isinstance(v, float) else v
        for v in column.cast(pa.int64() if pa.types.is_timestamp(column.type) else column.type).to_pylist()
    ]


def general(*args: Any, **_: Any) -> senml.Columns:
    return FULL_PARSE(*args, templates=False)


def slow(*args: Any, **_: Any) -> senml.Columns:
    columns = FULL_PARSE(*args, templates=False)
    for array in columns:  # nothing that the kernels wrote may matter
        array[...] = 0
    return columns


def three_ways(task: Task, payloads: list[Any], **more: pa.Array) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The result by templates, by the general scanner and by the slow path, which must agree."""
    fast = run(task, payloads, **more)
    with pytest.MonkeyPatch.context() as patch:
        for other in (general, slow):
            patch.setattr(senml, "parse_messages", other)
            out, errors = run(task, payloads, **more)
            assert errors == fast[1], other.__name__
            assert same(out, fast[0]), other.__name__
    return fast


# -- values by hand --------------------------------------------------------------------------------


def test_observations_of_a_wire_line() -> None:
    out, errors = three_ways(CITY, ["1422748800000," + line() + "\r\n"])
    assert errors == {}
    assert out.schema.names == OBSERVATIONS.names
    assert out.to_pydict() == {
        "seq": [0] * 5,
        "ordinal": [0, 1, 2, 3, 4],
        "event_time": pa.array([1422748800000000] * 5, TIMESTAMP).to_pylist(),
        "sensor_id": ["s1"] * 5,
        "obs_type": ["temperature", "humidity", "light", "dust", "airquality_raw"],
        "value": [8.0, 53.7, None, None, None],
    }


def test_wide_and_meta() -> None:
    task = ParseSenML(schema="city", layout="wide", meta=True, fields=("humidity", "temperature"))
    out, _ = three_ways(task, [line(more=',{"n":"latitude","v":"46.2"}')])
    assert out.to_pylist() == [
        {
            "seq": 0,
            "event_time": out["event_time"][0].as_py(),
            "sensor_id": "s1",
            "temperature": 8.0,
            "humidity": 53.7,
            "meta": "1422748800000,s1,,46.2",
        }
    ]
    out, _ = three_ways(
        ParseSenML(schema="taxi", layout="wide", fields=("hack_license", "tip_amount")),
        ['{"e":[{"n":"taxi_identifier","sv":"x"},{"n":"hack_license","sv":"12"}]}'] * 3,
    )
    assert out["hack_license"].to_pylist() == ["12"] * 3
    assert out["tip_amount"].null_count == 3


def test_raw_retains_the_text_of_values() -> None:
    out, _ = three_ways(
        ParseSenML(schema="city", raw=True, fields=("temperature", "light", "source")),
        [line('" 8.50 "'), line("8.50"), line("true", more=',{"n":"light","v":null}')],
    )
    assert out["text"].to_pylist() == ["s1", " 8.50 ", None, "s1", "8.50", None, "s1", "true", None]
    assert out["value"].to_pylist() == [None, 8.5, None, None, 8.5, None, None, 1.0, None]


def test_numeric_texts_have_a_value() -> None:
    trip = (
        '{"e":[{"n":"taxi_identifier","sv":"ID"},{"n":"hack_license","sv":"%s"},{"v":"4.80",'
        '"n":"tolls_amount"}],"bt":5}'
    )
    out, errors = three_ways(
        ParseSenML(schema="taxi", fields=("hack_license", "tolls_amount")),
        [trip % text for text in ("08F9", "-7.5", "1E999", "null", "", "0.1e-400", "ü")],
    )
    assert errors == {}
    assert out["value"].to_pylist()[::2] == [None, -7.5, None, None, None, 0.0, None]
    assert out["text"].to_pylist()[::2] == ["08F9", "-7.5", "1E999", "null", "", "0.1e-400", "ü"]
    assert set(out["text"].to_pylist()[1::2]) == {None}


@pytest.mark.parametrize(
    ("bt", "expected"),
    [
        (',"bt":1500', 1_500_000),
        (',"bt":"1500"', 1_500_000),
        (',"bt":" 1500 "', 1_500_000),
        (',"bt":1.5e3', 1_500_000),
        (',"bt":-0.0004', 0),
        (',"bt":1.2345', 1234),
        (',"bt":"0.0015"', 2),
        ("", 77_000),
        (',"bt":null', 77_000),
        (',"bt":""', 77_000),
        (',"bt":253402300799999', 253402300799999000),
    ],
)
def test_base_time(bt: str, expected: int) -> None:
    out, _ = three_ways(CITY, ["77," + line(bt=bt)] * 3)
    assert set(out["event_time"].cast(pa.int64()).to_pylist()) == {expected}


def test_messages_without_time_have_the_input_time_plus_t() -> None:
    times = pa.array([10**15, None, 10**15, 10**15], TIMESTAMP)
    messages = [line(bt=""), line(bt=""), line(bt="", more=',{"n":"dust","v":1,"t":-2}'), line()]
    out, _ = three_ways(CITY, messages, event_time=times)
    got = out["event_time"].cast(pa.int64()).to_numpy().reshape(4, 5)
    assert got[0].tolist() == [10**15] * 5
    assert got[1].tolist() == [0] * 5
    assert got[2].tolist() == [10**15] * 3 + [10**15 - 2000, 10**15]
    assert got[3].tolist() == [1422748800000000] * 5


def test_time_stays_with_its_message() -> None:
    """A template that fails at its end has read the time that a further record has only in other messages."""
    timed = line(more=',{"n":"dust","v":1,"t":-2}')
    untimed = line(more=',{"n":"dust","v":1,"t":-2},{"n":"dust","v":5}')  # of one name the last record counts
    for payloads in (
        [timed, untimed, timed, untimed],
        [line(more=',{"n":"dust","v":1,"t":-2}'), line(more=',{"n":"dust","v":1,"t":-2,"x":1}')] * 3,
        [line(more=',{"n":"light","v":1,"t":7},{"n":"dust","v":1}'), line(more=',{"n":"light","v":1,"y":7}')] * 3,
        [line(more=',{"n":"dust","t":9},{"n":"dust","v":"x"}'), timed, untimed, line(more=',{"n":"dust","t":"9"}')] * 2,
    ):
        together, _ = three_ways(CITY, payloads)
        alone = [run(CITY, [payload])[0].drop_columns(["seq"]).to_pylist() for payload in payloads]
        assert together.drop_columns(["seq"]).to_pylist() == [row for rows in alone for row in rows]


def test_messages_do_not_inherit_fields_of_others() -> None:
    """Two skeletons that part only in their last bytes, and fields that one has and the other lacks."""
    a = '{"e":[{"n":"source","sv":"%s"},{"n":"temperature","v":"%s","t":"%s"}],"x":1,"bt":%d}'
    b = '{"e":[{"n":"source","sv":"%s"},{"n":"temperature","vx":"%s","t":"%s"}],"x":1,"bt":%d}'
    c = '{"e":[{"n":"source","sv":"%s"},{"n":"temperature","v":"%s","x":"%s"}],"x":1,"bt":%d }'
    payloads = [form % (f"s{i}", f"{i}.5", str(1000 + i), 10**6 * i) for i, form in enumerate([a, b, c, c, b, a] * 3)]
    payloads.append(line())
    for task in (CITY, ParseSenML(schema="city", raw=True), ParseSenML(schema="city", meta=True)):
        together, errors = three_ways(task, payloads)
        assert errors == {}
        alone = [run(task, [payload])[0].drop_columns(["seq"]).to_pylist() for payload in payloads]
        assert together.drop_columns(["seq"]).to_pylist() == [row for rows in alone for row in rows]


def test_records_of_an_ordered_message_have_a_further_ordinal() -> None:
    out, _ = three_ways(CITY, [line()] * 2, ordinal=pa.array([0, 3]))
    assert out["ordinal"].to_pylist() == [0] * 5 + [3] * 5
    assert out["ordinal_2"].to_pylist() == [*range(5), *range(5)]


def test_base_names() -> None:
    text = '{"bn":"temper","e":[{"n":"ature","v":1},{"n":"source","v":"full"},{"v":4}]}'
    assert three_ways(CITY, [text])[0]["sensor_id"].to_pylist() == ["full"] * 5
    joined = '{"e":[{"n":"ature","v":1},{"n":"light","v":5}],"bn":"temper"}'
    assert three_ways(ParseSenML(schema="city", concatenate_names=True), [joined])[1] == {0: "missing_id"}
    source = '{"e":[{"n":"rce","v":1},{"n":"light","v":5}],"bn":"sou"}'
    out, errors = three_ways(ParseSenML(schema="city", concatenate_names=True), [source] * 3)
    assert errors == {}
    assert out["value"].null_count == 15
    alone = '{"e":[{"v":"x"},{"n":"light","v":5}],"bn":"source"}'
    assert three_ways(CITY, [alone])[0]["value"].to_pylist() == [None, None, 5.0, None, None]


def test_generic_messages_without_a_schema() -> None:
    out, errors = run(
        ParseSenML(time_unit="ms"),
        [
            '{"bn":"dev1","bt":1000,"e":[{"n":"a","v":"1.5","t":2},{"n":"b","vb":true},{"n":"c","sv":"x\\u00e9"},{}]}',
            '{"e":[]}',
            '{"e":[{"n":"a","v":"x"}]}',
        ],
    )
    assert [list(row.values())[1:] for row in out.drop_columns(["event_time"]).to_pylist()] == [
        [0, "dev1", "a", 1.5, "1.5"],
        [1, "dev1", "b", 1.0, "true"],
        [2, "dev1", "c", None, "xé"],
        [3, "dev1", "dev1", None, None],
    ]
    assert out["event_time"].cast(pa.int64()).to_pylist() == [1_002_000, 10**6, 10**6, 10**6]
    assert errors == {2: "not_a_number"}


def rfc(text: str, now: int | None = None, **options: Any) -> list[tuple[Any, ...]]:
    """Time in seconds, name, value, text and the requested further fields, or the reasons of rejections."""
    session = ParseSenML(**{"concatenate_names": True, **options}).session()
    row = {"payload": text} | ({} if now is None else {"event_time": pa.scalar(now * 10**6, TIMESTAMP).as_py()})
    out = [
        (o["event_time"].timestamp(), o["obs_type"], o["value"], o["text"], *(o[k] for k in ("sum", "unit") if k in o))
        for o in session.push(row)
    ]
    return out + [(error["reason"],) for error in session.errors]


def test_packs_of_the_rfc() -> None:
    """The examples of RFC 8428, 5.1.2 (multiple datapoints) and 5.1.6 (strings, booleans, data), resolved as in 5.1.4."""
    pack = (
        '[{"bn":"urn:dev:ow:10e2073a01080063:","bt":1.276020076001e+09,"bu":"A","bver":5,'
        '"n":"voltage","u":"V","v":120.1},{"n":"current","t":-5,"v":1.2},{"n":"current","t":-4,"v":1.3},'
        '{"n":"current","v":1.7}]'
    )
    name = "urn:dev:ow:10e2073a01080063:"
    assert rfc(pack, units=True) == [
        (1276020076.001, name + "voltage", 120.1, "120.1", "V"),
        (1276020071.001, name + "current", 1.2, "1.2", "A"),
        (1276020072.001, name + "current", 1.3, "1.3", "A"),
        (1276020076.001, name + "current", 1.7, "1.7", "A"),
    ]
    kinds = (
        '[{"bn":"urn:dev:ow:10e2073a01080063:","n":"temp","u":"Cel","v":23.1},{"n":"label","vs":"Machine Room"},'
        '{"n":"open","vb":false},{"n":"nfc-reader","vd":"aGkgCg"}]'
    )
    assert [row[1:] for row in rfc(kinds)] == [
        (name + "temp", 23.1, "23.1"),
        (name + "label", None, "Machine Room"),
        (name + "open", 0.0, "false"),
        (name + "nfc-reader", None, "aGkgCg"),
    ]
    assert rfc('[{"n":"a","vd":"1234"}]')[0][1:] == ("a", None, "1234")


def test_base_fields_hold_from_their_record_on() -> None:
    pack = '[{"n":"a","v":1},{"bn":"x/","bv":0.1,"bu":"V"},{"n":"b","v":0.2},{"bn":"y/","bv":"5","n":"c","v":"-1"}]'
    assert [row[1:] for row in rfc(pack, units=True)] == [
        ("a", 1.0, "1", None),
        ("x/b", 0.3, "0.3", "V"),
        ("y/c", 4.0, "4", "V"),
    ]
    session = ParseSenML().session()
    assert [(o["sensor_id"], o["ordinal"]) for o in session.push({"payload": pack})] == [
        (None, 0),
        ("x/", 2),
        ("y/", 3),
    ]


def test_times_below_2_to_the_28_are_relative_to_the_message() -> None:
    pack = '[{"n":"a","v":1,"t":-60},{"n":"b","v":1},{"n":"c","v":1,"t":268435455},{"n":"d","v":1,"t":268435456}]'
    now = 1_717_243_200
    assert [row[0] for row in rfc(pack, now)] == [now - 60, now, now + 268435455, 268435456]
    assert [row[0] for row in rfc("1717243200000," + pack, 5)] == [now - 60, now, now + 268435455, 268435456]
    assert rfc('[{"bt":-3600,"n":"a","v":1,"t":0.5}]', now)[0][0] == now - 3599.5


@pytest.mark.parametrize(
    "text", ['{"bn":"d","bt":%s,"e":[{"n":"t","v":1.5,"t":%s}]}', '[{"bn":"d","bt":%s,"n":"t","v":1.5,"t":%s}]']
)
def test_unit_of_times(text: str) -> None:
    for options in ({}, {"time_unit": "s"}):
        assert rfc(text % (1717243200, -60), **options)[0][0] == 1717243140
    assert rfc(text % (1717243200000, -60), time_unit="ms")[0][0] == 1717243199.94
    assert rfc(text % (2**28 * 1000, 0), 5, time_unit="ms")[0][0] == 2**28


def test_seconds_with_a_schema() -> None:
    pack = '[{"n":"source","vs":"s1","bt":1717243200},{"n":"dust","v":2,"t":-1.5},{"n":"light","v":3,"t":-1717243200}]'
    row = {"payload": pack, "event_time": pa.scalar(1_700_000_000_000_000, TIMESTAMP).as_py()}
    out = SECONDS.session().push(row)
    assert {o["obs_type"]: o["event_time"].timestamp() for o in out if o["value"]} == {
        "dust": 1717243198.5,
        "light": 1_700_000_000,
    }
    wide = ParseSenML(schema="city", time_unit="s", layout="wide").session()
    assert wide.push(row)[0]["event_time"].timestamp() == 1717243200
    late = {**row, "payload": '[{"n":"source","vs":"s1","t":-9},{"n":"dust","v":2,"t":-3}]'}
    assert wide.push(late)[0]["event_time"].timestamp() == 1_699_999_997


def test_sums_of_readings() -> None:
    assert rfc('[{"n":"e","s":120.5}]') == [("malformed",)]
    assert rfc('[{"n":"e","v":1,"s":120.5}]')[0][1:] == ("e", 1.0, "1")
    pack = '[{"bs":100,"n":"e","s":20.5},{"n":"f","v":1}]'
    assert [row[1:] for row in rfc(pack, sums=True)] == [("e", None, None, 120.5), ("f", 1.0, "1", 100.0)]
    assert rfc('[{"n":"e","s":"much"}]', sums=True) == [("not_a_number",)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('[{"n":"a","v":1,"scale_":10},{"n":"b","v":2}]', ["b", "malformed"]),
        ('{"bn":"d","e":[{"n":"a","v":1,"scale_":10}]}', ["malformed"]),
        ('[{"n":"a","v":1,"b_":10},{"n":"b","v":2}]', ["malformed"]),
        ('{"x_":1,"e":[{"n":"b","v":2}]}', ["malformed"]),
        ('[{"bver":11,"n":"a","v":1}]', ["malformed"]),
        ('[{"bver":10,"n":"a","v":1}]', ["a"]),
        ('[{"bver":"10","n":"a","v":1}]', ["malformed"]),
        ('[{"bv":"x","n":"a","v":1}]', ["not_a_number"]),
        ('[{"bn":1,"n":"a","v":1}]', ["malformed"]),
        ('[{"bv":1e300,"n":"a","v":"1e400"}]', ["out_of_range"]),
        ("[1]", ["malformed"]),
        ("[]", ["malformed"]),
    ],
)
def test_unknown_mandatory_fields_are_rejected(text: str, rows: list[str]) -> None:
    assert [row[1] if len(row) > 1 else row[0] for row in rfc(text)] == rows


def test_byte_order_mark_is_skipped() -> None:
    text = '{"e":[{"n":"source","sv":"s1"}],"bt":8}'
    for task in (ParseSenML(), CITY):
        assert task.session().push({"payload": b"\xef\xbb\xbf" + text.encode()}) == task.session().push(
            {"payload": text}
        )


def test_message_may_have_many_records() -> None:
    out, errors = run(ParseSenML(), ['{"bn":"d","e":[' + "{}," * 4999 + "{}]}"])
    assert (out["ordinal"].to_pylist(), errors) == (list(range(5000)), {})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"\xff", "invalid_utf8"),
        (b'{"e":[', "malformed"),
        (b'{"e":{}}', "malformed"),
        (b'{"e":[1]}', "malformed"),
        (b"{}", "malformed"),
        (b"[]", "malformed"),
        (b"x", "malformed"),
        (b"12", "malformed"),
        (b'12,{"e":1}', "malformed"),
        (b'012,{"e":[]}', "malformed"),
        (b'{"e":[]}', "missing_id"),
        (b"[" * 33, "too_deep"),
        (b"[" * 32, "malformed"),
        (b"[" * 100_000, "too_deep"),
        (line(source='""'), "missing_id"),
        (line(source='" null"'), "missing_id"),
        (line(source="null"), "missing_id"),
        (line(source="[]"), "malformed"),
        (line(source='"\\ud800"'), "malformed"),
        (line('"NaN"'), "not_a_number"),
        (line('"inf"'), "not_a_number"),
        (line('"0x10"'), "not_a_number"),
        (line('"1_000"'), "not_a_number"),
        (line('"1."'), "not_a_number"),
        (line('".5"'), "not_a_number"),
        (line('"01"'), "not_a_number"),
        (line('"+1"'), "not_a_number"),
        (line('"-"'), "not_a_number"),
        (line('"1 2"'), "not_a_number"),
        (line("[1]"), "not_a_number"),
        (line("NaN"), "malformed"),
        (line("01"), "malformed"),
        (line('"1e400"'), "out_of_range"),
        (line("-1e400"), "out_of_range"),
        (line(bt=',"bt":"soon"'), "not_a_number"),
        (line(bt=',"bt":true'), "not_a_number"),
        (line(bt=',"bt":1e15'), "out_of_range"),
        (line(more=',{"n":"dust","v":1,"t":1e300}'), "out_of_range"),
        (line(more=',{"n":"dust","v":1,"t":253402300799999}'), "out_of_range"),
        (line(more=',{"n":5}'), "malformed"),
        (line().encode().replace(b"s1", b"s\xc3"), "invalid_utf8"),
        (line().replace("s1", "s\n1"), "malformed"),
        (line()[:-1], "malformed"),
        (line() + "x", "malformed"),
        (line().replace("],", "],]"), "malformed"),
    ],
)
def test_rejections_have_their_reason(payload: Any, reason: str) -> None:
    # good messages around, so that templates are tried as well
    out, errors = three_ways(WHOLE, [line(), payload, line(), "5," + line()])
    assert errors == {1: reason}
    assert out["seq"].to_pylist() == [0] * 5 + [2] * 5 + [3] * 5


def test_rejected_message_is_kept_in_full() -> None:
    session = WHOLE.session()
    assert session.push({"payload": b'{"e":\xff'}) == []
    assert session.push({"payload": line('"warm"')}) == []
    assert [e["raw"] for e in session.errors] == ['{"e":\\xff', line('"warm"')]
    assert session.errors[1]["message"] == "temperature = 'warm' is not a number"


def test_bad_reading_rejects_its_record_alone() -> None:
    more = ',{"n":"light","v":[1,{"a":null}]},{"n":"dust","v":1,"t":1e300},{"n":"airquality_raw","v":-1e400,"u":"x"}'
    session = CITY.session()
    rows = session.push({"seq": 3, "payload": line('"warm"', more=more)})
    assert [(r["ordinal"], r["obs_type"], r["value"]) for r in rows] == [(1, "humidity", 53.7)]
    assert [(e["seq"], e["reason"], e["raw"]) for e in session.errors] == [
        (3, "not_a_number", '{"v":"warm","u":"far","n":"temperature"}'),
        (3, "not_a_number", '{"n":"light","v":[1,{"a":null}]}'),
        (3, "out_of_range", '{"n":"dust","v":1,"t":1e300}'),
        (3, "out_of_range", '{"n":"airquality_raw","v":-1e400,"u":"x"}'),
    ]
    wide = ParseSenML(schema="city", layout="wide", meta=True).session()
    (row,) = wide.push({"payload": line('"warm"', more=',{"n":"latitude","v":[]}')})
    assert (row["temperature"], row["humidity"], row["meta"]) == (None, 53.7, "1422748800000,s1,,")
    assert [e["reason"] for e in wide.errors] == ["not_a_number", "malformed"]
    out, errors = three_ways(CITY, [line(), line('"warm"'), line(), line(source='"s2"')])
    assert (errors, out.num_rows, out["ordinal"].to_pylist()[5:9]) == ({1: "not_a_number"}, 19, [1, 2, 3, 4])
    # what identifies the sensor is no matter of one record
    out, errors = three_ways(ParseSenML(schema="city", fields=("source", "dust")), [line(source="[]"), line()])
    assert (errors, out.num_rows) == ({0: "malformed"}, 2)


@pytest.mark.parametrize("more", [{}, {"raw": True, "units": True, "meta": True}])
def test_bad_record_gives_a_null(more: dict[str, Any]) -> None:
    """Its message is whole, and its place is that of the field."""
    session = ParseSenML(schema="city", on_error="null", **more).session()
    session.push({"seq": 1, "payload": line()})
    rows = session.push({"seq": 2, "payload": line('"warm"')})
    assert [(r["ordinal"], r["obs_type"], r["value"]) for r in rows][:2] == [
        (0, "temperature", None),
        (1, "humidity", 53.7),
    ]
    assert len(rows) == 5
    assert [r["value"] for r in session.push({"seq": 3, "payload": line("7")})][:1] == [7.0]
    assert [(e["seq"], e["reason"], e["raw"][:12]) for e in session.errors] == [(2, "not_a_number", '{"v":"warm",')]


@pytest.mark.parametrize(("on_error", "rows", "raw"), [("record", 2, '{"n":"b","v":"x","t":2}'), ("message", 0, None)])
def test_bad_record_without_a_schema(on_error: Any, rows: int, raw: str | None) -> None:
    text = '{"bn":"d","e":[{"n":"a","v":1},{"n":"b","v":"x","t":2},{"n":"c","v":3}]}'
    session = ParseSenML(on_error=on_error).session()
    assert [r["ordinal"] for r in session.push({"payload": text})] == [0, 2][:rows]
    assert [(e["reason"], e["raw"]) for e in session.errors] == [("not_a_number", raw or text)]


def test_units_are_checked() -> None:
    """RFC 8428, 4.1: a base unit holds for all entries that say no other."""
    task = ParseSenML(schema="city", units=True, raw=True, fields=("temperature", "humidity", "dust"))
    temperature = '{"n":"temperature","v":1%s}'
    form = '{"e":[{"n":"source","sv":"s","u":"string"},' + temperature + ',{"n":"humidity","v":2,"u":"%%RH"}]%s}'
    payloads = [
        form % (',"u":"Cel"', ""),
        form % ("", ""),
        form % (',"u":"Cel"', ""),
        form % ("", ',"bu":"K"'),
        form % (',"u":null', ',"bu":"K"'),
        form % (',"u":"°C"', ',"bu":"K"'),
        form % (',"u":"\\u00b0F"', ',"bu":null'),
        form % (',"u":""', ',"bu":"K"'),
        form % (',"u":"Cel"', ',"bu":"K"'),
        form % (',"u":"Far"', ',"bu":"K"'),
        line(),
    ]
    out, errors = three_ways(task, payloads)
    assert errors == {}
    assert out.schema.names[-2:] == ["text", "unit"]
    units = [tuple(out["unit"].to_pylist()[i : i + 3]) for i in range(0, 33, 3)]
    assert units == [
        ("Cel", "%RH", None),
        (None, "%RH", None),
        ("Cel", "%RH", None),
        ("K", "%RH", "K"),
        ("K", "%RH", "K"),
        ("°C", "%RH", "K"),
        ("°F", "%RH", None),
        ("", "%RH", "K"),
        ("Cel", "%RH", "K"),
        ("Far", "%RH", "K"),
        ("far", "per", None),
    ]
    out, _ = run(ParseSenML(units=True), payloads[3:6])
    assert out["unit"].to_pylist() == ["string", "K", "%RH", "string", "K", "%RH", "string", "°C", "%RH"]
    out, errors = three_ways(task, [form % (',"u":7', ""), form % ("", ',"bu":7')])
    assert (errors, out["obs_type"].to_pylist()) == ({0: "malformed", 1: "malformed"}, ["humidity", "dust"])
    assert three_ways(CITY, [form % (',"u":7', ',"bu":7')])[1] == {}  # nobody asked


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_types_and_slices(kind: pa.DataType) -> None:
    expected, _ = run(CITY, [line(str(i)) for i in range(9)])
    text = pa.array([line(str(i)) for i in range(9)])
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(9)), "payload": text.cast(pa.string() if pa.types.is_dictionary(kind) else kind)}
    )
    if pa.types.is_dictionary(kind):
        batch = batch.set_column(1, "payload", text.dictionary_encode())
    rejects = RejectedRecords("t")
    parts = [CITY.apply(batch.slice(0, 4), rejects), CITY.apply(batch.slice(4), rejects)]
    assert same(pa.concat_batches(parts), expected)
    assert CITY.apply(batch.slice(0, 0), rejects).num_rows == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": "citi"},
        {"schema": "city", "fields": ("dusty",)},
        {"schema": "city", "fields": ("timestamp",)},
        {"schema": "city", "fields": ()},
        {"schema": "city", "fields": ("dust", "dust")},
        {"fields": ("dust",)},
        {"layout": "wide"},
        {"meta": True},
        {"schema": "city", "layout": "wide", "raw": True},
        {"schema": "city", "layout": "wide", "units": True},
        {"on_error": "field"},
        {"on_error": "null"},
        {"max_bytes": 0},
        {"max_output_bytes": 1 << 31},
        {"layout": "long"},
        {"time_unit": "us"},
        {"schema": "city", "sums": True},
    ],
)
def test_misuse_fails_at_construction(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ParseSenML(**wrong)


def test_cases_of_the_task_run() -> None:
    for case in ParseSenML.cases():
        rejects = RejectedRecords("t")
        out = case.task.apply(case.batch, rejects)  # type: ignore[attr-defined]
        out.validate(full=True)
        assert out.schema.equals(case.task.output_schema(case.batch.schema))
        assert rejects.count > 0, case.name
        assert out.num_rows > 0, case.name


def test_limits_of_a_message() -> None:
    texts = [line(source='"' + "s" * n + '"') for n in (10, 30, 31)]
    task = ParseSenML(schema="city", max_bytes=len(texts[1]))
    out, errors = three_ways(task, [*texts, line()])
    assert (errors, out.num_rows) == ({2: "too_large"}, 15)
    out, errors = run(ParseSenML(time_unit="ms", max_bytes=len(texts[1])), texts)
    assert (errors, out.num_rows) == ({2: "too_large"}, 6)
    # five observations with the sensor, and twice with what describes the message; its own text counts once
    out, errors = three_ways(ParseSenML(schema="city", max_output_bytes=5 * 30 + 30), texts)
    assert (errors, out.num_rows) == ({2: "too_large"}, 10)
    out, errors = three_ways(ParseSenML(schema="city", meta=True, max_output_bytes=300), texts)
    assert (set(errors), out.num_rows) == ({1, 2}, 5)
    bn = ['{"bn":"%s","e":[{"v":1},{"v":2},{"n":"x","v":3}]}' % ("b" * n) for n in (10, 11)]
    out, errors = run(ParseSenML(max_output_bytes=5 * 10 + 1 + 3), bn)  # sensors, names, texts
    assert (errors, out.num_rows) == ({1: "too_large"}, 3)


@pytest.mark.long
def test_large_output_is_split_into_batches() -> None:
    sensors = [f"{i % 7}" * 500_000 for i in range(60)]
    payloads = [line(str(i), source=f'"{s}"') for i, s in enumerate(sensors)]
    for task, n in ((CITY, 5), (ParseSenML(time_unit="ms", max_output_bytes=1 << 24), 3)):
        made = list(task.batches(batch_of(payloads), RejectedRecords("t")))
        assert len(made) == (3 if n == 5 else 1)
        assert max(b.nbytes for b in made) < 80e6
        assert [s for b in made for s in b.column("seq").to_pylist()] == [i for i in range(60) for _ in range(n)]
        got = [(v, s and s[:2]) for b in made for v, s in zip(b["value"].to_pylist()[:: n], b["sensor_id"].to_pylist()[:: n], strict=True)]  # fmt: skip
        assert got == [(float(i), s[:2]) if n == 5 else (None, None) for i, s in enumerate(sensors)]


#: Runs a task over a batch as a dataflow does, batch by batch, and prints the most memory that the process took, in MB.
PEAK = """
import resource, sys
import pyarrow as pa
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.tasks import ParseSenML, ParseXML
task, batch = eval(sys.argv[1])
task.apply(batch.slice(0, 0), RejectedRecords("x"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rejects, rows = RejectedRecords("x"), 0
for out in task.batches(batch, rejects):
    rows += out.num_rows
    del out
print(rows, rejects.count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
LONG_ID = """[b'{"e":[{"n":"source","sv":"%s"}]}' % (b"s" * 1000000)]"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "rows", "rejects", "most"),
    [
        # 5 MB of sensor per message: 750 MB in all
        (f'ParseSenML(schema="city"), pa.RecordBatch.from_pydict({{"payload": {LONG_ID} * 150}})', 750, 0, 500),
        # 11 fields and ids of 1 MB
        pytest.param(f'ParseSenML(schema="fit"), pa.RecordBatch.from_pydict({{"payload": {LONG_ID.replace("source", "subjectId")} * 50}})', 550, 0, 400, marks=pytest.mark.slow),
        # one by one, a million records
        pytest.param("""ParseSenML(), pa.RecordBatch.from_pydict({"payload": ['{"e":[' + "{}," * 3999 + "{}]}"] * 250})""", 1000000, 0, 300, marks=pytest.mark.slow),
        # a long message that no kernel takes
        ("""ParseSenML(schema="city"), pa.RecordBatch.from_pydict({"payload": ['{"e":[' + "[]," * 10**7 + "0]}"]})""", 0, 1, 200),
        # 300 kB in each of 4,000 records: 1.2 GB
        ("""ParseXML(layout="records", record="r", fields=("x",)), pa.RecordBatch.from_pydict({"note": ["n" * 300000], "payload": ["<s>" + "<r/>" * 4000 + "</s>"]})""", 0, 1, 200),
        # 16 MB each: 800 MB in all
        pytest.param("""ParseXML(layout="records", record="r", fields=("x",)), pa.RecordBatch.from_pydict({"note": ["n" * 4000] * 50, "payload": ["<s>" + "<r/>" * 4000 + "</s>"] * 50})""", 200000, 0, 400, marks=pytest.mark.slow),
    ],
    ids=["ids", "ids-of-fit", "records", "long", "copies", "documents"],
)  # fmt: skip
def test_memory_is_bounded(what: str, rows: int, rejects: int, most: int) -> None:
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, what], env=environment, capture_output=True, text=True, check=True
    )
    got = [int(word) for word in done.stdout.split()]
    assert got[:2] == [rows, rejects]
    assert got[2] < most


# -- the samples -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "file", "papers", "made", "n"),
    [("city", "SYS", 1000, 50, 5), ("taxi", "TAXI", 1000, 26, 10), ("fit", "FIT", 45, 16, 11)],
)
def test_samples_equal_orjson(sample_data: Any, name: str, file: str, papers: int, made: int, n: int) -> None:
    rows = expected(sample_data, made=made, papers=papers)
    lines = (sample_data / "riotbench" / f"{file}_sample_data_senml.csv").read_bytes().splitlines()
    schema = stream_schema(name)
    out, errors = three_ways(ParseSenML(schema=name), lines)
    assert (errors, out.num_rows, len(lines)) == ({}, rows * n, rows)
    values, times, sensors = [], [], []
    for text in lines:
        document = orjson.loads(text.partition(b",")[2])
        by_name = {r["n"]: r.get("v", r.get("sv")) for r in document["e"]}
        for field in schema.observed:
            try:
                values.append(
                    float(by_name[field])
                    if schema.kinds[schema.columns.index(field)] == "v" or reference.NUMBER.fullmatch(by_name[field])
                    else None
                )
            except ValueError:
                values.append(None)
            values[-1] = None if values[-1] is not None and math.isinf(values[-1]) else values[-1]
            times.append(int(document["bt"]) * 1000)
            sensors.append(by_name[schema.id_field])
    assert out["value"].to_pylist() == values
    assert out["event_time"].cast(pa.int64()).to_pylist() == times
    assert out["sensor_id"].to_pylist() == sensors


# -- random messages -------------------------------------------------------------------------------

DIGITS = st.text("0123456789", min_size=1, max_size=22)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1000, 1000).map(lambda x: f"{x:.2f}"),
    st.builds(
        lambda s, a, b, e: f"{s}{int(a)}{b}{e}",
        st.sampled_from(["", "-"]),
        DIGITS,
        st.one_of(st.just(""), DIGITS.map(lambda d: "." + d)),
        st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 400))),
    ),
)
WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "null",
            "NaN",
            "inf",
            "1.",
            ".5",
            "01",
            "--1",
            "1e",
            "true",
            "ü",
            "°C",
            'a"b',
            "\\",
            "\u2028",
            "😀",
            "x" * 40,
        ]
    ),
    st.text(max_size=12),
)
NAMES = st.sampled_from(["source", "temperature", "humidity", "light", "dust", "temp", "longitude", "zzz", "ü"])


#: Fields of records that are seldom there: sums, base fields, one that must be understood.
RARE = ["s", "bn", "bt", "bu", "bv", "bs", "bver", "x_", "bx_"]


@st.composite
def values(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 9))
    if kind < 3:
        blanks = st.sampled_from(["", " ", "  "])
        return json.dumps(draw(blanks) + draw(NUMBERS) + draw(blanks))
    if kind < 6:
        return draw(NUMBERS)
    if kind < 8:
        return json.dumps(draw(WORDS), ensure_ascii=draw(st.booleans()))
    return draw(st.sampled_from(["null", "true", "false", "[]", '{"a":[1,{}]}', '"\\ud83d\\ude00"', '"\\ud83d"']))


@st.composite
def messages(draw: st.DrawFn) -> str:
    gap = st.sampled_from(["", "", "", " ", "\n\t", "\r\n "]) if draw(st.booleans()) else st.just("")

    def joined(open_: str, items: list[str], close: str) -> str:
        inner = ",".join(draw(gap) + item + draw(gap) for item in items)
        return open_ + (inner or draw(gap)) + close

    def members(pairs: list[tuple[str, str]]) -> str:
        pairs = draw(st.permutations(pairs))
        return joined("{", [json.dumps(k) + draw(gap) + ":" + draw(gap) + v for k, v in pairs], "}")

    records = [[("n", '"source"'), ("sv", json.dumps(draw(WORDS), ensure_ascii=False))]]
    for name in draw(st.lists(NAMES, max_size=6)):
        record = [
            ("n", json.dumps(name)),
            (draw(st.sampled_from(["v", "v", "v", "vs", "sv", "vb", "vd"])), draw(values())),
        ]
        for key in draw(st.lists(st.sampled_from(["u", "t", "x", "v", "sv", "n", *RARE]), max_size=2)):
            fixed = {"u": '"m\\/s2"', "n": json.dumps(name), "bn": '"li"'}
            record.append((key, fixed[key] if key in fixed else draw(values())))
        records.append(record)
    pack = joined("[", [members(r) for r in draw(st.permutations(records))], "]")
    if draw(st.integers(0, 5)) == 0:
        return draw(gap) + pack + draw(gap)
    top = [("e", pack)]
    for key in draw(st.lists(st.sampled_from(["bt", "bt", "bn", "bu", "x", "bv", "bver"]), max_size=3)):
        top.append(
            (
                key,
                draw(st.one_of(values(), NUMBERS, st.integers(0, 10**14).map(str)))
                if key != "bn"
                else json.dumps(draw(st.sampled_from(["sou", "temp", "source", ""]))),
            )
        )
    prefix = draw(st.one_of(st.just(""), st.builds("{},".format, NUMBERS), st.integers(0, 10**13).map("{},".format)))
    return draw(gap) + prefix + members(top) + draw(gap)


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[str]) -> bytes:
    data = bytearray(draw(source).encode("utf-8", "replace"))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 3))
        data[at : at + cut] = draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from([b'"', b"\\", b"{", b"}", b",", b":", b" ", b"0", b"-", b"e", b"]"]),
            )
        )
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data)


@st.composite
def alike(draw: st.DrawFn) -> str:
    """Messages with one skeleton, or nearly."""
    dust = ',{"n":"dust","v":' + draw(st.one_of(NUMBERS, values())) + "}"
    text = line(
        draw(st.one_of(NUMBERS.map('"{}"'.format), values())),
        draw(st.one_of(st.just('"s1"'), WORDS.map(lambda w: json.dumps(w, ensure_ascii=False)))),
        dust,
    )
    outer = draw(st.one_of(st.just(1422748800000), st.integers(-(10**16), 10**16)))
    return f"{outer},{text}" + draw(st.sampled_from(["", "\r\n"]))


PAYLOADS = st.one_of(messages(), alike(), mutated(alike()), mutated(messages()), st.none(), st.binary(max_size=30))


def check(task: ParseSenML, payloads: list[Any]) -> None:
    payloads = [*payloads, line()]  # room after it, so that templates may read on
    times = pa.array([10**15 + i for i in range(len(payloads))], TIMESTAMP)
    out, errors = three_ways(task, payloads, event_time=times)
    schema = SCHEMAS[task.schema or ""]
    kinds = dict(zip(schema.columns, schema.kinds, strict=True))
    emitted = [c for c in schema.columns if c in (task.fields or schema.observed)]
    rows: list[list[Any]] = []
    reasons: dict[int, set[str]] = {}
    for i, payload in enumerate(payloads):
        data = payload.encode() if isinstance(payload, str) else payload
        try:
            found = reference.parse(
                data,
                10**15 + i,
                fields=[(f, kinds[f]) for f in emitted],
                id_field=schema.id_field,
                concatenate=task.concatenate_names,
                alone=task.on_error == "record",
                seconds=task.time_unit == "s",
            )
        except reference.Rejected as error:
            reasons[i] = {error.reason}
            continue
        for k, (field, observation) in enumerate(zip(emitted, found["observations"], strict=True)):
            if isinstance(observation, str):
                reasons.setdefault(i, set()).add(observation)
                continue
            time, value, text, _ = observation
            packed = None if value is None else struct.pack("<d", value)
            rows.append([i, k, time, found["sensor"], field, packed, text])
    assert errors == {i: min(found) for i, found in reasons.items()}
    got = [bits(column) for column in out.columns]
    assert [list(row) for row in zip(*got, strict=True)] == [row[: len(got)] for row in rows]


@pytest.mark.long
@given(st.lists(PAYLOADS, max_size=12))
@settings(max_examples=depth(150), deadline=None)
def test_all_paths_equal_the_reference(payloads: list[Any]) -> None:
    check(CITY, payloads)
    check(WHOLE, payloads)
    check(SECONDS, payloads)


SKELETONS = [
    "%s," + line('"%s"', '"%s"', ',{"n":"dust","v":"%s","t":5},{"n":"light","sv":"%s"}', ',"bt":"%s"'),
    "%s," + line("%s", '"%s"', ',{"n":"dust","v":%s,"t":3},{"x":%s,"n":"°"}', ',"bt":%s'),
    "%s," + line("%s", '"%s"', ',{"n":"dust","vb":%s , "u":"m\\/s2","t":"%s"},{"v":7}', ',"bt":%s ,"bn":"light"'),
]
USUAL = ("1422748800000", "s1", "8.5", "-0.25", "12", "1422748800000")


@st.composite
def one_skeleton(draw: st.DrawFn) -> list[Any]:
    """Messages that a template of the first one fits, but for one slot or a few bytes."""
    which = draw(st.integers(0, 2))
    payloads: list[Any] = [SKELETONS[which] % USUAL]
    for _ in range(draw(st.integers(3, 12))):
        slots = list(USUAL)
        for at in draw(st.sets(st.integers(0, 5), max_size=2)):
            slots[at] = draw(
                st.one_of(
                    NUMBERS,
                    NUMBERS,
                    st.integers(-(10**15), 10**15).map(str),
                    WORDS,
                    st.sampled_from(["", " 1 ", "null", " null", "null ", "true", "1 "]),
                )
            )
        text = SKELETONS[which] % tuple(slots)
        payloads.append(draw(mutated(st.just(text))) if draw(st.integers(0, 4)) == 0 else text)
    return payloads


@given(one_skeleton(), st.sampled_from([("source", "temperature", "dust"), None]))
@settings(max_examples=depth(80), deadline=None)
def test_similar_messages(payloads: list[Any], fields: tuple[str, ...] | None) -> None:
    check(ParseSenML(schema="city", fields=fields), payloads)


@pytest.mark.long
@given(messages(), st.lists(messages(), max_size=6))
@settings(max_examples=depth(60), deadline=None)
def test_names_are_concatenated(first: str, others: list[str]) -> None:
    check(ParseSenML(schema="city", concatenate_names=True), [first, *others, first, first])


def test_messages_of_many_layouts() -> None:
    """More than there are templates for, some too long for one."""
    bodies = [line(str(i % 7), more=f',{{"n":"x{i % 40}","v":1}}') for i in range(2000)]
    bodies[500] = line(more=',{"n":"dust","u":"' + "u" * 9000 + '"}')
    bodies[501] = line(more=',{"n":"dust","y":1}' * 200)
    bodies[502] = line(more=',{"n":"dust","v":4}' * 300)
    out, errors = three_ways(CITY, bodies)
    assert errors == {}
    got = out["value"].to_numpy(zero_copy_only=False).reshape(-1, 5)
    assert got[:500, 0].tolist() == [i % 7 for i in range(500)]
    assert got[502, 3] == 4


def test_threads_are_independent() -> None:
    from concurrent.futures import ThreadPoolExecutor

    lots = [[line(str(i * k % 1000)) for i in range(300)] for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda payloads: run(CITY, payloads)[0], lots))
    assert all(same(a, run(CITY, b)[0]) for a, b in zip(together, lots, strict=True))
    assert together[3]["value"].to_pylist()[::5] == [i * 3 % 1000 for i in range(300)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"units": ("string",)}, "4 columns, 1 units and 4 kinds"),
        ({"id_field": "it"}, "no column 'it'"),
        ({"time_field": "tt"}, "no column 'tt'"),
        ({"meta": ("id", "tt")}, "no column 'tt'"),
        ({"bounds": {"hp": (0, 14)}}, "no column 'hp'"),
        ({"true_units": {"hp": "1"}}, "no column 'hp'"),
        ({"columns": ("id", "t", "ph", "ph")}, "the column 'ph' twice"),
        ({"kinds": ("sv", "sv", "v", "b")}, "kind must be v or sv, got 'b'"),
    ],
    ids=str,
)
def test_impossible_schema_is_refused(wrong, message):
    own = {
        "columns": ("id", "t", "ph", "note"),
        "units": ("string", "timestamp", "pH", "string"),
        "kinds": ("sv", "sv", "v", "sv"),
        "id_field": "id",
        "time_field": "t",
        "meta": ("id", "t"),
    }
    assert StreamSchema("own", **own, true_units={"ph": "1"}).true_units == {"ph": "1"}
    with pytest.raises(ConfigError, match=message):
        StreamSchema("own", **{**own, **wrong})


def test_custom_schema():
    own = StreamSchema(
        "own",
        columns=("id", "t", "ph", "note"),
        units=("string", "timestamp", "pH", "string"),
        kinds=("sv", "sv", "v", "sv"),
        id_field="id",
        time_field="t",
        meta=("id", "t"),
    )
    session = ParseSenML(schema=own).session()
    text = '{"bt":1000,"e":[{"n":"ph","v":6.5},{"n":"id","sv":"b"},{"n":"note","sv":"ü"}]}'
    rows = session.push({"payload": text})
    assert [(r["sensor_id"], r["obs_type"], r["value"], r["text"]) for r in rows] == [
        ("b", "ph", 6.5, None),
        ("b", "note", None, "ü"),
    ]
    with pytest.raises(ConfigError, match=r"the schema 'own' has no field 'pg' to emit; it has id, ph, note"):
        ParseSenML(schema=own, fields=("pg",))


def test_payload_field_may_have_another_name() -> None:
    rows = ParseSenML(schema="city", field="message").session().push({"payload": "x", "message": line()})
    assert {row["obs_type"]: row["value"] for row in rows}.items() >= {"temperature": 8.0, "humidity": 53.7}.items()
    with pytest.raises(ConfigError, match="reads the field 'message'"):
        ParseSenML(schema="city", field="message").output_schema(pa.schema({"payload": pa.string()}))


@pytest.mark.parametrize("layout", ["wide", "observations"])
def test_meta_holds_times_of_any_sign_and_length(layout):
    times = [0, 9, 10, -1, -9, -10, -62_135_596_800_000, 253_402_300_799_999]
    texts = [
        f'{{"bt":{time},"e":[{{"n":"source","sv":"ü{i}"}},{{"n":"longitude","sv":"1"}},{{"n":"dust","v":1}}]}}'
        for i, time in enumerate(times)
    ]
    task = ParseSenML(schema="city", layout=layout, meta=True, fields=("dust", "light"))
    out, errors = three_ways(task, texts)
    assert errors == {}
    copies = 1 if layout == "wide" else 2
    assert out["meta"].to_pylist() == [f"{time},ü{i},1," for i, time in enumerate(times) for _ in range(copies)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("vs", "sv", "vd") for value in ("true", "false", "1", "-2.5e3", '["a"]', '{"a":1}')),
        *(("vb", value) for value in ("1", "0.0", '"true"', '""', "[]", "{}")),
    ],
)
@pytest.mark.parametrize("first", ['"v":1,', ""])
def test_value_of_another_json_type_is_malformed(key, value, first):
    """By the types of RFC 8428, table 1, in each of the three readers: scanned, parsed, and without a schema."""
    record = f'{{"n":"dust",{first}"{key}":{value}}}'
    for more in ("", ',"x":{}'):  # which the scanner leaves to the parser
        city = ParseSenML(schema="city", fields=("dust", "light"), raw=True).session()
        found = city.push(
            {"payload": f'{{"bt":0,"e":[{{"n":"source","sv":"s1"}},{record},{{"n":"light","v":3}}]{more}}}'}
        )
        assert [(o["obs_type"], o["value"]) for o in found] == [("light", 3.0)]
        assert [error["reason"] for error in city.errors] == ["malformed"]
    free = ParseSenML().session()
    found = free.push({"payload": f'[{{"bn":"s1","bt":0,"n":"light","v":3}},{record}]'})
    assert [(o["obs_type"], o["value"]) for o in found] == [("light", 3.0)]
    assert [error["reason"] for error in free.errors] == ["malformed"]


def test_wrong_type_of_identity_rejects_the_message():
    city = ParseSenML(schema="city").session()
    assert city.push({"payload": '{"bt":0,"e":[{"n":"source","sv":true},{"n":"dust","v":3}]}'}) == []
    assert [error["reason"] for error in city.errors] == ["malformed"]


def test_values_of_their_json_types_and_null_are_read():
    city = ParseSenML(schema="city", fields=("source", "dust", "light"), raw=True).session()
    for text, value, raw in (('"vb":true', 1.0, "true"), ('"vb":null', None, None), ('"vs":"2"', 2.0, "2")):
        line = f'{{"bt":0,"e":[{{"n":"source","sv":"s1"}},{{"n":"dust",{text}}}]}}'
        found = {o["obs_type"]: (o["value"], o["text"]) for o in city.push({"payload": line})}
        assert found["dust"] == (value, raw)
    assert not city.errors
