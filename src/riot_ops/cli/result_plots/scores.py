"""Plots of scores and predictions: sentiment, spam, threats, road speeds, a learner's choices, loads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.cli.figure import COLOURS, date_formatter
from riot_ops.cli.result_plots.results import Results, datetimes, downsample, required
from riot_ops.measure.classification import evaluate
from riot_ops.streams.streambench.flow_packets import CLASSES

__all__ = ["choices", "loads", "roads", "sentiment", "spam", "threats"]

#: Number of intervals of a stream in which shares are counted.
INTERVALS = 100
#: Height of a map in inches, and its minimum and maximum width, so that little beside it is blank.
MAP_HEIGHT, MAP_WIDTHS = 5.5, (3.0, 9.0)
#: Maximum positions on a map.
MAX_POSITIONS = 40_000


def sentiment(figure: Any, results: Results) -> list[Any]:
    """Draw the number of messages by score, and the mean score over the stream."""
    found = required(results.stream("sentiment", "sentiment", "score"))
    left, right = figure.subplots(1, 2)
    colours = {"positive": COLOURS[2], "negative": COLOURS[1], "neutral": "#94a3b8"}
    for label in sorted(pc.unique(found["sentiment"]).to_pylist()):
        scores = np.asarray(found.filter(pc.equal(found["sentiment"], label))["score"], np.float64)
        values, counts = np.unique(np.round(scores), return_counts=True)
        left.bar(values, counts, color=colours.get(label.lower(), COLOURS[0]), label=f"{label}: {scores.size:,}")
    left.set(title="Messages by score", xlabel="score")
    seq, scores = (np.asarray(found[name], np.float64) for name in ("seq", "score"))
    at, mean = _interval_means(seq, scores)
    right.plot(at, mean, color=COLOURS[0])
    right.set(title="Mean score", xlabel="message")
    return [left, right]


def spam(figure: Any, results: Results) -> list[Any]:
    """Draw the number of messages by their probability of being spam."""
    found = required(results.stream("results", "spam_probability", "is_spam"))
    axes = figure.subplots()
    edges = np.linspace(0, 1, 41)
    for label, is_spam, colour in (("no spam", False, COLOURS[2]), ("spam", True, COLOURS[1])):
        its = np.asarray(found.filter(pc.equal(found["is_spam"], is_spam))["spam_probability"], np.float64)
        axes.hist(its, edges, color=colour, alpha=0.8, label=f"{label}: {its.size:,}")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    axes.set(title="Messages by their probability of being spam", xlabel="probability", ylabel="messages")
    return [axes]


def threats(figure: Any, results: Results) -> list[Any]:
    """Draw the share of flows classified as attacks over the stream; with labels, also the confusion matrix."""
    try:
        found = results.stream("threats", "class_index", "label")
    except (pa.ArrowInvalid, KeyError):  # the lines have no labels
        found = results.stream("threats", "class_index")
    required(found)
    has_labels = "label" in found.column_names
    left, right = figure.subplots(1, 2) if has_labels else (figure.subplots(), None)
    classes = np.asarray(found["class_index"], np.int64)
    position = np.arange(classes.size)
    edges = np.linspace(0, classes.size, min(INTERVALS, classes.size) + 1)
    for i, name in enumerate(CLASSES[1:], start=1):
        share = np.histogram(position[classes == i], edges)[0] / np.maximum(np.histogram(position, edges)[0], 1)
        left.step(edges[1:], 100 * share, where="pre", color=COLOURS[i], label=f"{name}: {(classes == i).sum():,}")
    left.set_title(f"{np.count_nonzero(classes):,} of {classes.size:,} flows classified as attacks")
    left.set(xlabel="flow", ylabel="% of the flows")
    left.set_ylim(bottom=0)
    if right is None:
        return [left]
    report = evaluate(np.asarray(found["label"], np.float64), classes, CLASSES)
    share = report.confusion / np.maximum(report.confusion.sum(axis=1, keepdims=True), 1)
    right.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for row, line in enumerate(report.confusion):
        for column, n in enumerate(line):
            colour = "white" if share[row, column] > 0.5 else "black"
            right.text(column, row, f"{n:,}", ha="center", va="center", color=colour, fontsize=9)
    for set_ticks in (right.set_xticks, right.set_yticks):
        set_ticks(range(len(CLASSES)), CLASSES)
    right.set(title=f"{100 * report.accuracy:.1f} % correct", xlabel="predicted class", ylabel="actual class")
    return [left]


def roads(figure: Any, results: Results) -> list[Any]:
    """Draw the positions of the cars, coloured by the last average speed of their road."""
    found = required(results.stream("speeds", "road_id", "average_speed", "latitude", "longitude"))
    axes = figure.subplots()
    last = found.group_by("road_id", use_threads=False).aggregate([("average_speed", "last")])
    speeds = dict(zip(last["road_id"].to_pylist(), last["average_speed_last"].to_pylist(), strict=True))
    shown = downsample(found, MAX_POSITIONS)
    colour = [speeds[road] for road in shown["road_id"].to_pylist()]
    points = axes.scatter(shown["longitude"], shown["latitude"], c=colour, s=3, cmap="RdYlGn")
    middle = float(np.mean(np.asarray(shown["latitude"], np.float64)))
    aspect = 1 / max(np.cos(np.radians(middle)), 0.05)
    axes.set_aspect(aspect)
    width, height = (float(np.ptp(np.asarray(shown[name], np.float64))) for name in ("longitude", "latitude"))
    fitting = MAP_HEIGHT * width / (aspect * height) if height > 0 else MAP_WIDTHS[1]
    figure.set_size_inches(float(np.clip(fitting, *MAP_WIDTHS)) + 2.2, MAP_HEIGHT + 1)  # and its scales
    figure.colorbar(points, ax=axes, label="average speed of the road")
    axes.set(title=f"{found.num_rows:,} positions on {len(speeds):,} roads", xlabel="longitude", ylabel="latitude")
    return [axes]


def choices(figure: Any, results: Results) -> list[Any]:
    """Draw the share of each action over the rounds."""
    found = required(results.stream("actions", "action"))
    axes = figure.subplots()
    names = sorted(pc.unique(found["action"]).to_pylist())
    shares = []
    for name in names:
        chosen = np.asarray(pc.equal(found["action"], name)).astype(np.float64)
        at, share = _interval_means(np.arange(1.0, chosen.size + 1), chosen, growing=True)
        shares.append(100 * share)
    axes.stackplot(at, *shares, labels=names, colors=COLOURS)
    axes.set_ylim(0, 100)
    axes.set_xscale("log")
    axes.set(title=f"Choices in {found.num_rows:,} rounds", xlabel="round", ylabel="share (%)")
    return [axes]


def loads(figure: Any, results: Results) -> list[Any]:
    """Draw the predicted and the measured load of a house, and the share of its plugs above the median."""
    predicted = required(results.stream("predictions", "timestamp", "house_id", "household_id", "predicted_load"))
    outliers = results.stream("outliers", "window_end", "house_id", "percentage")
    readings = required(results.parsed("readings"))
    predicted = required(predicted.filter(pc.is_null(predicted["household_id"])))
    house = pc.min(predicted["house_id"]).as_py()
    its = predicted.filter(pc.equal(predicted["house_id"], house))
    # a slice is predicted several times; the last prediction knows most of the slice before
    its = its.group_by("timestamp", use_threads=False).aggregate([("predicted_load", "last")]).sort_by("timestamp")
    ends = outliers.filter(pc.equal(outliers["house_id"], house)).sort_by("window_end")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1]) if ends.num_rows else [figure.subplots()]
    upper = axes[0]
    upper.plot(*_measured(readings, house), color="#94a3b8", label="measured")
    upper.plot(datetimes(its["timestamp"]), its["predicted_load_last"], color=COLOURS[1], label="predicted")
    upper.set(title=f"Load of house {house}, by the minute", ylabel="load (W)")
    if ends.num_rows:
        _draw_share(axes[1], ends, its["timestamp"])
    axes[-1].xaxis.set_major_formatter(date_formatter(axes[-1]))
    return list(axes)


def _draw_share(axes: Any, ends: pa.Table, times: Any) -> None:
    """Draw the share of plugs above the median, which holds until it changes, to the end of the picture."""
    at, share = datetimes(ends["window_end"]), np.asarray(ends["percentage"], np.float64)
    last = max(at[-1], datetimes(times)[-1])
    axes.step(np.append(at, last), np.append(share, share[-1]), where="post", color=COLOURS[0])
    axes.set_ylabel("plugs above\nthe median (%)")


def _measured(readings: pa.Table, house: Any) -> tuple[Any, Any]:
    """Return the load of a house: per minute, the sum of the mean loads of its plugs."""
    its = readings.filter(pc.and_(pc.equal(readings["house_id"], house), pc.equal(readings["property"], 1)))
    minute = pc.floor_temporal(its["event_time"], unit="minute")
    plugs = its.append_column("minute", minute).group_by(["minute", "household_id", "plug_id"])
    means = plugs.aggregate([("value", "mean")]).group_by("minute").aggregate([("value_mean", "sum")]).sort_by("minute")
    return datetimes(means["minute"]), means["value_mean_sum"]


def _interval_means(at: Any, values: Any, growing: bool = False) -> tuple[Any, Any]:
    """Return the means over intervals of a stream, of equal length or of growing length."""
    n = min(INTERVALS, max(1, at.size // 20)) + 1
    edges = np.linspace(0, at.size, n).astype(np.int64)
    if growing and at.size > 20:
        edges = np.unique(np.append(0, np.geomspace(20, at.size, n).astype(np.int64)))
    middles = [at[(a + b) // 2] for a, b in itertools.pairwise(edges)]
    return np.array(middles), np.array([values[a:b].mean() for a, b in itertools.pairwise(edges)])
