"""XXH64 of integers, against values of the reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from riot_ops.kernels.arrays.xxhash import xxh64


@pytest.mark.parametrize(
    ("number", "seed", "wanted"),
    [
        (0, 0, 0x34C96ACDCADB1BBB),
        (-1, 0, 0x85D136ADB773C6C9),
        (12345678901, 42, 0x10DB6FF7A74FEE90),
        (-9223372036854775808, 18446744073709551615, 0xB0BDB479FE9B7026),
    ],
)
def test_xxh64_equals_the_reference(number, seed, wanted):
    assert int(xxh64(np.array([number, 5]), np.uint64(seed))[0]) == wanted
