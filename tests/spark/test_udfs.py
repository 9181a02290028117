"""Tasks as functions for the user's own pipelines, compared with naive references."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import streaming
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.spark import features, udfs
from tests.reference.kalman_filter import Kalman
from tests.reference.range_filter import long as in_range

pytestmark = pytest.mark.spark

#: Spark's harness for processors, from 4.2 on.
TwsTester = getattr(streaming, "TwsTester", None)
needs_tester = pytest.mark.skipif(TwsTester is None, reason="Spark has a harness for processors from 4.2 on")

ROWS = [
    {"seq": i, "obs_type": ("light", "dust")[i % 2], "value": None if i == 11 else float(i * 37 % 60)}
    for i in range(60)
]
BOUNDS = {"light": (10.0, 40.0), "dust": (0.0, 25.0)}
IN_RANGE = t.RangeFilter(bounds=BOUNDS)
DDL = "seq long, obs_type string, value double"
STRUCT = StructType(
    [StructField("seq", LongType()), StructField("obs_type", StringType()), StructField("value", DoubleType())]
)
ARROW = pa.schema([("seq", pa.int64()), ("obs_type", pa.string()), ("value", pa.float64())])


def wanted():
    return [row for given in ROWS for row in in_range(given, BOUNDS, "drop")]


def plain(frame):
    """Return the rows of a pandas frame, with NaN as None."""
    return [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]


def test_missing_field_and_wrong_type_are_named():
    good = pa.RecordBatch.from_pylist(ROWS, schema=ARROW)
    for batch, text in (
        (good.drop_columns(["value"]), "'value'"),
        (good.set_column(good.schema.get_field_index("value"), "value", pa.nulls(len(good), pa.binary())), "value"),
    ):
        with pytest.raises(ConfigError, match=text):
            list(IN_RANGE.map_in_arrow([good, batch]))


def test_map_in_arrow_and_in_pandas(spark):
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS, schema=ARROW)).coalesce(1)
    for out in (frame.mapInArrow(IN_RANGE.map_in_arrow, DDL), frame.mapInPandas(IN_RANGE.map_in_pandas, DDL)):
        assert [row.asDict() for row in out.collect()] == wanted()


def test_functions_over_batches():
    table = pa.Table.from_pylist(ROWS, schema=ARROW)
    out = list(IN_RANGE.map_in_arrow(table.to_batches(max_chunksize=7)))
    assert pa.Table.from_batches(out).to_pylist() == wanted()
    frames = IN_RANGE.map_in_pandas(batch.to_pandas() for batch in table.to_batches(max_chunksize=7))
    assert [row for frame in frames for row in plain(frame)] == wanted()


def test_rejected_rows_are_dropped_or_put_into_error_column(caplog):
    def positive(row):
        if row["value"] is None:
            raise ro.RecordError("nothing measured", reason="missing")
        return row

    task = ro.map(positive)
    (out,) = task.map_in_arrow([pa.RecordBatch.from_pylist(ROWS, schema=ARROW)])
    assert out.to_pylist() == [row for row in ROWS if row["value"] is not None]
    assert "map_function rejected 1 records, first: nothing measured" in caplog.text
    with_errors = [{**row, "_error": "before" if row["seq"] == 3 else None} for row in ROWS]
    given = pa.RecordBatch.from_pylist(with_errors, schema=ARROW.append(pa.field("_error", pa.string())))
    rows = [row for batch in task.map_in_arrow([given]) for row in batch.to_pylist()]
    assert [row for row in rows if row["_error"] is None] == [r for r in with_errors if r["seq"] not in (3, 11)]
    bad = {row["seq"]: row for row in rows if row["_error"] is not None}
    assert bad[3] == with_errors[3] and json.loads(bad[11]["_error"])["reason"] == "missing" and len(bad) == 2


def test_functions_over_batches_refuse_state():
    for function in (udfs.map_in_arrow, udfs.map_in_pandas):
        with pytest.raises(ConfigError, match=r"kalman_filter keeps state.*transform or stateful_processor"):
            function(t.KalmanFilter())
    with pytest.raises(ConfigError, match="range_filter has no state"):
        IN_RANGE.stateful_processor(DDL)


KALMAN = t.KalmanFilter(by=("obs_type",))


@needs_tester
@pytest.mark.parametrize("schema", [DDL, STRUCT, ARROW], ids=["ddl", "struct", "arrow"])
def test_processor_in_tws_tester(spark, schema):
    processor = KALMAN.stateful_processor(schema)
    assert processor.output_schema == STRUCT
    tester, reference = TwsTester(processor), Kalman()
    for part in (ROWS[:20], ROWS[20:21], ROWS[21:]):
        for key in ("light", "dust"):
            rows = [row for row in part if row["obs_type"] == key]
            if not rows:
                continue
            got = tester.testInPandas(key, pd.DataFrame(rows[::-1]))  # processed in order of seq
            assert got["seq"].tolist() == [row["seq"] for row in rows]
            assert got["value"].tolist() == pytest.approx([reference.push(key, row["value"])[0] for row in rows])


@needs_tester
def test_processor_orders_by_event_time_without_seq(spark):
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=s) for s in (2, 0, 1)]
    frame = pd.DataFrame({"event_time": times, "key": ["a"] * 3, "value": [3.0, 1.0, 2.0]})
    processor = t.KalmanFilter(by=("key",)).stateful_processor("event_time timestamp, key string, value double")
    reference = Kalman()
    got = TwsTester(processor).testInPandas("a", frame)
    assert got["value"].tolist() == pytest.approx([reference.push("a", v)[0] for v in (1.0, 2.0, 3.0)])


@needs_tester
def test_processor_passes_rejected_rows_on(spark):
    fields = f"{DDL}, _error string"
    tester = TwsTester(KALMAN.stateful_processor(fields))
    rows = [
        {"seq": 0, "obs_type": "a", "value": 1.0, "_error": None},
        {"seq": 1, "obs_type": "a", "value": 5.0, "_error": "before"},
        {"seq": 2, "obs_type": "a", "value": math.inf, "_error": None},
        {"seq": 3, "obs_type": "a", "value": 2.0, "_error": None},
    ]
    found = {row["seq"]: row for row in plain(tester.testInPandas("a", pd.DataFrame(rows)))}
    reference = Kalman()
    assert [found[i]["value"] for i in (0, 3)] == pytest.approx([reference.push("a", v)[0] for v in (1.0, 2.0)])
    assert found[1]["_error"] == "before" and json.loads(found[2]["_error"])["reason"] == "not_finite"


def test_mapped_rows_that_float64_would_round_are_dropped(spark):
    class Half:
        def predict(self, x):
            return x[:, 0] / 2

    task = ro.predict(Half(), ("a",), output="x")
    found = spark.createDataFrame([(4,), (2**53 + 1,)], "a bigint").mapInArrow(task.map_in_arrow, "a bigint, x double")
    assert [row.x for row in found.collect()] == [2.0]


@pytest.mark.parametrize(("schema", "message"), [(17, "got 17"), (None, "got None")])
def test_other_value_as_schema_is_refused(schema, message):
    with pytest.raises(ConfigError, match=f"schema must be .*{message}"):
        KALMAN.stateful_processor(schema)


def test_processor_on_spark(spark, tmp_path):
    for i, part in enumerate((ROWS[:30], ROWS[30:])):
        spark.createDataFrame(pa.Table.from_pylist(part, schema=ARROW)).coalesce(1).write.parquet(f"{tmp_path}/in/{i}")
    processor = KALMAN.stateful_processor(STRUCT)
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/in/*")
    out = frame.groupBy("obs_type").transformWithStateInPandas(
        processor, outputStructType=processor.output_schema, outputMode="append", timeMode="None"
    )
    query = out.writeStream.format("memory").queryName("faces").trigger(availableNow=True).start()
    query.awaitTermination()
    reference = Kalman()
    got = {row.seq: row.value for row in spark.table("faces").collect()}
    assert got == pytest.approx({r["seq"]: reference.push(r["obs_type"], r["value"])[0] for r in ROWS})


def test_processor_needs_utc_for_times(spark, monkeypatch):
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    monkeypatch.setattr(udfs.SparkSession, "getActiveSession", lambda: other)
    with pytest.raises(ConfigError, match=r"Europe/Berlin.*spark.conf.set.*UTC"):
        KALMAN.stateful_processor("event_time timestamp, obs_type string, value double")
    assert KALMAN.stateful_processor(DDL), "without times any zone is accepted"


@pytest.mark.skipif(not features.has("row-wise transformWithState"), reason="from Spark 4.1 on")
def test_row_processor_on_spark(spark, tmp_path):
    """State goes on from one micro-batch to the next; times and missing whole numbers keep their values."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    given = [{**row, "event_time": start + timedelta(seconds=row["seq"])} for row in ROWS]
    given = [{**row, "n": None if row["seq"] % 3 else 2**53 + 1 + row["seq"]} for row in given]
    schema = ARROW.append(pa.field("event_time", pa.timestamp("us", "UTC"))).append(pa.field("n", pa.int64()))
    for i, part in enumerate((given[:30], given[30:])):
        spark.createDataFrame(pa.Table.from_pylist(part, schema=schema)).coalesce(1).write.parquet(f"{tmp_path}/in/{i}")
    processor = KALMAN.row_processor(schema)
    frame = spark.readStream.schema(processor.output_schema).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/in/*")
    out = frame.groupBy("obs_type").transformWithState(processor, processor.output_schema, "append", "None")
    query = out.writeStream.format("memory").queryName("row_faces").trigger(availableNow=True).start()
    query.awaitTermination()
    found = {row["seq"]: row for row in spark.table("row_faces").toArrow().to_pylist()}
    reference = Kalman()
    wanted = {r["seq"]: reference.push(r["obs_type"], r["value"])[0] for r in given}
    assert {seq: row["value"] for seq, row in found.items()} == pytest.approx(wanted)
    assert [(found[r["seq"]]["event_time"], found[r["seq"]]["n"]) for r in given] == [
        (r["event_time"], r["n"]) for r in given
    ]


def test_row_processor_says_which_spark_has_it(monkeypatch):
    fields = pa.schema([("seq", pa.int64()), ("obs_type", pa.string()), ("value", pa.float64())])  # needs no session
    with pytest.raises(ConfigError, match="has no state"):
        IN_RANGE.row_processor(fields)
    monkeypatch.setattr(features, "_has_name", lambda _: False)
    with pytest.raises(ConfigError, match=r"row-wise transformWithState needs Spark 4\.1 or later"):
        KALMAN.row_processor(fields)
