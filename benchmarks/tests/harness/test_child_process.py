"""Modules in child processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from riot_bench.harness.child_process import die_with_parent, kill_group, module_process, wait_for_exit

from riot_ops.core.errors import RiotError


def test_job_end_terminates_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A killed job, and a job whose block ends."""
    (tmp_path / "starts_another.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(f'{child.pid}\\n')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for how in ("killed", "left"):
        noted = tmp_path / how
        with module_process("starts_another", str(noted)) as process:
            while not (noted.exists() and noted.read_text().endswith("\n")):
                assert process.poll() is None
                time.sleep(0.02)
            if how == "killed":
                kill_group(process)
                assert process.returncode == -9
        assert process.returncode == -9
        child, until = int(noted.read_text()), time.monotonic() + 10
        while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_late_or_failed_job_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "goes_on.py").write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nsys.exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with module_process("goes_on", "60") as process, pytest.raises(RiotError, match=r"it was not done in 0\.2 s"):
        wait_for_exit(process, "it", 0.2)
    assert process.returncode == -9
    with module_process("goes_on", "0") as process, pytest.raises(RiotError, match="it ended with exit code 7"):
        wait_for_exit(process, "it", 60.0)


@pytest.mark.skipif(not die_with_parent(), reason="no setpriv")
@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_killed_harness_leaves_no_process(patience: float) -> None:
    """Also where it is killed before its child has asked for the signal."""
    code = (
        "import subprocess, sys, time; from riot_bench.harness.child_process import die_with_parent; "
        "print(subprocess.Popen([*die_with_parent(), 'sleep', '60'], start_new_session=True).pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        child = int(harness.stdout.readline())
        time.sleep(patience)
        assert not patience or psutil.Process(child).name() == "sleep"
        harness.kill()
    until = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_orphaned_child_exits_at_once() -> None:
    """A child that requests the signal after its parent has ended."""
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", between, *die_with_parent(), "echo", "begun"], capture_output=True, check=False
    )
    assert done.stdout == (b"begun\n" if not die_with_parent() else b"")
