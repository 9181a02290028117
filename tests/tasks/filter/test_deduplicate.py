"""Deduplication against sets and dicts, and against its stated error."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.runtime.state import KeyedState
from riot_ops.tasks import Deduplicate
from tests.reference import deduplicate as reference
from tests.reference.splits import KEYS, READINGS, run
from tests.search import depth
from tests.simulated_query import SimulatedQuery

START = datetime(2024, 5, 1, tzinfo=UTC)
CUTS = st.lists(st.integers(0, 40), max_size=3)


def numbers(task, batch, cuts=()):
    batch = batch.append_column("row", pa.array(range(batch.num_rows)))
    out, errors = run(task, batch, list(cuts))
    assert errors == []
    return [row["row"] for row in out]


@settings(deadline=None, max_examples=depth(40))
@given(st.lists(st.tuples(KEYS, READINGS | st.sampled_from([1.0, 2.0])), max_size=40), CUTS)
def test_exact_deduplication_equals_a_set(events, cuts):
    batch = pa.RecordBatch.from_pydict(
        {"k": pa.array([k for k, _ in events], pa.string()), "v": pa.array([v for _, v in events], pa.float64())}
    )
    rows = batch.to_pylist()
    assert numbers(Deduplicate(by=("k", "v")), batch, cuts) == reference.exact(rows, ("k", "v"))
    assert numbers(Deduplicate(by="k"), batch, cuts) == reference.exact(rows, ("k",))


@settings(deadline=None, max_examples=depth(40))
@given(st.lists(st.tuples(KEYS, st.integers(0, 30)), max_size=40), CUTS, st.integers(1, 8))
def test_time_to_live_forgets_keys(events, cuts, ttl):
    events.sort(key=lambda event: event[1])
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([k for k, _ in events], pa.string()),
            "event_time": pa.array([t * 1_000_000 for _, t in events], pa.int64()).cast(TIMESTAMP),
        }
    )
    task = Deduplicate(by="k", ttl=timedelta(seconds=ttl))
    rows = [{"k": k, "t": t} for k, t in events]
    assert numbers(task, batch, cuts) == reference.exact(rows, ("k",), ttl)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_to_live_holds_for_any_unit_of_time(unit):
    seconds = pa.array([0, 10, 21], pa.int64()).cast(pa.timestamp("s", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"] * 3), seconds.cast(pa.timestamp(unit, "UTC"))], ["k", "event_time"]
    )
    assert numbers(Deduplicate(by="k", ttl="10s"), batch) == [0, 2]


def test_repetition_extends_the_life_of_a_key():
    session = Deduplicate(by="k", ttl="10s").session()
    times = (0, 6, 12, 22, 33)  # all but the last within ten seconds of the one before
    assert [len(session.push({"k": "a", "event_time": START + timedelta(seconds=t)})) for t in times] == [
        1,
        0,
        0,
        0,
        1,
    ]


@settings(deadline=None, max_examples=depth(40))
@given(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=60), CUTS, st.integers(1, 4))
def test_bounded_deduplication_equals_two_sets(events, cuts, capacity):
    batch = pa.RecordBatch.from_pydict(
        {"k": pa.array([k for k, _ in events], pa.string()), "v": pa.array([v for _, v in events], pa.int64())}
    )
    exactly = 1e-9  # no false positives among a few values
    one = reference.RecentKeys(capacity)
    task = Deduplicate(fields=("k", "v"), capacity=capacity, error=exactly)
    assert numbers(task, batch, cuts) == [i for i, event in enumerate(events) if one.is_new(event)]
    of_key = {k: reference.RecentKeys(capacity) for k, _ in events}
    task = Deduplicate(by="k", fields="v", capacity=capacity, error=exactly)
    assert numbers(task, batch, cuts) == [i for i, (k, v) in enumerate(events) if of_key[k].is_new(v)]


@pytest.mark.parametrize("error", [0.001, 0.02, 0.2])
def test_dropped_new_records_are_within_the_stated_error(error):
    """Over twenty fillings: at most three standard deviations of a binomial distribution above the stated error."""
    n, capacity = 40_000, 2_000
    fresh = numbers(
        Deduplicate(fields="v", capacity=capacity, error=error), pa.RecordBatch.from_pydict({"v": range(n)})
    )
    dropped = n - len(fresh)
    assert dropped <= n * error + 3 * (n * error) ** 0.5
    assert dropped >= n * error / 10  # and no filter is far larger than stated


def test_small_filters_keep_the_stated_error():
    """One pair of filters for each of 500 keys with 40 values: 20 errors in 20,000 at 0.1 %."""
    keys = np.repeat(np.arange(500), 40)
    batch = pa.RecordBatch.from_pydict({"k": keys, "v": np.arange(keys.size)})
    fresh = numbers(Deduplicate(by="k", fields="v", capacity=4, error=0.001), batch)
    assert keys.size - len(fresh) <= 20 + 3 * 20**0.5


def test_latest_values_are_always_remembered():
    values = np.random.default_rng(3).integers(0, 400, 20_000)
    batch = pa.RecordBatch.from_pydict({"v": values})
    capacity = 150
    passed = set(numbers(Deduplicate(fields="v", capacity=capacity, error=0.01), batch))
    latest: dict[int, None] = {}
    for row, value in enumerate(values.tolist()):
        known = value in list(latest)[-capacity:]
        assert not (known and row in passed)
        latest.pop(value, None)
        latest[value] = None


def test_state_has_the_stated_size():
    """m = ceil(-1000 ln 0.0005 / ln² 2) = 15,821 bits: two filters of 248 words."""
    state = KeyedState(Deduplicate(fields="v", capacity=1000))
    assert state.fields["bits"].shape == 2 * 248
    assert set(KeyedState(Deduplicate(by="v")).fields) == {"seen"}


def test_merged_states_remember_the_keys_of_both():
    here, there = (Deduplicate(by="k").session() for _ in range(2))
    here.push({"k": "a"})
    there.push({"k": "b"})
    here.merge(there.snapshot())
    assert [len(here.push({"k": k})) for k in "abc"] == [0, 0, 1]
    lately = Deduplicate(fields="k", capacity=3).session()
    with pytest.raises(StateError, match="cannot be merged"):
        lately.merge(lately.snapshot())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fields": "a"}, "needs the identity"),
        ({"by": "a", "fields": "b"}, "needs the identity"),
        ({"by": "a", "capacity": 3}, "needs fields"),
        ({"fields": ("a", "a"), "capacity": 3}, "needs fields"),
        ({"fields": "a", "capacity": 0}, "capacity = 0"),
        ({"fields": "a", "capacity": 1, "error": 1.0}, r"error = 1\.0"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        Deduplicate(**options)


def test_key_of_the_stream_is_the_identity():
    flow = ro.Dataflow("once")
    rows = flow.source("rows", {"id": "int64"})
    once = rows.key_by("id").apply(Deduplicate())
    once.to("out")
    assert flow.run([{"id": 1}, {"id": 2}, {"id": 1}])[once.id]["id"].to_pylist() == [1, 2]
    with pytest.raises(ConfigError, match="needs the identity of a record: by, also from key_by"):
        Deduplicate().session().push({"id": 1})
    rows.apply(Deduplicate(), id="none").to("more")
    with pytest.raises(ConfigError, match="none: deduplicate needs the identity"):
        flow.plan()


@pytest.mark.parametrize("bounded", [False, True])
def test_flag_marks_repetitions(bounded):
    how = {"fields": ("a", "b"), "capacity": 100} if bounded else {"by": ("a", "b")}
    rows = [{"a": i * i % 7, "b": "xy"[i % 2]} for i in range(40)]
    flagged = Deduplicate(**how, flag="first").session().push_many(rows)
    assert [{"a": row["a"], "b": row["b"]} for row in flagged] == rows
    assert [row["first"] for row in flagged] == [row not in rows[:i] for i, row in enumerate(rows)]
    passed = Deduplicate(**how).session().push_many(rows)
    assert passed == [row for row, flag in zip(rows, flagged, strict=True) if flag["first"]]
    with pytest.raises(ConfigError, match="flag"):
        Deduplicate(**how, flag="a")


@pytest.mark.parametrize(
    ("task", "crossing"),
    [
        (Deduplicate(by="word"), 4),
        (Deduplicate(by="word", ttl="1min"), 7),
        (Deduplicate(by="word", flag="first"), 7),
        (Deduplicate(by="word", fields="n", capacity=9), 7),
    ],
    ids=["exact", "for a time", "flag", "bounded"],
)
def test_repetitions_are_dropped_before_the_shuffle_unless_they_count(task, crossing, monkeypatch):
    """Two micro-batches of seven words, two of them distinct in each."""
    crossed, update = [], Deduplicate.update

    def noted(self, batch, *rest):
        crossed.append(batch.num_rows)
        return update(self, batch, *rest)

    flow = ro.Dataflow("once")
    schema = {"event_time": "timestamp[us, tz=UTC]", "word": "string", "n": "int64"}
    flow.sink("out", flow.source("in", schema=schema).to(task, id="once"))
    rows = [{"event_time": datetime(2024, 5, 1, tzinfo=UTC), "word": w, "n": i % 2} for i, w in enumerate("abaacaa")]
    wanted = flow.run(rows)["once"].to_pylist()
    monkeypatch.setattr(Deduplicate, "update", noted)
    calm = SimpleNamespace(shuffle=lambda _: None, random=lambda: 1.0, choice=operator.itemgetter(-1))
    result = SimulatedQuery(flow, rows, calm, max_records=4, partitions=1)
    assert sorted(result["once"].to_pylist(), key=lambda row: row["seq"]) == wanted
    assert sum(crossed) == crossing
