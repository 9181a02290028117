"""Servers start, restart and go away without a trace."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from riot_ops import ConnectorError
from riot_ops.testing.services import Mosquitto, program

pytestmark = pytest.mark.integration
#: As the kernel writes 127.0.0.1, ::1 and ::ffff:127.0.0.1.
LOOPBACK = {"0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"}
ROOT = Path(__file__).resolve().parents[2]


def answers(url: str) -> bool:
    with socket.socket() as one:
        return one.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) == 0


def test_life_of_a_broker():
    with Mosquitto() as broker:
        first = broker.process.pid
        assert answers(broker.url) and answers(broker.ws) and not broker.tls
        broker.kill()
        assert not answers(broker.url)
        broker.start()
        assert broker.process.pid != first and answers(broker.url)
        folder = broker.folder
    assert not answers(broker.url) and not folder.exists()
    broker.close()


def test_given_folder_is_retained_and_reused(tmp_path):
    for _ in range(2):  # the second has ports of its own
        with Mosquitto(tmp_path / "broker") as broker:
            assert answers(broker.url)
            assert broker.log.parent == broker.folder == tmp_path / "broker"
    assert broker.log.exists()


def test_service_listens_on_loopback_only():
    with Mosquitto() as broker:
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                address, port = line.split()[1].split(":")
                if line.split()[3] == "0A" and int(port, 16) in broker.ports():
                    assert address in LOOPBACK, line


def test_failed_start_is_reported():
    broker = Mosquitto(options=("no_such_option true",))
    with pytest.raises(ConnectorError, match=r"(?s)does not start.*no_such_option"):
        broker.start()
    broker.close()


def test_missing_program_is_reported():
    with pytest.raises(ConnectorError, match="no-such-program is not installed: get it"):
        program("no-such-program", "get it")


def test_command_line():
    script = [sys.executable, str(ROOT / "tools" / "services.py")]
    process = subprocess.Popen([*script, "start", "mosquitto"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("MQTT: mqtt://127.0.0.1:") and answers(line.split()[1])
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0 and not answers(line.split()[1])
    done = subprocess.run([*script, "install", "no-such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "known are" in done.stderr
    assert subprocess.run([*script, "install", "mosquitto"], env=os.environ, check=False).returncode == 0
