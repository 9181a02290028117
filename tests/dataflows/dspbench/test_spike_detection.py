"""Spike detection, against a naive reference and the figures of the specification."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.dataflows import spike_detection
from riot_ops.streams import replay
from tests.reference.dspbench.spike_detection import spike_detection as reference
from tests.samples import expected
from tests.simulated_query import SimulatedQuery

SHARED = "dspbench/synthetic/sensors.dat"
VALUES = [f"{v}" for v in (20, 20.4, 20.7, 21.04, 19.36, -20.5, 0, 7.25)]
lines = st.lists(
    st.builds(
        "2004-03-01 00:00:0{}{} {} {} {} 39.4 166.4 2.7".format,
        st.integers(0, 9), st.sampled_from(["", ".5", ".123456", "x"]), st.integers(0, 9),
        st.sampled_from(["1", "2", "mote"]), st.sampled_from([*VALUES, "warm", "nan"]),
    ) | st.sampled_from(["", "2004-03-01 00:00:00 1 1", "2004-03-01 00:00:02 x 1 20 39.4 166.4 2.7", "2004-03-01 00:00:02 1 1 20 x 166.4 2.7",
        "2004-03-01 00:00:02 1 1 20 39.4 x 2.7", "2004-03-01 00:00:02 1 1 20 39.4 166.4 x", "2004-03-01  00:00:01\t3 2 20.7 39.4 166.4 2.7 "]),
    max_size=40,
)  # fmt: skip


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(spikes):
    return sorted((r["seq"], r["device_id"], r["value"], r["moving_average"]) for r in spikes.to_pylist())


def assert_same(rows, wanted):
    assert [r[:3] for r in rows] == [r[:3] for r in wanted]
    assert [r[3] for r in rows] == pytest.approx([r[3] for r in wanted], rel=1e-14)


def places(errors):
    return sorted((row["seq"], row["reason"]) for row in errors.to_pylist())


@given(lines, st.sampled_from([1, 2, 3, 1000]), st.sampled_from([0.0123, 0.0345]), st.integers(1, 7))
def test_results_equal_the_reference(texts, window, threshold, batch_size):
    result = spike_detection(window=window, threshold=threshold).run(table(texts), batch_size=batch_size)
    wanted, bad = reference(texts, window=window, threshold=threshold)
    assert_same(found(result["spikes"]), wanted)
    assert places(result.errors) == bad


@pytest.mark.long
@given(lines, st.integers(0, 1 << 32))
def test_staged_results_are_equal(texts, seed):
    choose = random.Random(seed)
    staged = SimulatedQuery(
        spike_detection(window=3), ro.MemorySource(table(texts)), choose, max_records=5,
        partitions=choose.choice([1, 3]),
    )  # fmt: skip
    wanted, bad = reference(texts, window=3)
    assert_same(found(staged["spikes"]), wanted)
    assert places(staged["errors"]) == bad


@pytest.mark.parametrize("staged", [False, True])
def test_sensors_of_the_specification(sample_data, staged):
    source = replay(sample_data / SHARED)
    result = SimulatedQuery(spike_detection(), source, random.Random(1)) if staged else spike_detection().run(source)
    by_device = Counter(int(device) for device in result["spikes"]["device_id"].to_pylist())
    spikes = expected(sample_data, made=[2, 2, 2, 2], papers=[10, 5, 5, 9, 5, 8, 6, 6, 5, 8])
    assert [by_device[i + 1] for i in range(len(spikes))] == spikes
    texts = (sample_data / SHARED).read_text().splitlines()
    wanted, bad = reference(texts)
    assert_same(found(result["spikes"]), wanted)
    assert places(result["errors"]) == bad
    assert len(bad) == 2


def test_windows_and_thresholds_of_the_specification(sample_data):
    def spikes(**options):
        return spike_detection(**options).run(replay(sample_data / SHARED))["spikes"].num_rows

    assert spikes(window=10, threshold=0.03) == expected(sample_data, made=8, papers=69)
    assert spikes(window=100, threshold=0.1) == expected(sample_data, made=8, papers=67)


def test_watched_reading_may_be_chosen():
    texts = ["2004-03-01 00:00:00 1 1 20 30 40 50", "2004-03-01 00:00:01.25 2 1 20.1 60.5 120.5 200.5"]
    for i, name in enumerate(["temperature", "humidity", "light", "voltage"]):
        rows = spike_detection(quantity=name).run(table(texts))["spikes"].to_pylist()
        assert [row["value"] for row in rows] == ([] if i == 0 else [(60.5, 120.5, 200.5)[i - 1]])
        assert all(row["event_time"] == datetime(2004, 3, 1, 0, 0, 1, 250_000, UTC) for row in rows)


def test_negative_average_has_spikes_too():
    texts = [f"2004-03-01 00:00:00 1 1 {v} 0 0 0" for v in (-20.0, -20.0, -20.4, -22.0)]
    assert [r["value"] for r in spike_detection().run(table(texts))["spikes"].to_pylist()] == [-22.0]


@pytest.mark.parametrize("cell", [2, 4, 5, 6, 7])
def test_line_with_any_malformed_number_is_an_error(cell):
    cells = ["2004-03-01", "00:00:01", "1", "1", "90", "39.4", "166.4", "2.7"]
    damaged = " ".join([*cells[:cell], "x", *cells[cell + 1 :]])
    usual = [f"2004-03-01 00:00:0{s} {s} 1 20 39.4 166.4 2.7" for s in (0, 2)]
    result = spike_detection(threshold=0.1).run(table([usual[0], damaged, usual[1]]))
    assert found(result["spikes"]) == []
    assert places(result["errors"]) == [(1, "bad_number")]


def test_restarted_run_continues(tmp_path):
    texts = [f"2004-03-01 00:00:00 1 {i % 2} {20 + i * i % 7} 0 0 0" for i in range(30)]
    whole = found(spike_detection(window=4).run(table(texts))["spikes"])
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    spike_detection(window=4).run(ro.MemorySource(table(texts[:17])), **kept)
    assert found(spike_detection(window=4).run(ro.MemorySource(table(texts)), **kept)["spikes"]) == whole
