"""Machines of tests see their own files and network only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from riot_ops.testing.machines import Machine, Network, can_isolate_folders, can_isolate_networks

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not can_isolate_folders(), reason="this system has no mount namespaces for processes"),
]

LOOK = """
import json, os, socket, sys, riot_ops
seen = [os.path.exists(path) for path in sys.argv[1:]]
print(json.dumps([seen, os.getcwd(), riot_ops.__file__, os.listdir("/tmp")]))
"""
#: Answers one connection on all addresses of the machine.
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 4711)) as server:
    print("ready", flush=True)
    server.accept()[0].sendall(b"hello")
"""


def output(process, log):
    assert process.wait(60) == 0, log.read_text()
    return log.read_text()


def test_machine_sees_neither_other_folders_nor_temporary_files(tmp_path):
    paths = {name: tmp_path / "all" / name for name in ("one", "two", "shared", "driver")}
    for path in paths.values():
        path.mkdir(parents=True)
        (path / "file").touch()
    with tempfile.NamedTemporaryFile(dir="/tmp") as temporary:
        one = Machine(f"look-{os.getpid()}", paths["one"], hidden=[tmp_path / "all"], shared=[paths["shared"]])
        log = tmp_path / "log"
        files = [*(str(path / "file") for path in paths.values()), temporary.name]
        seen, cwd, package, in_tmp = json.loads(output(one.start([sys.executable, "-c", LOOK, *files], {}, log), log))
        assert seen == [True, False, True, False, False]
        assert Path(temporary.name).exists() and Path(temporary.name).name not in in_tmp
    assert cwd == str(paths["one"] / "tmp") and package == str(paths["one"] / "site/riot_ops/__init__.py")
    one.stop()


def test_all_processes_of_a_machine_end(tmp_path):
    one = Machine(f"end-{os.getpid()}", tmp_path)
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
    log = tmp_path / "log"
    one.start([sys.executable, "-c", f"{child}; print('up', flush=True); time.sleep(98)"], {}, log)
    until = time.monotonic() + 60
    while ("up" not in log.read_text() or len(one.pids()) < 2) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(one.pids()) == 2, log.read_text()
    assert len(one.pids("sleep(98)")) == 1 and len(one.processes) == 1
    pids = one.pids()
    one.stop()
    assert one.pids() == [] and one.processes == []
    assert not any(
        Path("/proc", str(pid), "cmdline").exists() and Path("/proc", str(pid), "cmdline").read_bytes() for pid in pids
    )


@pytest.mark.skipif(not can_isolate_networks(), reason="only root makes network namespaces")
def test_machines_have_addresses_of_their_own(tmp_path):
    network = Network()
    try:
        one, two = (Machine(f"net-{os.getpid()}-{name}", tmp_path / name, network=network) for name in ("one", "two"))
        assert len({network.host, one.host, two.host}) == 3
        ready = tmp_path / "server"
        server = one.start([sys.executable, "-c", SERVE], {}, ready)
        while "ready" not in ready.read_text():
            assert server.poll() is None, ready.read_text()
            time.sleep(0.01)
        ask = f"import socket; print(socket.create_connection(('{one.host}', 4711), 9).recv(9))"
        nobody = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 4711)))"
        assert output(two.start([sys.executable, "-c", nobody], {}, tmp_path / "a"), tmp_path / "a") != "0\n"
        assert output(two.start([sys.executable, "-c", ask], {}, tmp_path / "b"), tmp_path / "b") == "b'hello'\n"
        one.stop()
        two.stop()
    finally:
        network.close()
        network.close()
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"riot-{os.getpid()}-" not in names
