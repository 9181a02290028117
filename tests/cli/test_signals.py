"""SIGTERM and Ctrl-C end every command: no half file, no process left, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.long


def start(folder, *words, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "riot_ops", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=folder,
        env={**os.environ, **variables},
    )  # fmt: skip


def until(what, process, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
    return found


def handles(process, number):
    """Whether a process has installed a handler of a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def end(process, number):
    """Send a signal; return the output and what is left of the processes that ran."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number, text
    assert "Traceback" not in text
    _, left = psutil.wait_procs(family, timeout=20)
    return text, left


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "city.csv"), (signal.SIGTERM, "city.csv.gz")])
def test_interrupted_stream_leaves_the_file_unchanged(tmp_path, number, name):
    (tmp_path / name).write_bytes(b"before")
    process = start(tmp_path, "streams", "city", "--write", name, "--messages", "20000000")
    until(lambda: any(p.stat().st_size for p in tmp_path.iterdir() if p.name != name), process)
    _, left = end(process, number)
    assert not left
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {name: b"before"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_warm_up_leaves_no_process(tmp_path, number):
    process = start(tmp_path, "warm", "--processes", "2", NUMBA_CACHE_DIR=str(tmp_path), RIOT_OPS_CACHE=str(tmp_path))
    until(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= 3, process)
    _, left = end(process, number)
    assert not left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_manager_ends_in_order(tmp_path, number):
    process = start(tmp_path, "reuse", "serve", "--dir", "kept", "--backend", "local")
    assert process.stdout.readline().startswith("serving in")
    process.send_signal(number)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == (0 if number == signal.SIGTERM else 130), text
    assert "Traceback" not in text
    again = start(tmp_path, "reuse", "serve", "--dir", "kept", "--backend", "local")
    assert again.stdout.readline().startswith("serving in")  # the folder is free
    again.terminate()
    again.communicate(timeout=60)


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_interrupted_benchmark_leaves_no_process(tmp_path):
    pytest.importorskip("riot_bench")
    process = start(tmp_path, "bench", "kernels")
    until(lambda: handles(process, signal.SIGTERM), process)
    time.sleep(3)
    _, left = end(process, signal.SIGTERM)
    assert not left
    assert [p.name for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size == 0] == []
