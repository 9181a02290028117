"""ETL, TRAIN and PRED over the four streams: results, stored rows and published messages."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.stores import open_table
from riot_ops.core.schema import SCHEMAS, stream_schema
from riot_ops.dataflows import etl
from riot_ops.dataflows.local_services import TABLE, LocalServices, spans
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.ingest.pace import PacedSource
from riot_ops.models import LinearModel, ModelStore
from tests.dataflows.riotbench_inputs import NO_NEWS, N, features, observations, sensors, source, table


@pytest.mark.long
@pytest.mark.parametrize("stream", SCHEMAS)
def test_etl_cleans_stores_and_publishes_each_message(stream, tmp_path):
    wide = observations(stream, layout="wide", fields=stream_schema(stream).numeric)
    known = sensors(stream)
    around = LocalServices(stream, tmp_path)
    session = FolderBroker(around.broker_url).session("test", ["etl/#"])
    result = around.etl(known).run(source(stream), batch_size=100)
    assert result.errors.num_rows == 0
    assert result.summary.rows == {"insert": N, "publish": N}
    inserted = result["insert"].sort_by("seq")
    assert set(inserted["annotation"].to_pylist()) == {f"unit {i:05d}" for i in range(len(known))}
    assert all(inserted["complete"].to_pylist())
    for name, (low, high) in stream_schema(stream).bounds.items():
        raw = wide.sort_by("seq")[name].to_pylist()
        for before, after in zip(raw, inserted[name].to_pylist(), strict=True):
            if before is not None and low <= before <= high:
                assert after == before
            else:  # filled from good values, if there are any
                assert after is None or low <= after <= high
    assert len(open_table(around.table_url, TABLE).range(stream, "0", "9")) == N
    published = [json.loads(m.payload) for m in session.next()]
    assert len(published) == N
    parsed = t.ParseSenML(schema=stream, layout="wide", fields=stream_schema(stream).numeric).session()
    back = parsed.push_many([{"payload": m.payload, "seq": 0} for m in session.next()])
    name = stream_schema(stream).numeric[0]
    assert sorted(str(r[name]) for r in back) == sorted(map(str, inserted[name].to_pylist()))


@pytest.mark.parametrize("stream", SCHEMAS)
def test_train_learns_from_the_table_of_etl(stream, tmp_path):
    around = LocalServices(stream, tmp_path)
    sensors = sorted(set(observations(stream, layout="wide")["sensor_id"].to_pylist()))
    stored = around.etl(sensors).run(source(stream))["insert"]
    times = np.asarray(stored["event_time"].cast(pa.int64())) // 1000
    models = around.train().run(spans(int(times.min()), int(times.max()) + 1, 1))
    assert models.errors.num_rows == 0
    assert models["publish_mlr"].num_rows == models["publish_dtc"].num_rows == 1


@pytest.mark.parametrize("stream", SCHEMAS)
def test_etl_nulls_readings_of_unknown_sensors(stream, tmp_path):
    unknown, *known = sensors(stream)
    result = LocalServices(stream, tmp_path).etl(known).run(source(stream))
    rows = [r for r in result["insert"].to_pylist() if r["sensor_id"] == unknown]
    assert rows and all(r[name] is None for r in rows for name in stream_schema(stream).numeric)


def test_etl_does_not_wait_for_an_invalid_reading():
    """An invalid reading is an error and null in its message, which is complete: none is held until the end."""
    good = table(source("city")).slice(0, 3)
    texts = [p.as_py() for p in good["payload"]]
    texts[1] = re.sub(rb'"[^"]*","u":"far"', b'"warm","u":"far"', texts[1])
    spoiled = good.set_column(good.schema.get_field_index("payload"), "payload", pa.array(texts))
    result = etl("city", window=0, partial=False).run(spoiled)
    rows = result["senml"].sort_by("seq")
    assert [(e["reason"], e["seq"]) for e in result.errors.to_pylist()] == [("not_a_number", 1)]
    entries = [{e["n"]: e.get("v") for e in json.loads(m)["e"]} for m in rows["payload"].to_pylist()]
    assert ["temperature" in e for e in entries] == [True, False, True]


@pytest.mark.parametrize("stream", SCHEMAS)
def test_train_stores_and_announces_a_model_of_each_kind_per_span(stream, trained):
    around, result = trained[stream]
    assert result.summary.rows == {"publish_mlr": 5, "publish_dtc": 5}, result.errors.to_pylist()
    store = ModelStore.open(around.models_url)
    assert sorted(store.names()) == sorted(
        result["publish_mlr"]["model"].to_pylist() + result["publish_dtc"]["model"].to_pylist()
    )
    for kind in ("MLR", "DTC"):
        news = FolderBroker(around.broker_url).session(f"late {kind}", [f"models/{stream}/{kind}"])
        assert [m.payload.decode() for m in news.next()] == [store.newest(kind, stream.upper())]
    rows = result["publish_mlr"]["rows"].to_pylist()
    assert sum(rows) <= N and min(rows) > len(FEATURE_SETS[stream].inputs)


@pytest.mark.parametrize("stream", SCHEMAS)
def test_pred_equals_its_models(stream, trained):
    around, _ = trained[stream]
    learning = FEATURE_SETS[stream]
    result = around.pred(2).run({MODELS: NO_NEWS, stream: source(stream)}, batch_size=50)
    assert result.errors.num_rows == 0
    store = ModelStore.open(around.models_url)
    model = store.load(store.newest("MLR", stream.upper()))
    assert isinstance(model, LinearModel)
    rows = features(stream)
    wanted = model.intercept + sum(
        c * np.asarray(rows[name], float) for c, name in zip(model.coefficients, model.inputs, strict=True)
    )
    errors = result["publish_error"].sort_by("seq")
    np.testing.assert_allclose(np.asarray(errors["prediction"], float), wanted, rtol=1e-9)
    observed, seen = np.asarray(rows[learning.target], float), {}
    for o, p, sensor, error in zip(
        observed, wanted, rows["sensor_id"].to_pylist(), errors["error"].to_pylist(), strict=True
    ):
        window = seen.setdefault(sensor, [])
        full = len(window) // 10 * 10
        scale = abs(np.mean(window[full - 10 : full])) if full else abs(o)
        if np.isnan(o) or np.isnan(p):
            assert error is None
        elif scale or o:
            assert error == pytest.approx(abs(p - o) / (scale or abs(o)), rel=1e-6)
        if not np.isnan(o):
            window.append(o)  # an average applies to later records
    assert set(result["publish_classes"]["class"].to_pylist()) <= {"BAD", "GOOD", "VERYGOOD", "EXCELLENT", None}


def test_all_instances_of_pred_switch_to_new_models(trained):
    """Each prediction equals the model it names, and each of three instances switches exactly once."""
    around, result = trained["taxi"]
    store = ModelStore.open(around.models_url)
    newest = store.newest("MLR", "TAXI")
    first = result["publish_mlr"]["model"].to_pylist()[0]
    assert first != newest
    news = pa.Table.from_pylist([{"seq": 0, "payload": first.encode(), "topic": "x"}], schema=UPDATES_SCHEMA)
    given = {MODELS: news, "taxi": PacedSource(source("taxi"), rate=3000)}  # the news come while records are read
    moved = LocalServices("taxi", around.out).pred(3).run(given, batch_size=50)
    assert moved.errors.num_rows == 0
    rows = moved["publish_error"].sort_by("seq").to_pylist()
    assert [row["seq"] for row in rows] == list(range(0, 2 * N, 2))  # of two sources
    inputs = features("taxi").to_pylist()
    for row, values in zip(rows, inputs, strict=True):
        model = store.load(row["model"])
        wanted = model.intercept + sum(c * values[n] for c, n in zip(model.coefficients, model.inputs, strict=True))
        assert row["prediction"] == pytest.approx(wanted, rel=1e-9)
    for instance in range(3):  # messages go round robin by their number
        models = [row["model"] for row in rows if row["seq"] % 3 == instance]
        assert models[-1] == first, "it has heard of it"
        assert models == sorted(models, key=[newest, first].index), "and does not go back"
