"""Plots of scores and predictions show the results."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.cli.result_plots.sample_results import draw, lines


def test_messages_are_counted_by_score(results):
    left, right = draw("sentiment_analysis", results("sentiment_analysis"))
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in left.patches}
    assert heights == {-1: 1, 2: 1, 4: 1}
    assert next(iter(lines(right).values())) == [pytest.approx(5 / 3)]


def test_messages_are_counted_by_spam_probability(results):
    (axes,) = draw("spam_filter", results("spam_filter"))
    counts = {round(float(bar.get_x()), 3): float(bar.get_height()) for bar in axes.patches if bar.get_height()}
    assert counts == {0.0: 1, 0.975: 1}
    assert [text for _, text in zip(*axes.get_legend_handles_labels(), strict=True)] == ["no spam: 1", "spam: 1"]


def test_positions_have_the_last_speed_of_their_road(results):
    axes = draw("traffic_monitoring", results("traffic_monitoring"))[0]
    assert axes.collections[0].get_array().tolist() == [40, 50, 40]
    assert axes.collections[0].get_offsets().tolist() == [[116.2, 39.9], [116.3, 39.8], [116.25, 39.9]]


def test_actions_are_stacked_by_their_share(results):
    (axes,) = draw("reinforcement_learner", results("reinforcement_learner"))
    assert [one.get_label() for one in axes.collections] == ["page1", "page2"]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 25


def test_measured_load_is_the_sum_of_the_plugs_means(results):
    upper, lower = draw("smart_grid", results("smart_grid"))
    assert lines(upper) == {"measured": [20], "predicted": [30]}  # (10 + 20) / 2 + 5
    assert next(iter(lines(lower).values())) == [50, 0]


def test_attacks_are_drawn_with_a_confusion_matrix(results, tmp_path):
    found = results("threat")
    [axes] = draw("threat", found)
    assert {line.get_label() for line in axes.lines} == {"dos: 1", "scan: 1"}
    [counts, *_] = [one for one in axes.figure.axes if one is not axes]
    assert [text.get_text() for text in counts.texts] == ["1", "0", "0", "1", "1", "0", "0", "0", "1"]
    assert counts.get_title() == "75.0 % correct"


def test_attacks_without_labels_have_no_confusion_matrix(results):
    found = results("threat")
    for file in (found.folder / "threats").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["label"]), file)
    [axes] = draw("threat", found)
    assert axes.figure.axes == [axes] and axes.get_title() == "2 of 4 flows classified as attacks"
