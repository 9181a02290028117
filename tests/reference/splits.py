"""Run a task over a batch cut anywhere, with or without a restart at each cut."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa

from riot_ops.ingest.step import declared_schema
from riot_ops.runtime.session import Session
from riot_ops.task import Task

#: Readings that the tests of keyed tasks draw from: plain, missing and extreme ones.
READINGS = st.one_of(
    st.none(), st.just(float("nan")), st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e300, 1e-300]), st.floats(-1e6, 1e6)
)
KEYS = st.sampled_from(["a", "b", "ü", "", None])


def run(
    task: Task, batch: pa.RecordBatch, cuts: list[int] | None = None, restart: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return outputs (also of the end of the stream) and errors of a batch that is cut at some rows.

    NaN reads "nan", so that rows compare.
    """
    session = Session(task)
    errors: list[dict[str, Any]] = []
    out: list[dict[str, Any]] = []
    schema = declared_schema(
        batch.schema, "the batch"
    )  # as the runner passes it: times as microseconds, dictionaries as texts
    edges = [0, *sorted(min(c, batch.num_rows) for c in cuts or []), batch.num_rows]
    for a, b in pairwise(edges):
        rows = session.push_batch(batch.slice(a, b - a))
        assert rows.schema.equals(task.output_schema(schema)), (rows.schema, task)
        rows.validate(full=True)
        out += rows.to_pylist()
        if restart:
            data = session.snapshot()
            errors += session.errors
            session = Session(task)
            session.restore(data)
    out += session.flush()
    plain = [{k: "nan" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in out]
    return plain, errors + session.errors
