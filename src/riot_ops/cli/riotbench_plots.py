"""The plots of RIoTBench's applications: one sensor of STATS, the error of PRED by model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops import tasks as t
from riot_ops.cli.figure import COLOURS, date_formatter, event_times, new_figure, robust_range, save_figure
from riot_ops.core.schema import StreamSchema
from riot_ops.core.sink import MemorySink
from riot_ops.dataflow import Dataflow

__all__ = ["WINDOWS", "draw_errors", "draw_sensor"]

F64 = npt.NDArray[np.float64]

#: Maximum and minimum readings in the plot of a sensor.
MAX_READINGS, MIN_READINGS = 300, 12
#: Number of readings between two drawn predictions.
PREDICTION_STEP = 25
#: Number of intervals of the stream whose median error is drawn.
WINDOWS = 120
#: Maximum models in a legend.
MAX_LEGEND_MODELS = 12

Parse = Callable[[t.Task], Iterator[pa.RecordBatch]]


def draw_sensor(path: Path, schema: StreamSchema, parsed: Parse) -> bool:
    """Draw the values of the sensor with the most messages, raw, smoothed and predicted; False if there are too few.

    Readings outside the valid range of the field are marked, but neither smoothed nor used for predictions: a Kalman
    filter follows a reading of 123 degrees for a minute.
    """
    key = ("sensor_id", "obs_type")
    field = schema.numeric[0]
    rows = _one_sensor(parsed(t.ParseSenML(schema=schema, fields=(field,))))
    if rows is None or rows.num_rows < MIN_READINGS:
        return False
    flow = Dataflow("one-sensor")
    readings = flow.source("rows", schema=rows.schema)
    bounds = schema.bounds.get(field)
    if bounds is not None:
        readings = readings.to(t.RangeFilter(bounds={field: bounds}), id="valid")
    smooth = readings.to(t.KalmanFilter(by=key), id="smooth")
    flow.sink("out", smooth, smooth.to(t.SlidingRegression(by=key), id="predicted"))
    result = flow.run(source=rows, sinks=MemorySink())
    units = {**dict(zip(schema.columns, schema.units, strict=True)), **schema.true_units}
    unit = f" ({units[field]})" if units[field] else ""
    title = f"{schema.name.upper()}: {field} of sensor {rows['sensor_id'][0]}"
    _draw_sensor(path, title, f"{field}{unit}", rows, result["smooth"], result["predicted"], bounds)
    return True


def _one_sensor(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Return the observations with a value, of the sensor with the most messages at the start."""
    readings: list[pa.RecordBatch] = []
    sensor: Any = None
    rows = 0
    for batch in batches:
        batch = batch.filter(pc.is_valid(batch.column("value")))
        if sensor is None:
            modes = pc.mode(pc.dictionary_encode(batch.column("sensor_id")).indices, 1)
            if not len(modes):
                continue
            sensor = pc.unique(batch.column("sensor_id"))[modes[0]["mode"].as_py()]
        readings.append(batch.filter(pc.equal(batch.column("sensor_id"), sensor)))
        rows += readings[-1].num_rows
        if rows >= MAX_READINGS:
            break
    return pa.Table.from_batches(readings).slice(0, MAX_READINGS) if readings else None


def _draw_sensor(
    path: Path,
    title: str,
    label: str,
    raw: pa.Table,
    smooth: pa.Table,
    predicted: pa.Table,
    bounds: tuple[float, float] | None,
) -> None:
    figure = new_figure()
    axes = figure.subplots()
    times, values = event_times(raw), raw["value"].to_numpy()
    low, high = robust_range(values)
    room = 0.06 * (high - low) or 0.5
    low, high = low - room, high + room
    axes.plot(times, values, ".", color="#94a3b8", label="read")
    for side, outside, marker in ((high, values > high, "^"), (low, values < low, "v")):
        if outside.any():
            n = int(outside.sum())
            axes.plot(
                times[outside],
                np.full(n, side),
                marker,
                color="#ea580c",
                clip_on=False,
                zorder=5,
                label=f"{n} {'above' if marker == '^' else 'below'} the axis, "
                f"up to {_format_furthest(values[outside])}{_left_out(values[outside], bounds)}",
            )
    smooth_times, smooth_values = event_times(smooth), smooth["value"].to_numpy()
    filtered = "" if smooth.num_rows == raw.num_rows else "; without impossible readings"
    axes.plot(smooth_times, smooth_values, color="#2563eb", linewidth=1.4, label=f"smoothed (KAL){filtered}")
    _draw_predictions(axes, smooth, smooth_times, smooth_values, predicted)
    axes.set_ylim(low, high)
    axes.set_title(title, parse_math=False)
    axes.set_xlabel("event time (UTC)")
    axes.xaxis.set_major_formatter(date_formatter(axes))
    axes.set_ylabel(label, parse_math=False)
    save_figure(figure, axes, path)


def _draw_predictions(axes: Any, smooth: pa.Table, times: Any, values: F64, predicted: pa.Table) -> None:
    """Draw every 25th prediction, from its time over the times of the readings that it predicts."""
    positions = {seq: i for i, seq in enumerate(smooth["seq"].to_pylist())}
    steps = np.diff(times)
    step = np.median(steps) if steps.size else np.timedelta64(1, "s")
    label: str | None = "predicted (SLR), at the time of the dot"
    for row in predicted.slice(PREDICTION_STEP - 1).to_pylist()[::PREDICTION_STEP]:
        position = positions[row["seq"]]
        predictions = row["predictions"]
        read = times[position + 1 : position + 1 + len(predictions)]
        extrapolated = (read[-1] if read.size else times[position]) + step * np.arange(
            1, len(predictions) - read.size + 1
        )
        x = np.concatenate([times[position : position + 1], read, extrapolated])
        y = np.array([values[position], *(np.nan if v is None else v for v in predictions)], np.float64)
        axes.plot(x, y, color="#dc2626", linewidth=1.2, marker="o", markevery=[0], markersize=4, label=label)
        label = None


def draw_errors(path: Path, seconds: F64, errors: F64, models: Sequence[str]) -> None:
    """Draw the median error over time, with each model in a colour of its own."""
    size = max(1, len(models) // WINDOWS)
    points: dict[str, list[tuple[float, float]]] = {}
    for start in range(0, len(models) - size + 1, size):
        window = errors[start : start + size]
        median = float(np.median(window[np.isfinite(window)])) if np.isfinite(window).any() else np.nan
        points.setdefault(models[start + size // 2], []).append((float(seconds[start + size // 2]), median))
    figure = new_figure()
    axes = figure.subplots()
    medians = np.array([y for line in points.values() for _, y in line])
    low, high = robust_range(medians)
    margin = 0.06 * (high - low) or 0.5
    for i, (name, line) in enumerate(points.items()):
        x, y = np.array(line).T
        label = name if i < MAX_LEGEND_MODELS else None
        axes.plot(x, y, ".-", color=COLOURS[i % len(COLOURS)], linewidth=1.3, markersize=4, label=label)
        if i:
            axes.axvline(x[0], color="#cbd5e1", linewidth=1, zorder=0)
    axes.set_ylim(low - margin, high + margin)
    outside = int(((medians < low - margin) | (medians > high + margin)).sum())
    axes.set_title("PRED: median relative error, by model" + (f" ({outside} beyond the axis)" if outside else ""))
    axes.set_xlabel("seconds since the start of the stream")
    axes.set_ylabel("median relative error")
    save_figure(figure, axes, path)


def _left_out(values: F64, bounds: tuple[float, float] | None) -> str:
    """Say which of these values are outside the valid range."""
    wrong = 0 if bounds is None else int(((values < bounds[0]) | (values > bounds[1])).sum())
    return "" if not wrong else ", left out" if wrong == values.size else f", {wrong} left out"


def _format_furthest(values: F64) -> str:
    return f"{values[np.argmax(np.abs(values))]:,.4g}"
