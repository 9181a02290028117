"""Row-by-row alignment of batches gives the same output as assembly piece by piece."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.runtime.batches import concatenate, sort_rows
from riot_ops.runtime.state import KeyedState

NAMES = ("a", "b", "c")
values = st.sampled_from([1.0, -2.5, None, float("nan")])


def batch_of(kind, rows, places=None):
    columns = {
        "seq": pa.array([seq for seq, _, _, _ in rows], pa.int64()),
        "event_time": pa.array([time for _, time, _, _ in rows], TIMESTAMP),
        "caller": pa.array([key for _, _, key, _ in rows], pa.string()),
        "obs_type": pa.array([kind] * len(rows), pa.string()),
        "value": pa.array([value for _, _, _, value in rows], pa.float64()),
    }
    if places is not None:
        columns["ordinal"] = pa.array(places, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def one_by_one(task, batches):
    state, rejects = KeyedState(task), RejectedRecords("join")
    return state.update(sort_rows(concatenate(batches)), rejects)[0], state.snapshot(), rejects.count


def at_once(task, batches):
    state = KeyedState(task)
    return state.merge_aligned(batches), state.snapshot()


rows = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 5, 70, 20]), st.sampled_from(["x", None]), values))
filled = rows.filter(bool).map(lambda given: [(sum(g[0] for g in given[: i + 1]), *g[1:]) for i, g in enumerate(given)])


@given(filled, st.permutations(NAMES), st.booleans(), st.booleans(), st.data())
def test_aligned_batches_equal_assembly_piece_by_piece(given_rows, order, timed, partial, data):
    task = t.AssembleMessage(
        schema=None, fields=NAMES, by=("caller", "seq"), timeout="10us" if timed else None, partial=partial
    )
    places = data.draw(st.sampled_from([None, [0, 0, 0], [0, 1, 0], [2, 1, 0], [0, 1, 1]]))
    batches = []
    for i, kind in enumerate(order):
        other_rows = [(*row[:3], data.draw(values)) for row in given_rows]
        batches.append(batch_of(kind, other_rows, None if places is None else [places[i]] * len(other_rows)))
    wanted, state, count = one_by_one(task, batches)
    assert not count
    assert at_once(task, batches) == (wanted, state)


def test_unaligned_batches_are_refused():
    task = t.AssembleMessage(schema=None, fields=("a", "b"), by=("seq", "caller"), timeout="10us")
    a = [(1, 5, "x", 1.0), (2, 6, "x", 2.0)]

    def fits(*batches, task=task):
        return at_once(task, list(batches))[0] is not None

    good = batch_of("b", a)
    assert fits(batch_of("a", a), good)
    assert not fits(batch_of("a", a[:1]), good)  # another number of rows
    assert not fits(batch_of("a", [a[0], (3, 6, "x", 2.0)]), good)  # other messages
    assert not fits(batch_of("a", [a[0], (2, 6, "y", 2.0)]), good)  # other keys
    assert not fits(batch_of("a", [a[0], (2, 60, "x", 2.0)]), good)  # other times
    assert not fits(batch_of("b", a), good)  # a type twice
    assert not fits(batch_of("z", a), good)  # an unknown type
    assert not fits(batch_of("a", [a[0], a[0]]), batch_of("b", [a[0], a[0]]))  # a message twice
    assert not fits(batch_of("a", a, [0, 1]), batch_of("b", a, [1, 0]))  # neither has the last piece of every message
    assert not fits(batch_of("a", a), good, batch_of("b", a))
    by_caller = t.AssembleMessage(schema=None, fields=("a", "b"), by=("caller",))
    assert not fits(batch_of("a", a), good, task=by_caller)
    mixed = batch_of("a", a).set_column(3, "obs_type", pa.array(["a", "b"]))
    assert not fits(mixed, good)


def test_batches_are_not_aligned_while_pieces_are_buffered():
    task = t.AssembleMessage(schema=None, fields=("a", "b"), by=("seq",))
    state, rejects = KeyedState(task), RejectedRecords("join")
    state.update(batch_of("a", [(0, 0, "x", 1.0)]), rejects)
    more = [batch_of(kind, [(1, 0, "x", 2.0)]) for kind in ("a", "b")]
    assert state.merge_aligned(more) is None
    state.update(batch_of("b", [(0, 0, "x", 1.0)]), rejects)
    assert state.merge_aligned(more).to_pylist() == [
        {"seq": 1, "event_time": more[0]["event_time"][0].as_py(), "caller": "x", "a": 2.0, "b": 2.0}
    ]


@pytest.mark.parametrize("cores", [1, 2])
def test_dataflows_align_batches(cores):
    import riot_ops as ro

    flow = ro.Dataflow("both")
    source = flow.source("in", schema={"x": "double", "value": "double"})
    inputs = [source.to(t.Project(fields=("value",), constants=(("obs_type", name),)), id=name) for name in ("a", "b")]
    flow.sink("out", ro.merge(*inputs).to(t.AssembleMessage(schema=None, fields=("b", "a"), by=("seq",)), id="joined"))
    rows = [{"x": float(i), "value": i / 2} for i in range(10_000)]
    with mock.patch.object(t.AssembleMessage, "update", side_effect=AssertionError):
        joined = flow.run(rows, cores=cores)["joined"].to_pylist()
    assert joined == [{"seq": i, "b": i / 2, "a": i / 2} for i in range(10_000)]
