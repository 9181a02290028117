"""Collected blocks: the reference, order beyond 32 bits, lists, the end of the stream."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.tasks.window.collect import Collect
from tests.reference import collect as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

TIMES = st.one_of(st.none(), st.sampled_from([0, 1, 2**31, 2**33, -(2**40)]))


@pytest.mark.long
@given(
    st.lists(st.tuples(KEYS, KEYS, TIMES), max_size=40),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(1, 6),
    st.sampled_from([(), ("key",)]),
)
@settings(max_examples=depth(150), deadline=None)
def test_agrees_with_the_reference(events, cuts, size, by):
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([k for k, _, _ in events], pa.string()),
            "kind": pa.array([k for _, k, _ in events], pa.string()),
            "event_time": pa.array([t for *_, t in events], pa.timestamp("ms", tz="UTC")),
            "list": pa.array([[i, None] for i in range(len(events))], pa.list_(pa.int64())),
        }
    )
    task = Collect(size=size, groups=("kind", "key"), by=by, partial=True)
    got, errors = run(task, batch, cuts)
    out, left = reference.accumulate(batch.to_pylist(), size, ["kind", "key"], list(by))
    assert not errors
    assert got == out + left
    assert run(task, batch, restart=False)[0] == got
    assert run(task.replace(partial=False), batch, cuts)[0] == out


def test_blocks_count_records_of_all_groups():
    session = Collect(size=4).session()
    events = [{"sensor_id": s, "obs_type": "t", "value": float(i)} for i, s in enumerate("babaabab")]
    out = session.push_many(events)
    assert [(row["sensor_id"], row["value"], row["batch_id"]) for row in out] == [
        ("a", [1.0, 3.0], 0),
        ("b", [0.0, 2.0], 0),
        ("a", [4.0, 6.0], 1),
        ("b", [5.0, 7.0], 1),
    ]


def test_lists_are_in_time_order_with_seq_and_time_of_the_last_record():
    times = [5_000_000, 1_000_000, 9_000_000]
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([7, 7, 8], pa.int64()),
            "ordinal": pa.array([0, 1, 2], pa.int64()),
            "event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "sensor_id": ["a", "a", "b"],
            "value": [1.0, 2.0, 3.0],
        }
    )
    a, b = Collect(size=3, groups=("sensor_id",)).session().push_batch(batch).to_pylist()
    assert [(row["seq"], row["ordinal"], row["ordinal_2"]) for row in (a, b)] == [(8, 2, 0), (8, 2, 1)]
    assert a["value"] == [2.0, 1.0] and [t.second for t in a["times"]] == [1, 5]
    assert a["event_time"] == b["event_time"] == b["times"][0]


def test_lists_and_text_survive_a_restart():
    task = Collect(size=2, groups=("sensor_id",))
    session = task.session()
    session.push({"sensor_id": "ü", "predictions": [1.0, None], "meta": None})
    later = task.session()
    later.restore(session.snapshot())
    assert later.push({"sensor_id": "", "predictions": [], "meta": "x"}) == [
        {"sensor_id": "", "batch_id": 0, "predictions": [[]], "meta": ["x"]},
        {"sensor_id": "ü", "batch_id": 0, "predictions": [[1.0, None]], "meta": [None]},
    ]


def test_many_blocks_in_one_batch():
    batch = pa.RecordBatch.from_pydict(
        {"sensor_id": ["b", "a"] * 500, "obs_type": ["t"] * 1000, "value": list(range(1000))}
    )
    out = Collect(size=100).session().push_batch(batch)
    assert out.num_rows == 20
    assert out["batch_id"].to_pylist() == [i // 2 for i in range(20)]
    assert out["value"].to_pylist()[1] == list(range(0, 100, 2))


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="size"):
        Collect(size=0)
    with pytest.raises(ConfigError, match="reads the field 'obs_type'"):
        Collect().output_schema(pa.schema({"sensor_id": pa.string()}))
    with pytest.raises(ConfigError, match="cannot group by"):
        Collect(groups=("x",)).output_schema(pa.schema({"x": pa.list_(pa.int8())}))
    with pytest.raises(ConfigError, match="adds the field 'times', which its input already has"):
        Collect(groups=("x",)).output_schema(pa.schema({"x": pa.int8(), "times": pa.int8()}))
