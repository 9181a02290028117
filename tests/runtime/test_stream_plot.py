"""Line plots of streams: what is drawn, compared with the records."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, MissingExtraError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import dates  # noqa: E402

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIELDS = {"room": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double"}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def _readings(*rows):
    return [{"room": room, "event_time": START + timedelta(minutes=m), "value": v} for room, m, v in rows]


def _result(rows, fields=FIELDS, keyed=True):
    flow = ro.Dataflow("rooms")
    readings = flow.source("readings", fields)
    stream = readings.key_by("room").apply(t.MovingAverage(window=1), id="avg") if keyed else readings
    stream.to("out")
    return flow.run(rows)


def _drawn(ax):
    return {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in ax.lines}


def test_line_per_key_has_the_records_in_order_of_time():
    ax = _result(_readings(("hall", 0, 20.0), ("attic", 1, 30.0), ("hall", 3, 21.0), ("hall", 2, 22.0))).plot()
    minutes = [(START + timedelta(minutes=m)).replace(tzinfo=None) for m in range(4)]
    assert {label: line.get_xdata().tolist() for label, line in zip(("hall", "attic"), ax.lines, strict=True)} == {
        "hall": [minutes[m] for m in (0, 2, 3)],
        "attic": [minutes[1]],
    }
    assert [line.get_ydata().tolist() for line in ax.lines] == [[20.0, 22.0, 21.0], [30.0]]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("event time (UTC)", "value", "avg")
    legend = ax.get_legend()
    assert (legend.get_title().get_text(), [one.get_text() for one in legend.get_texts()]) == (
        "room",
        ["hall", "attic"],
    )
    assert isinstance(ax.xaxis.get_major_formatter(), dates.ConciseDateFormatter)
    ax.figure.canvas.draw()


def test_null_is_a_gap_of_the_line():
    ax = _result(_readings(("hall", 0, 20.0), ("hall", 1, None), ("hall", 2, 21.0)), keyed=False).plot()
    assert np.isnan(ax.lines[0].get_ydata()).tolist() == [False, True, False]


def test_max_lines_keeps_the_keys_with_most_records():
    rows = _readings(("a", 0, 1.0), ("b", 1, 1.0), ("c", 2, 1.0), ("c", 3, 1.0), ("b", 4, 1.0), ("c", 5, 1.0))
    ax = _result(rows).plot(max_lines=2)
    assert list(_drawn(ax)) == ["b", "c"]
    assert ax.get_title() == "avg: 2 of 3 keys"
    with pytest.raises(ConfigError, match="max_lines"):
        _result(rows).plot(max_lines=0)


def test_by_replaces_the_key_of_the_stream():
    result = _result(_readings(("a", 0, 1.0), ("b", 1, 2.0)))
    assert [line.get_ydata().tolist() for line in result.plot(by=()).lines] == [[1.0, 2.0]]
    assert result.plot(by=()).get_legend() is None
    assert list(_drawn(result.plot(by=("room", "count")))) == ["a, 1", "b, 1"]
    with pytest.raises(ConfigError, match=r"by = 'rooom' is no field .* did you mean \"room\""):
        result.plot(by="rooom")


def test_value_is_the_named_field_or_the_first_of_floating_point():
    fields = {"n": "int64", "level": "double", "depth": "double"}
    result = _result([{"n": 1, "level": 2.5, "depth": 3.5}], fields, keyed=False)
    assert _drawn(result.plot()) == {"level": ([0.0], [2.5])}
    assert _drawn(result.plot("readings", "depth")) == {"depth": ([0.0], [3.5])}
    with pytest.raises(ConfigError, match=r"value = 'deph' is no field of the stream 'readings'"):
        result.plot(value="deph")


@pytest.mark.parametrize(
    ("dtype", "values", "drawn"),
    [
        ("int64", [1, 2], [1.0, 2.0]),
        ("bool", [True, False], [1.0, 0.0]),
        ("decimal128(5, 2)", ["1.25", "2.50"], [1.25, 2.5]),
    ],
)
def test_numbers_of_any_type_are_drawn(dtype, values, drawn):
    result = _result([{"level": value} for value in values], {"level": dtype}, keyed=False)
    if dtype.startswith("decimal"):
        result = _result(pa.table({"level": pa.array(values).cast(pa.decimal128(5, 2))}), {"level": dtype}, keyed=False)
    assert result.plot().lines[0].get_ydata().tolist() == drawn


def test_stream_without_numbers_is_refused_with_its_fields():
    with pytest.raises(ConfigError, match=r"no field with numbers; its fields are seq \(int64\), word \(string\)"):
        _result([{"word": "a"}], {"word": "string"}, keyed=False).plot()
    with pytest.raises(ConfigError, match="value = 'word' must have numbers"):
        _result([{"word": "a"}], {"word": "string"}, keyed=False).plot(value="word")


def test_records_without_time_are_drawn_over_their_numbers():
    ax = _result([{"level": 1.0}, {"level": 4.0}], {"level": "double"}, keyed=False).plot()
    assert (_drawn(ax), ax.get_xlabel()) == ({"level": ([0.0, 1.0], [1.0, 4.0])}, "number of the record (seq)")


def test_time_names_the_field_of_the_horizontal_axis():
    rows = [{"level": 1.0, "depth": 7}, {"level": 2.0, "depth": 3}]
    result = _result(rows, {"level": "double", "depth": "int64"}, keyed=False)
    ax = result.plot(value="level", time="depth")
    assert (_drawn(ax)["level"], ax.get_xlabel()) == (([3.0, 7.0], [2.0, 1.0]), "depth")
    with pytest.raises(ConfigError, match=r"time = 'dpth' is no field"):
        result.plot(time="dpth")


def test_label_of_values_has_the_unit_of_the_field_or_the_given_text():
    flow = ro.Dataflow("rooms")
    schema = pa.schema([pa.field("level", pa.float64(), metadata={"unit": "mm"})])
    flow.source("readings", schema).to("out")
    result = flow.run([{"level": 1.0}])
    assert result.plot().get_ylabel() == "level (mm)"
    assert result.plot(y_label="water (cm)").get_ylabel() == "water (cm)"


def test_ax_is_drawn_on_and_returned():
    _, ax = plt.subplots()
    assert _result(_readings(("a", 0, 1.0))).plot(ax=ax) is ax
    assert len(ax.lines) == 1


def test_stream_is_needed_where_there_are_several():
    flow = ro.Dataflow("two")
    readings = flow.source("readings", {"value": "double"})
    flow.sink("out", readings, readings.apply(t.KalmanFilter(), id="kalman"))
    result = flow.run([{"value": 1.0}])
    with pytest.raises(ConfigError, match="more than one: 'readings', 'kalman'"):
        result.plot()
    assert result.plot("readings").get_title() == "readings"
    with pytest.raises(KeyError, match=r"no stream .*kalmann"):
        result.plot("kalmann")


def test_stream_without_records_says_so():
    ax = _result([]).plot()
    assert not ax.lines
    assert [text.get_text() for text in ax.texts] == ["no records"]


def test_names_from_outside_are_drawn_as_text():
    ax = _result(_readings(("$x^{$", 0, 1.0), ("_hidden", 0, 2.0), ("a\nb" + "c" * 99, 0, 3.0), (None, 0, 4.0))).plot()
    texts = [one.get_text() for one in ax.get_legend().get_texts()]
    assert texts == ["$x^{$", "_hidden", "a\\nb" + "c" * 35 + "…", "null"]
    ax.figure.canvas.draw()  # would raise for a formula that is not closed


def test_long_line_keeps_its_peaks():
    values = [0.0] * 20_000
    values[12_345], values[777] = 9.0, -9.0
    ax = _result([{"level": value} for value in values], {"level": "double"}, keyed=False).plot()
    drawn = dict(zip(*_drawn(ax)["level"], strict=True))
    assert len(drawn) <= 5_000
    assert (drawn[12_345.0], drawn[777.0]) == (9.0, -9.0)


def test_run_in_the_background_plots_too():
    flow = ro.Dataflow("rooms")
    flow.source("readings", {"value": "double"}).to("out")
    run = flow.launch([{"value": 1.0}])
    run.wait()
    assert _drawn(run.plot()) == {"value": ([0.0], [1.0])}


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    result = _result(_readings(("a", 0, 1.0)))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr(matplotlib, "pyplot", raising=False)
    with pytest.raises(MissingExtraError, match=r"plotting a stream .*riot-ops\[plot\]"):
        result.plot()
