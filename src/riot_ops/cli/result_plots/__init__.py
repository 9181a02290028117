"""What the applications found, as pictures: one function each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from riot_ops.cli.figure import new_figure, save_figure
from riot_ops.cli.result_plots import alerts, counts, scores
from riot_ops.cli.result_plots.results import Results

__all__ = ["PLOTS", "Results", "draw"]

#: By application: draws on a figure and returns its axes, or None where there is nothing to see. Of those that pass
#: lines on there is no picture.
PLOTS: dict[str, Callable[[Any, Results], list[Any] | None]] = {
    "word_count": counts.words,
    "log_processing": counts.log,
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
    "distinct": counts.sizes,
    "statistics": counts.figures,
    "threat": scores.threats,
}


def draw(name: str, results: Results, path: Path) -> bool:
    """Draw what an application found; False where there is nothing to see."""
    if name not in PLOTS:
        return False
    figure = new_figure()
    axes = PLOTS[name](figure, results)
    if axes is None:
        return False
    save_figure(figure, axes, path)
    return True
