"""Every option of the builders reaches its task."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pyarrow as pa
import pytest

from riot_ops import ConfigError, Secret, dataflows, streams
from riot_ops import tasks as t
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.micro import micro_source
from riot_ops.models import ModelStore
from riot_ops.tables import InlineTable
from tests.dataflows.riotbench_inputs import N, table

ETL = {"schema": "city", "known_sensors": ["a"], "annotations": {"a": "x"}, "store": "azure-table://"}
PRED = {"schema": "city", "store": "memory://options"}
TRAIN = {"schema": "city", "table_store": "memory", "store": "memory://options", "publish": {"url": "memory://options"}}
STATS = {"schema": "city", "form": "plots", "charts": "memory://options"}
SECRET = Secret("x")


@pytest.mark.parametrize(
    ("build", "fixed", "option", "value", "node", "attribute", "usual", "wanted"),
    [
        ("etl", ETL, "known_sensors", ["b"], "bloom", "models", None, None),
        ("etl", ETL, "annotations", {"b": "x"}, "annotate", "table", None, InlineTable({"b": "x"})),
        ("etl", ETL, "annotated", ("room",), "annotate", "columns", None, ("room",)),
        ("etl", ETL, "window", 7, "interpolate", "window", 5, 7),
        ("etl", ETL, "timeout", "7500ms", "join", "timeout", timedelta(seconds=60), timedelta(seconds=7.5)),
        ("etl", ETL, "partial", False, "join", "partial", True, False),
        ("etl", ETL, "store", "memory", "insert", "store", "azure-table://", "memory"),
        ("etl", ETL, "table", "other", "insert", "table", "readings", "other"),
        ("etl", ETL, "batch_size", 7, "insert", "batch_size", 100, 7),
        ("etl", ETL, "credential", SECRET, "insert", "credential", None, SECRET),
        ("etl", {**ETL, "publish": {"url": "mqtt://a", "topic": "x"}}, "publish", {"url": "mqtt://b", "topic": "x"},
         "publish", "url", "mqtt://a", "mqtt://b"),
        ("pred", PRED, "store", "memory://other", "dtc", "store", "memory://options", "memory://other"),
        ("pred", PRED, "store", "memory://other", "mlr", "store", "memory://options", "memory://other"),
        ("pred", PRED, "classifier", "CITY-DTC-1.model", "dtc", "model", None, "CITY-DTC-1.model"),
        ("pred", PRED, "regression", "CITY-MLR-1.model", "mlr", "model", None, "CITY-MLR-1.model"),
        ("pred", PRED, "average_window", 7, "avg", "window", 10, 7),
        ("pred", PRED, "sliding", True, "avg", "mode", "tumbling", "sliding"),
        ("pred", {**PRED, "publish": {"url": "mqtt://a", "topic": "x"}}, "publish", {"url": "mqtt://b", "topic": "x"},
         "publish_error", "url", "mqtt://a", "mqtt://b"),
        ("pred", {**PRED, "publish": {"url": "mqtt://a", "topic": "x"}}, "publish", {"url": "mqtt://b", "topic": "x"},
         "publish_classes", "url", "mqtt://a", "mqtt://b"),
        *(("stats", {"schema": "city", "publish": {"url": "mqtt://a", "topic": "x"}}, "publish",
           {"url": "mqtt://b", "topic": "x"}, f"publish_{result}", "url", "mqtt://a", "mqtt://b")
          for result in ("avg", "slr", "dac")),
        ("train", TRAIN, "store", "memory://other", "upload_mlr", "store", "memory://options", "memory://other"),
        ("train", TRAIN, "store", "memory://other", "upload_dtc", "store", "memory://options", "memory://other"),
        ("train", TRAIN, "table_store", "azure-table://", "range", "store", "memory", "azure-table://"),
        ("train", TRAIN, "table", "other", "range", "table", "readings", "other"),
        ("train", TRAIN, "credential", SECRET, "range", "credential", None, SECRET),
        ("train", TRAIN, "credential", SECRET, "upload_dtc", "credential", None, SECRET),
        ("train", TRAIN, "reverse", False, "label", "reverse", True, False),
        ("train", TRAIN, "max_depth", 3, "dtt", "max_depth", 8, 3),
        ("train", TRAIN, "selection", "m5", "mlt", "selection", "none", "m5"),
        ("train", TRAIN, "publish", {"url": "memory://b"}, "publish_mlr", "url", "memory://options", "memory://b"),
        ("stats", STATS, "average_window", 7, "avg", "window", 10, 7),
        ("stats", STATS, "regression_window", 7, "slr", "window", 10, 7),
        ("stats", STATS, "horizon", 7, "slr", "horizon", 10, 7),
        ("stats", STATS, "sliding", True, "avg", "mode", "tumbling", "sliding"),
        ("stats", STATS, "precision", 7, "dac", "precision", 10, 7),
        ("stats", STATS, "counted", "sensor_id", "dac", "field", "value", "sensor_id"),
        ("stats", STATS, "meta", False, "parse", "meta", True, False),
        ("stats", STATS, "plot_size", 7, "gather", "size", 20, 7),
        ("stats", STATS, "plot_size", 7, "gather_dac", "size", 20, 7),
        ("stats", STATS, "zip_size", 7, "zip", "size", 100, 7),
        ("stats", STATS, "charts", "memory://other", "upload", "store", "memory://options", "memory://other"),
    ],
)  # fmt: skip
def test_option_reaches_its_task(build, fixed, option, value, node, attribute, usual, wanted):
    plain = getattr(dataflows, build)(**fixed).nodes[node].task
    changed = getattr(dataflows, build)(**{**fixed, option: value}).nodes[node].task
    if usual is not None:
        assert getattr(plain, attribute) == usual
    assert getattr(changed, attribute) != getattr(plain, attribute)
    if wanted is not None:
        assert getattr(changed, attribute) == wanted


def test_results_are_published_as_json_unless_a_payload_is_named():
    broker = {"url": "mqtt://a", "topic": "x"}
    for build, fixed, results in (
        (dataflows.pred, PRED, {"classes", "error"}),
        (dataflows.stats, {"schema": "city"}, {"avg", "slr", "dac"}),
    ):
        assert not {n for n in build(**fixed).nodes if n.startswith("publish_")}
        for given, payload in (({}, None), ({"payload": "sensor_id"}, "sensor_id")):
            nodes = build(**fixed, publish={**broker, **given}).nodes
            assert {n for n in nodes if n.startswith("publish_")} == {f"publish_{one}" for one in results}
            assert {nodes[f"publish_{one}"].task.payload for one in results} == {payload}


def test_instances_of_the_predicting_tasks():
    flow = dataflows.pred("city", store="memory://options", parallelism=3)
    assert {e.distribution.parallelism for node in ("dtc", "mlr") for e in flow.inputs(node)} == {3}


def test_rows_per_transaction_of_a_database_are_the_benchmarks():
    for stream, batch in (("city", 100), ("taxi", 10), ("fit", 10), ("grid", 100)):
        flow = dataflows.etl(stream, form="sql", store="sqlite://", table="x")
        assert flow.nodes["insert"].task.batch_size == batch
        assert dataflows.etl(stream, store="sqlite://").nodes["insert"].task.batch_size == 100


def test_taxi_alone_is_not_interpolated():
    for stream in ("city", "fit", "grid"):
        assert dataflows.etl(stream).nodes["interpolate"].task.window == 5
    assert "interpolate" not in dataflows.etl("taxi").nodes
    assert dataflows.etl("taxi", window=3).nodes["interpolate"].task.window == 3
    assert "interpolate" not in dataflows.etl("city", window=0).nodes


def test_high_values_are_bad_for_city_alone():
    for stream in ("city", "taxi", "fit", "grid"):
        assert dataflows.train(stream, store="memory://o", table_store="memory").nodes["label"].task.reverse == (
            stream == "city"
        )


# -- micro -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_mqtt_source_to_sink(tmp_path):
    """MQS has no task: the sink receives each published message once and in order."""
    flow = dataflows.micro("MQS")
    assert [n.kind for n in flow.nodes.values()] == ["source", "sink"]
    rows = flow.run(micro_source("mqs", messages=300))["source"]
    assert rows["seq"].to_pylist() == list(range(300))
    parsed = t.ParseSenML(schema="city", layout="wide").session()
    assert len(parsed.push_many([{"seq": 0, "payload": p} for p in rows["payload"].to_pylist()])) == 300
    assert len(set(rows["payload"].to_pylist())) > 200


def test_mqtt_source_to_sink_needs_a_number_and_takes_no_task():
    with pytest.raises(ConfigError, match="needs a number of messages"):
        micro_source("MQS")
    with pytest.raises(ConfigError, match="MQS is a source and takes no task"):
        dataflows.micro("MQS", t.NoOp())


@pytest.mark.parametrize(("option", "seconds"), [({"rate": 1000.0}, 0.299), ({"speed": 1000.0}, None)])
def test_pace_of_a_micro_source(option, seconds):
    plain, paced = (micro_source("KAL", messages=300, **o) for o in ({}, option))
    assert type(plain) is not type(paced)
    if seconds is not None:
        assert paced.rate == 1000.0
    else:
        assert paced.speed == 1000.0


# -- ticks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["city", "taxi", "fit", "grid"])
def test_ticks_are_those_of_the_benchmarks_timer_files(stream, sample_data):
    path = sample_data / "riotbench" / f"inputFileForTimerSpout-{stream.upper()}.csv"
    lines = [tuple(map(int, line.split(","))) for line in path.read_text().splitlines()[1:]]
    read = dataflows.read_ticks(path)
    times = read["event_time"].cast(pa.int64()).to_pylist()
    assert list(zip(read["seq"].to_pylist(), [us // 10**6 for us in times], read["start"].to_pylist(),
                    read["end"].to_pylist(), strict=True)) == lines  # fmt: skip
    made = dataflows.ticks(stream)
    assert made.equals(read.slice(0, made.num_rows))
    assert read.num_rows - made.num_rows == (stream == "taxi"), "the last of TAXI is twice in its file"


def test_custom_ticks():
    rows = dataflows.ticks("city", n=5, start_ms=0).to_pylist()
    assert [(r["start"], r["end"] - r["start"]) for r in rows] == [
        (0, 10**6), (3_600_000, 10**6), (7_200_000, 10**6), (10_800_000, 10**5), (14_400_000, 10**5)
    ]  # fmt: skip
    assert {b["event_time"] - a["event_time"] for a, b in itertools.pairwise(rows)} == {timedelta(seconds=120)}


@pytest.mark.long
def test_train_learns_at_ticks(tmp_path):
    around = LocalServices("taxi", tmp_path)
    trips = streams.generate("taxi", 200, messages=N)
    span = around.load(trips)["start"].to_pylist()
    result = around.train().run(dataflows.ticks("taxi", n=2, start_ms=span[0]))
    (name,) = result["publish_mlr"]["model"].to_pylist()
    assert ModelStore.open(around.models_url).load(name).start_ms == span[0]
    rows = table(trips)["event_time"].to_pylist()
    first = min(rows)
    learnt = sum(0 <= (at - first).total_seconds() < 864 for at in rows)
    assert 0 < learnt < N and result["publish_mlr"]["rows"].to_pylist() == [learnt]
    assert [e["seq"] for e in result.errors.to_pylist()] == [2, 2], "there is nothing of the day after"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has no ticks"),
        ("msgId,timestamp,rowstart,rowend\n", "has no ticks"),
        ("1,2,3\n", "line 1 of"),
        ("h,h,h,h\n1,2,x,4\n", "line 2 of .* must have a number above the previous one"),
        ("1,2,4,4\n", "line 1"),
        ("1,2,3,4\n1,2,3,4\n", "line 2"),
    ],
)
def test_invalid_timer_files_are_refused(text, match, tmp_path):
    path = tmp_path / "ticks.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        dataflows.read_ticks(path)
    with pytest.raises(ConfigError, match="n must be >= 1, got 0"):
        dataflows.ticks("city", n=0)
    with pytest.raises(ConfigError, match="cannot be read"):
        dataflows.read_ticks(tmp_path / "none")
