"""Charts: what is in the picture, gaps, odd labels, empty sets, the same bytes whatever the batches."""

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
from riot_ops.charts import LEFT, TOP
from riot_ops.schema import TIMESTAMP
from riot_ops.tasks import Accumulator, MultiLinePlot
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
    session = MultiLinePlot(**parameters).session()
    (row,) = session.push(one)
    assert session.errors == []
    return row


def lines_of(data):
    """``(lines, texts)``: each line as its points in pixels."""
    root = ET.fromstring(data.decode())
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in root.iter(f"{SVG}polyline")
    ]
    return lines, [text.text for text in root.iter(f"{SVG}text")]


def test_points_stand_where_the_axes_say():
    row = draw(a_set([0.0, 10.0, 5.0]), width=605, height=485)  # 500 by 400 for the lines
    lines, texts = lines_of(row["data"])
    assert lines == [[(LEFT, TOP + 400), (LEFT + 250, TOP), (LEFT + 500, TOP + 200)]]
    assert texts[0] == "s t" and texts[-1] == "AVG"
    assert [t for t in texts if t in {"0", "2.5", "5", "7.5", "10"}].count("10") == 1
    assert {"500", "1000", "1500", "2000", "time (ms)"} <= set(texts)
    assert row["name"] == "s~t~0.svg"


def test_a_line_per_label_in_order_of_appearance():
    lines, texts = lines_of(draw(a_set([1.0, 2.0, 3.0, 4.0], ["b", "a", "b", None]))["data"])
    assert [len(line) for line in lines] == [2, 1, 1]
    assert texts[-3:] == ["b", "a", "null"]
    lines, texts = lines_of(draw(a_set([1.0, 2.0], ["b", "a"]), line=None)["data"])
    assert [len(line) for line in lines] == [2] and texts[-1] == "value"


@pytest.mark.parametrize("gap", [None, float("nan"), float("inf"), float("-inf")])
def test_a_missing_value_is_a_gap(gap):
    lines, _ = lines_of(draw(a_set([1.0, 2.0, gap, 3.0, gap, gap, 4.0]))["data"])
    assert [len(line) for line in lines] == [2, 1, 1]


def test_a_flat_line_is_in_the_middle():
    lines, texts = lines_of(draw(a_set([7.0, 7.0]), height=485)["data"])
    assert {y for _, y in lines[0]} == {TOP + 200}
    assert "7" in texts


@pytest.mark.parametrize("values", [[], None, [None], [float("nan")]])
def test_sets_without_points(values):
    lists = a_set(values or [])
    if values is None:
        lists |= {"times": None, "value": None, "analytic": None}
    for form in ("svg", "png"):
        assert draw(lists, format=form)["data"]
    assert lines_of(draw(lists)["data"])[0] == []


def test_a_point_without_time_is_left_out():
    lines, _ = lines_of(draw(a_set([1.0, 9.0, 2.0], seconds=[5, None, 6]))["data"])
    assert len(lines) == 1 and len(lines[0]) == 2 and lines[0][0][0] == LEFT
    assert lines_of(draw(a_set([1.0], seconds=[None]))["data"])[0] == []


ODD = ["ü 漢字 🙂", "<script>&\"'", "$\\frac{1}$", "_hidden", "\x00\x07\ufffe", ""]


@pytest.mark.parametrize("label", ODD)
def test_any_label(label):
    one = a_set([1.0, 2.0], [label, label], sensor=label)
    row = draw(one)
    _, texts = lines_of(row["data"])
    shown = "".join("\ufffd" if c in "\x00\x07\ufffe" else c for c in label)
    assert (texts[-1] or "") == shown
    assert "/" not in row["name"] and "\x00" not in row["name"]
    assert draw(one, format="png")["data"].startswith(b"\x89PNG")


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=20))
def test_any_values(values):
    lines, texts = lines_of(draw(a_set(values), width=200, height=150)["data"])
    finite = [v for v in values if v is not None and np.isfinite(v)]
    assert sum(map(len, lines)) == len(finite)
    assert all(85 <= x <= 180 and 40 <= y <= 105 for line in lines for x, y in line)
    assert not any("nan" in (t or "") for t in texts)


@pytest.mark.parametrize("values", [[1.0, None, 3.0, 2.0], [1e308, -1e308], [5e-324, 1e-310], [4.0]])
def test_png_pictures(values):
    from matplotlib.image import imread

    row = draw(a_set(values), format="png", width=400, height=300)
    assert row["name"] == "s~t~0.png"
    assert row["data"] == draw(a_set(values), format="png", width=400, height=300)["data"]
    import io

    pixels = imread(io.BytesIO(row["data"]))
    assert pixels.shape[:2] == (300, 400)
    blue = (pixels[..., 2] > 0.8) & (pixels[..., 0] < 0.4)
    assert blue[40:255, 85:380].sum() > 10  # the line is there
    assert draw(a_set([]), format="png", width=400, height=300)["data"] != row["data"]


def test_png_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"riot_ops\[plot\]"):
        draw(a_set([1.0]), format="png")


def test_lists_of_different_length_are_rejected():
    session = MultiLinePlot().session()
    assert session.push({**a_set([1.0, 2.0]), "value": [1.0]}) == []
    assert session.errors[0]["reason"] == "unequal_lists"
    assert session.errors[0]["message"] == "the lists times, value, analytic have 2, 1, 2 values"


def test_slices_of_a_batch():
    """Lists of a slice begin anywhere in their values."""
    task = MultiLinePlot(line=None)
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
    gathered = flow.source("in", schema=table.schema).to(Accumulator(size=5, partial=True), id="gather")
    flow.sink("out", gathered.to(MultiLinePlot(width=300, height=200), id="chart"))
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
        MultiLinePlot(**wrong)


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
    assert MultiLinePlot().output_schema(good).names == ["sensor_id", "obs_type", "name", "data"]
    for name, kind, match in (
        ("value", pa.float64(), "needs a list in the field 'value'"),
        ("value", pa.list_(pa.string()), "needs numbers in the lists of 'value'"),
        ("times", pa.list_(pa.int64()), "needs timestamps in the lists of 'times'"),
    ):
        with pytest.raises(ConfigError, match=match):
            MultiLinePlot().output_schema(good.set(good.get_field_index(name), pa.field(name, kind)))
