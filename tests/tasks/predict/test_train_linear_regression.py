"""Training of linear regressions: the benchmark's rows, and the selection of inputs."""

from __future__ import annotations

import json

import pytest

import riot_ops as ro
from riot_ops.models import LinearModel
from riot_ops.tasks import TrainLinearRegression
from tests.reference.linear_regression import least_squares
from tests.samples import MADE, expected


def clean_trips(path):
    """Seconds, miles and fare of the trips in a file that have a time and a distance and not the flat fare."""
    found = []
    for line in path.read_text().splitlines():
        cells = {entry["n"]: entry.get("v") for entry in json.loads(line.partition(",")[2])["e"]}
        trip = [float(cells[name]) for name in ("trip_time_in_secs", "trip_distance", "fare_amount")]
        if trip[0] * trip[1] != 0 and trip[2] != 52:
            found.append(trip)
    return found


def test_clean_rows_of_the_taxi_stream(sample_data):
    inputs = ("trip_time_in_secs", "trip_distance")
    flow = ro.Dataflow("train")
    rows = flow.source("taxi") >> ro.tasks.ParseSenML(schema="taxi", layout="wide")
    # no trip without time or distance, and not the flat fare to the airport
    clean = rows >> ro.filter(lambda r: r["trip_time_in_secs"] * r["trip_distance"] != 0 and r["fare_amount"] != 52)
    path = sample_data / "riotbench" / "TAXI_sample_data_senml.csv"
    trips = clean_trips(path)
    assert len(trips) == expected(sample_data, made=26, papers=945)
    train = TrainLinearRegression(inputs=inputs, target="fare_amount", size=len(trips), dataset="TAXI")
    flow.sink("out", clean.to(train, id="train"))
    (row,) = flow.run(ro.streams.replay(path))["train"].to_pylist()
    model = LinearModel.from_bytes(row["content"])
    found = [model.intercept, *model.coefficients]
    assert found == pytest.approx([float(b) for b in least_squares([t[:2] for t in trips], [t[2] for t in trips])])
    if sample_data != MADE:
        assert found == pytest.approx([2.026, 0.004777, 2.1601], rel=3e-4)
        assert model.metrics["rmse"] == pytest.approx(0.88, abs=0.005)


def test_m5_drops_useless_inputs():
    rows = [
        {"x": float(i % 7), "z": float(i * i % 5), "y": 3.0 * (i % 7) + (-1) ** i, "event_time": i} for i in range(70)
    ]
    found = {}
    for selection in ("none", "m5"):
        task = TrainLinearRegression(inputs=("x", "z"), target="y", size=70, selection=selection)
        found[selection] = LinearModel.from_bytes(task.session().push_many(rows)[0]["content"]).coefficients
    assert found["none"][1] != 0.0 and found["m5"][1] == 0.0
    assert found["m5"][0] == pytest.approx(3.0, abs=0.05)
