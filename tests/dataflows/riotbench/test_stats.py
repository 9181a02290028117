"""STATS against a reference that reads the messages as JSON and computes everything from lists, option by option."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
import zipfile

import numpy as np
import pytest

from riot_ops import ConfigError, dataflows
from riot_ops.core.schema import stream_schema
from tests.dataflows.riotbench_inputs import N, sensors, source, table

SVG = "{http://www.w3.org/2000/svg}"


def readings(stream, messages=N):
    """Return ``(sensor, type, seq, time in ms, value or None, meta)`` of every numeric observation, in order."""
    schema = stream_schema(stream)
    for row in table(source(stream, messages)).to_pylist():
        message = json.loads(row["payload"].partition(b",")[2])
        values = {e["n"]: e.get("v", e.get("sv")) for e in message["e"]}
        meta = [str(message["bt"]) if name == "timestamp" else values.get(name) or "" for name in schema.meta]
        for name in schema.numeric:
            text = values.get(name)
            value = None if text in (None, "null", "") else float(text)
            yield values[schema.id_field], name, row["seq"], int(message["bt"]), value, ",".join(map(str, meta))


def reference(stream, *, average, sliding, regression, horizon):
    """Compute ``{analytic: {(seq, type): value}}`` from the lists of all values so far."""
    found = {"avg": {}, "slr": {}, "dac": {}}
    known, smooth, distinct = {}, {}, {}
    for sensor, kind, seq, _, value, _ in readings(stream):
        values, line = known.setdefault((sensor, kind), []), smooth.setdefault((sensor, kind), [])
        x, p = line[-1] if line else (0.0, 30.0)
        p += 0.125
        if value is not None:
            values.append(value)
            if len(values) >= average and (sliding or len(values) % average == 0):
                found["avg"][seq, kind] = math.fsum(values[-average:]) / average
            gain = p / (p + 0.32)
            x, p = x + gain * (value - x), (1 - gain) * p
            distinct.setdefault(kind, set()).add(value)
        if values:  # no result before the first value
            line.append((x, p))
        if len(line) >= regression and values:
            slope, start = np.polyfit(range(regression), [x for x, _ in line[-regression:]], 1)
            found["slr"][seq, kind] = [start + slope * (regression - 1 + h) for h in range(1, horizon + 1)]
        found["dac"][seq, kind] = len(distinct.get(kind, ()))
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("stream", "options", "wanted"),
    [
        (
            "city",
            {"average_window": 7, "regression_window": 5, "horizon": 3, "precision": 14},
            {"average": 7, "sliding": True, "regression": 5, "horizon": 3},
        ),
        (
            "taxi",
            {"form": "plots", "plot_size": 10_000, "precision": 14},
            {"average": 10, "sliding": False, "regression": 10, "horizon": 10},
        ),
        (
            "grid",
            {"form": "plots", "sliding": True, "average_window": 4, "precision": 14},
            {"average": 4, "sliding": True, "regression": 10, "horizon": 2},
        ),
        (
            "taxi",
            {"sliding": False, "regression_window": 20, "precision": 14},
            {"average": 10, "sliding": False, "regression": 20, "horizon": 10},
        ),
    ],
)
def test_results_equal_the_reference(stream, options, wanted):
    result = dataflows.stats(stream, **options).run(source(stream), batch_size=70)
    assert result.errors.num_rows == 0
    for name, numbers in reference(stream, **wanted).items():
        rows = {(r["seq"], r["obs_type"]): r for r in result[name].to_pylist()}
        assert numbers and rows.keys() == numbers.keys(), name
        field, tolerance = {"slr": ("predictions", 1e-6), "dac": ("value", 0.02)}.get(name, ("value", 1e-12))
        got, expected = [rows[key][field] for key in numbers], list(numbers.values())
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=1e-6 if name == "slr" else 0)


def test_windows_of_the_paper():
    """Sliding, over 90 values of CITY and 10 of TAXI; the form with plots has the benchmark's blocks of 10."""
    for stream, window in (("city", 90), ("taxi", 10), ("fit", 10), ("grid", 10)):
        paper, plots = (dataflows.stats(stream, form=form).nodes["avg"].task for form in ("paper", "plots"))
        assert (paper.window, paper.mode) == (window, "sliding")
        assert (plots.window, plots.mode) == (10, "tumbling")


def test_results_carry_the_meta_fields_of_their_message():
    wanted = {(seq, kind): meta for _, kind, seq, _, _, meta in readings("city")}
    result = dataflows.stats("city", average_window=2).run(source("city"))
    for name in ("avg", "slr", "dac"):
        rows = result[name].to_pylist()
        assert rows and all(r["meta"] == wanted[r["seq"], r["obs_type"]] for r in rows), name
    plain = dataflows.stats("city", meta=False).run(source("city", 100))
    assert not any("meta" in plain[name].column_names for name in ("avg", "slr", "dac"))


def test_sensor_without_a_first_reading_emits_nothing():
    texts = ["null", "null", "5", "7", "null", "9", "11"]
    message = '{{"e":[{{"n":"meterid","sv":"m"}},{{"n":"energyconsumed","v":"{}"}}],"bt":{}}}'
    lines = [{"seq": i, "payload": message.format(text, 1000 * i).encode()} for i, text in enumerate(texts)]
    flow = dataflows.stats("grid", regression_window=2, horizon=1)
    flow.sink("smooth", flow.stream("kalman"))
    result = flow.run(lines)
    smooth = result["kalman"]["value"].to_pylist()
    assert smooth[:2] == [None, None] and smooth[2] == pytest.approx(5 * 30.375 / 30.695)
    assert result["slr"]["seq"].to_pylist() == [3, 4, 5, 6]
    assert result["slr"]["predictions"].to_pylist()[0] == pytest.approx([2 * smooth[3] - smooth[2]])


def test_counts_of_sensors_or_of_readings():
    counted = {name: set() for name in stream_schema("city").numeric}
    for sensor, kind, *_ in readings("city"):
        counted[kind].add(sensor)
    result = dataflows.stats("city", counted="sensor_id").run(source("city"))
    last = {r["obs_type"]: round(r["value"]) for r in result["dac"].sort_by("seq").to_pylist()}
    assert last == {kind: len(found) for kind, found in counted.items()}
    few, many = (dataflows.stats("city", precision=p).run(source("city"))["dac"] for p in (4, 14))
    exact = len({value for _, kind, _, _, value, _ in readings("city") if kind == "dust" and value is not None})
    coarse, fine = (
        abs(t.filter(t["obs_type"].to_numpy() == "dust")["value"].to_pylist()[-1] - exact) for t in (few, many)
    )
    assert fine <= 0.01 * exact < coarse, "2^4 registers are less accurate than 2^14"


def test_filter_passes_known_sensors():
    stranger, *known = sensors("grid")
    result = dataflows.stats("grid", known_sensors=known).run(source("grid"))
    assert set(result["dac"]["sensor_id"].to_pylist()) == set(known)
    assert stranger in dataflows.stats("grid").run(source("grid"))["dac"]["sensor_id"].to_pylist()


def test_moment_replaces_the_average():
    """F2 of up to ten readings of a key is exact: the squares of the frequencies of the values."""
    flow = dataflows.stats("taxi", summary="moment", publish={"url": "memory://moment", "topic": "x"})
    result = flow.run(source("taxi", 100))
    assert result.errors.num_rows == 0 and "avg" not in flow.nodes
    seen, compared = {}, 0
    rows = {(r["seq"], r["obs_type"]): r["value"] for r in result["publish_som"].to_pylist()}
    for sensor, kind, seq, _, value, _ in readings("taxi", 100):
        values = seen.setdefault((sensor, kind), [])
        values.append(value)
        if len(values) <= 10:
            assert rows[seq, kind] == sum(values.count(v) ** 2 for v in set(values))
            compared += any(values.count(v) > 1 for v in values)
    assert compared > 100


# -- charts ----------------------------------------------------------------------------------------


def drawn(data):
    root = ET.fromstring(data)
    lines = [line.get("points").split() for line in root.iter(f"{SVG}polyline")]
    return [text.text for text in root.iter(f"{SVG}text")], sorted(map(len, lines))


def test_every_prediction_is_in_the_charts():
    """A chart per sensor and type with the averages and a line for each prediction, and one per type with counts."""
    result = dataflows.stats("city", form="plots", plot_size=10**6).run(source("city"))
    charts = {row["name"]: drawn(row["data"]) for row in result["chart"].to_pylist()}
    counts = {row["name"]: drawn(row["data"]) for row in result["chart_dac"].to_pylist()}
    units = {"temperature": "°C", "humidity": "%", "light": "count", "dust": "count", "airquality_raw": "count"}
    averages, predictions = (
        {
            key: [r for r in rows if (r["sensor_id"], r["obs_type"]) == key]
            for key in {(r["sensor_id"], r["obs_type"]) for r in rows}
        }
        for rows in (result["avg"].to_pylist(), result["slr"].to_pylist())
    )
    assert len(charts) == len(predictions)
    for (sensor, kind), rows in predictions.items():
        texts, lengths = charts[f"{sensor}~{kind}~0.svg"]
        assert texts[0] == f"{sensor} {kind}" and units[kind] in texts
        assert set(texts[-2:]) == {"AVG", "SLR"}
        assert lengths == sorted([*([10] * len(rows)), len(averages[sensor, kind])])
    assert counts.keys() == {f"all sensors~{kind}~0.svg" for kind in units}
    assert all("distinct values" in texts and lengths == [N] for texts, lengths in counts.values())


def test_sets_of_charts_and_archives_of_them(tmp_path):
    """Sets and archives have their sizes; incomplete ones are emitted at the end."""
    flow = dataflows.stats("grid", form="plots", plot_size=400, zip_size=5, charts=str(tmp_path))
    result = flow.run(source("grid"), batch_size=100)
    names = []
    for path in tmp_path.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            names.append(archive.namelist())
    charts = [name for some in names for name in some]
    assert len(set(charts)) == len(charts)
    assert sorted(map(len, names))[1:] == [5] * (len(names) - 1), "all but the last are full"
    assert {name for name in charts if name.startswith("all sensors~energyconsumed~")} == {
        f"all sensors~energyconsumed~{i}.svg" for i in range(math.ceil(N / 400))
    }
    gathered = result["publish_avg" if "publish_avg" in flow.nodes else "avg"].num_rows + result["slr"].num_rows
    sets = {name.rpartition("~")[2] for name in charts if not name.startswith("all sensors~energyconsumed~")}
    assert sets == {f"{i}.svg" for i in range(math.ceil(gathered / 400))}


def test_sizes_of_sets_and_archives_of_the_benchmark():
    for stream, gathered, zipped in (("city", 20, 100), ("taxi", 10, 10), ("fit", 20, 10), ("grid", 8000, 50)):
        nodes = dataflows.stats(stream, form="plots", charts="memory://sizes").nodes
        assert nodes["gather"].task.size == nodes["gather_dac"].task.size == gathered
        assert nodes["zip"].task.size == zipped


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"summary": "median"}, "summary = 'median': must be 'average' or 'moment'"),
        ({"summary": "moment", "sliding": True}, "sliding is for summary='average', got True"),
        ({"summary": "moment", "average_window": 5}, "average_window is for summary='average', got 5"),
        ({"summary": "moment", "form": "plots"}, "summary='moment' is for form='paper', got form='plots'"),
        ({"form": "plots", "known_sensors": ["a"]}, "known_sensors is for form='paper'"),
        ({"plot_size": 5}, "plot_size is for form='plots', got 5 with form='paper'"),
        ({"zip_size": 5}, "zip_size is for form='plots'"),
        ({"charts": "x"}, "charts is for form='plots'"),
    ],
)
def test_options_of_another_form_are_refused(wrong, match):
    with pytest.raises(ConfigError, match=match):
        dataflows.stats("city", **wrong)
