"""The cluster of this computer starts and stops by its script."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from riot_ops import ConfigError
from riot_ops.testing.machines import can_isolate_folders
from riot_ops.testing.spark_cluster import SparkCluster

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "cluster.sh"


def call(*arguments):
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "value"), [("workers", 0), ("cores", 0)])
def test_sizes_are_checked(tmp_path, name, value):
    with pytest.raises(ConfigError, match=rf"{name} must be"):
        SparkCluster(tmp_path, **{name: value})


def test_script_without_a_cluster(tmp_path):
    assert call("status", tmp_path) == (3, "cluster: it does not run\n")
    assert call("stop", tmp_path) == (0, "cluster: it does not run\n")
    code, text = call("begin", tmp_path)
    assert code == 2 and text.startswith("usage: cluster.sh start")
    code, text = call("start", tmp_path, "--workers", 0)
    assert code == 1 and "workers must be" in text and call("status", tmp_path)[0] == 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not can_isolate_folders(), reason="this system has no mount namespaces for processes")
def test_script_starts_and_stops_a_cluster(tmp_path):
    code, text = call("start", tmp_path, "--workers", 1)
    try:
        assert code == 0, text
        assert re.match(r"master: spark://[\d.]+:\d+\ndriver: [\d.]+\nshared: .*/shared\nworker1: [\d.]+\n", text)
        assert call("status", tmp_path) == (0, text)
        assert call("start", tmp_path)[0] == 1
        pid = int((tmp_path / "pid").read_text())
    finally:
        assert call("stop", tmp_path) == (0, "cluster: stopped\n")
    assert not Path("/proc", str(pid)).exists() and call("status", tmp_path)[0] == 3
    environments = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            environments.append(path.read_bytes())
    assert f"riot-{pid}-".encode() not in b"".join(environments)
