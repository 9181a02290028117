"""Smart grid, against a naive reference and the figures of the specification."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.dataflows import smart_grid
from riot_ops.streams import replay
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.dspbench import smart_grid as reference
from tests.samples import MADE
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SHARED = "dspbench/synthetic/smart-grid.csv"
START = 1377986400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@st.composite
def lines(draw, steps=(0, 0, 0, 1, 7, 30, 31, -3)):
    """Generate readings of some plugs, with some invalid lines, late lines and gaps."""
    at, texts = START, []
    for _ in range(draw(st.integers(0, 45))):
        at = max(at + draw(st.sampled_from(steps)), START - 5)
        plug, household, house = (draw(st.integers(0, 1)) for _ in range(3))
        value = draw(st.sampled_from([0.5, 3.25, 10.0, 40.75, 7.0]))
        texts.append(f"{len(texts)},{at},{value},{draw(st.sampled_from([1, 1, 1, 0]))},{plug},{household},{house}")
    for place in draw(st.lists(st.integers(0, 45), max_size=2)):
        texts.insert(place, draw(st.sampled_from(["", "1,2", "1,x,1,1,0,0,0", f"1,{START},,1,0,0,0"])))
    return texts


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def seconds(time):
    return (time - EPOCH) / timedelta(seconds=1)


def outliers(result):
    rows = result["outliers"].to_pylist()
    return sorted((seconds(r["window_end"]), r["house_id"], r["percentage"]) for r in rows)


def predictions(result):
    rows = result["predictions"].to_pylist()
    found = [
        (round(seconds(r["event_time"])), seconds(r["timestamp"]), r["house_id"], r["household_id"], r["plug_id"],
         r["predicted_load"]) for r in rows
    ]  # fmt: skip
    return sorted(found, key=str)


def places(errors):
    return sorted((row["seq"], row["reason"]) for row in errors.to_pylist())


def assert_same(result, texts, *, window=3600, length=60, every=30, partial=True):
    good, bad = reference.readings(texts)
    assert places(result["errors"]) == bad
    assert outliers(result) == reference.outliers(good, window, partial=partial)[0]
    got, wanted = predictions(result), sorted(reference.predictions(good, length, every, partial=partial), key=str)
    assert [row[:5] for row in got] == [row[:5] for row in wanted]
    assert [row[5] for row in got] == pytest.approx([row[5] for row in wanted], rel=1e-12)


@pytest.mark.long
@given(lines(), st.sampled_from([10, 45, 3600]), st.integers(3, 20))
@settings(max_examples=depth(60), deadline=None)
def test_results_equal_the_reference(texts, window, batch_size):
    flow = smart_grid(window=timedelta(seconds=window))
    assert_same(flow.run(table(texts), batch_size=batch_size), texts, window=window)


@pytest.mark.long
@given(
    lines(steps=(0, 0, 0, 5, 40, 20_000)), st.sampled_from([(7200, 7200), (14_400, 3600), (10_800, 5)]), st.booleans()
)
@settings(max_examples=depth(60), deadline=None)
def test_forecasts_use_earlier_days(texts, times, partial):
    length, every = times
    if every == 5:  # too many ticks for the reference
        length = every = 10_800
    flow = smart_grid(length=timedelta(seconds=length), every=timedelta(seconds=every), partial=partial)
    assert_same(flow.run(table(texts), batch_size=7), texts, length=length, every=every, partial=partial)


@pytest.mark.long
@given(lines(), st.integers(0, 1 << 32), st.sampled_from([1, 3]))
@settings(max_examples=depth(6), deadline=None)
def test_staged_results_are_equal(texts, seed, parallelism):
    choose = random.Random(seed)
    flow = smart_grid(window="40s", parallelism=parallelism)
    staged = SimulatedQuery(
        flow, ro.MemorySource(table(texts)), choose, max_records=9, partitions=choose.choice([1, 3])
    )
    assert_same(staged, texts, window=40)


@pytest.mark.long
@pytest.mark.parametrize("staged", [False, True])
def test_houses_of_the_specification(sample_data, staged):
    source = replay(sample_data / SHARED)
    result = SimulatedQuery(smart_grid(parallelism=2), source, random.Random(1)) if staged else smart_grid().run(source)
    if sample_data == MADE:
        assert result["outliers"].num_rows and result["predictions"].num_rows
        assert_same(result, (sample_data / SHARED).read_text().splitlines())
        return
    shares, at = {}, {}
    changes = outliers(result)
    for offset in (0, 1800, 3600, 4440, 4470, 5370):
        shares.update({house: share for time, house, share in changes if time <= START + offset})
        at[offset] = [round(shares[house], 3) for house in range(4)]
    assert at == {
        0: [33.333, 33.333, 66.667, 66.667], 1800: [33.333, 33.333, 66.667, 66.667],
        3600: [33.333, 33.333, 66.667, 66.667], 4440: [33.333, 33.333, 50.000, 66.667],
        4470: [66.667, 33.333, 50.000, 66.667], 5370: [66.667, 33.333, 33.333, 66.667],
    }  # fmt: skip
    slice_12 = [r for r in predictions(result) if r[1] == START + 720 and r[0] == START + 630]
    assert [round(r[5], 4) for r in slice_12 if r[3] is None] == [877.4905, 1092.1435, 1283.8465, 1521.6205]
    assert [round(r[5], 3) for r in slice_12 if r[2:5] == (0, 0, 0)] == [38.742]


def test_global_medians_of_the_specification(sample_data):
    flow = smart_grid()
    flow.sink("medians", flow.stream("global_median"))
    rows = flow.run(replay(sample_data / SHARED))["global_median"].to_pylist()
    medians = {seconds(r["event_time"]) - START: round(r["median"], 4) for r in rows}
    if sample_data == MADE:
        good, _ = reference.readings((sample_data / SHARED).read_text().splitlines())
        _, by_time = reference.outliers(good, 3600)
        assert len(by_time) > 5
        assert medians == {time - START: round(median, 4) for time, median in by_time.items()}
        return
    wanted = {0: 157.51, 1800: 156.224, 3600: 161.255, 4440: 167.8695, 4470: 168.0, 5370: 173.722}
    assert {offset: medians[offset] for offset in wanted} == wanted


def test_history_may_be_shorter():
    texts = [f"0,{START + 86_400 * day + 7200 * k},{10.0**day},1,0,0,0" for day in range(4) for k in range(12)]
    loads = [
        {r[1]: r[5] for r in predictions(smart_grid(length="2h", every="1h", history=n).run(table(texts)))
         if r[4] is not None} for n in (1, 31)
    ]  # fmt: skip
    last = START + 86_400 * 3 + 7200 * 11
    assert [one[last] for one in loads] == [(1000 + 100) / 2, (1000 + 10) / 2]


def test_restarted_run_continues(tmp_path):
    texts = [f"0,{START + 5 * k},{(7 * k + 3 * p) % 23},1,{p},0,{p // 2}" for k in range(40) for p in range(4)]
    flow = smart_grid(window="40s")
    whole = flow.run(table(texts))
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    source = ScriptedSource([*table(texts[:83]).to_batches(), ABORT, *table(texts[83:]).to_batches()])
    with pytest.raises(ConnectorError):
        smart_grid(window="40s").run(source, epoch_rows=1, batch_size=20, **kept)
    rest = smart_grid(window="40s").run(source, batch_size=20, **kept)
    assert (outliers(rest), predictions(rest)) == (outliers(whole), predictions(whole))


def test_misuse_is_refused():
    for wrong, message in (
        ({"length": "7min"}, "multiple of length"), ({"every": "2min"}, "no longer than length"),
        ({"window": "0s"}, "window must be longer than 0"), ({"history": 0}, "history = 0"), ({"parallelism": 0}, "parallelism"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            smart_grid(**wrong)
