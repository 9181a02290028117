"""Plots of anomalies show the results and the data around them."""

from __future__ import annotations

from tests.cli.result_plots.sample_results import draw, lines


def test_load_of_alerted_machines_is_drawn_among_all(results):
    (axes,) = draw("machine_outlier", results("machine_outlier"))
    assert lines(axes)["all machines"] == [10, 12, 11, 95]
    assert lines(axes)["m2"] == [12, 95]
    assert axes.get_title() == "Processor load, 1 alerts (triangles)"


def test_scores_of_outliers_are_drawn_by_customer(results):
    (axes,) = draw("fraud_detection", results("fraud_detection"))
    assert lines(axes) == {"outliers": [0.97, 0.98, 0.99], "ann": [0.97, 0.99], "bob": [0.98]}


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
