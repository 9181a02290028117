"""Charts: points, axes, gaps, labels, empty sets, reproducible bytes."""

import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import ConfigError, MissingExtraError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks import Collect, PlotLines
from riot_ops.tasks.plot.charts import BOTTOM, LEFT, RIGHT, TOP
from tests.reference.splits import run

START = datetime(2026, 1, 1, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def a_set(values, labels=None, seconds=None, sensor="s", kind="t"):
    seconds = range(len(values)) if seconds is None else seconds
    return {
        "sensor_id": sensor,
        "obs_type": kind,
        "batch_id": 0,
        "times": [None if s is None else START + timedelta(seconds=s) for s in seconds],
        "value": values,
        "analytic": ["AVG"] * len(values) if labels is None else labels,
    }


def draw(one, **parameters):
    session = PlotLines(**parameters).session()
    (row,) = session.push(one)
    assert session.errors == []
    return row


def lines_of(data):
    """``(lines, texts)`` of a chart, each line as its points in pixels."""
    root = ET.fromstring(data.decode())
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in root.iter(f"{SVG}polyline")
    ]
    return lines, [text.text for text in root.iter(f"{SVG}text")]


def test_points_match_the_axes():
    row = draw(a_set([0.0, 10.0, 5.0]), width=605, height=TOP + 400 + BOTTOM)  # leaves 500 by 400 for the lines
    lines, texts = lines_of(row["data"])
    assert lines == [[(LEFT, TOP + 400), (LEFT + 250, TOP), (LEFT + 500, TOP + 200)]]
    assert texts[0] == "s t" and texts[-1] == "AVG"
    assert texts[1:7] == ["0", "2", "4", "6", "8", "10"]
    assert texts[7:-1] == ["0", "0.5", "1", "1.5", "2", "seconds since 2026-01-01 00:00:00 UTC"]
    assert row["name"] == "s~t~0.svg"


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([-8.1, 40.3], ["-10", "0", "10", "20", "30", "40", "50"]),
        ([20.13, 20.31], ["20.1", "20.15", "20.2", "20.25", "20.3", "20.35"]),
        ([100_000.0, 100_002.0], ["100000", "100000.5", "100001", "100001.5", "100002"]),
        ([1e308, -1e308], ["-1e+308", "-5e+307", "0", "5e+307", "1e+308"]),
    ],
)
def test_ticks_of_values_are_round(values, ticks):
    _, texts = lines_of(draw(a_set(values))["data"])
    assert texts[1 : 1 + len(ticks)] == ticks
    assert texts[1 + len(ticks)] == "0", "the next is of the time"


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        ([0, 0.004], ["0", "1", "2", "3", "4", "milliseconds"]),
        ([0, 600], ["0", "2", "4", "6", "8", "10", "minutes"]),
        ([0, 86_400], ["0", "5", "10", "15", "20", "hours"]),
        ([0, 7 * 86_400], ["0", "2", "4", "6", "days"]),
    ],
)
def test_ticks_of_time_have_a_suitable_unit(seconds, ticks):
    _, texts = lines_of(draw(a_set([0.0, 1.0], seconds=seconds))["data"])
    shown = texts[texts.index("0", texts.index("1")) : -1]
    assert [*shown[:-1], shown[-1].partition(" ")[0]] == ticks


@pytest.mark.long
def test_unit_labels_the_axis():
    assert "µg/m³ & more" in lines_of(draw({**a_set([1.0]), "what": "µg/m³ & more"}, value_unit="what")["data"])[1]
    assert draw({**a_set([1.0]), "what": None}, value_unit="what")["data"] == draw(a_set([1.0]))["data"]
    plain, with_unit = (draw({**a_set([1.0]), "what": "m"}, format="png", value_unit=u)["data"] for u in (None, "what"))
    assert plain != with_unit


def test_predictions_are_faint_lines_one_step_apart():
    """Results every 2 s, the second a null; each prediction is drawn, and the last result has none."""
    one = {**a_set([1.0, None, None, None, 1.0], ["AVG", "SLR", "SLR", "SLR", "AVG"], [0, 2, 4, 6, 10])}
    one["predictions"] = [None, [2.0, 3.0], None, [0.0, 4.0], None]
    data = draw(one, width=605, height=TOP + 400 + BOTTOM, predictions="predictions")["data"]
    lines, texts = lines_of(data)
    assert texts[-2:] == ["AVG", "SLR"]

    def at(second, value):
        return LEFT + 50 * second, TOP + 100 * (4 - value)

    assert lines == [[at(0, 1), at(10, 1)], [at(4, 2), at(6, 3)], [at(8, 0), at(10, 4)]]
    strokes = [line.get("stroke-opacity") for line in ET.fromstring(data.decode()).iter(f"{SVG}polyline")]
    assert strokes == [None, "0.35", "0.35"]
    assert draw(one, predictions="predictions", format="png")["data"] != draw(one, format="png")["data"]


def test_predictions_of_a_single_result_are_at_its_time():
    one = {**a_set([None], ["SLR"], [5]), "predictions": [[2.0, float("nan"), 3.0]]}
    lines, _ = lines_of(draw(one, predictions="predictions")["data"])
    assert [[x for x, _ in line] for line in lines] == [[LEFT], [LEFT]]


def test_long_legend_takes_more_rows():
    many = [f"model number {i:02d}" for i in range(12)]
    root = ET.fromstring(draw(a_set([float(i) for i in range(12)], many))["data"].decode())
    places = [(float(t.get("x")), float(t.get("y"))) for t in root.iter(f"{SVG}text") if t.text in many]
    assert len(set(places)) == 12
    assert all(x + 7 * len(many[0]) <= 800 - RIGHT + 7 for x, _ in places)
    top = min(float(p.split(",")[1]) for line in root.iter(f"{SVG}polyline") for p in line.get("points").split())
    assert top > max(y for _, y in places), "the lines begin below"


@pytest.mark.parametrize(
    ("options", "title", "name"),
    [
        ({}, "s t", "s~t~0.svg"),
        ({"groups": ("obs_type",)}, "t", "t~0.svg"),
        ({"groups": ("obs_type", "sensor_id")}, "t s", "t~s~0.svg"),
    ],
)
def test_groups_set_title_name_and_fields(options, title, name):
    row = draw(a_set([1.0, 2.0]), **options)
    assert lines_of(row["data"])[1][0] == title
    assert row["name"] == name
    assert {"sensor_id", "obs_type"} & set(row) == set(options.get("groups", ("sensor_id", "obs_type")))


def test_line_per_label_in_order_of_appearance():
    lines, texts = lines_of(draw(a_set([1.0, 2.0, 3.0, 4.0], ["b", "a", "b", None]))["data"])
    assert [len(line) for line in lines] == [2, 1, 1]
    assert texts[-3:] == ["b", "a", "null"]
    lines, texts = lines_of(draw(a_set([1.0, 2.0], ["b", "a"]), series=None)["data"])
    assert [len(line) for line in lines] == [2] and texts[-1] == "value"


@pytest.mark.parametrize("gap", [None, float("nan"), float("inf"), float("-inf")])
def test_missing_value_is_a_gap(gap):
    lines, _ = lines_of(draw(a_set([1.0, 2.0, gap, 3.0, gap, gap, 4.0]))["data"])
    assert [len(line) for line in lines] == [2, 1, 1]


def test_flat_line_is_in_the_middle():
    lines, texts = lines_of(draw(a_set([7.0, 7.0]), height=TOP + 400 + BOTTOM)["data"])
    assert {y for _, y in lines[0]} == {TOP + 200}
    assert "7" in texts


@pytest.mark.parametrize("values", [[], None, [None], [float("nan")]])
def test_sets_without_points_make_charts_without_lines(values):
    lists = a_set(values or [])
    if values is None:
        lists |= {"times": None, "value": None, "analytic": None}
    for form in ("svg", "png"):
        assert draw(lists, format=form)["data"]
    assert lines_of(draw(lists)["data"])[0] == []


def test_point_without_time_is_omitted():
    lines, _ = lines_of(draw(a_set([1.0, 9.0, 2.0], seconds=[5, None, 6]))["data"])
    assert len(lines) == 1 and len(lines[0]) == 2 and lines[0][0][0] == LEFT
    assert lines_of(draw(a_set([1.0], seconds=[None]))["data"])[0] == []


ODD = ["ü 漢字 🙂", "<script>&\"'", "$\\frac{1}$", "_hidden", "\x00\x07\ufffe", ""]


@pytest.mark.long
@pytest.mark.parametrize("label", ODD)
def test_any_label_makes_valid_svg(label):
    one = a_set([1.0, 2.0], [label, label], sensor=label)
    row = draw(one)
    _, texts = lines_of(row["data"])
    shown = "".join("\ufffd" if c in "\x00\x07\ufffe" else c for c in label)
    assert (texts[-1] or "") == shown
    assert "/" not in row["name"] and "\x00" not in row["name"]
    assert draw(one, format="png")["data"].startswith(b"\x89PNG")


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=20))
def test_any_values_make_valid_svg(values):
    lines, texts = lines_of(draw(a_set(values), width=200, height=150)["data"])
    finite = [v for v in values if v is not None and np.isfinite(v)]
    assert sum(map(len, lines)) == len(finite)
    assert all(LEFT <= x <= 200 - RIGHT and TOP <= y <= 150 - BOTTOM for line in lines for x, y in line)
    assert not any("nan" in (t or "") for t in texts)


@pytest.mark.long
@pytest.mark.parametrize("values", [[1.0, None, 3.0, 2.0], [1e308, -1e308], [5e-324, 1e-310], [4.0]])
def test_png_charts_have_the_drawn_line(values):
    from matplotlib.image import imread

    row = draw(a_set(values), format="png", width=400, height=300)
    assert row["name"] == "s~t~0.png"
    assert row["data"] == draw(a_set(values), format="png", width=400, height=300)["data"]
    import io

    pixels = imread(io.BytesIO(row["data"]))
    assert pixels.shape[:2] == (300, 400)
    blue = (pixels[..., 2] > 0.8) & (pixels[..., 0] < 0.4)
    assert blue[TOP:255, 80:380].sum() > 10  # the line is drawn
    assert draw(a_set([]), format="png", width=400, height=300)["data"] != row["data"]


def test_png_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"riot-ops\[plot\]"):
        draw(a_set([1.0]), format="png")


def test_lists_of_different_length_are_rejected():
    session = PlotLines().session()
    assert session.push({**a_set([1.0, 2.0]), "value": [1.0]}) == []
    assert session.errors[0]["reason"] == "unequal_lists"
    assert session.errors[0]["message"] == "the lists times, value, analytic have 2, 1, 2 values"


def test_slices_of_a_batch_are_drawn():
    """The lists of a slice may begin at any offset of their values."""
    task = PlotLines(series=None)
    batch = pa.RecordBatch.from_pylist([a_set([float(i), 1.0]) for i in range(5)])
    whole = task.session().push_batch(batch).to_pylist()
    assert run(task, batch, [1, 2, 4])[0] == whole


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["AVG", "SLR"]), st.floats(-5, 5)), max_size=30),
    st.integers(1, 30),
)
def test_charts_do_not_depend_on_batches(results, cut):
    n = len(results)
    table = pa.table(
        {
            "seq": pa.array(range(n), pa.int64()),
            "event_time": pa.array([i * 1_000_000 for i in range(n)], TIMESTAMP),
            "sensor_id": pa.array([r[0] for r in results], pa.string()),
            "obs_type": pa.array(["t"] * n, pa.string()),
            "analytic": pa.array([r[1] for r in results], pa.string()),
            "value": pa.array([r[2] for r in results], pa.float64()),
        }
    )
    flow = ro.Dataflow("charts")
    gathered = flow.source("in", schema=table.schema).to(Collect(size=5, partial=True), id="gather")
    flow.sink("out", gathered.to(PlotLines(width=300, height=200), id="chart"))
    charts = flow.run(table, batch_size=cut)["chart"].to_pylist()
    assert charts == flow.run(table, batch_size=1000)["chart"].to_pylist()
    assert len({c["name"] for c in charts}) == len(charts)
    drawn = sum(len(line) for c in charts for line in lines_of(c["data"])[0])
    assert drawn == n


@pytest.mark.parametrize(
    ("wrong", "match"),
    [({"width": 100}, "at least 200 by 150"), ({"height": 10}, "150"), ({"format": "gif"}, "format")],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match):
        PlotLines(**wrong)


def test_wrong_input_is_refused_by_name():
    good = pa.schema(
        [
            ("sensor_id", pa.string()),
            ("obs_type", pa.string()),
            ("times", pa.list_(TIMESTAMP)),
            ("value", pa.list_(pa.float32())),
            ("analytic", pa.list_(pa.string())),
        ]
    )
    assert PlotLines().output_schema(good).names == ["sensor_id", "obs_type", "name", "data"]
    for name, kind, match in (
        ("value", pa.float64(), "needs a list in the field 'value'"),
        ("value", pa.list_(pa.string()), "needs numbers in the lists of 'value'"),
        ("times", pa.list_(pa.int64()), "needs timestamps in the lists of 'times'"),
    ):
        with pytest.raises(ConfigError, match=match):
            PlotLines().output_schema(good.set(good.get_field_index(name), pa.field(name, kind)))
    with pytest.raises(
        ConfigError, match=r"needs lists of numbers in the lists of 'value', its input has list<.*float"
    ):
        PlotLines(predictions="value").output_schema(good)
    with pytest.raises(ConfigError, match="'what'"):
        PlotLines(value_unit="what").output_schema(good)


def test_outliers_of_predictions_do_not_widen_the_axis():
    fans = [[float(i % 5)] * 10 for i in range(40)] + [[1e6] * 10]
    one = {**a_set([None] * 41, ["SLR"] * 41), "predictions": fans}
    lines, texts = lines_of(draw(one, predictions="predictions")["data"])
    assert {"0", "1", "2", "3", "4"} <= set(texts) and len(lines) == 41
    assert max(y for y, *_ in [[y for _, y in line] for line in lines]) <= 600 - BOTTOM
    solid = draw(a_set([0.0, 4.0, 1e6]))["data"]
    assert "1000000" in lines_of(solid)[1], "other values are shown unchanged"
