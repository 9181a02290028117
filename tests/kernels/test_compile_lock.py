"""Several processes that need a kernel at once compile it once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, numpy as np
from riot_ops.kernels.arrays.latest_rows import latest_rows
print("ready", flush=True)
sys.stdin.readline()
latest_rows(np.zeros(1, np.int64), 1)
"""


@pytest.mark.long
def test_processes_compile_a_kernel_once(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DEBUG_CACHE": "1", "NUMBA_DISABLE_JIT": "0"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    texts = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    saved = [line for text in texts for line in text.splitlines() if "data saved to" in line]
    loaded = [line for text in texts for line in text.splitlines() if "data loaded from" in line]
    assert (len(saved), len(loaded)) == (1, 2)
    assert len(list(tmp_path.rglob("*.nbc"))) == 1
