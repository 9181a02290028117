"""Programs whose types ``make lint`` checks with mypy and pyright: what an editor knows of the public names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import riot_ops as ro
from riot_ops import spark, tables
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.measure.metrics import Summary


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "value": 2 * row["value"]}


def words(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from ({"word": word} for word in row["text"].split())


def total(state: Any, row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return state + row["value"], {"total": state + row["value"]}


def verbs_of_a_stream(folder: Path) -> None:
    flow = ro.Dataflow("typed")
    readings = flow.source("readings", {"device": "string", "value": float})
    assert_type(readings, ro.Stream)
    assert_type(readings.map(double), ro.Stream)
    assert_type(readings.map(double, {"value": "double"}, "double", revision=1, id="other"), ro.Stream)
    assert_type(readings.flat_map(words, schema={"word": "string"}), ro.Stream)
    assert_type(readings.filter(lambda row: bool(row["value"] > 2)), ro.Stream)
    assert_type(readings.filter("value > 2", id="some"), ro.Stream)
    assert_type(readings.lookup({"a": "kitchen"}, on="device", columns="room", default="?"), ro.Stream)
    assert_type(readings.lookup(tables.CSVTable("rooms.csv", on="id"), ["device"], {"room": "name"}), ro.Stream)
    assert_type(readings.apply(t.KalmanFilter()), ro.Stream)
    assert_type(readings.to(t.KalmanFilter(), id="kalman"), ro.Stream)
    assert_type(readings >> t.KalmanFilter(), ro.Stream)
    assert_type(readings | readings, ro.Stream)
    assert_type(ro.merge(readings, readings), ro.Stream)
    assert_type(readings.partition_by("device", parallelism=2), ro.Stream)
    assert_type(readings.to("out"), ro.Dataflow)
    assert_type(readings.to(ro.CSVSink(folder), id="files"), ro.Dataflow)
    assert_type(readings >> ro.MemorySink(), ro.Dataflow)
    assert_type(flow.sink("more", readings, bound=ro.MemorySink()), ro.Dataflow)
    assert_type(ro.Dataflow.from_json(flow.to_json()), ro.Dataflow)


def verbs_of_a_keyed_stream(readings: ro.Stream) -> None:
    keyed = readings.key_by("device")
    assert_type(keyed, ro.KeyedStream)
    assert_type(keyed.apply(t.KalmanFilter(), id="kalman"), ro.KeyedStream)
    assert_type(keyed.filter(lambda row: True).map(double), ro.KeyedStream)
    assert_type(keyed.lookup("rooms.csv", on_missing="drop", id="rooms"), ro.KeyedStream)
    assert_type(keyed.fold(total, initial=0.0, schema={"total": "double"}, ttl="1h"), ro.KeyedStream)
    assert_type(keyed.join(readings, within="5s", how="left"), ro.KeyedStream)
    assert_type(readings.join(readings, "device", within=("1s", "5s")), ro.Stream)
    assert_type(keyed.window("1min"), ro.WindowedStream)
    assert_type(keyed.window(w.Session("30s")).agg(mean=("value", "mean"), n="count", id="run"), ro.KeyedStream)
    assert_type(keyed.window(10).agg({"a b": "count"}, emit="each", allowed_lateness="5s"), ro.KeyedStream)
    assert_type(keyed.to("out"), ro.Dataflow)
    assert_type(keyed.by, tuple[str, ...])


def tasks_and_frames() -> None:
    average = t.MovingAverage(by="device", ttl="1h", window=10)
    assert_type(average.session(), ro.Session)
    assert_type(average.session().push({"device": "a", "value": 1.0}), list[dict[str, Any]])
    assert_type(ro.apply(average, {"any": "frame"}), dict[str, str])
    assert_type(ro.apply(ro.map(double), "frame", on_error="drop", order="arrival"), str)
    assert_type(ro.filter(lambda row: True).replace(label="all"), t.FilterFunction)


def on_spark(flow: ro.Dataflow, session: Any) -> None:
    assert_type(spark.start(flow, session, out="results").wait("1min"), Summary)
    spark.transform(t.KalmanFilter(), session, on_error="keep")  # type: ignore[arg-type]


def short_forms_of_parameters() -> None:
    assert_type(t.KalmanFilter(by=["device", "kind"], noise_per="1s").ttl, timedelta | str | None)
    assert_type(t.Deduplicate(by="device", ttl=timedelta(hours=1)).by, str | Sequence[str])
    assert_type(t.AssembleMessage(by="seq", timeout="1min"), t.AssembleMessage)
    assert_type(w.Hopping("1min", every=timedelta(seconds=10)), w.Hopping)
    assert_type(w.Session("30s").gap, timedelta | str)
    t.KalmanFilter(ttl=3600)  # type: ignore[arg-type]
    t.KalmanFilter(by=1)  # type: ignore[arg-type]
    w.Tumbling(60)  # type: ignore[arg-type]


def forms_that_tasks_check_themselves() -> None:
    assert_type(t.Lookup(table={"a": "kitchen"}, on="device", columns="room"), t.Lookup)
    assert_type(t.Lookup(table=tables.CSVTable("rooms.csv"), on=["device"], columns={"room": "name"}), t.Lookup)
    assert_type(t.RangeFilter(by=None, bounds={"value": (0, 10)}), t.RangeFilter)
    assert_type(t.ParseLines(schema={"id": (0, "string"), "value": (1, "double", None)}, skip={0: "id"}), t.ParseLines)
    assert_type(t.Unpivot(fields="in", labels=(True,)), t.Unpivot)
    assert_type(t.Project(fields=["value"], nulls={"mean": "double"}).fields, str | Sequence[str])
    assert_type(t.ChangeDetector(fields="value", keep=["id"]), t.ChangeDetector)
    assert_type(t.Compute({"twice": "2 * value"}), t.Compute)
    aggregates = {"mean": ("value", "mean"), "n": "count"}
    assert_type(t.Window(by="device", frame="1min", aggregates=aggregates, emit="10s"), t.Window)
    assert_type(t.Window(frame=w.Session("30s"), aggregates={"n": "count"}, emit="each"), t.Window)
    t.Lookup(table=3, on="device")  # type: ignore[arg-type]
    t.RangeFilter(bounds=3)  # type: ignore[arg-type]
    t.ParseLines(schema={"id": 0})  # type: ignore[dict-item]
    t.Unpivot(fields={"in": True})  # type: ignore[arg-type]
    t.Compute(["2 * value"])  # type: ignore[arg-type]
    t.Window(frame=1.5)  # type: ignore[arg-type]
    t.Window(emit=3)  # type: ignore[arg-type]


def what_a_checker_refuses(readings: ro.Stream) -> None:
    readings.to(5)  # type: ignore[call-overload]
    readings.map(double, ids="x")  # type: ignore[call-arg]
    readings.map(lambda: {})  # type: ignore[arg-type,misc]
    readings.key_by(("device", "kind"))  # type: ignore[arg-type]
    readings.fold(total)  # type: ignore[attr-defined]
    readings.key_by("device").window(1.5)  # type: ignore[arg-type]
    readings.key_by("device").window(3).agg(mean=3)  # type: ignore[arg-type]
    readings.join(readings, "device")  # type: ignore[call-arg]
    ro.apply(double, "frame")  # type: ignore[arg-type]
    ro.apply(t.KalmanFilter(), "frame", on_error="keep")  # type: ignore[arg-type]
