"""The other forms of the applications: PRED with charts, STATS that publishes, ETL into a database or a table."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ET
import zipfile
from datetime import UTC, datetime

import pytest

from riot_ops import ConfigError, dataflows
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.core.schema import SCHEMAS, stream_schema
from riot_ops.dataflows.riotbench.pred import MODELS
from riot_ops.models import ModelStore
from riot_ops.tasks.plot.plot_lines import file_name
from riot_ops.testing import exact
from tests.dataflows.riotbench_inputs import NO_NEWS, N, observations, sensors, source

SVG = "{http://www.w3.org/2000/svg}"
ORDER = [("seq", "ascending"), ("ordinal", "ascending")]


def comparable(rows, columns=None):
    """Records in one order, to the last bit; times in UTC, by any of its names."""
    picked = [{name: row.get(name) for name in columns or row} for row in rows]
    return sorted(exact({**row, "event_time": row["event_time"].astimezone(UTC)}) for row in picked)


# -- PRED ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["taxi", "grid"])
def test_pred_stores_charts_of_its_results(stream, trained, tmp_path):
    """Sets of results of a kind, the last with the remaining ones; charts in archives."""
    around, _ = trained[stream]
    store = ModelStore.open(around.models_url)
    models = {
        "store": around.models_url,
        "classifier": store.newest("DTC", stream.upper()),
        "regression": store.newest("MLR", stream.upper()),
        "parallelism": 2,
        "average_window": 4,
    }
    inputs, size, each = {MODELS: NO_NEWS, stream: source(stream)}, 80, 7
    flow = dataflows.pred(
        stream, form="paper", charts=str(tmp_path), plot_size=size, zip_size=each, sliding=False, **models
    )
    expected = dataflows.pred(stream, **models)
    flow.ordinals = expected.ordinals = True
    result, plain = flow.run(inputs, batch_size=100), expected.run(inputs)
    assert result.errors.num_rows == 0
    wanted = {}
    for analytic, output, field, unit in (
        ("DTC", "classes", "class_index", "class index"),
        ("MLR", "error", "error", "relative error"),
    ):
        assert result[output].sort_by(ORDER).equals(plain[output].sort_by(ORDER))
        rows = plain[output].sort_by(ORDER).to_pylist()
        for number in range(-(-N // size)):
            block = rows[number * size : (number + 1) * size]
            for sensor in {row["sensor_id"] for row in block}:
                values = [row[field] for row in block if row["sensor_id"] == sensor and row[field] is not None]
                wanted[file_name([sensor, analytic, number], ".svg")] = f"{sensor} {analytic}", unit, len(values)
    charts = {}
    for path in tmp_path.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            charts.update((name, archive.read(name)) for name in archive.namelist())
    assert result["upload"]["entries"].to_pylist() == [each] * (len(wanted) // each) + [len(wanted) % each]
    assert charts.keys() == wanted.keys()
    for name, (title, unit, points) in wanted.items():
        chart = ET.fromstring(charts[name])
        texts = [text.text for text in chart.iter(f"{SVG}text")]
        assert texts[0] == title and unit in texts
        assert len(" ".join(line.get("points") for line in chart.iter(f"{SVG}polyline")).split()) == points


def test_pred_errors_may_be_relative_to_a_sliding_average(trained):
    around, _ = trained["taxi"]
    inputs = {MODELS: NO_NEWS, "taxi": source("taxi")}
    store = ModelStore.open(around.models_url)
    models = {"store": around.models_url, "classifier": store.newest("DTC"), "regression": store.newest("MLR")}
    rows = {}
    for sliding in (True, False):
        flow = dataflows.pred("taxi", average_window=3, sliding=sliding, **models)
        flow.ordinals = True
        rows[sliding] = flow.run(inputs, batch_size=50)["error"].sort_by(ORDER).to_pylist()
        seen = {}
        for row in rows[sliding]:
            before = seen.setdefault(row["sensor_id"], [])
            full = len(before) if sliding else len(before) // 3 * 3
            mean = sum(before[full - 3 : full]) / 3 if full >= 3 else abs(row["fare_amount"])
            assert row["error"] == pytest.approx(abs(row["prediction"] - row["fare_amount"]) / mean, rel=1e-9)
            before.append(row["fare_amount"])
    assert rows[True] != rows[False]


def test_paper_form_of_pred_has_the_windows_of_the_paper():
    for stream, window, gathered, zipped in (
        ("city", 90, 20, 100),
        ("taxi", 10, 10, 10),
        ("fit", 10, 20, 10),
        ("grid", 10, 8000, 50),
    ):
        nodes = dataflows.pred(stream, form="paper", store="memory://m", charts="memory://c").nodes
        assert (nodes["avg"].task.window, nodes["avg"].task.mode) == (window, "sliding")
        assert nodes["gather_dtc"].task.size == nodes["gather_mlr"].task.size == gathered
        assert nodes["zip"].task.size == zipped
        plain = dataflows.pred(stream, store="memory://m").nodes
        assert (plain["avg"].task.window, plain["avg"].task.mode) == (10, "tumbling")
        assert "plots" not in plain


@pytest.mark.parametrize("wrong", [{"plot_size": 5}, {"zip_size": 5}, {"charts": "x"}])
def test_chart_options_without_charts_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is for form='paper', got .* with form='publish'"):
        dataflows.pred("city", **wrong)


@pytest.mark.parametrize("build", [dataflows.pred, dataflows.stats])
def test_unknown_forms_are_refused(build):
    with pytest.raises(ConfigError, match=r"form = 'charts': must be '\w+' or '\w+'"):
        build("city", form="charts")


# -- STATS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["paper", "plots"])
def test_stats_publishes_each_result(form, tmp_path):
    url = tmp_path.as_uri()
    session = FolderBroker(url).session("test", ["stats/#"])
    expected = dataflows.stats("taxi", form=form)
    expected.ordinals = True
    plain = expected.run(source("taxi"))
    size = {"plot_size": 2000} if form == "plots" else {}
    flow = dataflows.stats("taxi", form=form, publish={"url": url, "topic": "stats/{obs_type}"}, **size)
    flow.ordinals = True
    result = flow.run(source("taxi"), batch_size=100)
    assert result.errors.num_rows == 0
    wanted = []
    for name in ("avg", "slr", "dac"):
        rows = plain[name].to_pylist()
        assert comparable(result[f"publish_{name}"].to_pylist()) == comparable(rows), "the sink has them as well"
        wanted += [{name: value for name, value in row.items() if name != "ordinal"} for row in rows]
    messages = list(session.next())
    assert {m.topic for m in messages} == {f"stats/{name}" for name in stream_schema("taxi").numeric}
    records = [json.loads(m.payload) for m in messages]
    assert comparable({**r, "event_time": datetime.fromisoformat(r["event_time"])} for r in records) == comparable(
        wanted
    )
    assert ("chart" in result.summary.rows) == (form == "plots")


# -- ETL -------------------------------------------------------------------------------------------


def etl(stream, **options):
    return dataflows.etl(
        stream, known_sensors=sensors(stream), annotations={s: s[::-1] for s in sensors(stream)}, **options
    )


@pytest.mark.parametrize("stream", SCHEMAS)
def test_etl_into_a_database_with_a_column_per_field(stream, tmp_path):
    flow = etl(stream, form="sql", store=f"sqlite:///{tmp_path}/etl.db", table="trips")
    columns = ["seq", "event_time", "sensor_id", *stream_schema(stream).observed, "annotation"]

    def stored():
        with sqlite3.connect(tmp_path / "etl.db") as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute("SELECT * FROM trips ORDER BY seq")]
        assert all(sorted(row) == sorted(columns) for row in rows)
        return [{**r, "event_time": datetime.fromisoformat(r["event_time"]).replace(tzinfo=UTC)} for r in rows]

    result = flow.run(source(stream), batch_size=70)
    assert result.errors.num_rows == 0
    rows = stored()
    assert comparable(rows, columns) == comparable(result["insert"].to_pylist(), columns)
    assert [r["seq"] for r in rows] == list(range(N))
    assert all(r["annotation"] == r["sensor_id"][::-1] for r in rows)
    raw = observations(stream, layout="wide", fields=stream_schema(stream).numeric).sort_by("seq").to_pylist()
    for name, (low, high) in stream_schema(stream).bounds.items():  # valid values are unchanged
        good = [i for i in range(N) if raw[i][name] is not None and low <= raw[i][name] <= high]
        assert good and [rows[i][name] for i in good] == [raw[i][name] for i in good]
    flow.run(source(stream), batch_size=250)
    assert stored() == rows, "a second run writes the same rows"


@pytest.mark.parametrize("store", ["memory", "sqlite:///{}/etl.db"])
@pytest.mark.parametrize("stream", ["taxi", "fit"])
def test_etl_into_a_table_by_keys(stream, store, tmp_path):
    flow = etl(stream, store=store.format(tmp_path), table=f"etl{stream}")
    columns = ["event_time", "sensor_id", *stream_schema(stream).observed, "annotation"]
    result = flow.run(source(stream), batch_size=70)
    assert result.errors.num_rows == 0

    opened = flow.nodes["insert"].task.rows

    def stored():
        return {row.row: row.values for row in opened.range(stream, "0", "9")}

    rows = stored()
    assert len(rows) == N
    assert comparable(rows.values(), columns) == comparable(result["insert"].to_pylist(), columns)
    times = [row["event_time"] for _, row in sorted(rows.items())]
    assert times == sorted(times), "so that TRAIN can fetch a span of time"
    assert not opened.range("another", "0", "9")
    flow.run(source(stream), batch_size=250)
    assert stored() == rows, "a second run writes the same rows"


def test_unknown_variant_is_refused():
    with pytest.raises(ConfigError, match="form = 'csv': must be 'table' or 'sql'"):
        dataflows.etl(form="csv")
