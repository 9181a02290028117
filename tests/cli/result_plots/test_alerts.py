"""Plots of anomalies show the results and the data around them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from riot_ops.cli.result_plots import Results
from tests.cli.result_plots.sample_results import draw, lines, rewrite


def test_load_of_alerted_machines_is_drawn_among_all(results):
    (axes,) = draw("machine_outlier", results("machine_outlier"))
    assert lines(axes)["all machines"] == [10, 12, 11, 95]
    assert lines(axes)["m2"] == [12, 95]
    assert axes.get_title() == "Processor load, 1 alerts (triangles: the first of each series)"


def test_scores_of_outliers_are_drawn_by_customer(results):
    (axes,) = draw("fraud_detection", results("fraud_detection"))
    assert lines(axes) == {"outliers": [0.97, 0.98, 0.99], "ann": [0.97, 0.99], "bob": [0.98]}


def test_purchases_of_a_customer_are_not_joined(results):
    (axes,) = draw("fraud_detection", results("fraud_detection"))
    assert {line.get_linestyle() for line in axes.lines} == {"None"}


def test_marks_of_alerts_are_within_the_axes(results):
    (axes,) = draw("machine_outlier", results("machine_outlier"))
    [marks] = [line for line in axes.lines if line.get_marker() == "v"]
    assert len(marks.get_xdata()) == 1
    assert 95 < marks.get_ydata()[0] < axes.get_ylim()[1]
    assert axes.get_xlabel() == ""


def test_times_of_a_trace_are_hours_instead_of_1970(results):
    found = results("machine_outlier")
    usage = found.parsed("usage")
    old = pa.array([datetime(1970, 1, 2, hour, tzinfo=UTC) for hour in range(usage.num_rows)], usage["event_time"].type)
    place = usage.schema.get_field_index("event_time")
    trace = Results(found.folder, lambda _: usage.set_column(place, "event_time", old))
    (axes,) = draw("machine_outlier", trace)
    assert axes.get_xlabel() == "hours since the beginning of the trace"
    [every] = [line for line in axes.lines if line.get_label() == "all machines"]
    assert list(every.get_xdata()) == [24, 25, 26, 27]


def test_series_of_alerts_has_one_mark(results):
    def repeated(table):
        first = table["timestamp"][0].as_py()
        times = [first + timedelta(minutes=m) for m in (0, 1, 2, 30, 31)]
        place = table.schema.get_field_index("timestamp")
        return table.take([0] * 5).set_column(place, "timestamp", pa.array(times, table["timestamp"].type))

    found = results("machine_outlier")
    rewrite(found, "alerts", repeated)
    (axes,) = draw("machine_outlier", found)
    assert [len(line.get_xdata()) for line in axes.lines if line.get_marker() == "v"] == [2]


def test_spikes_are_within_the_axes(results):
    (axes,) = draw("spike_detection", results("spike_detection"))
    assert lines(axes) == {"readings of device 1": [20, 30], "spikes": [30], "moving average at the spikes": [20.2]}
    assert axes.get_ylim()[1] > 30


def test_bargains_are_marked_on_the_price(results):
    (axes,) = draw("bargain_index", results("bargain_index"))
    assert lines(axes) == {"price of A": [10, 9]}
    assert axes.collections[0].get_offsets()[:, 1].tolist() == [9]


def test_callers_are_drawn_at_mean_score_and_calls(results):
    (axes,) = draw("voip_stream", results("voip_stream"))
    assert axes.collections[0].get_offsets().tolist() == [[10, 5], [1, 1]]
    assert [text.get_text() for text in axes.texts] == ["highest with 10 calls or more\n1: 5.00"]


def test_delays_and_alarms_are_in_milliseconds(results):
    (axes,) = draw("equipment_monitoring", results("equipment_monitoring"))
    assert lines(axes) == {"p": [2], "q": [4], "q, alarm": [4]}
