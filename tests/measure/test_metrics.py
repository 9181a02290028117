"""What a run says of itself in a notebook."""

from __future__ import annotations

import re

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.measure.metrics import Latency, Summary


def test_a_result_shows_what_came_out():
    flow = ro.Dataflow("smooth")
    readings = flow.source("in", schema={"value": "float64"})
    kalman = readings.to(t.KalmanFilter(), id="kalman")
    flow.sink("out", kalman, readings.to(t.MovingAverage(window=2), id="avg"))
    result = flow.run([{"value": v} for v in (1.0, 2.0, float("inf"), 3.0)])
    lines = repr(result).splitlines()
    assert re.fullmatch(r"smooth: 4 messages in [\d.]+ m?s \([\d,]+/s\)", lines[0])
    assert lines[1:4] == [
        "  avg     1",
        "  kalman  3",
        "  errors  2  avg: not_finite 1, kalman: not_finite 1",
    ]
    assert re.fullmatch(r"  Latency\(median .* m?s, 99 % .* m?s, max .* m?s\)", lines[4])
    assert len(lines) == 5


def test_a_summary_without_errors():
    assert repr(Summary(messages=1_500_000, rows={"b": 20, "a": 1_000}, seconds=12.4)).splitlines() == [
        "1,500,000 messages in 12 s (120,968/s)",
        "  a  1,000",
        "  b     20",
    ]
    assert repr(Summary()) == "0 messages in 0 ms"


def test_the_most_frequent_reasons_come_first():
    summary = Summary(messages=9, rows={"errors": 8}, reasons={"a: x": 1, "b: y": 6, "c: z": 1}, seconds=1.0)
    assert repr(summary).splitlines()[1:] == ["  errors  8  b: y 6, a: x 1, c: z 1"]


def test_latency():
    latency = Latency()
    assert repr(latency) == "Latency(no records)"
    latency.add(first_us=0, last_us=0, now_us=2_000, rows=98)
    latency.add(first_us=0, last_us=0, now_us=3_000_000, rows=2)
    assert repr(latency) == "Latency(median 2 ms, 99 % 3 s, max 3 s)"
