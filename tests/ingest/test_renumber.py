"""Numbers of messages where streams of several sources merge."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.ingest.renumber import Renumber

NUMBERS = st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 5)), max_size=20)


def batch(numbers):
    return pa.record_batch({"seq": pa.array(numbers, pa.int64()), "v": pa.array(range(len(numbers)), pa.int64())})


@given(NUMBERS, st.sets(st.integers(0, 5), min_size=1), st.data())
def test_number_identifies_message_and_source(messages, some, data):
    own = sorted(some)
    more = sorted(some | data.draw(st.sets(st.integers(0, 5))))
    messages = [(n, own[j % len(own)]) for n, j in messages]
    given = [n * len(own) + own.index(source) for n, source in messages]
    step = Renumber(tuple(map(more.index, own)), len(more))
    found = step.apply(batch(given), RejectedRecords("x"))
    assert found["seq"].to_pylist() == [n * len(more) + more.index(source) for n, source in messages]
    assert found["v"].to_pylist() == [*range(len(messages))]
    by_number = sorted(range(len(messages)), key=given.__getitem__)
    numbers = found["seq"].to_pylist()
    assert [numbers[i] for i in by_number] == sorted(numbers), "the order of the records stays"


@given(NUMBERS)
def test_merging_at_once_and_one_by_one_give_equal_numbers(messages):
    seq = pa.array([n for n, _ in messages], pa.int64())
    by_steps = Renumber((0, 2), 3).numbers(Renumber((1,), 2).numbers(seq))
    assert by_steps.equals(Renumber((2,), 3).numbers(seq))


def test_missing_number_stays_missing():
    for step in (Renumber((1,), 2), Renumber((0, 2), 3)):
        found = step.apply(pa.record_batch({"seq": pa.array([4, None], pa.int64())}), RejectedRecords("x"))
        assert found["seq"].null_count == 1 and found["seq"][0].as_py() in (6, 9)
    plain = pa.record_batch({"v": [1]})
    assert step.apply(plain, RejectedRecords("x")) is plain


@pytest.mark.parametrize(("places", "sources"), [((1,), 2), ((2,), 3), ((0, 2), 3), ((0, 1), 3)])
def test_overflowing_number_is_rejected(places, sources):
    k = len(places)
    limit = (2**63 - 1 - max(places)) // sources * k
    good, bad = [0, limit, -limit], [limit + 1, 2**63 - 1, -limit - 1, -(2**63)]
    rejects = RejectedRecords("x")
    found = Renumber(places, sources).apply(batch(good + bad), rejects)
    assert found["seq"].to_pylist() == [n // k * sources + places[n % k] for n in good]
    errors = [row for found in rejects.take() for row in found.to_pylist()]
    assert [(e["seq"], e["reason"]) for e in errors] == [(n, "out_of_range") for n in bad]
    text = f"is not between -{limit} and {limit}, as message numbers of {sources} sources must be"
    assert [e["message"] for e in errors] == [f"seq = {n} {text}" for n in bad]
    silent = Renumber(places, sources, rejects=False).apply(batch(good + bad), rejects)
    assert silent.equals(found) and not rejects.take(), "the record itself is rejected where it is renumbered"
