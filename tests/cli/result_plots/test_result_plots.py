"""The pictures of what applications found: what is on the axes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from riot_ops.cli import result_plots
from riot_ops.cli.figure import new_figure
from riot_ops.cli.result_plots.results import downsample, most_frequent
from riot_ops.dataflows import APPLICATIONS

pytest.importorskip("matplotlib")

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(*seconds):
    return pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC"))


def numbers(n):
    return list(range(n))


#: By application its streams and the records of its sources.
FOUND = {
    "wordcount": ({"counts": {"word": ["a,", "b", "a,"], "count": [1, 1, 2]}}, {}),
    "distinct": ({"sizes": {"value": ["7", "8"], "count": [1, 2]}}, {}),
    "statistics": (
        {"figures": {"count": [1, 2], "min": [5.0, 3.0], "max": [5.0, 5.0], "sum": [5.0, 8.0], "mean": [5.0, 4.0]}},
        {},
    ),
    "threat": ({"threats": {"class_index": [0, 1, 0, 2], "label": [0.0, 1.0, 1.0, 2.0]}}, {}),
    "word_count": ({"counts": {"word": ["a", "b", "a"], "count": [1, 1, 2]}}, {}),
    "log_processing": (
        {
            "volume": {"minute": at(0, 0, 60), "count": [1, 2, 1]},
            "status": {"response": [200, 404, 200], "count": [1, 1, 2]},
            "countries": {"country": ["Italy", "Italy"], "country_total": [1, 2]},
        },
        {},
    ),
    "click_analytics": (
        {
            "visits": {"total_count": [1, 2, 3], "total_unique": [1, 1, 2]},
            "locations": {"country": ["India", "India"], "country_total": [1, 2]},
        },
        {},
    ),
    "trending_topics": (
        {
            "rankings": {
                "tick_time": at(2, 2, 4),
                "rank": [1, 2, 1],
                "topic": ["#a", "#b", "#a"],
                "count": [5, 3, 6],
            }
        },
        {},
    ),
    "ads_analytics": (
        {"ctr": {"query_id": [1, 1, 2], "ad_id": [7, 7, 8], "ctr": [0.5, 0.25, 0.1], "impressions": [2, 4, 10]}},
        {},
    ),
    "yahoo_streaming": (
        {"campaigns": {"window_start": at(0, 0, 10), "campaign_id": ["x", "y", "x"], "count": [3, 5, 4]}},
        {},
    ),
    "machine_outlier": (
        {"alerts": {"machine_id": ["m2"], "timestamp": at(60), "stream_score": [16.0]}},
        {"usage": {"event_time": at(0, 0, 60, 60), "machine_id": ["m1", "m2"] * 2, "cpu": [10.0, 12.0, 11.0, 95.0]}},
    ),
    "fraud_detection": ({"outliers": {"entity_id": ["ann", "bob", "ann"], "score": [0.97, 0.98, 0.99]}}, {}),
    "spike_detection": (
        {"spikes": {"device_id": ["1"], "value": [30.0], "moving_average": [20.2]}},
        {"sensors": {"seq": [0, 1, 2], "device_id": ["1", "1", "2"], "value": [20.0, 30.0, 5.0]}},
    ),
    "bargain_index": (
        {"bargains": {"stock": ["A"], "price": [9.0], "bargain_index": [700.0], "event_time": at(60)}},
        {"trades": {"event_time": at(0, 60), "stock": ["A", "A"], "price": [10.0, 9.0]}},
    ),
    "voip_stream": ({"scores": {"caller": ["1"] * 10 + ["2"], "score": [5.0] * 10 + [1.0]}}, {}),
    "equipment_monitoring": (
        {
            "delays": {"pair": ["p", "q"], "ts": [10**18, 10**18 + 10**9], "delay": [2_000_000, 4_000_000]},
            "alarms": {"pair": ["q"], "ts": [10**18 + 10**9], "delay": [4_000_000]},
        },
        {},
    ),
    "sentiment_analysis": (
        {"sentiment": {"sentiment": ["Positive", "Negative", "Positive"], "score": [2.0, -1.0, 4.0]}},
        {},
    ),
    "spam_filter": ({"results": {"spam_probability": [0.01, 0.99], "is_spam": [False, True]}}, {}),
    "traffic_monitoring": (
        {
            "speeds": {
                "road_id": [1, 2, 1],
                "average_speed": [30.0, 50.0, 40.0],
                "latitude": [39.9, 39.8, 39.9],
                "longitude": [116.2, 116.3, 116.25],
            }
        },
        {},
    ),
    "reinforcement_learner": ({"actions": {"action": ["page1", "page2", "page2", "page2"]}}, {}),
    "smart_grid": (
        {
            "predictions": {
                "timestamp": at(120, 120),
                "house_id": [0, 0],
                "household_id": pa.array([None, 1], pa.int64()),
                "predicted_load": [30.0, 10.0],
            },
            "outliers": {"window_end": at(0, 60), "house_id": [0, 0], "percentage": [50.0, 0.0]},
        },
        {
            "readings": {
                "event_time": at(0, 30, 30, 30),
                "house_id": [0, 0, 0, 0],
                "household_id": [1, 1, 2, 2],
                "plug_id": [1, 1, 1, 1],
                "property": [1, 1, 1, 0],
                "value": [10.0, 20.0, 5.0, 99.0],
            }
        },
    ),
}


@pytest.fixture
def results(tmp_path):
    def made(name):
        streams, parsed = FOUND[name]
        for stream, columns in streams.items():
            table = pa.table(columns)
            (tmp_path / stream).mkdir()
            # in two files, of which the later one comes first by its rows
            table = table.append_column("seq", pa.array(numbers(table.num_rows), pa.int64()))
            pq.write_table(table.slice(1), tmp_path / stream / "a.parquet")
            pq.write_table(table.slice(0, 1), tmp_path / stream / "b.parquet")
        return result_plots.Results(tmp_path, lambda source: pa.table(parsed[source]))

    return made


def drawn(name, results):
    return result_plots.PLOTS[name](new_figure(), results)


def lines(axes):
    return {line.get_label(): np.asarray(line.get_ydata(), float).tolist() for line in axes.get_lines()}


def bars(axes):
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    return {ticks[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width() for bar in axes.patches}


def test_all_applications_have_a_picture():
    passed_on = {"identity", "sample", "projection", "grep"}
    wanted = {name for name, one in APPLICATIONS.items() if one.suite != "riotbench"} - passed_on
    assert wanted <= set(result_plots.PLOTS)
    assert set(FOUND) == set(result_plots.PLOTS)


@pytest.mark.long
@pytest.mark.parametrize("name", FOUND)
def test_a_picture_is_a_file(name, results, tmp_path):
    assert result_plots.draw(name, results(name), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", FOUND)
def test_without_results_there_is_no_picture(name, tmp_path):
    nothing = {source: pa.table({f: pa.nulls(0) for f in columns}) for source, columns in FOUND[name][1].items()}
    assert not result_plots.draw(name, result_plots.Results(tmp_path, nothing.__getitem__), tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_counts(results):
    (axes,) = drawn("word_count", results("word_count"))
    assert lines(axes) == {"a": [1, 2], "b": [1]}
    assert [axes.get_lines()[0].get_xdata().tolist(), axes.get_title()] == [
        [0, 2],
        "Counts of the 2 most frequent of 2 words",
    ]


def test_log(results):
    left, middle, right = drawn("log_processing", results("log_processing"))
    assert next(iter(lines(left).values())) == [2, 1]
    assert bars(middle) == {"200": 2, "404": 1}
    assert bars(right) == {"Italy": 2}


def test_visits(results):
    left, right = drawn("click_analytics", results("click_analytics"))
    assert lines(left) == {"visits": [1, 2, 3], "first visits": [1, 1, 2]}
    assert bars(right) == {"India": 2}


def test_topics_and_campaigns(results):
    (axes,) = drawn("trending_topics", results("trending_topics"))
    assert lines(axes) == {"#a": [5, 6], "#b": [3]}


def test_campaigns(results):
    (axes,) = drawn("yahoo_streaming", results("yahoo_streaming"))
    assert lines(axes) == {"mean of the campaigns": [4, 4]}


def test_rates_are_the_last_of_each_pair(results):
    (axes,) = drawn("ads_analytics", results("ads_analytics"))
    assert axes.collections[0].get_offsets().tolist() == [[4, 25], [10, 10]]


def test_machines(results):
    (axes,) = drawn("machine_outlier", results("machine_outlier"))
    assert lines(axes)["all machines"] == [10, 12, 11, 95]
    assert lines(axes)["m2"] == [12, 95]
    assert axes.get_title() == "Processor load, 1 alerts (triangles)"


def test_purchases(results):
    (axes,) = drawn("fraud_detection", results("fraud_detection"))
    assert lines(axes) == {"outliers": [0.97, 0.98, 0.99], "ann": [0.97, 0.99], "bob": [0.98]}


def test_spikes_are_on_the_axes(results):
    (axes,) = drawn("spike_detection", results("spike_detection"))
    assert lines(axes) == {"readings of device 1": [20, 30], "spikes": [30], "moving average at the spikes": [20.2]}
    assert axes.get_ylim()[1] > 30


def test_bargains(results):
    (axes,) = drawn("bargain_index", results("bargain_index"))
    assert lines(axes) == {"price of A": [10, 9]}
    assert axes.collections[0].get_offsets()[:, 1].tolist() == [9]


def test_callers(results):
    (axes,) = drawn("voip_stream", results("voip_stream"))
    assert axes.collections[0].get_offsets().tolist() == [[10, 5], [1, 1]]
    assert [text.get_text() for text in axes.texts] == ["highest with 10 calls or more\n1: 5.00"]


def test_delays_are_in_milliseconds(results):
    (axes,) = drawn("equipment_monitoring", results("equipment_monitoring"))
    assert lines(axes) == {"p": [2], "q": [4], "q, alarm": [4]}


def test_sentiment(results):
    left, right = drawn("sentiment_analysis", results("sentiment_analysis"))
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in left.patches}
    assert heights == {-1: 1, 2: 1, 4: 1}
    assert next(iter(lines(right).values())) == [pytest.approx(5 / 3)]


def test_spam(results):
    (axes,) = drawn("spam_filter", results("spam_filter"))
    assert sum(bar.get_height() for bar in axes.patches) == 2


def test_positions_have_the_last_speed_of_their_road(results):
    axes = drawn("traffic_monitoring", results("traffic_monitoring"))[0]
    assert axes.collections[0].get_array().tolist() == [40, 50, 40]
    assert axes.collections[0].get_offsets().tolist() == [[116.2, 39.9], [116.3, 39.8], [116.25, 39.9]]


def test_choices(results):
    (axes,) = drawn("reinforcement_learner", results("reinforcement_learner"))
    assert [one.get_label() for one in axes.collections] == ["page1", "page2"]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 25


def test_loads(results):
    upper, lower = drawn("smart_grid", results("smart_grid"))
    assert lines(upper) == {"measured": [20], "predicted": [30]}  # (10 + 20) / 2 + 5
    assert next(iter(lines(lower).values())) == [50, 0]


def test_different_values_and_figures(results):
    [axes] = drawn("distinct", results("distinct"))
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[0, 1], [1, 2]]]
    [axes] = drawn("statistics", results("statistics"))
    found = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert found == {"max": [5, 5], "mean": [5, 4], "min": [5, 3]}


def test_threats(results, tmp_path):
    found = results("threat")
    [axes] = drawn("threat", found)
    assert {line.get_label() for line in axes.lines} == {"dos: 1", "scan: 1"}
    [counts, *_] = [one for one in axes.figure.axes if one is not axes]
    assert [text.get_text() for text in counts.texts] == ["1", "0", "0", "1", "1", "0", "0", "0", "1"]
    assert counts.get_title() == "75.0 % correct"


def test_threats_of_which_the_truth_is_not_told(results):
    found = results("threat")
    for file in (found.folder / "threats").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["label"]), file)
    [axes] = drawn("threat", found)
    assert axes.figure.axes == [axes] and axes.get_title() == "2 of 4 flows classified as attacks"


def test_what_passes_lines_on_has_no_picture(results, tmp_path):
    assert not result_plots.draw("identity", results("word_count"), tmp_path / "x.png")


def test_helpers():
    assert most_frequent(pa.array(["b", "a", "c", "c"]), 2) == ["c", "a"]
    assert downsample(pa.table({"x": numbers(10)}), 4)["x"].to_pylist() == [0, 3, 6, 9]
