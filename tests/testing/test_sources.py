"""The scripted source fulfils the contract of sources, and its marks have their effect."""

from __future__ import annotations

import pickle
from datetime import timedelta
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

import riot_ops as ro
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.testing import ABORT, EOF, PAUSE, ManualClock, ScriptedSource


def _batch(n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(range(n), pa.float64())})


def _read(source, start, end, n=1):
    return [seq for split in source.splits(start, end, n) for b in source.read(split) for seq in b["seq"].to_pylist()]


@pytest.mark.long
@given(
    st.lists(st.one_of(st.integers(0, 5), st.sampled_from([EOF, PAUSE()])), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_records_are_delivered_once_and_in_order(script, limit, n):
    source = ScriptedSource([_batch(i) if isinstance(i, int) else i for i in script], schema=_batch(0).schema)
    total = sum(i for i in script if isinstance(i, int))
    at, seen, polls = source.initial(), [], 0
    while polls < 200:
        polls += 1
        end = source.latest(at, limit)
        assert source.count(at, end) <= limit
        got = _read(source, at, end, n)
        assert len(got) == source.count(at, end)
        assert got == _read(pickle.loads(pickle.dumps(source)), at, end)
        seen += got
        if source.finished(end) and end["item"] < len(script):
            source.close()  # a continued run
        elif source.finished(end):
            break
        at = end
    assert seen == list(range(total))


def test_abort_fails_once():
    source = ScriptedSource([_batch(2), ABORT, _batch(1)])
    at = source.latest(source.initial())
    with pytest.raises(ConnectorError, match="ABORT at item 1") as caught:
        source.latest(at)
    assert caught.value.retryable
    source.close()
    assert source.count(at, source.latest(at)) == 1
    other = ScriptedSource([_batch(2), ABORT, _batch(1)])
    assert other.count(at, other.latest(at)) == 1, "a run that begins at an ABORT has had it"


def test_eof_ends_a_run_but_not_the_next():
    source = ScriptedSource([_batch(2), EOF, _batch(1), EOF])
    at = source.latest(source.initial())
    assert source.finished(at) and source.latest(at) == at
    source.close()
    end = source.latest(at)
    assert source.count(at, end) == 1 and source.finished(end)


def test_pause_waits_for_the_clock():
    clock = ManualClock(10)
    source = ScriptedSource([_batch(1), PAUSE("2.5s"), _batch(1)], clock=clock)
    at = source.latest(source.initial())
    assert source.latest(at) == at and not source.finished(at)
    clock.advance(2.4)
    assert source.latest(at) == at
    clock.advance(0.2)
    assert source.count(at, source.latest(at)) == 1


def test_custom_schema():
    source = ScriptedSource([[{"value": 1}]], schema=pa.schema({"value": pa.float32(), "more": pa.string()}))
    assert source.schema.field("value").type == pa.float32()
    (batch,) = source.read(source.splits(source.initial(), source.latest(source.initial()), 1)[0])
    assert batch.to_pylist() == [{"seq": 0, "value": 1.0, "more": None}]


def test_records_are_numbered_through():
    source = ScriptedSource([[{"value": 1.0}, {"value": 2.0}], [{"value": 3.0}]])
    assert source.schema.names == ["seq", "value"]
    assert not source.schema.field("seq").nullable
    assert _read(source, source.initial(), source.latest(source.initial())) == [0, 1, 2]
    edges = [source.latest(source.initial(), n) for n in range(4)]
    assert [source.count(a, b) for a, b in pairwise(edges)] == [1, 1, 1]


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="needs a schema"):
        ScriptedSource([EOF])
    with pytest.raises(ConfigError, match="backwards"):
        ManualClock().advance(-1)
    with pytest.raises(ConfigError, match="duration must be >= 0"):
        PAUSE(timedelta(-1))
    with pytest.raises(ConfigError, match="duration must be a timedelta or a text"):
        PAUSE(1.0)  # type: ignore[arg-type]


def test_pause_of_a_script_is_asked_about_at_once():
    flow = ro.Dataflow("pause")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    source = ScriptedSource([_batch(1), PAUSE("0.5s"), _batch(2)])
    result = flow.run(source)
    assert result["in"]["value"].to_pylist() == [0.0, 0.0, 1.0]
    assert source.wait_time(source.initial(), lambda: None) == 0.0
