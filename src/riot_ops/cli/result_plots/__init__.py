"""Plots of the results of applications, one function for each application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from riot_ops.cli.figure import new_figure, save_figure
from riot_ops.cli.result_plots import alerts, counts, scores
from riot_ops.cli.result_plots.results import NothingToDrawError, Results

__all__ = ["PLOTS", "Results", "draw"]

#: For each application, a function that draws its results on a figure and returns the axes.
#: Applications that only forward lines have no plot.
PLOTS: dict[str, Callable[[Any, Results], list[Any]]] = {
    "word_count": counts.words,
    "log_processing": counts.requests,
    "click_analytics": counts.visits,
    "trending_topics": counts.topics,
    "ads_analytics": counts.clicks,
    "yahoo_streaming": counts.campaigns,
    "machine_outlier": alerts.machines,
    "fraud_detection": alerts.purchases,
    "spike_detection": alerts.spikes,
    "bargain_index": alerts.bargains,
    "voip_stream": alerts.callers,
    "equipment_monitoring": alerts.delays,
    "sentiment_analysis": scores.sentiment,
    "spam_filter": scores.spam,
    "traffic_monitoring": scores.roads,
    "reinforcement_learner": scores.choices,
    "smart_grid": scores.loads,
    "wordcount": counts.words,
    "distinct": counts.distinct_values,
    "statistics": counts.extremes,
    "threat": scores.threats,
}


def draw(name: str, results: Results, path: Path) -> bool:
    """Draw the results of an application into a file; return False if there is nothing to draw."""
    if name not in PLOTS:
        return False
    figure = new_figure()
    try:
        axes = PLOTS[name](figure, results)
    except NothingToDrawError:
        return False
    save_figure(figure, axes, path)
    return True
