"""The sample in plain Python beside its definition, with the hash of the product's kernel."""

from __future__ import annotations

import numpy as np
import pytest
from riot_bench.baselines.python.streambench.sample import sample

from riot_ops.kernels.arrays.xxhash import xxh64


@pytest.mark.parametrize("seed", [0, 7, -(2**63)])
def test_lines_are_kept_by_the_hash_of_their_numbers(seed: int) -> None:
    lines = [b"%d" % i for i in range(2000)]
    with np.errstate(over="ignore"):
        (begin,) = xxh64(np.array([seed]), np.uint64(42))
        hashes = xxh64(np.arange(2000), np.uint64(begin))
    wanted = [(line,) for line, found in zip(lines, hashes, strict=True) if int(found) < 0.3 * 2.0**64]
    assert sample({"lines": lines}, share=0.3, seed=seed) == {"records": wanted}
    assert 500 < len(wanted) < 700
