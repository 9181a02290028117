"""The intrinsics that compiled kernels call in place of the kernels over 64 bytes."""

from __future__ import annotations

import os

import pytest

from riot_ops.kernels.arrays import byte_masks


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_compiled_kernels_call_the_intrinsics():
    from riot_ops.kernels.arrays import simd

    for name in simd.__all__:
        assert getattr(byte_masks, name).inlined() is getattr(simd, name)
