"""Small results of every application with a plot, and what an axes shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops.cli import result_plots
from riot_ops.cli.figure import new_figure

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(*seconds):
    return pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC"))


#: For each application, its result streams and the parsed records of its sources.
RESULTS = {
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


def draw(name, results):
    """Draw the results of an application on a new figure; returns its axes."""
    return result_plots.PLOTS[name](new_figure(), results)


def lines(axes):
    """The values of each line by its label."""
    return {line.get_label(): np.asarray(line.get_ydata(), float).tolist() for line in axes.get_lines()}


def bars(axes):
    """The lengths of horizontal bars by their labels."""
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    return {ticks[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width() for bar in axes.patches}


def rewrite(results, stream, change):
    """Replace the records of a result stream by what ``change`` makes of them."""
    files = sorted((results.folder / stream).glob("*.parquet"))
    table = change(pa.concat_tables([pq.read_table(file) for file in files]))
    for file in files[1:]:
        file.unlink()
    pq.write_table(table, files[0])
