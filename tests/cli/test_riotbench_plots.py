"""Plots of STATS and PRED: the data on the axes, and in the file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from riot_ops.cli import riotbench_plots
from riot_ops.cli.feed import Feed
from riot_ops.cli.riotbench_plots import draw_errors, draw_sensor
from tests.drawn_images import decode, shows

pytest.importorskip("matplotlib")


@pytest.fixture
def axes(monkeypatch):
    """The axes that were drawn."""
    found = []
    save_figure = riotbench_plots.save_figure

    def record(figure, drawn, path):
        save_figure(figure, drawn, path)
        found.append(drawn)

    monkeypatch.setattr(riotbench_plots, "save_figure", record)
    return found


def recorded(tmp_path, values, step_s=60):
    """A file of one sensor's temperatures; None is a reading that is missing."""
    lines = []
    for i, value in enumerate(values):
        entries = [{"n": "source", "sv": "s1"}, {"n": "temperature", "v": value}]
        lines.append(f"{i * step_s * 1000}," + json.dumps({"e": entries, "bt": i * step_s * 1000}))
    path = tmp_path / "city.csv"
    path.write_text("\n".join(lines))
    return Feed("city", 1, 1, input=path)


def line(axes, label):
    return next(one for one in axes.get_lines() if str(one.get_label()).startswith(label))


def minutes(one):
    """Times of a line in minutes since the epoch."""
    return np.asarray(one.get_xdata(), "datetime64[s]").astype(np.int64) / 60


def test_outlier_is_marked_and_does_not_flatten_the_readings(tmp_path, axes):
    values = [20.0 + i % 5 for i in range(60)]
    values[30], values[40], values[41] = 900.0, -300.0, -200.0
    feed = recorded(tmp_path, values)
    assert draw_sensor(tmp_path / "stats.png", feed.schema, feed.parsed)
    (drawn,) = axes
    pixels = decode(tmp_path / "stats.png")
    assert all(shows(pixels, one.get_color()) for one in drawn.get_lines())
    low, high = drawn.get_ylim()
    assert 10 < low < 20 and 24 < high < 36
    above, below = line(drawn, "1 above the axis, up to 900"), line(drawn, "2 below the axis, up to -300")
    assert minutes(above).tolist() == [30]
    assert minutes(below).tolist() == [40, 41]
    assert list(above.get_ydata()) == [high] and list(below.get_ydata()) == [low, low]
    assert drawn.get_ylabel() == "temperature (°C)"
    assert "s1" in drawn.get_title()
    assert np.asarray(line(drawn, "read").get_ydata()).tolist() == values


def test_impossible_readings_disturb_neither_line_nor_predictions(tmp_path, axes):
    """The same readings with and without three of them: what is drawn of the others is the same."""
    values = [20.0 + i % 5 for i in range(60)]
    wrong = {15: 123.4, 30: -99.0, 45: -99.2}
    for name, given in (("clean", {i: None for i in wrong}), ("wrong", wrong)):
        feed = recorded(tmp_path, [given.get(i, value) for i, value in enumerate(values)])
        assert draw_sensor(tmp_path / f"{name}.png", feed.schema, feed.parsed)
    clean, drawn = axes
    assert np.array_equal(line(clean, "smoothed").get_ydata(), line(drawn, "smoothed").get_ydata())
    assert len(line(drawn, "smoothed").get_ydata()) == 57
    predicted = [
        [np.asarray(one.get_ydata())[1:] for one in ax.get_lines() if one.get_markevery() == [0]] for ax in axes
    ]
    assert predicted[0] and all(map(np.array_equal, *predicted))
    assert line(drawn, "smoothed").get_label() == "smoothed (KAL); without impossible readings"
    assert line(drawn, "1 above the axis, up to 123.4, left out")
    assert line(drawn, "2 below the axis, up to -99.2, left out")


def test_readings_of_a_field_without_a_valid_range_are_all_used(tmp_path, axes):
    feed = recorded(tmp_path, [20.0 + i % 5 if i != 30 else 900.0 for i in range(60)])
    schema = replace(feed.schema, bounds={})
    assert draw_sensor(tmp_path / "stats.png", schema, feed.parsed)
    assert len(line(axes[0], "smoothed").get_ydata()) == 60
    assert line(axes[0], "1 above").get_label() == "1 above the axis, up to 900"


def test_predictions_begin_at_the_time_of_their_reading(tmp_path, axes):
    feed = recorded(tmp_path, [5 + i / 2 for i in range(60)])
    assert draw_sensor(tmp_path / "stats.png", feed.schema, feed.parsed)
    (drawn,) = axes
    smooth = line(drawn, "smoothed")
    predicted = [one for one in drawn.get_lines() if one.get_markevery() == [0]]
    assert len(predicted) == 2, "one at every 25th reading with a prediction"
    for one, made in zip(predicted, (33, 58), strict=True):
        assert minutes(one).tolist() == list(range(made, made + 11))
        assert one.get_ydata()[0] == smooth.get_ydata()[made]
        # on a straight line the regression is the line itself, once the filter follows it
        assert np.diff(one.get_ydata()[1:]) == pytest.approx(0.5, abs=0.05)
        assert one.get_ydata()[10] == pytest.approx(5 + (made + 10) / 2, abs=1.5)


def test_missing_readings_are_left_out(tmp_path, axes):
    feed = recorded(tmp_path, [None if i % 3 == 0 else 20.0 + i for i in range(30)])
    assert draw_sensor(tmp_path / "stats.png", feed.schema, feed.parsed)
    assert len(line(axes[0], "read").get_ydata()) == 20


@pytest.mark.parametrize(("n", "drawn"), [(11, False), (12, True)])
def test_plot_needs_twelve_readings(tmp_path, n, drawn):
    feed = recorded(tmp_path, [20.0 + i for i in range(n)])
    assert draw_sensor(tmp_path / "stats.png", feed.schema, feed.parsed) == drawn
    assert (tmp_path / "stats.png").exists() == drawn


def test_median_errors_are_drawn_by_model_over_seconds(tmp_path, axes):
    medians = np.tile(np.linspace(0.2, 0.8, 12), 10)  # one per window of ten
    errors = np.repeat(medians, 10) + np.tile([-0.1, -0.05, 0, 0, 0, 0, 0, 0, 0.05, 0.1], 120)
    errors[300:310] = 90.0
    errors[400:404] = np.nan
    models = ["first$_1$"] * 600 + ["second"] * 600
    draw_errors(tmp_path / "learn.png", np.arange(1200) / 100, errors, models)
    (drawn,) = axes
    pixels = decode(tmp_path / "learn.png")
    assert all(shows(pixels, one.get_color()) for one in drawn.get_lines())
    first, second = line(drawn, "first$_1$"), line(drawn, "second")
    assert (min(first.get_xdata()), max(first.get_xdata())) == (0.05, 5.95)
    assert (min(second.get_xdata()), max(second.get_xdata())) == (6.05, 11.95)
    assert second.get_ydata() == pytest.approx(medians[60:])
    assert first.get_ydata()[30] == 90.0
    assert drawn.get_title() == "PRED: median relative error, by model (1 beyond the axis)"
    assert drawn.get_ylim()[1] < 2
    assert "second" in drawn.get_xlabel()
    assert drawn.get_legend() is None, "the legend is outside of the axes"
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == ["first$_1$", "second"]


def test_errors_without_numbers_are_drawn_as_gaps(tmp_path, axes):
    draw_errors(tmp_path / "learn.png", np.arange(240.0), np.full(240, np.nan), ["a"] * 240)
    assert np.isnan(line(axes[0], "a").get_ydata()).all()
