"""What a monitor knows of a run, compared with counts made by hand."""

from __future__ import annotations

import json
import math
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.monitoring import Monitor


def plausible():
    flow = ro.Dataflow("plausible")
    readings = flow.source("readings", schema={"room": "string", "value": "double"})
    kept = readings.to(t.RangeFilter(bounds={"value": (0, 100)}, by=None), id="kept")
    smooth = kept.to(t.KalmanFilter(by="room"), id="smooth")
    return flow.sink("out", kept, smooth)


class Scripted:
    """A run whose status and samples a test sets."""

    def __init__(self):
        self.flow = plausible()
        self.counts = {"readings": 0, "kept": 0, "smooth": 0}
        self.rejected = 0
        self.active = True
        self.samples = {}
        self.micro_batches = []

    def status(self):
        read = self.counts["readings"]
        return {
            "dataflow": "plausible",
            "runner": "spark",
            "active": self.active,
            "error": None,
            "messages": read,
            "records": {"kept": self.counts["kept"], "smooth": self.counts["smooth"], "errors": self.rejected},
            "rejected": self.rejected,
            "late": self.rejected,
            "reasons": {"smooth: late": self.rejected},
            "steps": {
                "readings": {"read": read, "rejected": 0},
                "kept": {"read": read, "rejected": 0},
                "smooth": {"read": self.counts["kept"], "rejected": self.rejected},
            },
            "latency_seconds": {"p50": 0.5, "p95": None, "p99": 2.0},
            "lag_seconds": 1.0,
            "state_keys": 7,
            "batches": 3,
            "seconds": 1.5,
        }

    def newest(self):
        return self.samples


@pytest.fixture
def look(monkeypatch):
    """Looks at a run at times that the test gives."""
    run, now = Scripted(), [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monitor = Monitor(run, every="1h")

    def at(seconds):
        now[0] = 1000.0 + seconds
        monitor._take_look()
        return monitor.state()

    yield run, monitor, at
    monitor.stop()


def test_rates_are_those_since_the_look_before(look):
    run, monitor, at = look
    assert [monitor.state()["nodes"][node]["per_second"] for node in ("readings", "out")] == [0, 0]
    run.counts, run.rejected = {"readings": 100, "kept": 80, "smooth": 70}, 10
    state = at(2.0)
    assert state["nodes"]["readings"] == {
        "kind": "source", "read": 100, "rejected": 0, "late": 0, "per_second": 50.0, "batch_seconds": None,
    }  # fmt: skip
    assert state["nodes"]["smooth"] == {
        "kind": "task", "read": 80, "rejected": 10, "late": 10, "per_second": 40.0, "written": 70,
        "batch_seconds": None,
    }  # fmt: skip
    assert state["nodes"]["out"] == {"kind": "sink", "written": 150, "per_second": 75.0, "latency": 0.5}
    rates = {(edge["source"], edge["target"]): edge["per_second"] for edge in state["edges"]}
    assert rates == {
        ("readings", "kept"): 50.0, ("kept", "smooth"): 40.0, ("kept", "out"): 40.0, ("smooth", "out"): 35.0,
    }  # fmt: skip
    run.counts = {"readings": 101, "kept": 80, "smooth": 70}
    state = at(6.0)
    assert state["nodes"]["readings"]["per_second"] == 0.2 and state["nodes"]["out"]["per_second"] == 0
    assert [point["messages_per_second"] for point in state["points"]] == [0, 50.0, 0.2]
    assert [point["time"] for point in state["points"]] == [1000, 1002, 1006]


def test_point_has_latency_memory_and_parts(look):
    run, _, at = look
    run.micro_batches = [{"durations_ms": {"addBatch": 1}}, {"durations_ms": {"addBatch": 12, "walCommit": 3}}]
    point = at(1.0)["points"][-1]
    assert (point["p50"], point["p95"], point["p99"], point["lag"], point["state_keys"]) == (0.5, None, 2.0, 1.0, 7)
    assert point["parts_ms"] == {"addBatch": 12, "walCommit": 3} and point["queue_bytes"] is None
    assert point["memory_bytes"] > 1e7


def test_records_are_taken_once(look):
    run, _, at = look

    def sample(*values):
        return {"smooth": pa.record_batch({"seq": list(values), "value": [float(v) for v in values]})}

    run.samples = sample(1, 2)
    at(1.0)
    assert at(2.0)["records"]["smooth"] == [{"seq": 1, "value": 1.0}, {"seq": 2, "value": 2.0}]
    run.samples = sample(2, 3)
    assert [row["seq"] for row in at(3.0)["records"]["smooth"]] == [1, 2, 3]
    run.samples = sample(*range(10, 400))
    assert [row["seq"] for row in at(4.0)["records"]["smooth"]] == list(range(200, 400))  # at most 200


def test_rejected_records_have_their_text_and_no_more(look):
    run, _, at = look
    rejected = {
        "seq": [4],
        "task": ["parse"],
        "reason": ["malformed"],
        "message": ["x" * 1000],
        "raw": ["<b>\ud83d</b>"],
    }
    run.samples = {"errors": pa.record_batch({**rejected, "raw": ["<b>bold</b>"]})}
    (one,) = at(1.0)["rejected_records"]
    assert one == {
        "seen": 1001.0, "seq": 4, "task": "parse", "reason": "malformed", "raw": "<b>bold</b>",
        "message": "x" * 500 + "… (1,000 characters)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([2**63 - 1]), str(2**63 - 1)),  # a browser would round it
        (pa.array([2**53]), 2**53),
        (pa.array([math.nan]), None),
        (pa.array([math.inf]), None),
        (pa.array([b"\x00\xff"]), "AP8="),
        (pa.array([[1, 2]]), [1, 2]),
        (pa.array([{"a": 2**60}]), {"a": str(2**60)}),
        (pa.array([None], pa.string()), None),
        (pa.array([True]), True),
        (pa.array([0], pa.timestamp("ns", "UTC")), "1970-01-01 00:00:00.000000000Z"),
        (pa.array([7], pa.duration("s")), 7),
    ],
)
def test_values_of_any_type_are_json(look, values, wanted):
    run, _, at = look
    run.samples = {"smooth": pa.record_batch({"value": values})}
    assert json.loads(json.dumps(at(1.0)["records"]["smooth"])) == [{"value": wanted}]


def test_events_are_the_last_look_or_everything(look):
    _, monitor, at = look

    def parsed(data):
        name, body = data.decode().removesuffix("\n\n").split("\n", 1)
        return name.removeprefix("event: "), json.loads(body.removeprefix("data: "))

    version, first = monitor.events(0)
    name, found = parsed(first)
    assert (version, name, len(found["points"])) == (1, "state", 1) and found["diagram"].startswith("<svg")
    at(1.0)
    version, second = monitor.events(1)
    name, found = parsed(second)
    assert (version, name, found["version"], found["point"]["time"]) == (2, "look", 2, 1001) and "points" not in found
    at(2.0)
    at(3.0)
    name, found = parsed(monitor.events(2)[1])  # a reader that missed one
    assert (name, len(found["points"])) == ("state", 4)


def test_watching_ends_with_the_run():
    run = plausible().launch([{"room": "a", "value": float(i)} for i in range(50)])
    with Monitor(run, every="10ms") as monitor:
        run.wait()
        end = time.monotonic() + 20
        while monitor.active and time.monotonic() < end:
            time.sleep(0.01)
        version = monitor.version
        time.sleep(0.1)
        assert monitor.version == version and not monitor.active
    assert monitor.state()["nodes"]["out"]["written"] == 100


def test_run_that_cannot_be_asked_is_no_longer_watched(caplog):
    run = Scripted()
    monitor = Monitor(run, every="10ms")
    run.status = lambda: 1 / 0
    end = time.monotonic() + 20
    while monitor._thread.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert "'plausible' is no longer watched" in caplog.text and monitor.state()["version"] >= 1
