"""Machine outlier, against a naive reference and the figures of the specification."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.dataflows import machine_outlier
from riot_ops.streams import replay
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.dspbench.machine_outlier import largest, readings, scored, windowed
from tests.reference.dspbench.machine_outlier import machine_outlier as reference
from tests.samples import MADE, expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

TRACE, SYNTHETIC = "dspbench/machine-usage.csv", "dspbench/synthetic/machine-usage.csv"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@st.composite
def lines(draw, google=False):
    """Generate readings of increasing times, with some invalid and late lines."""
    at, texts = 0, []
    for _ in range(draw(st.integers(0, 40))):
        at += draw(st.sampled_from([0, 0, 0, 0, 1, 5, -2]))
        at = max(at, 0)
        machine = draw(st.sampled_from("abcd"))
        cpu, memory = (draw(st.sampled_from([10, 11.5, 12.25, 95.75])) for _ in range(2))
        if google:
            texts.append(f"{at},,,,m_{machine},{cpu / 100},{memory / 100}" + "," * 12)
        else:
            texts.append(f"m_{machine},{at},{cpu},{memory},,,1,1,1")
    for place in draw(st.lists(st.integers(0, 40), max_size=2)):
        texts.insert(
            place, draw(st.sampled_from(["", "m_a,1,2", "m_a,x,1,1,,,,,", "m_a,3,1,one,,,,,", "m_a,3,,1,,,,,"]))
        )
    return texts


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(alerts):
    names = ("seq", "timestamp", "machine_id", "stream_score", "instance_score", "is_abnormal")
    return [tuple(row[name] for name in names) for row in alerts.to_pylist()]


def assert_same(rows, wanted, top=None):
    """Compare alerts with wanted ones.

    Machines on both sides of their centre have equal distances, up to rounding, which reference and product do in
    different order; so which one is the largest follows from the scores that the product gives.
    """

    def exact(row):
        return (
            row[0],
            row[2],
            row[5] if top is None else None,
            row[1] if isinstance(row[1], datetime) else EPOCH + timedelta(microseconds=row[1]),
        )

    assert [*map(exact, rows)] == [*map(exact, wanted)]
    for i in (3, 4):
        assert [row[i] for row in rows] == pytest.approx([row[i] for row in wanted], rel=1e-12)
    if top is not None:
        for _, group in itertools.groupby(rows, lambda row: row[1]):
            batch = list(group)
            best = largest([row[3] for row in batch], top)
            assert [row[5] for row in batch] == [i in best for i in range(len(batch))]


def places(errors):
    return sorted((row["seq"], row["reason"]) for row in errors.to_pylist())


@pytest.mark.long
@given(lines(), st.integers(1, 4), st.integers(1, 9), st.sampled_from([(100, 100), (7.5, 31)]), st.booleans())
@settings(max_examples=depth(90), deadline=None)
def test_results_equal_the_reference(texts, window, batch_size, scales, partial):
    flow = machine_outlier(window=window, cpu_scale=scales[0], memory_scale=scales[1], partial=partial)
    result = flow.run(table(texts), batch_size=batch_size)
    wanted, bad = reference(texts, window=window, scales=scales, partial=partial)
    assert_same(found(result["alerts"]), wanted)
    assert places(result.errors) == sorted(bad)


@given(lines(google=True), st.integers(1, 3), st.integers(1, 9))
@settings(max_examples=depth(45), deadline=None)
def test_largest_scores_of_each_time(texts, top, batch_size):
    result = machine_outlier(format="google", method="top", k=top).run(table(texts), batch_size=batch_size)
    wanted, bad = reference(texts, google=True, scales=(1, 1), top=top)
    assert_same(found(result["alerts"]), wanted, top)
    assert places(result.errors) == sorted(bad)


@given(lines(), st.sampled_from([0.2, 0.45]), st.integers(1, 9), st.sampled_from([None, 1]))
@settings(max_examples=depth(45), deadline=None)
def test_decayed_scores_equal_the_reference(texts, decay, batch_size, top):
    trigger = {} if top is None else {"method": "top", "k": top}
    result = machine_outlier(scorer="decayed", decay=decay, **trigger).run(table(texts), batch_size=batch_size)
    assert_same(found(result["alerts"]), reference(texts, decay=decay, top=top)[0], top)


@given(lines(), st.integers(0, 1 << 32), st.sampled_from(["window", "decayed"]))
@example(["m_a,23,12.25,95.75,,,1,1,1", "m_b,23,95.75,10,,,1,1,1"], 0, "window")
@settings(max_examples=depth(8), deadline=None)
def test_staged_results_are_equal(texts, seed, scorer):
    choose = random.Random(seed)
    flow = machine_outlier(scorer=scorer, decay=0.3, method="top", k=1)
    flow.ordinals = True
    source = ro.MemorySource(table(texts))
    staged = SimulatedQuery(flow, source, choose, max_records=5, partitions=choose.choice([1, 3]))
    wanted, bad = reference(texts, decay=0.3 if scorer == "decayed" else None, top=1)
    rows = staged["alerts"].sort_by(
        [(name, "ascending") for name in staged["alerts"].schema.names if name in ("seq", "ordinal")]
    )
    assert_same(found(rows), wanted, top=1)
    assert places(staged["errors"]) == sorted(bad)


@pytest.mark.parametrize("staged", [False, True])
def test_faulty_machine_of_the_specification(sample_data, staged):
    source = replay(sample_data / SYNTHETIC)
    result = SimulatedQuery(machine_outlier(), source, random.Random(1)) if staged else machine_outlier().run(source)
    rows = sorted(found(result["alerts"]))
    assert (len(rows), {row[2] for row in rows}) == expected(
        sample_data, made=(18, {"m_0", "m_1"}), papers=(16, {"m_7"})
    )
    if sample_data != MADE:
        assert [(row[1] - EPOCH) // timedelta(milliseconds=1) for row in (rows[0], rows[-1])] == [3_640_000, 4_540_000]
        assert [rows[0][3], rows[-1][3]] == pytest.approx([13.385458, 16.399027], abs=5e-7)
    assert_same(rows, reference((sample_data / SYNTHETIC).read_text().splitlines())[0])


def test_trace_of_the_specification(sample_data):
    texts = (sample_data / TRACE).read_text().splitlines()
    all_scores = machine_outlier(method="top", k=1).run(replay(sample_data / TRACE))["alerts"]
    assert all_scores.num_rows == expected(sample_data, made=180, papers=1013)
    assert len(set(all_scores["timestamp"].to_pylist())) == expected(sample_data, made=60, papers=1000)
    rows = all_scores.to_pylist()
    total = expected(sample_data, made=1924.54, papers=10_004.30)
    assert sum(row["stream_score"] for row in rows) == pytest.approx(total, abs=5e-3)
    if sample_data != MADE:
        assert [round(row["instance_score"], 3) for row in rows[:4]] == [1.205, 1.205, 1.205, 1.615]
        assert [round(row["stream_score"], 3) for row in rows[4:8]] == [2.345, 2.345, 2.345, 3.035]
    five = machine_outlier(method="top", window=5).run(replay(sample_data / TRACE))["alerts"]
    total = expected(sample_data, made=1011.00, papers=5036.55)
    assert sum(five["stream_score"].to_pylist()) == pytest.approx(total, abs=5e-3)
    alerts = machine_outlier().run(replay(sample_data / TRACE))["alerts"].num_rows
    assert alerts == expected(sample_data, made=0, papers=0)
    unscaled = machine_outlier(cpu_scale=1).run(replay(sample_data / TRACE))["alerts"].to_pylist()
    if sample_data == MADE:
        assert len(unscaled) == 44
    else:
        scores = [(r["machine_id"], round(r["stream_score"], 3)) for r in unscaled]
        assert scores == [("m_1935", 44.615), ("m_1935", 46.23)]
    sums = [row for batch in windowed(scored(readings(texts, False)[0], (100, 100)), 10) for row in batch]
    assert [row["stream_score"] for row in rows] == pytest.approx([row[3] for row in sums])


def test_restarted_run_continues(tmp_path):
    texts = [f"m_{m},{60 * k},{20 + 7 * m * k % 61},40,,,1,1,1" for k in range(6) for m in range(5)]
    options = {"scorer": "decayed", "decay": 0.3, "method": "top"}
    whole = found(machine_outlier(**options).run(table(texts))["alerts"])
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    source = ScriptedSource([*table(texts[:17]).to_batches(), ABORT, *table(texts[17:]).to_batches()])
    with pytest.raises(ConnectorError):
        machine_outlier(**options).run(source, epoch_rows=1, batch_size=4, **kept)
    assert found(machine_outlier(**options).run(source, batch_size=4, **kept)["alerts"]) == whole
