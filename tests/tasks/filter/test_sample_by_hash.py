"""Samples by a hash: size, nesting and independence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.xxhash import SPARK_SEED, xxh64

NUMBERS = pa.RecordBatch.from_pydict({"seq": pa.array(range(20_000), pa.int64())})


def taken(**options):
    return set(t.SampleByHash(**options).session().push_batch(NUMBERS)["seq"].to_pylist())


def test_share_of_passed_records():
    for share in (0.01, 0.1, 0.5, 0.9):
        spread = 3.3 * np.sqrt(20_000 * share * (1 - share))  # 99.9 %
        assert abs(len(taken(share=share)) - 20_000 * share) < spread
    assert taken(share=0.0) == set()
    assert len(taken(share=1.0)) == 20_000
    assert taken() == taken(share=0.1, seed=0, field="seq")


def test_samples_are_nested_by_share_and_independent_by_seed():
    assert taken(share=0.1) < taken(share=0.11) < taken(share=0.6)
    both = taken(share=0.5) & taken(share=0.5, seed=1)
    assert len(both) == pytest.approx(5_000, abs=250)


def test_samples_equal_those_of_spark():
    # Spark 4: SELECT seq FROM range(20) WHERE (xxhash64(7L, id) ^ (1L << 63)) < 0.3 * 2^64 - 2^63
    assert sorted(n for n in taken(share=0.3, seed=7) if n < 20) == [1, 2, 3, 9, 12, 16, 18]


FROM_MINUS = {
    int(n)
    for n, h in zip(range(-98, 0), xxh64(np.arange(-98, 0), xxh64(np.array([0]), SPARK_SEED)[0]), strict=True)
    if h < 2**63
}


def test_field_of_another_type_is_refused():
    batch = pa.RecordBatch.from_pydict({"seq": [0, 1, 2], "n": pa.array([5, None, 5], pa.uint8())})
    found = t.SampleByHash(share=0.999, field="n").session().push_batch(batch)
    assert found["seq"].to_pylist() == [0, 2]
    for kind, numbers in ((pa.uint64(), [2**64 - n for n in range(1, 99)]), (pa.int64(), [-n for n in range(1, 99)])):
        batch = pa.RecordBatch.from_pydict({"i": range(98), "n": pa.array(numbers, kind)})
        found = t.SampleByHash(share=0.5, field="n").session().push_batch(batch)["i"].to_pylist()
        assert found == [i for i in range(98) if -1 - i in FROM_MINUS]
    with pytest.raises(ConfigError, match="sample_by_hash needs integers in the field 'n', it has string"):
        t.SampleByHash(field="n").output_schema(pa.schema({"n": pa.string()}))
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="share"):
            t.SampleByHash(share=share)
