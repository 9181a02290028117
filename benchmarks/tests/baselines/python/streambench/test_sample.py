"""The hash by which plain Python samples."""

from __future__ import annotations

import numpy as np
import pytest
from riot_bench.baselines.python.streambench import sample

from riot_ops.kernels.arrays.xxhash import xxh64

NUMBERS = [0, 1, 255, 2**40, 2**63 - 1]


@pytest.mark.parametrize("seed", [0, 42, 2**64 - 1])
def test_hash_of_a_number_equals_the_kernel(seed: int) -> None:
    wanted = [int(value) for value in xxh64(np.array(NUMBERS), np.uint64(seed))]
    assert [sample.xxh64(number, seed) for number in NUMBERS] == wanted
    assert [sample.hash_of(number, seed) for number in NUMBERS] == wanted


def test_hash_of_the_package_takes_eight_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(data: bytes, seed: int) -> int:
        assert len(data) == 8
        return sample.xxh64(int.from_bytes(data, "little"), seed)

    lines = [b"%d" % i for i in range(2000)]
    monkeypatch.setattr(sample, "xxh64_intdigest", None)
    in_python = sample.sample({"lines": lines}, share=0.3, seed=7)
    assert 500 < len(in_python["records"]) < 700
    monkeypatch.setattr(sample, "xxh64_intdigest", digest)
    assert sample.sample({"lines": lines}, share=0.3, seed=7) == in_python
    assert sample.hash_of(-1, 5) == sample.xxh64(-1, 5)
