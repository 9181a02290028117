"""How much is tried: thousands of inputs in `make test`, a million of each kind in `make test-all`.

``RIOT_OPS_FUZZ`` sets the larger number, ``RIOT_OPS_FUZZ_SEED`` where the inputs start.
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
    """Inputs to try."""
    return request.param


@pytest.fixture
def rng(request):
    """The same inputs in each run of the few, others in each run of the many."""
    few = request.node.callspec.params.get("amount") == FEW
    seed = os.environ.get("RIOT_OPS_FUZZ_SEED") or ("1" if few else str(random.SystemRandom().getrandbits(32)))
    print(f"RIOT_OPS_FUZZ_SEED={seed}")
    return random.Random(seed)
