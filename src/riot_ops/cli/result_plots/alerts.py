"""Plots of anomalies: machines, purchases, readings, bargains, callers, delays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.cli.figure import COLOURS, date_formatter, robust_range
from riot_ops.cli.result_plots.results import Results, datetimes, downsample, most_frequent, required

__all__ = ["bargains", "callers", "delays", "machines", "purchases", "spikes"]

GREY, RED = "#94a3b8", "#dc2626"
#: Maximum lines in a plot.
MAX_LINES = 5


def machines(figure: Any, results: Results) -> list[Any]:
    """Draw the load of all machines, of those with the most alerts, and when their alerts begin."""
    usage = required(results.parsed("usage"))
    alerts = results.stream("alerts", "machine_id", "timestamp", "stream_score")
    axes = figure.subplots()
    shown = downsample(usage, 20_000)
    # traces count seconds from their own beginning: as dates these would be in January 1970
    relative = pc.all(pc.equal(pc.year(usage["event_time"]), 1970)).as_py()

    def times(column: Any) -> Any:
        found = datetimes(column)
        return found.astype(np.int64) / 3.6e9 if relative else found

    axes.plot(times(shown["event_time"]), shown["cpu"], ".", color=GREY, markersize=2, label="all machines")
    highest = float(pc.max(usage["cpu"]).as_py() or 0.0)
    for i, machine in enumerate(most_frequent(alerts["machine_id"], MAX_LINES) if alerts.num_rows else []):
        its = usage.filter(pc.equal(usage["machine_id"], machine)).sort_by("event_time")
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(times(its["event_time"]), its["cpu"], color=colour, linewidth=1.2, label=machine)
        at = times(_first_of_runs(alerts.filter(pc.equal(alerts["machine_id"], machine))["timestamp"]))
        axes.plot(at, np.full(at.size, 1.05 * highest), "v", color=colour)
    axes.set_ylim(top=1.1 * highest or None)
    if relative:
        axes.set_xlabel("hours since the beginning of the trace")
    else:
        axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set_title(f"Processor load, {alerts.num_rows:,} alerts (triangles: the first of each series)")
    axes.set_ylabel("load (%)")
    return [axes]


def _first_of_runs(column: Any) -> Any:
    """Return the first time of each series of alerts, within which they are at most ten minutes apart."""
    times = pc.unique(column).sort()
    micros = times.cast("timestamp[us]").cast("int64").to_numpy()
    return times.filter(pa.array(np.diff(micros, prepend=micros[:1] - 601_000_000) > 600_000_000))


def purchases(figure: Any, results: Results) -> list[Any]:
    """Draw the scores of the outliers over the stream, with a colour for each customer with many outliers."""
    outliers = required(results.stream("outliers", "entity_id", "score"))
    axes = figure.subplots()
    axes.plot(outliers["seq"], outliers["score"], ".", color=GREY, markersize=4, label="outliers")
    for i, customer in enumerate(most_frequent(outliers["entity_id"], MAX_LINES)):
        its = outliers.filter(pc.equal(outliers["entity_id"], customer))
        axes.plot(its["seq"], its["score"], "o", color=COLOURS[i % len(COLOURS)], markersize=4, label=customer)
    axes.set_title(f"{outliers.num_rows:,} outliers of {pc.count_distinct(outliers['entity_id']).as_py():,} customers")
    axes.set(xlabel="purchase", ylabel="score")
    return [axes]


def spikes(figure: Any, results: Results) -> list[Any]:
    """Draw the readings of the device with the most spikes, and its spikes."""
    found = required(results.stream("spikes", "device_id", "value", "moving_average"))
    readings = required(results.parsed("sensors"))
    axes = figure.subplots()
    (device,) = most_frequent(found["device_id"], 1)
    readings = readings.filter(pc.equal(readings["device_id"], device))
    found = found.filter(pc.equal(found["device_id"], device))
    values = np.asarray(readings["value"], np.float64)
    axes.plot(readings["seq"], values, ".", color=GREY, markersize=3, label=f"readings of device {device}")
    axes.plot(found["seq"], found["value"], "o", color=RED, markersize=4, label="spikes")
    axes.plot(found["seq"], found["moving_average"], "_", color=COLOURS[0], label="moving average at the spikes")
    spiked = np.asarray(found["value"], np.float64)
    low, high = robust_range(values)  # so that an extreme reading does not flatten the others
    low, high = min(low, *robust_range(spiked)), max(high, *robust_range(spiked))
    margin = 0.06 * (high - low) or 0.5
    axes.set_ylim(low - margin, high + margin)
    axes.set_title(f"Device {device}: {found.num_rows:,} spikes among {readings.num_rows:,} readings")
    axes.set(xlabel="line", ylabel="value")
    return [axes]


def bargains(figure: Any, results: Results) -> list[Any]:
    """Draw the price of the stock with the most bargains, and the bargains."""
    found = required(results.stream("bargains", "stock", "price", "bargain_index", "event_time"))
    trades = required(results.parsed("trades"))
    axes = figure.subplots()
    (stock,) = most_frequent(found["stock"], 1)
    trades = trades.filter(pc.equal(trades["stock"], stock))
    its = found.filter(pc.equal(found["stock"], stock))
    axes.plot(datetimes(trades["event_time"]), trades["price"], color=GREY, linewidth=1, label=f"price of {stock}")
    size = np.log10(np.maximum(np.asarray(its["bargain_index"], np.float64), 1))
    axes.scatter(
        datetimes(its["event_time"]),
        its["price"],
        s=4 + 6 * size,
        color=COLOURS[2],
        label="bargains, sized by their index",
        zorder=3,
    )
    axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set_title(f"{stock}: {its.num_rows:,} bargains ({found.num_rows:,} over all stocks)", parse_math=False)
    axes.set_ylabel("price")
    return [axes]


def callers(figure: Any, results: Results) -> list[Any]:
    """Draw the mean score of each caller over the number of calls."""
    found = required(results.stream("scores", "caller", "score"))
    axes = figure.subplots()
    means = found.group_by("caller").aggregate([("score", "mean"), ("score", "count")])
    means = means.sort_by([("score_mean", "descending")])
    axes.scatter(means["score_count"], means["score_mean"], s=14, color=COLOURS[0], alpha=0.6)
    highest = means.filter(pc.greater(means["score_count"], 9)).slice(0, MAX_LINES).to_pylist()
    lines = "\n".join(f"{row['caller']}: {row['score_mean']:.2f}" for row in highest)
    axes.text(0.02, 0.97, f"highest with 10 calls or more\n{lines}", transform=axes.transAxes, va="top", fontsize=8)
    axes.set_xscale("log")
    axes.set(title=f"Mean scores of {means.num_rows:,} callers", xlabel="calls", ylabel="mean score, 0 to 8")
    return [axes]


def delays(figure: Any, results: Results) -> list[Any]:
    """Draw the delays between sensor and valve by pair, and the alarms."""
    found, alarms = (results.stream(name, "pair", "ts", "delay") for name in ("delays", "alarms"))
    required(found)
    axes = figure.subplots()
    for i, pair in enumerate(sorted(pc.unique(found["pair"]).to_pylist())):
        colour = COLOURS[i % len(COLOURS)]
        for table, marker, label in ((found, ".", pair), (alarms, "x", f"{pair}, alarm")):
            its = downsample(table.filter(pc.equal(table["pair"], pair))) if table.num_rows else table
            if its.num_rows:
                at = np.asarray(its["ts"], np.int64).view("datetime64[ns]")
                axes.plot(
                    at, np.asarray(its["delay"], np.float64) / 1e6, marker, color=colour, markersize=4, label=label
                )
    axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set(title=f"{found.num_rows:,} delays from sensor to valve, {alarms.num_rows:,} alarms", ylabel="delay (ms)")
    return [axes]
