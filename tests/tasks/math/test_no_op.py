"""Batches pass unchanged."""

import pyarrow as pa

from riot_ops.tasks import NoOp


def test_batch_passes_without_a_copy():
    batch = pa.RecordBatch.from_pydict({"key": ["ü", None], "value": [1.0, float("nan")]})
    assert NoOp().session().push_batch(batch) is batch
