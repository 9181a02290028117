"""Equipment monitoring, against a naive reference."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.dataflows import equipment_monitoring
from riot_ops.dataflows.neptune.equipment_monitoring import COLUMNS
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.neptune_equipment import STATES, delays, monitor, ordered
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SECOND = 1_000_000_000
#: Readings as (milliseconds since the previous one, possibly negative; the states that flip).
readings = st.lists(
    st.tuples(st.sampled_from([10, 10, 10, 200, 7000, -5, -900, -1500]), st.sets(st.sampled_from(STATES))), max_size=25
)
streams = readings.map(lambda steps: made(steps))  # noqa: PLW0108 (it stands below)


def made(steps):
    """Return ``(ts, states)`` of each reading."""
    ts, states, found = 5 * SECOND, dict.fromkeys(STATES, 0), []
    for step, flips in steps:
        ts = max(0, ts + step * 1_000_000)
        states = {name: 1 - value if name in flips else value for name, value in states.items()}
        found.append((ts, states))
    return found


def lines(readings, order=COLUMNS, header=False, comma="\t", words=False):
    rows = [comma.join(order)] if header else []
    for ts, states in readings:
        spelt = {name: str(bool(value)).lower() if words else str(value) for name, value in states.items()}
        cells = {**dict.fromkeys(order, "17"), "ts": str(ts), **spelt}
        rows.append(comma.join(cells[name] for name in order))
    return rows


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def in_order(rows):
    return sorted(rows, key=lambda row: (row[1], row[0]))


def found(result, stream, *names):
    return in_order(tuple(row[name] for name in names) for row in result[stream].to_pylist())


def close(row):
    return tuple(pytest.approx(one, rel=1e-9, abs=1e-3) if isinstance(one, float) else one for one in row)


def check(result, readings, allowed_lateness=SECOND, max_pending=16, **options):
    wanted, missed, unmatched = delays(ordered(readings, allowed_lateness), max_pending)
    assert found(result, "delays", "pair", "ts", "delay") == in_order(wanted)
    watched = in_order(monitor(wanted, **options))
    names = ("pair", "ts", "count", "mean", "min", "max", "slope", "alarm")
    assert found(result, "monitor", *names) == [close(row) for row in watched]
    alarms = [(row[0], row[1]) for row in watched if row[-1]]
    assert [row[:2] for row in found(result, "alarms", "pair", "ts", "delay")] == alarms
    return missed, unmatched


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, {}),
        (
            {"window": "6s", "growth": 0.2, "baseline": "mean"},
            {"window": 6 * SECOND, "growth": 0.2, "baseline": "mean"},
        ),
        (
            {"baseline": "first", "allowed_lateness": "0s", "max_pending": 2},
            {"baseline": "first", "allowed_lateness": 0, "max_pending": 2},
        ),
    ],
    ids=["default", "short", "strict"],
)
@settings(max_examples=depth(20))
@given(readings=streams, batch_size=st.integers(1, 5))
def test_results_equal_the_reference(options, same, readings, batch_size):
    texts = table(lines(readings))
    flow = equipment_monitoring(**options)
    result = flow.run(texts, batch_size=batch_size)
    missed, unmatched = check(result, readings, **same)
    reasons = result["errors"]["reason"].to_pylist()
    assert (reasons.count("missed"), reasons.count("unmatched_effect")) == (missed, unmatched)
    allowed_lateness = same.get("allowed_lateness", SECOND)
    assert reasons.count("late") == len(readings) - len(ordered(readings, allowed_lateness))


@settings(max_examples=depth(8))
@given(readings=streams, max_records=st.integers(3, 7))
def test_staged_results_are_equal(readings, max_records):
    flow, texts = equipment_monitoring(), table(lines(readings))
    result = flow.run(texts)
    staged = SimulatedQuery(flow, ro.MemorySource(texts), random.Random(len(readings)), max_records=max_records)
    for name in ("delays", "monitor", "alarms"):
        fields = [n for n in ("pair", "ts", "delay", "slope", "alarm") if n in result[name].column_names]
        assert found(staged, name, *fields) == found(result, name, *fields)


def flips(n, every=100_000_000, delay=30_000_000):
    """Simulate a sensor that flips, and a valve that follows more and more slowly."""
    events = []
    for i in range(1, n + 1):
        events += [(i * every, "bm06", i % 2), (i * every + delay * (20 + i) // 20, "bm09", i % 2)]
    states, readings = dict.fromkeys(STATES, 0), [(0, dict.fromkeys(STATES, 0))]
    for ts, name, value in sorted(events):
        states = {**states, name: value}
        readings.append((ts, states))
    return readings


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [7, 10_000])
def test_slowing_valve_raises_an_alarm(batch_size):
    readings = flips(400)
    result = equipment_monitoring(window="3s").run(table(lines(readings)), batch_size=batch_size)
    check(result, readings, window=3 * SECOND)
    assert result["errors"].num_rows == 0
    assert 300 < result["alarms"].num_rows < 400


def test_headers_delimiters_and_words(tmp_path):
    readings = flips(6)
    wanted = equipment_monitoring().run(table(lines(readings)))["delays"]["delay"].to_pylist()
    other = sorted(COLUMNS)
    for texts in (
        lines(readings, other, header=True, comma=","),
        lines(readings, words=True, header=True),
        lines(readings[:4]) + lines(readings[4:], other, header=True),
    ):
        for batch_size in (1, 5, 100):
            result = equipment_monitoring().run(table(texts), batch_size=batch_size)
            assert result["delays"]["delay"].to_pylist() == wanted
            assert result["errors"].num_rows == 0
    bars = equipment_monitoring(delimiter="|").run(table(lines(readings, comma="|")))
    assert bars["delays"]["delay"].to_pylist() == wanted
    bad = [lines(readings)[0] + "\t1", "", lines(readings)[0].replace("\t0", "\t2"), "x" + lines(readings)[0]]
    reasons = equipment_monitoring().run(table(bad))["errors"]["reason"].to_pylist()
    assert sorted(reasons) == ["bad_bool", "bad_time", "wrong_cells", "wrong_cells"]


def test_restarted_run_continues(tmp_path):
    readings = flips(60)
    texts = lines(readings, sorted(COLUMNS), header=True)
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    half = ScriptedSource([table(texts[:50]).to_pylist(), ABORT, table(texts[50:]).to_pylist()])
    with pytest.raises(ConnectorError):
        equipment_monitoring().run(half, **kept)
    result = equipment_monitoring().run(half, **kept)
    check(result, readings)


def test_times_of_the_challenge_are_exact():
    """In the challenge's files times have seven digits after the second, and an offset."""
    start = "2012-02-22T16:46:28."

    def line(at, **states):
        cells = {**dict.fromkeys(COLUMNS, "0"), "ts": at, **states}
        return "\t".join(cells[name] for name in COLUMNS)

    ns = 1_329_929_188_000_000_000
    texts = [
        line(f"{start}9670320+00:00"),
        line(f"{start}9770320+00:00", bm05="1"),
        line("2012-02-22T17:46:28.9870321+01:00", bm05="1", bm08="1"),
    ]
    wanted = [("bm05-bm08", ns + 987_032_100, 10_000_100)]
    for lines in (texts, [*texts[:2], line(str(ns + 987_032_100), bm05="1", bm08="1")], ["\t".join(COLUMNS), *texts]):
        result = equipment_monitoring().run(table(lines))
        assert found(result, "delays", "pair", "ts", "delay") == wanted
        assert f"{result['delays']['event_time'][0].as_py():%H:%M:%S.%f}" == "16:46:28.987032"
        assert result["errors"].num_rows == 0
    staged = SimulatedQuery(equipment_monitoring(), ro.MemorySource(table(texts)), random.Random(1), max_records=1)
    assert found(staged, "delays", "pair", "ts", "delay") == wanted
    bad = [line(f"{start}9670320+24:00"), line("1.5"), line("2012-02-30"), line("2600-01-01"), line("")]
    assert equipment_monitoring().run(table(bad))["errors"]["reason"].to_pylist() == ["bad_time"] * 4 + ["missing"]
