"""Generated streams are the same to the last bit in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.streams.records import digest

#: Sources, and which of their messages are read.
READ = [
    ("city(sensors=40, seed=5)", 5800, 5860),
    ("taxi(taxis=40)", 990, 1040),
    ("fit(7, seed=3, format='senml')", 99_990, 100_020),
    ("fit(7, seed=3, format='wide')", 99_990, 100_020),
    ("grid(7, seed=3, format='senml')", 5_990, 6_050),
    ("grid(7, seed=3, format='wide')", 5_990, 6_050),
]


@pytest.mark.long
@pytest.mark.parametrize("environment", [{"PYTHONHASHSEED": "7"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_another_process_gives_the_same_bytes(environment):
    script = f"import json; from tests.streams.records import digest; print(json.dumps([digest(*r) for r in {READ!r}]))"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(zip(READ, json.loads(run.stdout), strict=True)) == {read: digest(*read) for read in READ}
    assert "Warning" not in run.stderr
