"""Random small dataflows and inputs, for laws that hold for all dataflows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.testing import exact

SCHEMA = {
    "seq": "int64",
    "event_time": "timestamp[us, tz=UTC]",
    "device": "string",
    "obs_type": "string",
    "value": "double",
}
DEVICES = ["a", "b", "ü", "", None, "d7", "d8"]
TYPES = ["light", "dust", None]
KEYS = [(), ("device",), ("obs_type",), ("device", "obs_type"), ("obs_type", "device")]


def random_input(choose: random.Random, rows: int) -> pa.Table:
    """Return records with missing, infinite and plain values; times are out of order or missing."""
    values = [None, float("nan"), float("inf"), 0.0, -0.0, 1e300]
    return pa.Table.from_pylist(
        [
            {
                "seq": i,
                "event_time": None if choose.random() < 0.05 else 1_000_000 * (i + choose.randint(-6, 3)),
                "device": choose.choice(DEVICES),
                "obs_type": choose.choice(TYPES),
                "value": choose.choice(values) if choose.random() < 0.15 else float(choose.randint(-400, 400)) / 8,
            }
            for i in range(rows)
        ],
        schema=pa.schema(
            [
                pa.field("seq", pa.int64(), nullable=False),
                ("event_time", pa.timestamp("us", tz="UTC")),
                ("device", pa.string()),
                ("obs_type", pa.string()),
                ("value", pa.float64()),
            ]
        ),
    )


def random_task(choose: random.Random) -> ro.tasks.Task:
    """Return a task over ``value``, with or without state."""
    by = choose.choice(KEYS)
    return choose.choice(
        [
            lambda: t.KalmanFilter(by=by, process_noise=choose.choice([0.125, 0.5])),
            lambda: t.KalmanFilter(by=by, prior="first", output=choose.choice([None, "smooth"])),
            lambda: t.MovingAverage(by=by, window=choose.choice([1, 2, 3]), partial=choose.random() < 0.5),
            lambda: t.MovingAverage(by=by, window=2, mode="sliding", partial=choose.random() < 0.5),
            lambda: random_time_window(choose, by),
            lambda: t.SlidingRegression(by=by, window=2, horizon=2),
            lambda: t.DistinctCount(by=by, field="device", output="devices", precision=4),
            lambda: t.RangeFilter(
                bounds={"light": (-20, 30), "dust": (0, 45)}, on_error=choose.choice(["drop", "null"])
            ),
            lambda: t.CheckBloomFilter(models={"device": ("a", "b", "", "d7")}),
        ]
    )()


def random_time_window(choose: random.Random, by: tuple[str, ...]) -> ro.tasks.Task:
    """Return a time or session window whose results have the fields that downstream tasks read."""
    size = timedelta(seconds=choose.choice([2, 5]))
    frame = choose.choice([size, w.Hopping(2 * size, size), w.Session(size)])
    return t.Window(
        by=by if len(by) == 2 else ("device", "obs_type"),
        allowed_lateness=timedelta(seconds=choose.choice([0, 4])),
        max_ahead=choose.choice([None, None, timedelta(seconds=2)]),
        aggregates={"value": ("value", choose.choice(["mean", "last", "std"])), "n": "count"},
        frame=frame,
    )


def random_spread(choose: random.Random, stream: ro.Stream, *, functions: bool) -> ro.Stream:
    """Return the stream with a random distribution, or unchanged."""

    # defined within a function, so that it is pickled by value
    def by_place(batch: pa.RecordBatch) -> Any:
        return np.asarray(batch.column("seq")) % 5 % 3  # instance 2 is out of range sometimes

    kinds = ["forward"] * 5 + ["shuffle", "hash", "broadcast", "one", "custom"]
    kind = choose.choice(kinds if functions else kinds[:-1])
    parallelism = choose.choice([1, 2, 3])
    if kind == "shuffle":
        return stream.shuffle(parallelism)
    if kind == "hash":
        return stream.partition_by(
            choose.choice(["device", "obs_type"]), parallelism=choose.choice([None, parallelism])
        )
    if kind == "broadcast":
        return stream.broadcast(parallelism)
    if kind == "one":
        return stream.to_single()
    if kind == "custom":
        return stream.partition_custom(by_place, 2)
    return stream


def random_flow(choose: random.Random, *, sources: int = 1, functions: bool = True) -> ro.Dataflow:
    """Return a valid dataflow of up to seven tasks with merges and fan-out."""
    flow = ro.Dataflow("random", ordinals=True)
    streams = [flow.source(f"in{i}", schema=SCHEMA) for i in range(sources)]
    made: list[ro.Stream] = []
    while len(made) < choose.randint(1, 7):
        chosen = choose.choice(streams)
        # streams of one schema can be merged
        schemas = flow.infer_schemas([])
        alike = [s for s in streams if s.id != chosen.id and schemas[s.id].equals(schemas[chosen.id])]
        if alike and choose.random() < 0.35:
            chosen = ro.merge(chosen, *choose.sample(alike, choose.randint(1, min(2, len(alike)))))
        stream = random_spread(choose, chosen, functions=functions).to(random_task(choose), id=f"t{len(made)}")
        made.append(stream)
        streams.append(stream)
    ends = [s for s in made if not flow.outputs(s.id) or choose.random() < 0.3]
    unread = [s for s in streams[:sources] if not flow.outputs(s.id)]
    flow.sink("out", *ends, *unread)
    return flow


def everything(result: Any, flow: ro.Dataflow, nodes: set[str] | None = None) -> dict[str, Counter[str]]:
    """Return the records of all streams that end in a sink, or of some nodes, in a comparable form."""
    streams = {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)}
    found = {name: list(map(exact, result[name].to_pylist())) for name in streams if nodes is None or name in nodes}
    errors = [exact(row) for row in result["errors"].to_pylist() if nodes is None or row["task"] in nodes]
    return {name: Counter(rows) for name, rows in {**found, "errors": errors}.items()}


def ordered(flow: ro.Dataflow) -> set[str]:
    """Return the nodes whose records do not depend on the order in which sources are read.

    The records of several sources have no order at a task with state, nor downstream of it.
    """
    origin: dict[str, frozenset[str]] = {}
    found: set[str] = set()
    for node in flow.topological_order():
        before = [e.source for e in flow.inputs(node.id)]
        origin[node.id] = frozenset({node.id}).union(*(origin[b] for b in before)) & {
            n.id for n in flow.nodes_of_kind("source")
        }
        mixed = node.task is not None and node.task.stateful and len(origin[node.id]) > 1
        if not mixed and found.issuperset(before):
            found.add(node.id)
    return found


def assert_same(got: dict[str, Counter[str]], wanted: dict[str, Counter[str]], flow: ro.Dataflow) -> None:
    """Assert that the records are equal."""
    for name in wanted:
        more, less = got[name] - wanted[name], wanted[name] - got[name]
        assert not more and not less, "\n".join(
            [
                f"{name}: {sum(more.values())} records too many, {sum(less.values())} missing",
                *list(more)[:3],
                "missing:",
                *list(less)[:3],
                str(flow.plan()),
            ]
        )
