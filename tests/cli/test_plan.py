"""The size of a deployment, from what was measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops import tasks as t
from riot_ops.cli.sizing import Calibration, StepState, calibrate, size_for
from tests.cli.commands import call, failure

STEP = StepState("mean", keys_per_key=5, other_keys=3, memory_bytes=100, stored_bytes=60)
LOCAL = Calibration("local", 10_000, (10, 20), 50e-6, 0.0, 200e6, 0.0, (STEP,))
SPARK = Calibration("spark", 10_000, (10, 20), 50e-6, 0.5, 400e6, 150e6, (STEP,))


def test_size_in_process_by_hand():
    size = size_for("flow", LOCAL, 30_000, 1000)
    assert (size.cores, size.partitions, size.executors, size.utilization) == (3, 1, 1, 0.5)
    assert (size.state_bytes, size.checkpoint_bytes) == (5003 * 100, 5003 * 60)
    assert size.memory_bytes == 200e6 + 2 * 5003 * 160
    assert size_for("flow", LOCAL, 30_000, 1000, head_room=1).cores == 2
    assert size_for("flow", LOCAL, 1, 1).cores == 1


def test_size_on_spark_by_hand():
    size = size_for("flow", SPARK, 100_000, 1000)
    assert (size.cores, size.partitions, size.executors, size.utilization) == (11, 11, 3, 0.5)
    assert size.checkpoint_bytes == 2 * 5003 * 60
    assert size.memory_bytes == 3 * 400e6 + 11 * 150e6 + 2 * 5003 * 160


def test_what_is_extrapolated_is_said():
    assert any("11 cores" in text for text in size_for("flow", SPARK, 100_000, 20).extrapolated)
    assert not any("the state of" in text for text in size_for("flow", SPARK, 100, 20).extrapolated)
    text = str(size_for("flow", SPARK, 100, 1000))
    assert text.index("measured here") < text.index("extrapolated") < text.index("the state of 1,000 keys")
    assert "partitions" in text and "partitions" not in str(size_for("flow", LOCAL, 100, 1000))


@pytest.mark.parametrize(
    "values", [(0, 1, 2), (float("nan"), 1, 2), (1, 0, 2), (1, 1, 0.5), (2e12, 1, 2), (1, 2 * 10**12, 2), (1, 1, 1001)]
)
def test_a_load_that_cannot_be_is_refused(values):
    with pytest.raises(ConfigError, match=r"--(rate|keys|head-room) must be"):
        size_for("flow", LOCAL, *values)


def test_state_per_key_is_that_of_the_engine():
    """Keys of a step are counted for two numbers of sensors; a step without a key has one for any."""
    flow = ro.Dataflow("state")
    city = flow.source("city") >> t.ParseSenML(schema="city")
    smooth = city.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="smooth")
    flow.sink("out", smooth, city.to(t.RunningCount(by=("obs_type",)), id="count"))
    asked = []

    def sources(keys, messages):
        asked.append((keys, messages))
        return {"city": ro.streams.city(sensors=keys, messages=messages)}

    measured = calibrate(flow, sources, (20, 40), 400)
    assert asked == [(20, 40), (20, 200), (20, 400), (40, 400)]
    smooth, count = measured.steps
    assert smooth.step == "smooth" and smooth.keys(1000) == pytest.approx(5000, rel=0.1)
    assert (count.step, count.keys_per_key, count.other_keys) == ("count", 0, 5)
    assert 20 < smooth.stored_bytes < smooth.memory_bytes < 2000
    assert measured.cpu_seconds > 0 and measured.base_bytes > 10e6
    assert measured.runner == "local" and measured.keys == (20, 40) and measured.messages == 400


def test_state_that_still_grows_is_said():
    """100 records of each key: a window of a week is not full, one of 4 records is, and a count has none."""
    flow = ro.Dataflow("growth")
    city = flow.source("city") >> t.ParseSenML(schema="city")
    for size, id in (("7d", "long"), (4, "short")):
        window = city.key_by("sensor_id", "obs_type").window(ro.windows.Sliding(size))
        flow.sink(f"out_{id}", window.agg(mean=("value", "mean"), id=id))
    flow.sink("out", city.to(t.RunningCount(by=("sensor_id",)), id="count"))
    measured = calibrate(flow, lambda keys, n: {"city": ro.streams.city(sensors=keys, messages=n)}, (20, 40), 2000)
    growing = {step.step: step.growth_bytes for step in measured.steps}
    assert 16 <= growing["long"] < 100 and growing["short"] == growing["count"] == 0  # a time and a value at least
    (text,) = (text for text in size_for("growth", measured, 10, 20).extrapolated if "still grew" in text)
    assert text.startswith("long: its state still grew after 100 records of each key, by ")


def test_what_was_not_measured_is_said(caplog):
    flow = ro.Dataflow("gaps")
    for name in ("a", "b"):
        flow.sink(f"out_{name}", flow.source(name).to(t.ParseSenML(schema="city"), id=f"parse_{name}"))
    rows = ro.streams.city(sensors=2, messages=3).lines(0, 3).to_pydict()
    rows = pa.table(rows | {"payload": [rows["payload"][0], b"x", b"y"]})
    empty = rows.slice(0, 0)
    measured = calibrate(flow, lambda keys, n: {"a": rows, "b": empty}, (), 100)
    rejected, missing = measured.gaps
    assert rejected.startswith("the step 'parse_a' rejected 2 of 3 records (malformed 2)") and not caplog.records
    assert missing == "the source 'b' and its steps: it had no records; --input b=FILE gives it some"
    assert "not measured\n  the step 'parse_a'" in str(size_for("gaps", measured, 1, 1))


def test_text_is_as_wide_as_a_terminal():
    size = size_for("flow", LOCAL, 1e12, 10**12)
    assert max(map(len, str(size).splitlines())) <= 80
    assert "PiB" in str(size) and "cores       100,000,000 " in str(size)
    assert any("more cores than the" in text and "--runner spark" in text for text in size.extrapolated)
    assert not any("more cores" in text for text in size_for("flow", SPARK, 1e12, 10).extrapolated)
    without = Calibration("local", 10_000, (), 50e-6, 0.0, 200e6, 0.0, ())
    text = str(size_for("flow", without, 0.25, 10**6))
    assert "0.25 messages/s" in text and "state none" in text and "no step has kept state" in text


def test_command_prints_the_size(tmp_path):
    found = json.loads(call("plan", "stats", "--rate", "70", "--keys", "90", "--messages", "2000", "--json"))
    assert (found["flow"], found["runner"], found["rate"], found["keys"], found["cores"]) == (
        "stats",
        "local",
        70,
        90,
        1,
    )
    assert {step["step"] for step in found["measured"]["steps"]} >= {"avg", "kalman", "slr"}
    assert "messages/s per core" in call("plan", "wc", "--rate", "70", "--keys", "90", "--messages", "200")
    (tmp_path / "rows.csv").write_text("sensor_id,value\n" + "".join(f"s{i % 7},{i}\n" for i in range(200)))
    flow = ro.Dataflow("json")
    rows = flow.source("rows", schema={"sensor_id": "string", "value": "double"})
    flow.sink("out", rows.to(t.KalmanFilter(by="sensor_id"), id="smooth"))
    (tmp_path / "flow.json").write_text(flow.to_json())
    arguments = ("plan", str(tmp_path / "flow.json"), "--rate", "1", "--keys", "700", "--json", "--head-room", "1.5")
    for given in (str(tmp_path / "rows.csv"), f"rows={tmp_path}/rows.csv"):
        found = json.loads(call(*arguments, "--input", given, "--messages", "200"))
        (step,) = found["measured"]["steps"]
        assert (step["keys_per_key"], found["head_room"], found["measured"]["keys"]) == (1, 1.5, [])
        assert found["measured"]["messages"] == 200
        assert found["state_bytes"] == round(700 * step["memory_bytes"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("stats", "--rate", "7"), "needs both --rate and --keys"),
        (("stats", "--keys", "7"), "needs both --rate and --keys"),
        (("stats", "--messages", "500"), "--messages is for the size of a deployment"),
        (("stats", "--head-room", "3"), "--head-room is for the size of a deployment"),
        (("stats", "--rate", "7", "--keys", "7", "--fuse", "coarse"), "--fuse is for the stages"),
        (("tests/data", "--rate", "7", "--keys", "7"), "unknown application"),
        (("stats", "--json"), "--json is for the size of a deployment"),
        (("stats", "--runner", "spark"), "--runner is for the size of a deployment"),
        (("stats", "--rate", "7", "--keys", "7", "--runner", "flink"), "--runner must be spark or local"),
        (("stats", "--rate", "7", "--keys", "7", "--messages", "7"), "--messages must be"),
        (
            ("stats", "--rate", "7", "--keys", "7", "--messages", str(10**15)),
            "from 100 to 100,000,000, got 1,000,000,000",
        ),
        (("stats", "--rate", "nan", "--keys", "7"), "--rate must be a number > 0"),
        (("stats", "--rate", "inf", "--keys", "7"), "--rate must be a number > 0"),
        (("stats", "--rate", "1e300", "--keys", "7"), "--rate must be at most"),
        (("stats", "--rate", "7", "--keys", "0"), "--keys must be a whole number >= 1"),
        (("stats", "--rate", "7", "--keys", str(10**30)), "--keys must be at most"),
        (("stats", "--rate", "7", "--keys", "7", "--head-room", "nan"), "--head-room must be a number >= 1"),
        (("stats", "--rate", "-7", "--keys", "7"), "--rate must be"),
        (("train", "--rate", "7", "--keys", "7"), "--input SOURCE=FILE names records"),
        (("ad", "--rate", "7", "--keys", "7", "--input", "x.csv"), "the dataflow reads clicks, impressions"),
        (("wc", "--rate", "7", "--keys", "7", "--input", "x.csv"), "no such file: x.csv"),
    ],
)
def test_misuse_is_refused(arguments, text):
    code, _, error = failure("plan", *arguments)
    assert code != 0 and text in str(error)


@pytest.mark.slow
def test_size_on_spark_is_measured_there():
    call = [sys.executable, "-m", "riot_ops", "plan", "stats", "--rate", "7000", "--keys", "90000"]
    done = subprocess.run([*call, "--runner", "spark", "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    measured = found["measured"]
    assert found["partitions"] == found["cores"] and measured["runner"] == "spark"
    assert 0 < measured["batch_seconds"] < 60 and measured["core_bytes"] > 50e6 and measured["base_bytes"] > 200e6
    assert 1e-7 < measured["cpu_seconds"] < 1e-2


def test_a_descriptor_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "flow.json").write_bytes(b"\xff\xfe")
    code, _, error = failure("plan", str(tmp_path / "flow.json"))
    assert code != 0 and "flow.json cannot be read: 'utf-8' codec" in str(error)
