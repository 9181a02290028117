"""Plots of scores and predictions show the results."""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.cli.result_plots.sample_results import draw, lines, rewrite


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
    assert next(iter(lines(lower).values())) == [50, 0, 0]  # until the end of the picture


def test_last_prediction_of_a_time_counts(results):
    def predicted_twice(table):
        of_house = table.filter(pc.is_null(table["household_id"])).take([0, 0])
        place = of_house.schema.get_field_index("predicted_load")
        again = of_house.set_column(place, "predicted_load", [[90.0, 30.0]])
        return again.set_column(again.schema.get_field_index("seq"), "seq", [[0, 1]])

    found = results("smart_grid")
    rewrite(found, "predictions", predicted_twice)
    assert lines(draw("smart_grid", found)[0])["predicted"] == [30]


def test_house_without_shares_has_no_empty_panel(results):
    found = results("smart_grid")
    rewrite(found, "outliers", lambda table: table.slice(0, 0))
    [axes] = draw("smart_grid", found)
    assert axes.figure.axes == [axes]


@pytest.mark.parametrize(("wider", "widths"), [(1, (5, 9)), (10, (11, 12)), (0.01, (5, 6))])
def test_map_fills_its_picture(wider, widths, results):
    def moved(table):
        place = table.schema.get_field_index("longitude")
        return table.set_column(place, "longitude", pc.multiply(table["longitude"], wider))

    found = results("traffic_monitoring")
    rewrite(found, "speeds", moved)
    width, height = draw("traffic_monitoring", found)[0].figure.get_size_inches()
    assert widths[0] <= width <= widths[1]
    assert height == 6.5


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
