"""Plots of counts: words, requests, visits, topics, clicks, campaigns, distinct values, extremes of a field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.cli.figure import COLOURS, date_formatter
from riot_ops.cli.result_plots.results import Results, datetimes, downsample, most_frequent, required

__all__ = ["campaigns", "clicks", "distinct_values", "extremes", "requests", "topics", "visits", "words"]

#: Maximum lines in a plot.
MAX_LINES = 8


def words(figure: Any, results: Results) -> list[Any]:
    """Draw the counts of the most frequent words over the lines of the text."""
    counts = required(results.stream("counts", "word", "count"))
    axes = figure.subplots()
    last = counts.group_by("word").aggregate([("count", "max")]).sort_by([("count_max", "descending")])
    for i, word in enumerate(last["word"].slice(0, MAX_LINES).to_pylist()):
        its = downsample(counts.filter(pc.equal(counts["word"], word)))
        axes.plot(its["seq"], its["count"], color=COLOURS[i % len(COLOURS)], label=word)
    axes.set_title(f"Counts of the {min(MAX_LINES, last.num_rows)} most frequent of {last.num_rows:,} words")
    axes.set(xlabel="line", ylabel="count so far")
    return [axes]


def requests(figure: Any, results: Results) -> list[Any]:
    """Draw the requests per minute, by status and by country."""
    volume = required(results.stream("volume", "minute", "count"))
    status = results.stream("status", "response", "count")
    countries = results.stream("countries", "country", "country_total")
    left, middle, right = figure.subplots(1, 3, width_ratios=[2, 1, 1])
    minutes = volume.group_by("minute").aggregate([("count", "max")]).sort_by("minute")
    left.plot(datetimes(minutes["minute"]), minutes["count_max"], color=COLOURS[0])
    left.xaxis.set_major_formatter(date_formatter(left))
    left.set_title("Requests per minute")
    _bars(middle, _totals(status, "response", "count"), "Requests by status")
    _bars(right, _totals(countries, "country", "country_total"), "Requests by country")
    return [left, middle, right]


def visits(figure: Any, results: Results) -> list[Any]:
    """Draw visits and first visits over the stream, and visits by country."""
    totals = downsample(required(results.stream("visits", "total_count", "total_unique")))
    countries = results.stream("locations", "country", "country_total")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    left.plot(totals["seq"], totals["total_count"], color=COLOURS[0], label="visits")
    left.plot(totals["seq"], totals["total_unique"], color=COLOURS[1], label="first visits")
    left.set(title="Visits so far", xlabel="click")
    _bars(right, _totals(countries, "country", "country_total"), "Visits by country")
    return [left, right]


def topics(figure: Any, results: Results) -> list[Any]:
    """Draw the counts of the topics that were most often among the first three, over time."""
    rankings = required(results.stream("rankings", "tick_time", "rank", "topic", "count"))
    axes = figure.subplots()
    for i, topic in enumerate(most_frequent(rankings.filter(pc.less_equal(rankings["rank"], 3))["topic"], MAX_LINES)):
        its = rankings.filter(pc.equal(rankings["topic"], topic)).sort_by("tick_time")
        axes.plot(datetimes(its["tick_time"]), its["count"], ".-", color=COLOURS[i % len(COLOURS)], label=topic)
    axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set(title="Topics that were most often among the first three", ylabel="mentions in the window")
    return [axes]


def clicks(figure: Any, results: Results) -> list[Any]:
    """Draw the last click-through rate of each pair of query and advertisement over its impressions."""
    rates = required(results.stream("ctr", "query_id", "ad_id", "ctr", "impressions"))
    axes = figure.subplots()
    last = rates.group_by(["query_id", "ad_id"], use_threads=False).aggregate(
        [("ctr", "last"), ("impressions", "last")]
    )
    axes.scatter(last["impressions_last"], np.asarray(last["ctr_last"]) * 100, s=12, color=COLOURS[0], alpha=0.6)
    axes.set_xscale("log")
    axes.set_title(f"Click-through rates of {last.num_rows:,} pairs of query and advertisement")
    axes.set(xlabel="impressions in the window", ylabel="click-through rate (%)")
    return [axes]


def campaigns(figure: Any, results: Results) -> list[Any]:
    """Draw the views per window: the mean and the range over all campaigns."""
    counts = required(results.stream("campaigns", "window_start", "campaign_id", "count"))
    axes = figure.subplots()
    windows = counts.group_by("window_start").aggregate([("count", "mean"), ("count", "min"), ("count", "max")])
    windows = windows.sort_by("window_start")
    at = datetimes(windows["window_start"])
    low, high = (np.asarray(windows[f"count_{side}"], np.float64) for side in ("min", "max"))
    axes.fill_between(at, low, high, color=COLOURS[0], alpha=0.2, label="minimum to maximum of the campaigns")
    axes.plot(at, windows["count_mean"], ".-", color=COLOURS[0], label="mean of the campaigns")
    axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set_title(f"Views of {pc.count_distinct(counts['campaign_id']).as_py():,} campaigns per window")
    axes.set_ylabel("views")
    return [axes]


def distinct_values(figure: Any, results: Results) -> list[Any]:
    """Draw the number of distinct values so far over the stream."""
    found = downsample(required(results.stream("sizes", "count")))
    axes = figure.subplots()
    axes.plot(found["seq"], found["count"], color=COLOURS[0])
    axes.set(title="Distinct values so far", xlabel="line")
    return [axes]


def extremes(figure: Any, results: Results) -> list[Any]:
    """Draw minimum, mean and maximum so far over the stream."""
    found = downsample(required(results.stream("figures", "min", "mean", "max")))
    axes = figure.subplots()
    for i, name in enumerate(("max", "mean", "min")):
        axes.plot(found["seq"], found[name], color=COLOURS[i], label=name)
    axes.set_yscale("symlog")
    axes.set(title="Minimum, mean and maximum so far", xlabel="line")
    return [axes]


def _totals(table: pa.Table, field: str, total: str) -> list[tuple[str, int]]:
    """Return the last running total of each value of a field, the largest first."""
    if not table.num_rows:
        return []
    last = table.group_by(field).aggregate([(total, "max")]).sort_by([(f"{total}_max", "descending")])
    return [(str(row[field]), row[f"{total}_max"]) for row in last.slice(0, MAX_LINES).to_pylist()]


def _bars(axes: Any, totals: list[tuple[str, int]], title: str) -> None:
    names = [name for name, _ in totals]
    axes.barh(names, [n for _, n in totals], color=COLOURS[0])
    axes.invert_yaxis()
    axes.set_title(title)
