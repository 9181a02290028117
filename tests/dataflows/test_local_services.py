"""Local services: default addresses, options and files of the applications."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from riot_ops import ConfigError
from riot_ops.connectors.stores import open_table
from riot_ops.core.schema import stream_schema
from riot_ops.dataflows import local_services
from riot_ops.dataflows.local_services import LocalServices, spans
from riot_ops.models import LinearModel, ModelStore
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.tables import KeyFile
from tests.dataflows.riotbench_inputs import source, table


@pytest.fixture
def around(tmp_path):
    return LocalServices("taxi", tmp_path)


def test_addresses_of_the_services(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = LocalServices("taxi", Path("out"))
    assert usual.table_url == f"sqlite:///{tmp_path}/out/store.db"
    assert usual.models_url == f"{tmp_path}/out/models"
    assert usual.broker_url == (tmp_path / "out/broker").as_uri()
    given = LocalServices("taxi", Path("out"), "memory", "memory://m", "mqtt://b")
    assert (given.table_url, given.models_url, given.broker_url) == ("memory", "memory://m", "mqtt://b")


def test_etl_runs_with_local_services(around):
    nodes = around.etl(["a", "b:c", "d"]).nodes
    text = (around.out / "annotations.txt").read_text(encoding="utf-8")
    assert text == "a:unit 00000\nd:unit 00002\n", "a name with a colon would end at it"
    assert nodes["annotate"].task.table == KeyFile(str(around.out / "annotations.txt"))
    assert dict(nodes["bloom"].task.models) == {"sensor_id": str(around.out / "known_sensors.bloom")}
    assert (nodes["insert"].task.store, nodes["insert"].task.table) == (around.table_url, "readings")
    assert (nodes["publish"].task.url, nodes["publish"].task.topic) == (around.broker_url, "etl/taxi")


@pytest.mark.long
def test_saved_filter_has_its_sensors(around):
    path = around.save_filter([f"s{i}" for i in range(2000)])
    assert path == around.out / "known_sensors.bloom"
    known = BloomFilter.load(path)
    assert all(f"s{i}" in known for i in range(2000))
    assert 0.005 < sum(f"t{i}" in known for i in range(20_000)) / 20_000 < 0.015


def test_stats_publishes_if_a_broker_is_given(around, tmp_path):
    assert not [n for n in around.stats(["a"]).nodes if n.startswith("publish_")]
    given = LocalServices("taxi", tmp_path, broker="mqtt://b").stats(["a"]).nodes
    assert (given["publish_avg"].task.url, given["publish_avg"].task.topic) == ("mqtt://b", "stats/taxi")
    assert dict(given["bloom"].task.models) == {"sensor_id": str(tmp_path / "known_sensors.bloom")}


@pytest.mark.parametrize(("sensors", "size"), [(1, 200), (3, 600), (900, 180_000), (1001, 200_000)])
def test_points_for_the_charts(around, sensors, size):
    kinds = len(stream_schema("taxi").numeric)
    nodes = around.stats(["a"] * sensors, form="plots").nodes
    assert nodes["gather"].task.size == min(200 * sensors * kinds, 200_000)
    assert nodes["upload"].task.store == str(around.out / "charts")
    around.create()
    assert around.pred(1, form="paper", sensors=sensors).nodes["gather_mlr"].task.size == size
    assert around.pred(1, form="paper", sensors=0).nodes["gather_mlr"].task.size == 1


def test_charts_of_a_custom_schema(around):
    schema = stream_schema("fit")
    assert len(schema.numeric) != len(stream_schema("taxi").numeric)
    nodes = around.stats(["a", "b"], form="plots", schema=schema).nodes
    assert nodes["gather"].task.size == 200 * 2 * len(schema.numeric)
    assert around.stats(["a"], schema=schema).nodes["parse"].task.schema == schema


def test_train_and_pred(around):
    train = around.train().nodes
    assert (train["range"].task.store, train["range"].task.table) == (around.table_url, "readings")
    assert train["upload_dtc"].task.store == around.models_url
    assert train["publish_dtc"].task.url == around.broker_url
    around.create()
    pred = around.pred(3)
    assert {e.distribution.parallelism for node in ("dtc", "mlr") for e in pred.inputs(node)} == {3}
    assert pred.nodes["dtc"].task.store == pred.nodes["mlr"].task.store == around.models_url
    assert pred.nodes["dtc"].task.model is None
    assert (pred.nodes["publish_error"].task.url, pred.nodes["publish_error"].task.topic) == (
        around.broker_url,
        "pred/taxi",
    )
    assert "gather_mlr" not in pred.nodes


def test_newest_models_of_the_stream_are_loaded(around):
    around.create()
    assert open_table(around.table_url, "readings").range("taxi", "0", "9") == []
    store = ModelStore.open(around.models_url)
    assert not around.has_models()
    names = {}
    for kind in ("DTC", "MLR"):
        model = LinearModel(inputs=("a",), target="b", coefficients=(1.0,), intercept=0.0)
        for second in (1, 2):
            names[kind] = f"TAXI-{kind}-{second}.model"
            store.write(names[kind], model)
        assert around.has_models() == (kind == "MLR"), "one of each kind"
    nodes = around.pred(1).nodes
    assert (nodes["dtc"].task.model, nodes["mlr"].task.model) == (names["DTC"], names["MLR"])


def test_loaded_readings_are_in_the_table(around):
    trips = source("taxi", messages=200)
    ticks = around.load(trips).to_pylist()
    times = sorted(round(at.timestamp() * 1000) for at in table(trips)["event_time"].to_pylist())
    assert (ticks[0]["start"], ticks[-1]["end"]) == (times[0], times[-1] + 1)
    assert len(ticks) == 5
    rows = open_table(around.table_url, "readings").range("taxi", "0", "9")
    assert [int(row.row.partition("|")[0]) for row in rows] == times
    with pytest.raises(ConfigError, match="the source has no readings to train on"):
        around.load(source("taxi", messages=0))


def test_spans_divide_the_readings():
    ticks = spans(1000, 2000)
    assert ticks["start"].to_pylist() == [1000, 1200, 1400, 1600, 1800]
    assert ticks["end"].to_pylist() == [1200, 1400, 1600, 1800, 2000]
    assert ticks["event_time"].cast(pa.int64()).to_pylist() == [e * 1000 for e in ticks["end"].to_pylist()]
    assert ticks["seq"].to_pylist() == [0, 1, 2, 3, 4]


def test_model_updates(around):
    news, other = around.model_updates(), around.model_updates(patience="1.5s")
    assert (news.url, news.topics) == (around.broker_url, ("models/taxi/#",))
    assert (news.idle, other.idle) == (timedelta(seconds=3), timedelta(seconds=1.5))
    assert news.session_expiry == timedelta(minutes=10)
    assert news.client_id != other.client_id, "each run receives every message"
    assert news.client_id.startswith("riot_ops-pred-") and len(news.client_id) == len("riot_ops-pred-") + 12
    assert news.spool == str(around.out / "spool" / news.client_id)
    assert timedelta(seconds=3) == local_services.PATIENCE
