"""Plots of counts show the counts of the results."""

from __future__ import annotations

from tests.cli.result_plots.sample_results import bars, draw, lines


def test_lines_of_words_are_their_counts(results):
    (axes,) = draw("word_count", results("word_count"))
    assert lines(axes) == {"a": [1, 2], "b": [1]}
    assert [axes.get_lines()[0].get_xdata().tolist(), axes.get_title()] == [
        [0, 2],
        "Counts of the 2 most frequent of 2 words",
    ]


def test_requests_are_drawn_by_minute_status_and_country(results):
    left, middle, right = draw("log_processing", results("log_processing"))
    assert next(iter(lines(left).values())) == [2, 1]
    assert bars(middle) == {"200": 2, "404": 1}
    assert bars(right) == {"Italy": 2}


def test_visits_are_drawn_with_first_visits_and_countries(results):
    left, right = draw("click_analytics", results("click_analytics"))
    assert lines(left) == {"visits": [1, 2, 3], "first visits": [1, 1, 2]}
    assert bars(right) == {"India": 2}


def test_lines_of_topics_are_their_counts(results):
    (axes,) = draw("trending_topics", results("trending_topics"))
    assert lines(axes) == {"#a": [5, 6], "#b": [3]}


def test_views_are_averaged_over_campaigns(results):
    (axes,) = draw("yahoo_streaming", results("yahoo_streaming"))
    assert lines(axes) == {"mean of the campaigns": [4, 4]}
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (3, 5), "the range over the campaigns"


def test_click_rates_are_the_last_of_each_pair(results):
    (axes,) = draw("ads_analytics", results("ads_analytics"))
    assert axes.collections[0].get_offsets().tolist() == [[4, 25], [10, 10]]


def test_distinct_values_and_extremes_are_drawn_over_the_stream(results):
    [axes] = draw("distinct", results("distinct"))
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[0, 1], [1, 2]]]
    [axes] = draw("statistics", results("statistics"))
    found = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert found == {"max": [5, 5], "mean": [5, 4], "min": [5, 3]}
