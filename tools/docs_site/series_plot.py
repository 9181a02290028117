"""A small picture of what a task does to a series of readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from task_examples import NOON, Row

from riot_ops import tasks as t
from riot_ops.dataflows.dspbench import operators as dsp
from riot_ops.task import Task

__all__ = ["SERIES", "Series", "series_svg"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 230, 46, 10, 28, 22
COUNT = 120


class Series(NamedTuple):
    """A task over a series: what goes in, and the fields of its results that are drawn.

    ``step`` draws results as steps, ``right`` on an axis of their own, since they have another unit, ``marked`` as
    points.
    """

    task: Task
    rows: list[Row]
    fields: tuple[str, ...] = ("value",)
    step: bool = False
    right: bool = False
    marked: bool = False


def _noise() -> Callable[[], float]:
    """Return a generator of numbers in [-1, 1), the same in each build."""
    seed = [7]

    def next_() -> float:
        seed[0] = (seed[0] * 1103515245 + 12345) % 2**31
        return seed[0] / 2**30 - 1

    return next_


def _rows(value: Callable[[int, Callable[[], float]], Any]) -> list[Row]:
    """Return a reading per minute."""
    noise = _noise()
    return [
        {"event_time": NOON.replace(hour=12 + i // 60, minute=i % 60), "sensor": "a", "value": value(i, noise)}
        for i in range(COUNT)
    ]


def _day(i: int) -> float:
    return 20 + 4 * math.sin(i / 17) + (4 if i >= 75 else 0)


READINGS = _rows(lambda i, noise: round(_day(i) + 1.6 * noise(), 2))
OUTLIERS = [{**row, "value": {20: -9.0, 55: 48.0, 90: -9.0}.get(i, row["value"])} for i, row in enumerate(READINGS)]
GAPS = [{**row, "value": None if 25 <= i < 32 or 60 <= i < 70 else row["value"]} for i, row in enumerate(READINGS)]
COUNTER = [{**row, "value": float((7 * i + i * i // 9) % 700)} for i, row in enumerate(READINGS)]
VISITORS = _rows(lambda i, noise: float(int(abs(noise()) * 60)))
BURSTS = [row for i, row in enumerate(READINGS) if i % 6 == 0 or 40 <= i < 60]
LATE = sorted(READINGS[::2], key=lambda row: row["event_time"].minute * 7 % 5 + READINGS.index(row))

#: By the name of the class.
SERIES: dict[str, Series] = {
    "KalmanFilter": Series(t.KalmanFilter(by="sensor", prior="first"), READINGS),
    "MovingAverage": Series(t.MovingAverage(by="sensor", window=10), READINGS),
    "ExponentialAverage": Series(t.ExponentialAverage(by="sensor", span=12), READINGS),
    "ClippedAverage": Series(t.ClippedAverage(by="sensor", window=10), OUTLIERS),
    "SlidingSum": Series(t.SlidingSum(by="sensor", window=10), READINGS, right=True),
    "Variance": Series(t.Variance(by="sensor"), READINGS, right=True),
    "Interpolation": Series(t.Interpolation(by="sensor", method="extrapolate"), GAPS),
    "RunningSummary": Series(t.RunningSummary(by="sensor"), READINGS, ("min", "mean", "max"), step=True),
    "CounterIncrease": Series(t.CounterIncrease(by="sensor"), COUNTER, right=True),
    "DistinctCount": Series(t.DistinctCount(by="sensor", output="distinct"), VISITORS, ("distinct",), step=True),
    "SecondOrderMoment": Series(t.SecondOrderMoment(by="sensor", method="exact"), VISITORS, right=True),
    "RangeFilter": Series(t.RangeFilter(bounds={"value": (0, 40)}, by=None), OUTLIERS, marked=True),
    "Filter": Series(t.Filter("value > 20"), READINGS, marked=True),
    "SampleByHash": Series(
        t.SampleByHash(share=0.25, field="id"), [{"id": i, **row} for i, row in enumerate(READINGS)], marked=True
    ),
    "Compute": Series(t.Compute({"fahrenheit": "value * 1.8 + 32"}), READINGS, ("fahrenheit",), right=True),
    "Window": Series(
        t.Window(by="sensor", frame="10min", aggregates={"mean": ("value", "mean")}), READINGS, ("mean",), step=True
    ),
    "SlidingRegression": Series(t.SlidingRegression(by="sensor", window=10, horizon=1), READINGS),
    "RunningCount": Series(t.RunningCount(by="sensor"), BURSTS, ("count",), step=True, right=True),
    "DecayingRate": Series(dsp.DecayingRate(by="sensor", decay=0.998), BURSTS, ("rate",), right=True),
    "SliceMeans": Series(dsp.SliceMeans(by="sensor", length="15min", every="5min"), READINGS, step=True),
    "ChangeDetector": Series(
        t.ChangeDetector(by="sensor", fields="value"),
        [{**row, "value": float(_day(i) // 3)} for i, row in enumerate(READINGS)],
        marked=True,
    ),
    "DropLate": Series(t.DropLate(), LATE, marked=True),
}


def results(series: Series) -> list[Row]:
    """Return what the task gives for the series."""
    session = series.task.session()
    return [*session.push_many(series.rows), *session.flush()]


def series_svg(name: str) -> str:
    """Return a picture of a task's input and output."""
    series = SERIES[name]
    found = results(series)
    inputs = _points(series.rows, "value")
    lines = [(field, _points(found, field)) for field in series.fields]
    out = [y for _, points in lines for _, y in points if y is not None]
    known = [y for _, y in inputs if y is not None]
    left = _axis(known if series.right else known + out)
    right = _axis(out) if series.right else left
    label = ", ".join(series.fields) if series.fields != ("value",) else "result"
    parts = [
        f'<svg class="series" role="img" aria-label="The readings of a series, and what {escape(name)} gives for them" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        *_frame(left, right if series.right else None),
        *(
            f'<circle class="in" cx="{x:.1f}" cy="{_y(y, left):.1f}" r="2"/>'
            for x, y in _placed(inputs)
            if y is not None
        ),
    ]
    for number, (_, points) in enumerate(lines):
        if series.marked:
            parts += [
                f'<circle class="out mark" cx="{x:.1f}" cy="{_y(y, right):.1f}" r="3.6"/>'
                for x, y in _placed(points)
                if y is not None
            ]
        else:
            parts.append(f'<path class="out out{number}" d="{_path(points, right, series.step)}"/>')
    parts += [
        f'<circle class="in" cx="{LEFT + 6}" cy="13" r="3"/><text x="{LEFT + 15}" y="17">value</text>',
        f'<path class="out" d="M{LEFT + 66} 13h18"/><text x="{LEFT + 90}" y="17">{escape(label)}'
        f"{' (right axis)' if series.right else ''}</text>",
        "</svg>",
    ]
    return "".join(parts)


def _points(rows: Sequence[Row], field: str) -> list[tuple[float, float | None]]:
    """Return the minutes since noon and the values of a field."""
    found = []
    for row in rows:
        value = row[field]
        at = row.get("event_time") or NOON
        found.append(((at - NOON).total_seconds() / 60, None if value is None else float(value)))
    return found


def _placed(points: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    return [(LEFT + x / COUNT * (WIDTH - LEFT - RIGHT - 36), y) for x, y in points]


class _Range(NamedTuple):
    low: float
    high: float
    step: float


def _axis(values: list[float]) -> _Range:
    """Return a range with round ends and the distance of its marks."""
    low, high = min(values), max(values)
    raw = (high - low or 1) / 4
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)
    return _Range(math.floor(low / step) * step, math.ceil(high / step) * step or step, step)


def _y(value: float, axis: _Range) -> float:
    return HEIGHT - BOTTOM - (value - axis.low) / (axis.high - axis.low or 1) * (HEIGHT - TOP - BOTTOM)


def _marks(axis: _Range) -> list[float]:
    return [axis.low + i * axis.step for i in range(round((axis.high - axis.low) / axis.step) + 1)]


def _frame(left: _Range, right: _Range | None) -> list[str]:
    end = WIDTH - RIGHT - 36
    parts = []
    for mark in _marks(left):
        y = _y(mark, left)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{end}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    if right:
        parts += [f'<text class="tick" x="{end + 6}" y="{_y(m, right) + 4:.1f}">{m:g}</text>' for m in _marks(right)]
    for minute in range(0, COUNT + 1, 30):
        x = LEFT + minute / COUNT * (end - LEFT)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{minute} min</text>')
    return parts


def _path(points: list[tuple[float, float | None]], axis: _Range, step: bool) -> str:
    parts, pen, before = [], "M", 0.0
    for x, y in _placed(points):
        if y is None:
            pen = "M"
            continue
        at = _y(y, axis)
        if step and pen == "L":
            parts.append(f"L{x:.1f} {before:.1f}")
        parts.append(f"{pen}{x:.1f} {at:.1f}")
        pen, before = "L", at
    return "".join(parts)
