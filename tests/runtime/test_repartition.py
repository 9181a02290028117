"""Repartitioned state: a run that continues with it gives the same results as one that does not move."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import StateError
from riot_ops.core.operator import StateField
from riot_ops.graph.lowering import lower
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.repartition import repartition_state
from riot_ops.task import PooledTask
from tests.random_flows import SCHEMA, random_input
from tests.search import depth


@dataclass(frozen=True, kw_only=True)
class Pairs(PooledTask):
    """Emits rows in pairs of one key."""

    def state_fields(self):
        return {"held": StateField("rows", initial=None)}

    def update(self, batch, slots, state, rejects):
        order = np.argsort(slots, kind="stable")
        place = np.arange(order.size) - np.searchsorted(slots[order], slots[order])
        lengths = np.bincount(slots, minlength=1)[slots[order]] if slots.size else slots
        paired = place < lengths // 2 * 2
        rest = np.sort(order[~paired])
        state["held"][0] = batch.take(pa.array(rest)) if rest.size else None
        return batch.take(pa.array(order[paired]))


class Counted(Pairs):
    """Also counts batches."""

    def state_fields(self):
        return {**super().state_fields(), "batches": StateField("int64")}

    def update(self, batch, slots, state, rejects):
        state["batches"][0] += 1
        return super().update(batch, slots, state, rejects)


TASKS = {
    "pairs": Pairs(by=("device", "obs_type")),
    "kalman": t.KalmanFilter(by=("device", "obs_type")),
    "average": t.MovingAverage(by=("device", "obs_type"), window=3),
    "window": t.Window(frame=timedelta(seconds=5), by=("device",), aggregates={"n": "count"}),
    "last": t.Window(frame=2, by=("device",), aggregates={"top": ("value", "max")}, emit="each"),
}


def step_of(task):
    flow = ro.Dataflow("flow")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(task, id="x"))
    return lower(flow)


def record_batch(choose, rows):
    (batch,) = random_input(choose, rows).combine_chunks().to_batches()
    return batch


def places(batch, fields, n):
    if not fields or n == 1:
        return np.zeros(batch.num_rows, np.int64)
    h1, _ = hash_columns([batch.column(name) for name in fields], batch.num_rows)
    return ((h1 >> np.uint64(32)) % np.uint64(n)).astype(np.int64)


def process(engines, batch, fields):
    """Return the output of all buckets for a batch; each sees all its watermarks."""
    own = places(batch, fields, len(engines))
    found = []
    for place, engine in enumerate(engines):
        inputs = {"in": [batch.filter(pa.array(own == place))]}
        inputs |= {stream: [generator.apply(batch)] for stream, generator in GENERATORS.items()}
        found += [row for one in engine.process(inputs).get("x", ()) for row in one.to_pylist()]
    return sorted(map(repr, found))


GENERATORS: dict = {}


@pytest.mark.long
@pytest.mark.parametrize("kind", TASKS)
@settings(max_examples=depth(15))
@given(seed=st.integers(0, 2**32), then=st.integers(1, 4), now=st.integers(1, 4), narrow=st.booleans())
def test_moved_state_gives_same_results(kind, seed, then, now, narrow):
    choose = random.Random(seed)
    *above, step = step_of(TASKS[kind])
    GENERATORS.clear()
    GENERATORS.update({one.id: one.operator for one in above if one.id.endswith("@time")})
    log = record_batch(choose, 60)
    log = log.filter(pc.is_valid(log.column("event_time")))
    old = step.key
    new = step.key[:1] if narrow else step.key
    stay = [Engine([step], {"x"}) for _ in range(then)]
    half = log.num_rows // 2
    process(stay, log.slice(0, half), old)
    parts = [engine.states["x"].snapshot() for engine in stay]
    moved = [Engine([step], {"x"}) for _ in range(now)]
    for engine, data in zip(moved, repartition_state(step, parts, new, now), strict=True):
        engine.restore({"x": data})
    if not isinstance(step.operator, PooledTask):  # which has one state for all keys
        assert sum(e.states["x"].size for e in moved) == sum(e.states["x"].size for e in stay)
    assert process(moved, log.slice(half), new) == process(stay, log.slice(half), old)


def test_state_without_key_is_not_split_or_joined():
    *_, step = step_of(t.Window(frame=3, by=(), aggregates={"n": "count"}))
    engine = Engine([step], {"x"})
    engine.process({"in": [record_batch(random.Random(1), 10)]})
    one = engine.states["x"].snapshot()
    (same,) = repartition_state(step, [one], (), 1)
    assert Engine([step], {"x"}).restore({"x": same}) is None
    with pytest.raises(StateError, match="'x' is not by key and cannot be joined"):
        repartition_state(step, [one, one], (), 1)
    with pytest.raises(StateError, match="'x' is not by key and cannot be split"):
        repartition_state(step, [one], ("device",), 2)


def test_other_fields_of_pooled_state_are_copied_but_not_joined():
    *_, step = step_of(Counted(by=("device",)))
    engines = [Engine([step], {"x"}) for _ in range(2)]
    for n, engine in enumerate(engines):
        for _ in range(n + 1):
            engine.process({"in": [record_batch(random.Random(1), 10)]})
    parts = [engine.states["x"].snapshot() for engine in engines]
    for data in repartition_state(step, parts[:1], ("device",), 3):
        moved = Engine([step], {"x"})
        moved.restore({"x": data})
        assert moved.states["x"].arrays["batches"][0] == 1
    with pytest.raises(StateError, match="'x' is not by key and cannot be joined"):
        repartition_state(step, parts, (), 1)
