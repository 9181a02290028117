"""Received blocks: their records in pieces."""

import pyarrow as pa

from riot_ops.spark.received_blocks import join_small


def test_small_batches_are_joined():
    def batch(first, n):
        return pa.record_batch({"seq": pa.array(range(first, first + n), pa.int64())}), first

    sizes = (30_000, 2_768, 200, 40_000, 10)
    given = [batch(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    found = [(piece.num_rows, first) for piece, first in join_small(given)]
    assert found == [(32_768, 0), (200, 32_768), (40_000, 32_968), (10, 72_968)]
    assert join_small([]) == []
