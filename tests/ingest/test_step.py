"""The ingest step: casts, rejections and their messages, on both runners."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.core.casting import Problem, can_cast, cast, to_python
from riot_ops.core.errors import ConfigError
from riot_ops.core.python_values import from_values
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.ingest.step import REJECTED, IngestStep, declared_schema, mark_rejected
from riot_ops.kernels.text.strings import non_utf8

US = pa.timestamp("us", tz="UTC")
UTC = dt.UTC
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=UTC)


def flow(schema, *tasks):
    dataflow = ro.Dataflow("in")
    stream = dataflow.source("rows", schema=schema)
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"step{i}")
    return dataflow.sink("out", stream)


def ran(schema, source, **options):
    """Run a source; return the accepted records, and (row, reason, message) of the rejected ones."""
    result = flow(schema).run(source, **options)
    assert set(result.errors["task"].to_pylist()) <= {"rows"}, "the errors name the source"
    errors = sorted(zip(*(result.errors[n].to_pylist() for n in ("seq", "reason", "message")), strict=True))
    return result["rows"].to_pylist(), errors


# -- cells ---------------------------------------------------------------------------------------

NOT = "is not of type"
BAD_CELLS = [(1, "wrong_type", f"v = 'n/a' (str) {NOT} double"), (3, "wrong_type", f"v = [2] (list) {NOT} double")]


@pytest.mark.parametrize("kind", ["list", "generator", "pandas"])
def test_bad_cell_rejects_its_record_only(kind):
    records = [{"v": v, "device": "ü"} for v in (1.0, "n/a", None, [2], 5)]
    source = {"list": records, "generator": iter(records), "pandas": pd.DataFrame(records)}[kind]
    result = flow({"v": "double"}).run(source)
    assert [(r["seq"], r["v"]) for r in result["rows"].to_pylist()] == [(0, 1.0), (2, None), (4, 5.0)]
    errors = result.errors.to_pylist()
    assert [(e["seq"], e["reason"], e["message"]) for e in errors] == BAD_CELLS
    assert [json.loads(e["raw"]) for e in errors] == [records[1], records[3]], (
        "the original record, which can be repaired and sent again"
    )
    assert result.summary.steps["rows"] == (5, 2)


def test_text_cells_are_parsed():
    table = pa.table({"v": ["1.5", " 2e3 ", "", None, "0x10"], "n": ["7", "-1", "1", "1.5", "9223372036854775808"]})
    records, errors = ran({"v": "double", "n": "int64"}, table)
    assert records == [{"seq": 0, "v": 1.5, "n": 7}, {"seq": 1, "v": 2000.0, "n": -1}]
    assert errors == [
        (2, "wrong_type", f"v = '' (str) {NOT} double"),
        (3, "wrong_type", f"n = '1.5' (str) {NOT} int64"),
        (4, "wrong_type", f"v = '0x10' (str) {NOT} double"),
    ]


@pytest.mark.parametrize(
    ("column", "want", "values"),
    [
        (pa.array(["a", None], pa.large_string()), "string", ["a", None]),
        (pa.array(["a", None], pa.string_view()), "string", ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
        (  # as from a Categorical of Polars
            pa.DictionaryArray.from_arrays(
                pa.array([1, None, 0, 1], pa.uint32()), pa.array(["a", "word of a view"], pa.string_view())
            ),
            "string",
            ["word of a view", None, "a", "word of a view"],
        ),
        (pa.array([b"x"], pa.binary_view()), "binary", [b"x"]),
        (pa.array([1, None, -5], pa.int16()), "double", [1.0, None, -5.0]),
        (pa.array([0.5, None], pa.float32()), "double", [0.5, None]),
        (pa.array([2.0, None, np.nan]), "int64", [2, None, None]),
        (pa.array([Decimal("1.50")]), "double", [1.5]),
        (pa.array([True]), "double", [1.0]),
        (pa.array([None, None]), "double", [None, None]),
        (pa.array([1000, None], pa.timestamp("ms")), US, [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]),
        # digits below a microsecond are rounded down
        (pa.array([-1], pa.timestamp("ns")), US, [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]),
        (pa.array([1999], pa.timestamp("ns")), US, [dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        (pa.array([dt.date(2024, 5, 1)]), US, [dt.datetime(2024, 5, 1, tzinfo=UTC)]),
        (pa.array(["2024-05-01T14:00:00+02:00", "2024-05-01 12:00"]), US, [NOON, NOON]),
        (pa.array(["2024-05-01T12:00:00.123456789Z"]), US, [NOON.replace(microsecond=123456)]),
        (pa.array([[1, 2], None], pa.large_list(pa.int8())), pa.list_(pa.float64()), [[1.0, 2.0], None]),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.float64()), ("b", pa.string())]), [{"a": 1.0, "b": None}]),
    ],
    ids=str,
)
def test_lossless_values_are_cast(column, want, values):
    records, errors = ran({"x": want}, pa.table({"x": column}))
    assert ([r["x"] for r in records], errors) == (values, [])


@pytest.mark.parametrize(
    ("column", "want", "reason", "text"),
    [
        (pa.array([2**53 + 1]), "double", "out_of_range", "9007199254740993 (int) does not fit the type double"),
        (pa.array([1.5]), "int64", "wrong_type", f"1.5 (float) {NOT} int64"),
        (pa.array([1e300]), "int64", "out_of_range", "1e+300 (float) does not fit the type int64"),
        (pa.array([300]), "int8", "out_of_range", "300 (int) does not fit the type int8"),
        (pa.array([2**63], pa.uint64()), "int64", "out_of_range", "does not fit the type int64"),
        (pa.array([b"a\xff"]), "string", "invalid_utf8", "b'a\\xff' (bytes) is not UTF-8"),
        (pa.array(["soon"]), US, "wrong_type", f"'soon' (str) {NOT} timestamp[us, tz=UTC]"),
        (pa.array([2**60], pa.timestamp("ms")), US, "out_of_range", "1152921504606846976 (int) does not fit the type"),
    ],
    ids=str,
)
def test_lossy_values_are_rejected_with_a_reason(column, want, reason, text):
    good = pa.nulls(1, column.type)
    records, errors = ran({"x": want}, pa.table({"x": pa.chunked_array([good, column, good])}))
    assert [r["seq"] for r in records] == [0, 2]
    assert [(e[0], e[1]) for e in errors] == [(1, reason)]
    assert errors[0][2].startswith("x = ")
    assert text in errors[0][2]


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.int64(), pa.string()),
        (pa.float64(), pa.float32()),
        (pa.float64(), US),
        (pa.float64(), pa.bool_()),
        (US, pa.string()),
        (US, pa.int64()),
        (pa.list_(pa.string()), pa.string()),
        (pa.struct([("z", pa.int64())]), pa.struct([("a", pa.int64())])),
        (pa.struct([("a", pa.float64())]), pa.struct([("a", pa.float32())])),
        (pa.time64("us"), US),
    ],
    ids=str,
)
def test_incompatible_types_are_refused_before_the_run(have, want):
    assert not can_cast(have, want)
    with pytest.raises(ConfigError, match=r"the source 'rows': the field 'x' is .* the dataflow declares"):
        flow({"x": want}).run(pa.table({"x": pa.nulls(1, have)}))


def test_cast_of_a_cell_does_not_depend_on_its_neighbours():
    values = [1, True, 2.5, "7", None, "x", 2**60, 2**70, float("nan"), [1], {"a": 1}, b"8", pd.NA, pd.NaT, "\ud800"]
    for want in (pa.float64(), pa.int64(), pa.string(), pa.bool_(), US):
        column, problems = from_values(values, want)
        for i, value in enumerate(values):
            alone, problem = from_values([value], want)
            assert str(to_python(alone)[0]) == str(to_python(column)[i]), (value, want)
            assert problem.get(0) == problems.get(i), (value, want)
    assert sorted(from_values(values, pa.float64())[1]) == [5, 6, 7, 9, 10, 14]


def test_nan_becomes_null_only_outside_float_columns():
    nan = float("nan")
    assert str(from_values([nan, 1.0], pa.float64())[0].to_pylist()) == "[nan, 1.0]"
    assert str(from_values([[nan], nan, None], pa.list_(pa.float64()))[0].to_pylist()) == "[[nan], None, None]"
    for want in (pa.string(), pa.int64(), US, pa.bool_()):
        assert from_values([nan, pd.NaT, pd.NA, None], want)[0].null_count == 4


def test_bad_cells_are_found_at_any_position():
    for bad in ([0], [999], [0, 1, 2], [3, 500, 998], list(range(1000))):
        texts = pa.array(["x" if i in bad else str(i) for i in range(1000)])
        column, problems = cast(texts.slice(0), pa.float64())
        assert sorted(problems) == bad
        assert column.to_pylist() == [None if i in bad else float(i) for i in range(1000)]


# -- times ---------------------------------------------------------------------------------------


def raises(row):
    raise ValueError(f"{row['event_time']}")


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # 0001-01-01 and 9999-12-31T23:59:59.999999
TIMES = [0, LAST, LAST + 1, FIRST, FIRST - 1, 999_999_999_999_999_000, None]


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        ro.map(lambda row: row),
        ro.filter(lambda row: True),
        ro.keyed(lambda state, row: (state, row), initial=0),
        t.MovingAverage(window=1),
        ro.map(raises),
    ],
    ids=["map", "filter", "keyed", "average", "errors"],
)
def test_times_out_of_range_are_rejected(task):
    table = pa.table({"event_time": pa.array(TIMES, US), "value": [1.0] * len(TIMES)})
    dataflow = flow({"event_time": US, "value": "double"}, task)
    for source in (table, table.cast(pa.schema([("event_time", pa.int64()), ("value", pa.float64())])).to_pylist()):
        result = dataflow.run(source, batch_size=2)
        errors = [e for e in result.errors.to_pylist() if e["task"] == "rows"]
        assert [(e["seq"], e["reason"], e["event_time"]) for e in errors] == [
            (i, "out_of_range", None) for i in (2, 4, 5)
        ]
        assert errors[0]["message"].startswith("event_time = 253402300800000000 is not within the years 1 to 9999")
        assert result.summary.messages == len(TIMES)
        passed = [e["seq"] for e in result.errors.to_pylist() if e["task"] != "rows"] or [
            row["seq"] for row in result["step0"].to_pylist()
        ]
        assert passed == [0, 1, 3, 6]


def test_replayed_line_of_the_far_future_is_rejected(tmp_path):
    file = tmp_path / "lines.csv"
    file.write_text("1000,a\n999999999999999,b\n-99999999999999,c\n2000,d\n")
    dataflow = ro.Dataflow("replayed")
    dataflow.sink("out", dataflow.source("lines") >> ro.map(lambda row: row))
    result = dataflow.run(ro.streams.replay(file))
    assert sorted(result["map_function"]["seq"].to_pylist()) == [0, 3]
    assert result.errors["reason"].to_pylist() == ["out_of_range"] * 2


def test_senml_message_of_the_far_future_is_rejected(tmp_path):
    source = MQTTSource(
        url="memory://far", topics=["#"], client_id="me", spool=str(tmp_path), messages=3, time_property="at"
    )
    source.open()
    for time in ("1000", "999999999999999000", "9999-12-31T23:59:59.999999Z"):
        MemoryBroker.of("memory://far").publish("a", b"x", user=(("at", time),))
    dataflow = ro.Dataflow("received")
    dataflow.sink("out", dataflow.source("raw", schema=source.schema) >> ro.map(lambda row: row))
    result = dataflow.run(source)
    assert result["map_function"]["seq"].to_pylist() == [0, 2]
    assert result.errors.select(["seq", "reason"]).to_pylist() == [{"seq": 1, "reason": "out_of_range"}]


@pytest.mark.parametrize(
    ("kind", "beyond", "within"),
    [
        (pa.timestamp("s"), LAST // 10**6 + 1, LAST // 10**6),
        (pa.timestamp("ms"), LAST // 1000 + 1, FIRST // 1000),
        (pa.timestamp("us", "Europe/Berlin"), LAST, 0),  # one hour later in local time: the year 10000
        (pa.date32(), LAST // 86_400_000_000 + 1, FIRST // 86_400_000_000),
        (pa.date64(), LAST // 1000 + 1, 0),
        (pa.list_(pa.timestamp("us")), [LAST + 1], [LAST]),
        (pa.struct([("at", pa.timestamp("us"))]), {"at": LAST + 1}, {"at": LAST}),
    ],
    ids=str,
)
def test_all_time_types_have_the_same_range(kind, beyond, within):
    result = flow({"at": kind}, ro.map(lambda row: row)).run(pa.table({"at": pa.array([beyond, within, None], kind)}))
    assert result["step0"]["seq"].to_pylist() == [1, 2]
    assert result.errors["reason"].to_pylist() == ["out_of_range"]


def test_reserved_fields_have_fixed_types():
    dataflow = declared_schema(
        pa.schema([("event_time", pa.timestamp("ns")), ("seq", pa.int32()), ("k", pa.string_view())]), ""
    )
    assert [str(f.type) for f in dataflow] == ["timestamp[us, tz=UTC]", "int64", "string"]
    for name, kind in (("event_time", "string"), ("event_time", "double"), ("seq", "string"), ("ordinal", "double")):
        with pytest.raises(ConfigError, match=f"source 'rows': the field '{name}' must be .*, got {kind}"):
            ro.Dataflow("wrong").source("rows", schema={name: kind})
    with pytest.raises(ConfigError, match="there are 2 fields 'a'"):
        ro.Dataflow("wrong").source("rows", schema=pa.schema([("a", pa.int64()), ("a", pa.int64())]))


# -- text ----------------------------------------------------------------------------------------


def corrupted(values):
    """Create a text column without validation, as another library may."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_invalid_utf8_is_rejected():
    # in the last two, a character is split between values
    for values, bad in (
        ([b"a", b"\xff", "ü".encode()], [1]),
        (["ü".encode(), b"", None, b"ok"], []),
        ([b"\xc3", b"\xbc", b"x"], [0, 1]),
        ([b"a\xe2\x82", b"\xac"], [0, 1]),
    ):
        records, errors = ran({"k": "string"}, pa.table({"k": corrupted(values)}))
        assert [(e[0], e[1]) for e in errors] == [(i, "invalid_utf8") for i in bad]
        assert [r["k"] for r in records] == [
            None if v is None else v.decode() for i, v in enumerate(values) if i not in bad
        ]
    # a slice is checked without the values outside it
    column = corrupted([b"\xff", b"ok"]).slice(1)
    assert ran({"k": "string"}, pa.record_batch({"k": column}))[1] == []


def test_dictionary_encoded_text_is_checked_like_plain_text():
    lines = pa.array([b"m1,1000,2.5", b"\xff,1000,2.5", b"m1,1000,2.5"])
    assert non_utf8(lines.dictionary_encode()).tolist() == [False, True, False]
    rejects = RejectedRecords("task")
    batch = pa.record_batch({"payload": lines.dictionary_encode()})
    t.CSVToSenML(schema="grid").apply(batch, rejects)
    (errors,) = rejects.take()
    assert errors["reason"].to_pylist() == ["malformed"]
    assert errors["raw"].to_pylist() == ["\\xff,1000,2.5"]
    session = t.CSVToSenML(schema="grid").session()
    assert session.push_batch(batch).num_rows == 2
    assert [e["reason"] for e in session.errors] == ["malformed"]


def test_rejected_records_hold_any_value():
    rejects = RejectedRecords("task")
    batch = pa.record_batch(
        {
            "seq": pa.array([2**63, 1], pa.uint64()),
            "event_time": pa.array([LAST + 1, 0], US),
            "text": corrupted([b"\xff", b"a"]),
            "nested": pa.array([[LAST + 1], None], pa.list_(US)),
        }
    )
    rejects.reject(batch, np.array([True, True]), "re\ud800ason", ["mess\ud800age", "ü"])
    first, second = rejects.take()[0].to_pylist()
    assert (first["seq"], first["event_time"], first["reason"], first["message"]) == (
        None,
        None,
        "re\\ud800ason",
        "mess\\ud800age",
    )
    raw = json.loads(first["raw"])
    assert (raw["seq"], raw["event_time"], raw["text"]) == (2**63, LAST + 1, "\\xff")
    assert (second["seq"], second["event_time"], second["message"]) == (1, dt.datetime(1970, 1, 1, tzinfo=UTC), "ü")


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class SilentlyRejected(ro.RecordError):
    def __str__(self):
        raise RuntimeError("no words")


def test_any_exception_and_result_of_a_function_reaches_the_errors():
    def odd(row):
        if row["v"] == 1:
            raise ValueError("\ud800")
        if row["v"] == 2:
            raise Unspeakable
        if row["v"] == 3:
            raise SilentlyRejected("x")
        if row["v"] == 4:
            raise ro.RecordError("x", reason="\ud800")
        return {"k": {5: "\ud800", 6: "fine"}[row["v"]]}

    result = flow({"v": "int64"}, ro.map(odd, schema={"k": "string"})).run([{"v": i} for i in range(1, 7)])
    assert result["step0"]["k"].to_pylist() == ["fine"]
    errors = {e["seq"]: (e["reason"], e["message"]) for e in result.errors.to_pylist()}
    assert errors[0][1].startswith("ValueError: \\ud800")
    assert errors[1][1].startswith("Unspeakable: (its text raised RuntimeError)")
    assert errors[2] == ("rejected", "(its text raised RuntimeError)")
    assert errors[3] == ("\\ud800", "x")
    assert errors[4][0] == "wrong_type"
    assert len(errors) == 5


# -- the step ------------------------------------------------------------------------------------


def test_matching_batch_is_passed_on_unchanged():
    schema = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("event_time", US), ("k", pa.string())])
    batch = pa.RecordBatch.from_pydict({"seq": [1], "event_time": [NOON], "k": ["ü"]}, schema)
    rejects = RejectedRecords("rows")
    assert IngestStep(schema).apply(batch, rejects) is batch
    assert rejects.count == 0


def test_source_can_mark_unreadable_records():
    class Half(ro.MemorySource):
        def read(self, split):
            for batch in super().read(split):
                bad = {i: batch for i in range(batch.num_rows) if batch.column("v")[i].as_py() < 0}
                problems = dict.fromkeys(bad, Problem("negative", "it is negative"))
                yield mark_rejected(batch, problems, dict.fromkeys(bad, "as it was"))

    result = flow({"v": "double"}).run(Half(pa.table({"v": [1.0, -1.0, 2.0]})))
    assert result["rows"]["v"].to_pylist() == [1.0, 2.0]
    assert REJECTED not in result["rows"].column_names
    (error,) = result.errors.to_pylist()
    assert (error["seq"], error["reason"], error["message"], error["raw"]) == (
        1,
        "negative",
        "it is negative",
        "as it was",
    )


@pytest.mark.spark
def test_both_runners_reject_the_same_records(spark, tmp_path):
    schema = {"event_time": US, "k": "string", "v": "double"}
    records = [{"event_time": NOON, "k": "ab"[i % 2], "v": float(i)} for i in range(60)]
    for i, change in ((3, {"v": "n/a"}), (17, {"event_time": LAST + 1}), (40, {"k": "\ud800"}), (41, {"v": 2**70})):
        records[i] = records[i] | change
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(r, default=str) + "\n" for r in records[:40]) + "no json\n")
    for source in (records, ro.read(file)):
        dataflow = flow(schema, t.KalmanFilter(by=("k",), value="v"))
        local = dataflow.run(source, batch_size=16)
        query = dataflow.start(spark, source, max_records=40, partitions=2)
        query.wait(timeout="2min")
        assert query["step0"].sort_by("seq").to_pylist() == local["step0"].sort_by("seq").to_pylist()
        assert query["errors"].sort_by("seq").to_pylist() == local["errors"].sort_by("seq").to_pylist()
        assert local.errors.num_rows == (4 if source is records else 3)
    frame = spark.createDataFrame([(NOON.isoformat(), "a", 1), ("soon", "b", 2)], "event_time string, k string, v int")
    frame.write.parquet(str(tmp_path / "frame"))
    streamed = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "frame"))
    query = flow(schema).start(spark, streamed, trigger="available now")
    query.wait(timeout="2min")
    assert [(r["event_time"], r["v"]) for r in query["rows"].to_pylist()] == [(NOON, 1.0)]
    assert query["errors"]["message"].to_pylist() == [f"event_time = 'soon' (str) {NOT} timestamp[us, tz=UTC]"]
    with pytest.raises(ConfigError, match="iterator, which can be read once, but Spark reads records again"):
        flow(schema).start(spark, iter(records))
    # the same step ingests the rows of a DataFrame
    far = spark.sql("select timestamp_micros(253402300800000000) as event_time, 1.0D as value")
    (row,) = ro.filter(lambda row: True).transform(far).toArrow().to_pylist()
    assert json.loads(row["_error"])["reason"] == "out_of_range"


def test_messages_of_several_sources_have_distinct_numbers():
    flow = ro.Dataflow("two")
    both = ro.merge(*(flow.source(name, schema={"value": "double"}) for name in ("a", "b", "c")))
    flow.sink("out", both.to(t.NoOp(), id="all"), both.shuffle(2).to(t.MovingAverage(window=1), id="spread"))
    rows = [{"seq": 4, "value": 1.0}, {"seq": 5, "value": 2.0}]
    result = flow.run({"a": rows, "b": [{"seq": 4, "value": "warm"}], "c": rows[1:]})
    assert sorted(result["all"]["seq"].to_pylist()) == [12, 15, 17]
    assert result.errors["seq"].to_pylist() == [4], "b rejects it, whose numbers are its own"
    apart = ro.Dataflow("apart")
    for name in ("a", "b"):  # sources that are never merged keep their numbers
        apart.sink(f"out-{name}", apart.source(name, schema={"value": "double"}).to(t.NoOp(), id=f"all-{name}"))
    assert apart.run({"a": rows, "b": rows})["all-b"]["seq"].to_pylist() == [4, 5]
    one = ro.Dataflow("one")
    one.sink("out", one.source("a", schema={"value": "double"}).to(t.NoOp(), id="all"))
    assert one.run(rows)["all"]["seq"].to_pylist() == [4, 5]


def test_overflowing_number_is_rejected_at_a_merge():
    flow = ro.Dataflow("far")
    a, b = (flow.source(name, schema={"value": "double"}) for name in "ab")
    flow.sink("out", a, ro.merge(a, b).to(t.NoOp(), id="both"))
    rows = [{"seq": n, "value": 1.0} for n in (1, 2**62)]
    result = flow.run({"a": rows, "b": []})
    assert result["a"]["seq"].to_pylist() == [1, 2**62] and result["both"]["seq"].to_pylist() == [2]
    [error] = result.errors.to_pylist()
    assert (error["task"], error["seq"], error["reason"]) == ("a", 2**62, "out_of_range")
    assert "as message numbers of 2 sources must be" in error["message"]


def test_messages_of_several_sources_are_spread_round_robin():
    flow = ro.Dataflow("spread")
    both = ro.merge(*(flow.source(name, schema={"value": "double"}) for name in ("a", "b")))
    flow.sink("out", both.shuffle(2).to(t.MovingAverage(window=2), id="mean"))
    rows = [{"seq": i, "value": float(i)} for i in range(4)]
    assert sorted(flow.run({"a": rows, "b": []})["mean"]["value"].to_pylist()) == [1.0, 2.0]


def test_nested_times_out_of_range_are_rejected():
    dtype = pa.struct([("at", pa.list_(pa.timestamp("us", "UTC"))), ("by", pa.map_(pa.string(), pa.date32()))])
    good, late = {"at": [0, None], "by": [("a", 5)]}, {"at": [0, 2**62], "by": None}
    old = {"at": None, "by": [("a", 5), ("b", -(2**31))]}
    numbers = pa.struct([("at", pa.list_(pa.int64())), ("by", pa.map_(pa.string(), pa.int32()))])
    column = pa.array([good, late, None, old] * 20, numbers).cast(dtype)
    rejects = RejectedRecords("source")
    kept = IngestStep(pa.schema([("x", dtype)])).apply(pa.RecordBatch.from_arrays([column], ["x"]), rejects)
    assert kept.num_rows == rejects.count == 40
    assert kept.column("x").null_count == 20
