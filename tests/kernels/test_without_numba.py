"""Where numba cannot be imported, tasks run as plain Python, with one warning."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Tasks of five kinds, under all checks of the contract.
CODES = ("KAL", "AVG", "BLF", "PRS", "SQI")
CHECK = """
import sys, warnings

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"no wheel of {name}")

sys.meta_path.insert(0, Refuses())
from riot_ops.task import registered_tasks
from riot_ops.testing import CHECKS, applies
from riot_ops.kernels import changeover

changeover.PLAIN_SECONDS = 0
kinds = {kind.code: kind for kind in registered_tasks()}
done = 0
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for code in sys.argv[1:]:
        case = next(iter(kinds[code].cases()))
        for check in CHECKS:
            if applies(check, case):
                check(case)
                done += 1
print(done, {"numba", "llvmlite"} & set(sys.modules), [str(one.message) for one in seen])
"""


@pytest.mark.long
@pytest.mark.parametrize("setting", ["deferred", "immediate"])
def test_tasks_fulfil_the_contract_without_numba(setting):
    environment = {**os.environ, "RIOT_OPS_COMPILE": setting, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    child = subprocess.run(
        [sys.executable, "-c", CHECK, *CODES], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    done, _, rest = child.stdout.strip().partition(" ")
    assert int(done) > 10 * len(CODES)
    assert rest == (
        "set() ['numba cannot be imported (no wheel of numba); kernels run as plain Python, about 70 times slower']"
    )
