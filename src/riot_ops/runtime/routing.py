"""Routing: the instance of each record, for distributions that affect the result."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import next_ordinal
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.graph.lowering import INSTANCE_FIELD, Route
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.hashing import hash_columns

__all__ = ["add_instances"]


def add_instances(route: Route, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
    """Add the instance of each record; for a broadcast, copy each record to all instances."""
    p = route.distribution.parallelism or 1
    if route.distribution.kind == "broadcast":
        copies = np.tile(np.arange(p), batch.num_rows)
        batch = batch.take(pa.array(np.repeat(np.arange(batch.num_rows), p)))
        batch = batch.append_column(next_ordinal(batch.schema.names), pa.array(copies))
        return batch.append_column(INSTANCE_FIELD, pa.array(copies, pa.int64()))
    instances = _instances(route, batch, p)
    if instances.shape != (batch.num_rows,) or instances.dtype.kind not in "iu":
        errors.reject(
            batch,
            np.ones(batch.num_rows, np.bool_),
            "bad_instance",
            f"the router of {route.id} must return {batch.num_rows} integers, "
            f"got {instances.dtype} of shape {instances.shape}",
        )
        instances = np.full(batch.num_rows, -1)
    else:
        wrong = (instances < 0) | (instances >= p)
        errors.reject(batch, wrong, "bad_instance", f"the router of {route.id} must return 0 to {p - 1}")
    known = (instances >= 0) & (instances < p)
    batch = batch.append_column(INSTANCE_FIELD, pa.array(instances.astype(np.int64)))
    return batch if known.all() else batch.filter(pa.array(known))


def _instances(route: Route, batch: pa.RecordBatch, p: int) -> npt.NDArray[np.int64]:
    spread = route.distribution
    if spread.kind == "hash":
        h1, _ = hash_columns([batch.column(f) for f in spread.fields], batch.num_rows)
        return (h1 % np.uint64(p)).astype(np.int64)
    if spread.kind == "custom":
        assert spread.router is not None
        return np.asarray(spread.router(batch))
    return int_column(batch.column("seq")) // route.sources % p
