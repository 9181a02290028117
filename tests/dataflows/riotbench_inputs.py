"""Inputs of the tests of RIoTBench's applications: generated streams, and their messages as records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from riot_ops import streams
from riot_ops import tasks as t
from riot_ops.core.source import Source
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS
from riot_ops.dataflows.riotbench.pred import UPDATES_SCHEMA

N = 600
NO_NEWS = UPDATES_SCHEMA.empty_table()


def source(stream: str, messages: int = N, seed: int = 3) -> Source:
    return streams.generate(stream, 12, messages=messages, seed=seed)


def table(one: Source) -> pa.Table:
    """Read all records of a source."""
    start = one.initial()
    return pa.Table.from_batches([b for s in one.splits(start, one.latest(start), 1) for b in one.read(s)])


def observations(stream: str, layout: str = "observations", messages: int = N, **options: Any) -> pa.Table:
    session = t.ParseSenML(schema=stream, layout=layout, **options).session()  # type: ignore[arg-type]
    return pa.Table.from_batches([session.push_batch(b) for b in table(source(stream, messages)).to_batches()])


def sensors(stream: str) -> list[str]:
    return sorted(set(observations(stream, layout="wide")["sensor_id"].to_pylist()))


def features(stream: str, messages: int = N) -> pa.Table:
    """Return the features that PRED reads, a row per message in order."""
    learning = FEATURE_SETS[stream]
    rows = observations(stream, layout="wide", messages=messages, fields=learning.parsed)
    if learning.time_fields:
        session = t.Compute(learning.time_fields).session()
        rows = pa.Table.from_batches([session.push_batch(rows.combine_chunks().to_batches()[0])])
    return rows.sort_by("seq")
