"""The command of the unit file in ``examples/deploy/systemd``: under load, stopped, killed and started again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import string
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.compute as pc
import pytest

import riot_ops as ro
from riot_ops.testing.services import free_port

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "deploy" / "systemd"
UNIT = FOLDER / "greenhouse.service"
MESSAGES, BEDS = 6_000, 5


def settings():
    """The settings of the section [Service], in their order; a name may occur several times."""
    section = UNIT.read_text(encoding="utf-8").split("[Service]\n")[1].split("[Install]")[0]
    lines = [line for line in section.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split("=", 1)) for line in lines]


def setting(name):
    (value,) = [value for key, value in settings() if key == name]
    return value


def command(environment):
    """The words of ``ExecStart`` as systemd expands them, with this interpreter and this checkout."""
    assert re.match(r"^/", setting("ExecStart")), "systemd takes absolute paths"
    words = [string.Template(word).substitute(environment) for word in shlex.split(setting("ExecStart"))]
    assert words[:2] == ["/opt/greenhouse/bin/python", "/opt/greenhouse/greenhouse.py"]
    return [sys.executable, str(FOLDER / "greenhouse.py"), *words[2:]]


def test_unit_stops_in_time_and_restarts_after_failures():
    assert dict(settings())["KillSignal"] == "SIGTERM"
    assert setting("Restart") == "on-failure"
    assert setting("TimeoutStopSec") == "2min"  # more than an epoch, which is ten seconds
    assert setting("StateDirectory") == "greenhouse"
    paths = [key for key, value in settings() if key.startswith("Protect") and value in ("strict", "yes")]
    assert paths == ["ProtectSystem", "ProtectHome"]


class Service:
    """The unit's command as a process, and what its page says."""

    def __init__(self, folder, broker, port):
        environment = {**os.environ, "BROKER": broker, "STATE_DIRECTORY": str(folder)}
        for key, value in settings():
            if key == "Environment" and not value.startswith(("BROKER=", "XDG_")):
                environment.update([value.split("=", 1)])
        self.live = f"http://127.0.0.1:{port}"
        self.log = folder / "log"
        with self.log.open("ab") as log:
            words = [*command(environment), "--live", self.live]
            self.process = subprocess.Popen(words, env=environment, stderr=log, start_new_session=True)

    def messages(self):
        """How many messages this process has read; None before its page is up."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.live}/metrics", timeout=10) as answer:
                found = re.search(r"^riot_ops_messages_total{.*} (\d+)", answer.read().decode(), re.MULTILINE)
        except OSError:
            return None
        return int(found[1]) if found else None

    def wait_for(self, messages):
        end = time.monotonic() + 120
        while (self.messages() or 0) < messages:
            assert time.monotonic() < end, f"{self.messages()} messages\n{self.log.read_text()}"
            time.sleep(0.05)

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(120)


@pytest.mark.integration
@pytest.mark.long
def test_every_record_is_there_once_after_sigterm_kill_and_restarts(own_mosquitto, tmp_path):
    import paho.mqtt.client as mqtt

    state, port = tmp_path / "state", free_port()
    state.mkdir()
    service = Service(state, own_mosquitto.url, port)
    end = time.monotonic() + 120
    while service.messages() is None:  # the page is up: the source has subscribed
        assert time.monotonic() < end, service.log.read_text()
        time.sleep(0.05)

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(200)
    parts = urlsplit(own_mosquitto.url)
    client.connect(parts.hostname, parts.port)
    client.loop_start()
    go = threading.Semaphore(MESSAGES // 3)

    def publish():
        last = None
        for i in range(MESSAGES):
            go.acquire()
            text = "wet" if i % 100 == 99 else i % 100
            message = {"bed": "abcde"[i % BEDS], "moisture": text}
            last = client.publish(f"greenhouse/{i}", json.dumps(message), qos=2)
        last.wait_for_publish(120)

    publisher = threading.Thread(target=publish)
    publisher.start()
    service.wait_for(MESSAGES // 10)
    go.release(MESSAGES // 3)
    assert service.end(signal.SIGTERM) == 0, service.log.read_text()  # in the midst of it
    assert "stopped after a commit" in service.log.read_text()

    service = Service(state, own_mosquitto.url, port)
    service.wait_for(MESSAGES // 10)
    go.release(MESSAGES - 2 * (MESSAGES // 3))
    assert service.end(signal.SIGKILL) == -signal.SIGKILL

    words = [sys.executable, "-m", "riot_ops", "checkpoint", "show", str(state / "checkpoint"), "--json"]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    service = Service(state, own_mosquitto.url, port)
    publisher.join(120)
    assert not publisher.is_alive()
    client.loop_stop()
    service.wait_for(MESSAGES - shown["positions"]["messages"]["seq"])
    assert service.end(signal.SIGTERM) == 0, service.log.read_text()
    sink = ro.ParquetSink(state / "results")
    smooth, errors = sink.table("smooth"), sink.table("errors")
    seqs = sorted(smooth["seq"].to_pylist() + errors["seq"].to_pylist())
    assert seqs == list(range(MESSAGES))
    assert pc.unique(errors["reason"]).to_pylist() == ["bad_number"]
