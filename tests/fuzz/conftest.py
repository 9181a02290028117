"""The amount of fuzzing: thousands of inputs in `make test`, a million of each kind in `make test-all`.

``RIOT_OPS_FUZZ`` sets the larger number, ``RIOT_OPS_FUZZ_SEED`` the seed.
"""

from __future__ import annotations

import os
import random

import pytest

FEW = 1_500
MANY = int(os.environ.get("RIOT_OPS_FUZZ", "1000000"))


@pytest.fixture(
    params=[FEW, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])], ids=["few", "many"]
)
def amount(request):
    """Number of inputs."""
    return request.param


@pytest.fixture
def rng(request):
    """A generator: seeded for few inputs, random for many."""
    few = request.node.callspec.params.get("amount") == FEW
    seed = os.environ.get("RIOT_OPS_FUZZ_SEED") or ("1" if few else str(random.SystemRandom().getrandbits(32)))
    print(f"RIOT_OPS_FUZZ_SEED={seed}")
    return random.Random(seed)
