"""The programs of docs/adr/programs.md: each in its new form gives the results of its old form, or of another library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TIME = "timestamp[us, tz=UTC]"
FIELDS = {"event_time": TIME, "device": "string", "kind": "string", "value": "double"}
#: An irregular stream of three devices over five hours, in the order of time, with missing values.
READINGS = [
    {
        "event_time": NOON + timedelta(seconds=97 * i),
        "device": "abc"[i * i % 7 % 3],
        "kind": ("temp", "dust")[i % 2],
        "value": None if i % 17 == 5 else float(i * 7919 % 41),
    }
    for i in range(200)
]


def readings(name="program"):
    return ro.Dataflow(name).source("readings", FIELDS)


def rows(stream, *fields, source=READINGS):
    """The fields of the results of a stream, each as a dict."""
    stream.to("out")
    return stream.flow.run(source)[stream.id].select(list(fields)).to_pylist()


def known(row):
    return row["value"] is not None


@pytest.mark.long  # it loads the kernels of four tasks
def test_sensors_are_smoothed():
    def city(name):
        return ro.Dataflow(name).source("city")

    by = ("sensor_id", "obs_type")
    source = ro.streams.city(sensors=5, messages=300)
    obs = city("old") >> t.ParseSenML(schema="city") >> t.RangeFilter(bounds="city")
    slr = obs.to(t.KalmanFilter(by=by), id="kalman").to(t.SlidingRegression(by=by, horizon=3), id="slr")
    avg = obs.to(ro.filter(known)).to(t.MovingAverage(by=by, window=10), id="avg")
    old = obs.flow.sink("out", avg, slr).run(source)

    obs = city("new").apply(t.ParseSenML(schema="city")).apply(t.RangeFilter(bounds="city"))
    sensors = obs.key_by("sensor_id", "obs_type")
    avg = sensors.filter(known).window(10).agg(value=("value", "mean"), id="avg")
    slr = sensors.apply(t.KalmanFilter(), id="kalman").apply(t.SlidingRegression(horizon=3), id="slr")
    new = obs.flow.sink("out", avg, slr).run(source)
    assert new["slr"].equals(old["slr"]) and old["slr"].num_rows > 100
    means = [
        {(row["seq"], row["sensor_id"], row["obs_type"]): row["value"] for row in one["avg"].to_pylist()}
        for one in (new, old)
    ]
    assert means[0] == pytest.approx(means[1], rel=1e-12) and len(means[1]) > 50


def test_alerts_are_filtered():
    old = ro.filter(lambda row: row["value"] is not None and row["value"] > 30 and row["kind"] == "temp")
    new = readings().filter("value > 30 and kind == 'temp'")
    found = rows(new, *FIELDS)
    assert found == rows(readings().to(old), *FIELDS) and 10 < len(found) < 100


def test_minutes_have_means_and_counts():
    old = t.Window(by="device", frame="10min", aggregates={"mean": ("value", "mean"), "n": "count"})
    new = readings().key_by("device").window("10min").agg(mean=("value", "mean"), n="count")
    assert rows(new, "device", "window_start", "mean", "n") == rows(
        readings() >> old, "device", "window_start", "mean", "n"
    )


def test_hours_are_those_of_polars():
    frame = pl.DataFrame(READINGS, schema_overrides={"event_time": pl.Datetime("us", "UTC")})
    there = frame.group_by_dynamic("event_time", every="1h", group_by="device").agg(
        pl.col("value").mean().alias("mean")
    )
    wanted = [
        {"device": row["device"], "window_start": row["event_time"], "mean": pytest.approx(row["mean"], rel=1e-12)}
        for row in there.sort("device", "event_time").to_dicts()
    ]
    here = readings().key_by("device").window("1h").agg(mean=("value", "mean"))
    fields = ("device", "window_start", "mean")
    assert sorted(rows(here, *fields), key=lambda row: (row["device"], row["window_start"])) == wanted
    task = t.Window(by="device", frame="1h", aggregates={"mean": ("value", "mean")})
    one = ro.apply(task, frame, on_error="drop").select(fields).sort("device", "window_start")
    assert one.to_dicts() == wanted


def test_values_of_minutes_are_folded():
    """The list of a minute, as a fold of bytewax gathers it."""

    def gather(state, row):
        minute = row["event_time"].replace(second=0).isoformat()
        if state is None or state[0] == minute:
            return (minute, [*(state[1] if state else []), row["value"]]), None
        return (minute, [row["value"]]), {"device": row["device"], "values": state[1]}

    minutes = readings().key_by("device").window("1min")
    collected = rows(minutes.agg(values=("value", "collect")), "device", "values")
    folded = readings().key_by("device").fold(gather, schema={"device": "string", "values": "list<item: double>"})
    found = rows(folded, "device", "values")
    for device in "abc":
        lists = {}
        for row in READINGS:
            if row["device"] == device:
                lists.setdefault(row["event_time"].replace(second=0), []).append(row["value"])
        assert [row["values"] for row in found if row["device"] == device] == list(lists.values())[:-1]
        present = [[value for value in one if value is not None] for one in lists.values()]
        assert [row["values"] for row in collected if row["device"] == device] == present


def test_days_are_those_of_a_city():
    new = readings().key_by("device").window(w.Calendar("hour", tz="Asia/Kolkata"))
    new = new.agg(kwh=("value", "sum"), peak=("value", "max"))
    hours = {}
    for row in READINGS:
        local = row["event_time"].astimezone(ZoneInfo("Asia/Kolkata"))  # half an hour from the hours of UTC
        start = local.replace(minute=0, second=0).astimezone(UTC)
        hours.setdefault((row["device"], start), []).append(row["value"])
    known_values = {key: [value for value in values if value is not None] for key, values in hours.items()}
    wanted = {key: (sum(values), max(values)) for key, values in known_values.items()}
    found = rows(new, "device", "window_start", "kwh", "peak")
    assert {(row["device"], row["window_start"]): (row["kwh"], row["peak"]) for row in found} == wanted
    assert len(found) == len(wanted) > 15


def test_words_are_counted():
    def words(row):
        return ({"word": word} for word in row["text"].split())

    def lines(name):
        return ro.Dataflow(name).source("lines", {"text": "string"})

    texts = [{"text": text} for text in ("so it goes", "it was so", "", "so so")]
    old = lines("old") >> t.Tokenize(field="text") >> t.RunningCount(by="word")
    new = lines("new").flat_map(words, {"word": "string"}).key_by("word").apply(t.RunningCount())
    wanted = rows(old, "word", "count", source=texts)
    assert rows(new, "word", "count", source=texts) == wanted
    counts = lines("own").flat_map(words, {"word": "string"}).key_by("word").agg(count="count")
    assert rows(counts, "word", "count", source=texts) == wanted


def test_spikes_are_far_from_their_average():
    def far(row):
        return row["value"] is not None and abs(row["value"] - row["average"]) > 0.9 * row["average"]

    average = {"window": 20, "mode": "growing", "output": "average"}
    old = readings() >> t.MovingAverage(by="device", **average) >> ro.filter(far)
    new = readings().key_by("device").apply(t.MovingAverage(**average)).filter("abs(value - average) > 0.9 * average")
    found = rows(new, "device", "value", "average")
    assert found == rows(old, "device", "value", "average") and 5 < len(found) < 100
    present = readings().filter(lambda row: row["value"] is not None).key_by("device")
    averages = present.window(w.Sliding(20)).agg(average=("value", "mean"))
    sliding = rows(averages.filter("abs(value - average) > 0.9 * average"), "device", "value", "average")
    assert sliding == [row | {"average": pytest.approx(row["average"], rel=1e-12)} for row in found]


def test_trending_topics_are_weighted_by_their_counts():
    counts = readings().key_by("device", "kind").window(w.Hopping("10min", every="5min")).agg(n="count")
    top = counts.key_by().window("5min").agg(top=("device", "top", 2, "n"))
    totals = {}
    for row in READINGS:
        for back in (0, 5):
            end = row["event_time"] + timedelta(minutes=10 - back)
            end = end.replace(minute=end.minute // 5 * 5, second=0)
            slot = totals.setdefault(end, {})
            slot[row["device"]] = slot.get(row["device"], 0) + 1
    wanted = [
        [{"value": d, "weight": n} for d, n in sorted(slot.items(), key=lambda pair: (-pair[1], pair[0]))[:2]]
        for _, slot in sorted(totals.items())
    ]
    assert [row["top"] for row in rows(top, "top")] == wanted and len(wanted) > 50


def test_statistics_have_two_keys():
    old, new = readings("old"), readings("new")
    by_device, by_kind = new.key_by("device", "kind"), new.key_by("kind")
    results = [
        flow.flow.sink("out", *streams).run(READINGS)
        for flow, streams in (
            (
                old,
                (
                    old.to(t.SecondOrderMoment(by=("device", "kind"))),
                    old.to(t.DistinctCount(field="device", output="devices", by="kind")),
                ),
            ),
            (
                new,
                (
                    by_device.apply(t.SecondOrderMoment()),
                    by_kind.apply(t.DistinctCount(field="device", output="devices")),
                ),
            ),
        )
    ]
    devices = readings("last").key_by("kind").agg(devices=("device", "distinct"), emit="update")
    found = rows(devices, "kind", "devices")  # one batch: the last record of each kind
    last = {row["kind"]: row["devices"] for row in results[0]["distinct_count"].to_pylist()}
    assert {row["kind"]: row["devices"] for row in found} == {kind: round(number) for kind, number in last.items()}
    for stream in ("second_order_moment", "distinct_count"):
        assert results[0][stream].equals(results[1][stream]) and results[0][stream].num_rows


def test_orders_are_joined_with_payments():
    flow = ro.Dataflow("shop", merging="number")
    orders = flow.source("orders", {"id": "int64", "event_time": TIME, "item": "string"})
    payments = flow.source("payments", {"id": "int64", "event_time": TIME, "euro": "int64"})
    orders.key_by("id").join(payments.key_by("id"), within="5s", allowed_lateness="1h", id="paid").to("out")
    order = [{"id": i % 5, "event_time": NOON + timedelta(seconds=3 * i), "item": str(i)} for i in range(40)]
    payment = [{"id": i % 3, "event_time": NOON + timedelta(seconds=4 * i), "euro": i} for i in range(30)]
    found = flow.run({"orders": order, "payments": payment})["paid"].select(["id", "item", "euro"]).to_pylist()
    wanted = [
        (o["id"], o["item"], p["euro"])
        for o in order
        for p in payment
        if o["id"] == p["id"] and abs(o["event_time"] - p["event_time"]) <= timedelta(seconds=5)
    ]
    assert sorted((row["id"], row["item"], row["euro"]) for row in found) == sorted(wanted) and len(wanted) > 10
