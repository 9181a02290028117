"""Dataflows that run in the background of this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.source import Source

SCHEMA = {"room": "string", "value": "double"}


def doubled():
    flow = ro.Dataflow("doubled")
    readings = flow.source("readings", schema=SCHEMA)
    return flow.sink(
        "out", readings.to(ro.map(lambda row: {"twice": 2 * row["value"]}, adds={"twice": "double"}), id="twice")
    )


class Ticks(Source):
    """Numbers its records from 0 on without an end, a few each time it is asked; waits while ``hold`` is set."""

    schema = pa.schema([("seq", pa.int64()), ("room", pa.string()), ("value", pa.float64())])

    def __init__(self):
        self.hold = threading.Event()
        self.fail = False

    def initial(self):
        return {"at": 0}

    def latest(self, start, limit=None):
        if self.fail:
            raise OSError("the cable is cut")
        return start if self.hold.is_set() else {"at": start["at"] + 10}

    def splits(self, start, end, n):
        return [{"from": start["at"], "to": end["at"]}]

    def read(self, split):
        seq = list(range(split["from"], split["to"]))
        yield pa.record_batch(
            {"seq": seq, "room": [f"r{n % 3}" for n in seq], "value": [float(n) for n in seq]}, schema=self.schema
        )

    def count(self, start, end):
        return end["at"] - start["at"]

    def finished(self, offset):
        return False


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_results_equal_those_in_the_foreground():
    rows = [{"room": "a", "value": float(i)} for i in range(1000)] + [{"room": "a", "value": "n/a"}]
    wanted = doubled().run(rows)
    run = doubled().launch(rows)
    summary = run.wait()
    assert (summary.messages, summary.rows) == (1001, wanted.summary.rows)
    assert run["twice"].equals(wanted["twice"]) and run["errors"].equals(wanted.errors)
    assert not run.active and run.status()["error"] is None


def test_counts_and_results_are_seen_while_it_runs():
    source = Ticks()
    with doubled().launch(source, epoch="1h") as run:
        until(lambda: run.status()["messages"] >= 100)
        source.hold.set()
        until(lambda: run["twice"].num_rows == run.status()["messages"] == run.status()["records"]["twice"])
        status = run.status()
        json.dumps(status)
        assert (status["active"], status["runner"], status["epoch"]) == (
            True,
            "in process",
            None,
        )  # nothing is committed
        assert status["records"] == {"twice": status["messages"]} and status["messages"] % 10 == 0
        assert status["steps"]["twice"] == {"read": status["messages"], "rejected": 0}
        assert 0 < status["latency_seconds"]["p50"] <= status["latency_seconds"]["p99"] < 30
        assert "running" in repr(run)
    status = run.status()
    assert (status["active"], status["epoch"]) == (False, 0)
    assert run["twice"]["twice"].to_pylist() == [2.0 * n for n in range(status["messages"])]


def test_newest_records_are_sampled():
    source = Ticks()
    with doubled().launch(source, epoch="1h") as run:
        assert run.newest() == {}  # it begins with the question
        until(lambda: "twice" in run.newest())
        sample = run.newest()["twice"]
        assert 0 < sample.num_rows <= 64 and sample.schema.names == ["seq", "room", "value", "twice"]
        newest = sample["seq"].to_pylist()[-1]
        until(lambda: run.newest()["twice"]["seq"].to_pylist()[-1] > newest)  # they are renewed


def test_stop_commits_and_a_later_run_continues(tmp_path):
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "state", "epoch": "1h"}
    source = Ticks()
    run = doubled().launch(source, **options)
    until(lambda: run.status()["messages"] >= 50)
    run.stop()
    run.stop()  # may be called twice
    first = run.status()["messages"]
    again = doubled().launch(Ticks(), **options)
    until(lambda: again.status()["messages"] >= 50)
    again.stop()
    values = again["twice"].sort_by("seq")["value"].to_pylist()
    assert values == [float(n) for n in range(first + again.status()["messages"])]


def test_mistakes_are_raised_by_launch(tmp_path):
    with pytest.raises(ConfigError, match="epoch_rows"):
        doubled().launch([], epoch_rows=0)
    with doubled().launch(Ticks(), out=tmp_path), pytest.raises(ConnectorError, match="in use by this process"):
        doubled().launch(Ticks(), out=tmp_path)
    state = tmp_path / "state"
    doubled().launch([], checkpoint=state).wait()
    other = ro.Dataflow("other")
    other.sink("out", other.source("readings", schema=SCHEMA).to(t.KalmanFilter(by="room"), id="smooth"))
    with pytest.raises(StateError, match="of another dataflow"):
        other.launch([], checkpoint=state)


def test_failure_is_raised_by_wait_and_told_by_status(tmp_path):
    source = Ticks()
    run = doubled().launch(source, out=tmp_path / "out")
    until(lambda: run.status()["messages"] > 0)
    source.fail = True
    with pytest.raises(OSError, match="the cable is cut"):
        run.wait("30s")
    assert (run.status()["active"], run.status()["error"]) == (False, "OSError") and "failed" in repr(run)
    with pytest.raises(OSError, match="the cable is cut"):
        run.wait()
    doubled().launch([], out=tmp_path / "out", overwrite=True).wait()  # the folder is free again


def test_wait_returns_after_its_time():
    with doubled().launch(Ticks()) as run:
        begun = time.monotonic()
        run.wait("100ms")
        assert run.active and 0.1 <= time.monotonic() - begun < 10


def test_progress_is_called_as_in_the_foreground():
    seen = []
    doubled().launch([{"room": "a", "value": 1.0}], progress=lambda summary: seen.append(summary.messages)).wait()
    assert seen[-1] == 1


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 0)])
def test_end_of_the_program_commits(tmp_path, number, code):
    """By a signal to a program that waits, and by its end without a word to the run."""
    program = f"""
    import signal, sys, threading, time
    sys.path.insert(0, {str(os.getcwd())!r})
    from tests.runtime.test_background_run import Ticks, doubled, until
    run = doubled().launch(Ticks(), out={str(tmp_path / "out")!r}, checkpoint={str(tmp_path / "state")!r}, epoch="1h")
    until(lambda: run.status()["messages"] >= 50)

    def tell():
        while {number is not None} and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            time.sleep(0.01)  # until wait() handles it
        print("ready", flush=True)

    threading.Thread(target=tell).start()
    try:
        run.wait() if {number is not None} else None
    except KeyboardInterrupt:
        print(run.status()["messages"], flush=True)
        sys.exit({code})
    """
    done = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert done.stdout.readline() == "ready\n"
    if number is not None:
        done.send_signal(number)
    told = done.communicate(timeout=60)[0]
    assert done.returncode == code
    rows = ro.ParquetSink(tmp_path / "out").table("twice").sort_by("seq")["value"].to_pylist()
    assert rows == [float(n) for n in range(len(rows))] and len(rows) >= 50
    assert number is None or int(told) == len(rows)


def test_status_has_queues_state_and_the_time_of_steps():
    flow = ro.Dataflow("two")
    schema = {"room": "string", "value": "double"}
    a, b = flow.source("a", schema=schema), flow.source("b", schema=schema)
    flow.sink(
        "out", a.to(t.KalmanFilter(by="room"), id="smooth"), b.to(t.RangeFilter(bounds={"value": (0, 9)}, by=None))
    )
    entered, leave = threading.Event(), threading.Event()

    def write(stream, batch):
        entered.set()
        leave.wait(60)

    with flow.launch({"a": Ticks(), "b": Ticks()}, sinks=ro.CallbackSink(write), buffering="immediate") as run:
        assert run.status()["step_seconds"] == {}, "not measured before somebody looks"
        run.newest()
        assert entered.wait(60)
        buffer = run._job.buffer
        until(lambda: buffer.sizes.get("a", 0) > 0 and buffer.sizes.get("b", 0) > 0, 60)
        leave.set()
        until(lambda: run.status()["step_seconds"].get("smooth", 0) > 0, 60)
        until(lambda: run.status()["state_bytes"] > 0, 60)
        status = run.status()
        assert set(status["queues"]) == {"a", "b"} and status["queue_bytes"] == sum(status["queues"].values())
        assert all(n >= 0 for n in status["queues"].values())
    buffer = run._job.buffer
    assert sum(buffer.sizes.values()) == buffer.size


@pytest.mark.long
def test_samples_need_no_pandas():
    """Its import takes a quarter of a second, and memory."""
    program = """
        import sys
        import riot_ops as ro
        flow = ro.Dataflow("plain")
        flow.sink("out", flow.source("in", schema={"value": "double"}))
        run = flow.launch([{"value": 1.0}, {"value": 2.0}])
        run.newest()
        run.wait()
        with ro.live(run) as page:
            assert page.monitor.state()["status"]["messages"] == 2
        assert "pandas" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)
