"""The cluster of this computer starts and stops by its script."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from riot_ops import ConfigError
from riot_ops.testing.machines import can_isolate_folders
from riot_ops.testing.spark_cluster import SparkCluster, hold

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "cluster.sh"


def call(*arguments, python=sys.executable):
    environment = {**os.environ, "PYTHON": python}
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "value"), [("workers", 0), ("cores", 0)])
def test_sizes_are_checked(tmp_path, name, value):
    with pytest.raises(ConfigError, match=rf"{name} must be"):
        SparkCluster(tmp_path, **{name: value})


@pytest.mark.parametrize("memory", ["", "1", "0g", "many", "1 g"])
def test_memory_is_checked(tmp_path, memory):
    with pytest.raises(ConfigError, match="memory must be a size such as '1g'"):
        SparkCluster(tmp_path, memory=memory)


def test_another_process_with_the_number_of_an_ended_cluster_is_left_alone(tmp_path):
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    assert call("status", tmp_path) == (3, "cluster: it does not run: it ended without a stop\n")
    code, text = call("stop", tmp_path)
    assert code == 0 and text == "cluster: it had ended without a stop; what was left of it is removed\n"
    assert call("status", tmp_path) == (3, "cluster: it does not run\n")


def test_a_folder_has_one_cluster(tmp_path):
    with hold(tmp_path), pytest.raises(ConfigError, match=r"a cluster runs in .* already"), hold(tmp_path):
        pass
    with hold(tmp_path):
        pass


def test_script_without_a_cluster(tmp_path):
    assert call("status", tmp_path) == (3, "cluster: it does not run\n")
    assert call("stop", tmp_path) == (0, "cluster: it does not run\n")
    code, text = call("begin", tmp_path)
    assert code == 2 and text.startswith("usage: cluster.sh start")
    code, text = call("start", tmp_path, "--workers", 0)
    assert code == 1 and "workers must be" in text and call("status", tmp_path)[0] == 3
    assert call("stop", tmp_path, "more")[0] == 2
    code, text = call("start", tmp_path, python="/usr/bin/false")
    assert code == 1 and text == (
        "cluster: /usr/bin/false has no riot_ops with pyspark: make setup, or PYTHON=/path/of/another\n"
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not can_isolate_folders(), reason="this system has no mount namespaces for processes")
def test_script_starts_and_stops_a_cluster(tmp_path):
    tmp_path /= "with a blank"
    code, text = call("start", tmp_path, "--workers", 1)
    try:
        assert code == 0, text
        assert re.match(r"master: spark://[\d.]+:\d+\ndriver: [\d.]+\nshared: .*/shared\nworker1: [\d.]+\n", text)
        assert call("status", tmp_path) == (0, text)
        assert call("start", tmp_path)[0] == 1
        pid = int((tmp_path / "pid").read_text())
        for process in processes(f"riot-{pid}-", b"deploy.master.Master"):
            os.kill(process, signal.SIGKILL)
        until = time.monotonic() + 30
        while "(ended)\ndriver" not in call("status", tmp_path)[1]:
            assert time.monotonic() < until, "the status does not say that the master has ended"
    finally:
        assert call("stop", tmp_path) == (0, "cluster: stopped\n")
    assert pid not in processes("", b"riot_ops.testing.spark_cluster") and call("status", tmp_path)[0] == 3
    assert not processes(f"riot-{pid}-")


def processes(mark, word=b""):
    """The processes with a text in their environment, and a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (path / "environ").read_bytes() and word in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not can_isolate_folders(), reason="this system has no mount namespaces for processes")
def test_script_that_is_interrupted_leaves_nothing(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable}
    starting = subprocess.Popen([SCRIPT, "start", str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "master.log").exists():
        assert time.monotonic() < until and starting.poll() is None
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    starting.terminate()
    _, text = starting.communicate(timeout=60)
    assert (starting.returncode, text) == (130, "cluster: interrupted, it is stopped\n")
    assert not processes(f"riot-{pid}-") and call("status", tmp_path)[0] == 3
