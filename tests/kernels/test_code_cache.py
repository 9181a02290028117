"""Machine code shipped in riot-ops-kernels: nothing is compiled where it fits, and it is ignored where it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from riot_ops.kernels.code_cache import MANIFEST, SHIPPED, this_platform

pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")

#: Calls a kernel and prints its result, what was compiled, and the processor that numba compiles for.
CALL = """
import numba, numpy as np
from numba.core import event
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
compiled = []
event.register("numba:compile", Listener())
from riot_ops.kernels.arrays.lazy_rows import any_infinite
print(any_infinite(np.array([1.0, np.inf])), any_infinite(np.zeros(3)), *compiled)
"""


def call(folder: Path, cache: str, **environment: str) -> str:
    settings = {**os.environ, "RIOT_OPS_COMPILE": "immediate", "NUMBA_CACHE_DIR": str(folder / cache), **environment}
    settings["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run([sys.executable, "-c", CALL], env=settings, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.long
def test_shipped_code_is_used_where_it_fits(tmp_path):
    # for another processor than this one
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert call(tmp_path, f"{SHIPPED}/code", **generic) == "True False any_infinite"
    package = tmp_path / SHIPPED
    (package / "__init__.py").write_text("")
    assert call(tmp_path, "own") == "True False any_infinite", "it was used without a manifest"
    (package / MANIFEST).write_text(json.dumps(this_platform()))
    assert call(tmp_path, "other") == "True False"
    assert not list((tmp_path / "other").rglob("*.nbi"))
    (package / MANIFEST).write_text(json.dumps({**this_platform(), "numba": "0.1"}))
    assert call(tmp_path, "third") == "True False any_infinite", "it was used for another numba"
