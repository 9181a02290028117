"""Parameters beyond any use are refused at construction, by name; none ends in an exception of memory or of NumPy."""

from __future__ import annotations

import dataclasses
import typing
from contextlib import suppress
from datetime import timedelta

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.graph.nodes import Distribution
from riot_ops.ingest.step import IngestStep, declared_schema
from riot_ops.sketches import BloomFilter
from riot_ops.task import KeyedTask, registered_tasks

TASKS = [task for task in registered_tasks() if task.__module__.startswith("riot_ops.")]


def parameters(kind):
    """Each case of a task with each of its parameters that is a duration, or an integer."""
    for case in kind.cases():
        hints = typing.get_type_hints(type(case.task))
        for field in dataclasses.fields(case.task):
            declared = hints[field.name]
            members = (declared, *typing.get_args(declared))
            if kind_of := next((one for one in (timedelta, int) if one in members), None):
                yield case, field.name, kind_of


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.code)
def test_duration_beyond_int64_is_refused_by_name(kind):
    for case, name, of in parameters(kind):
        if of is timedelta:
            with pytest.raises(ConfigError, match="size" if name == "frame" else name):
                case.task.replace(**{name: timedelta.max})


@pytest.mark.parametrize("value", [2**31, 2**40, 2**63 - 1, 2**80])
@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.code)
def test_huge_integer_works_or_is_refused_by_name(kind, value):
    for case, name, of in parameters(kind):
        if of is not int or (kind.code, name) in LONG:
            continue
        try:
            task = case.task.replace(**{name: value})
        except ConfigError as error:
            assert name in str(error), error
            continue
        if isinstance(task, KeyedTask) and case.batch.num_rows:
            with suppress(ConfigError):  # a case of another form of input
                task.output_schema(case.batch.schema)
                task.session().push_batch(case.batch.slice(0, 2))


#: Parameters that only say how long a task computes.
LONG = {("PI", "iterations"), ("NNT", "epochs")}


@pytest.mark.parametrize("kind", ["shuffle", "hash", "broadcast"])
@pytest.mark.parametrize("parallelism", [0, -1, 4097, 2**40, 2**80, True, 1.0, "2"])
def test_parallelism_out_of_bounds_is_refused_by_name(kind, parallelism):
    with pytest.raises(ConfigError, match=r"parallelism must be a whole number from 1 to 4096, got"):
        Distribution(kind, ("a",) if kind == "hash" else (), parallelism)
    assert Distribution(kind, ("a",) if kind == "hash" else (), 4096).parallelism == 4096


def test_parallelism_of_a_descriptor_is_refused_by_name():
    flow = ro.Dataflow("f")
    flow.sink("out", flow.source("in", schema={"v": "double"}).shuffle(2).to(t.NoOp(), id="n"))
    text = flow.to_json() if hasattr(flow, "to_json") else None
    if text is not None:
        with pytest.raises(ConfigError, match="parallelism"):
            ro.Dataflow.from_json(text.replace('"parallelism": 2', '"parallelism": 1099511627776'))


@pytest.mark.parametrize("window", [2**20 + 1, 2**40, 2**80])
def test_window_of_a_descriptor_is_refused_by_name(window):
    for task in ("moving_average", "sliding_sum", "interpolation", "sliding_regression", "clipped_average"):
        with pytest.raises(ConfigError, match="window"):
            t.Task.from_dict({"task": task, "window": window})


def test_too_large_state_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"capacity must be at most"):
        t.Deduplicate(by="k", fields="v", capacity=10**9)
    assert t.Deduplicate(fields="v", capacity=10**8).capacity == 10**8  # one filter for the stream
    with pytest.raises(ConfigError, match=r"Deduplicate: capacity = 100000000: .* bytes"):
        t.Deduplicate(by="k", fields="v", capacity=10**8)
    with pytest.raises(ConfigError, match=r"SecondOrderMoment: counters = 1048576: .* bytes"):
        t.SecondOrderMoment(by="k", method="tug_of_war", depth=1000, counters=2**20)
    for n in (10**12, 10**400):
        with pytest.raises(ConfigError, match="capacity must be at most"):
            BloomFilter(n)


@pytest.mark.parametrize("sources", [2, 3])
def test_overflowing_message_number_is_rejected_by_name(sources):
    limit = (2**63 - sources) // sources
    numbers = [0, limit, limit + 1, 2**62, 2**63 - 1, -limit, -(2**63)]
    schema = declared_schema(pa.schema([("seq", pa.int64()), ("v", pa.int64())]), "in")
    batch = pa.record_batch({"seq": pa.array(numbers), "v": pa.array(range(7))})
    rejects = RejectedRecords("in")
    out = IngestStep(schema, sources - 1, sources).apply(batch, rejects)
    good = [n for n in numbers if abs(n) <= limit]
    assert out["seq"].to_pylist() == [n * sources + sources - 1 for n in good]
    errors = [row for found in rejects.take() for row in found.to_pylist()]
    bad = [n for n in numbers if abs(n) > limit]
    assert [(e["reason"], e["message"].split(" is not")[0]) for e in errors] == [
        ("out_of_range", f"seq = {n}") for n in bad
    ]
    assert IngestStep(schema).apply(batch, rejects)["seq"].to_pylist() == numbers  # one source has all numbers
