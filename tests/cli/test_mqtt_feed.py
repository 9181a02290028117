"""``riot-ops run --mqtt`` over a real broker, with TLS and a login."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import ConfigError, Secret
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from riot_ops.cli.job import Job
from riot_ops.cli.mqtt_feed import split_login
from riot_ops.testing.services import Mosquitto
from tests.connectors.conftest import write_certificates

MESSAGES = 60
PASSWORD = "p@ss/wörd"
LOGIN = "riot:p%40ss%2Fw%C3%B6rd@"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates):
    with Mosquitto(password=PASSWORD, certificates=certificates, client_certificates=True) as broker:
        yield broker


def city():
    source = ro.streams.city(sensors=5, messages=MESSAGES)
    start = source.initial()
    return [row for s in source.splits(start, source.latest(start), 1) for b in source.read(s) for row in b.to_pylist()]


def publish_until(done, url, **options):
    """Publish each message again and again until a run has subscribed."""
    rows = city()
    session = t.PublishMQTT(url=url, topic="city/x", timeout="20s", **options).session()
    while not done.is_set():
        session.push_many(rows)
        time.sleep(0.2)


def call(*words):
    return CliRunner().invoke(cli.app, ["run", *words, "--runner", "local"], catch_exceptions=False)


@pytest.mark.long
@pytest.mark.integration
def test_stats_over_a_broker_with_tls_and_login(secured, certificates, tmp_path, caplog):
    files = {"ca_file": "ca.crt", "certificate": "server.crt", "private_key": "server.key"}
    files = {name: str(certificates / file) for name, file in files.items()}
    words = [word for name, file in files.items() for word in (f"--{name.replace('_', '-')}", file)]
    done = threading.Event()
    login = {"username": "riot", "password": Secret(PASSWORD)}
    publishing = threading.Thread(target=publish_until, args=(done, secured.tls), kwargs={**files, **login})
    publishing.start()
    try:
        url = secured.tls.replace("://", f"://{LOGIN}")
        result = call(
            "stats", "--mqtt", url, "--topic", "city/#", "--client-id", "me", "--messages", "90", "-v", *words,
            "--out", str(tmp_path / "out"),
        )  # fmt: skip
    finally:
        done.set()
        publishing.join()
    assert result.exit_code == 0, result.output
    assert f"stats over the topics city/# of {secured.tls}, runner local" in result.output
    assert "stats: 90 messages in" in result.output
    assert f"connected to the MQTT broker {secured.tls} as 'me'" in result.stderr
    assert pq.read_table(tmp_path / "out" / "dac").num_rows == 5 * 90  # one of each observation
    for text in (result.output, result.stderr, caplog.text, str(result.exception)):
        assert not re.search(r"p@ss|p%40ss|riot:", text)


@pytest.mark.long
@pytest.mark.integration
def test_dataflow_file_over_a_broker_continues_from_its_checkpoint(mosquitto, tmp_path):
    flow = ro.Dataflow("kept")
    flow.sink("out", flow.source("raw", schema={"payload": "binary", "topic": "string"}).to(t.NoOp(), id="same"))
    (tmp_path / "flow.json").write_text(flow.to_json())
    command = [
        *(sys.executable, "-m", "riot_ops", "run", "flow.json", "--mqtt", mosquitto.url, "--topic", "kept/a"),
        *("--topic", "kept/b", "--runner", "local", "--checkpoint", "state", "--out", "out", "-v"),
    ]
    publish = t.PublishMQTT(url=mosquitto.url, topic="kept/{k}").session()
    sent = 0
    for turn in range(2):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, start_new_session=True
        )
        text = ""
        for line in process.stdout:
            text += line
            if "connected to the MQTT broker" in line:
                break
        if turn == 0:
            publish.push({"k": "a", "payload": "none"})  # ends the wait for the subscription
            time.sleep(1)
        publish.push_many([{"k": "ab"[i % 2], "payload": f"{turn} {i}"} for i in range(20)])
        publish.push({"k": "c", "payload": "another topic"})
        time.sleep(1.5)
        process.send_signal(signal.SIGTERM)
        text += process.communicate(timeout=60)[0]
        assert process.returncode == 143, text
        if turn == 0:
            publish.push_many([{"k": "a", "payload": f"between {i}"} for i in range(5)])
        sent += 20
    rows = pq.read_table(tmp_path / "out" / "same").sort_by("seq").to_pylist()
    texts = [row["payload"].decode() for row in rows]
    assert [x for x in texts if x != "none"] == [
        *(f"0 {i}" for i in range(20)), *(f"between {i}" for i in range(5)), *(f"1 {i}" for i in range(20))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("mqtt://h:1", ("mqtt://h:1", None, None)),
        ("mqtt://u@h", ("mqtt://h", "u", None)),
        ("mqtts://u:@h", ("mqtts://h", "u", None)),
        ("mqtts://u%3Av:p%40q@h:8883", ("mqtts://h:8883", "u:v", "p@q")),
        ("mqtt://u:p:q@r@h", ("mqtt://h", "u", "p:q@r")),
        ("ws://:p@h/path", ("ws://h/path", None, "p")),
    ],
)
def test_login_is_split_from_the_address(url, parts):
    found = split_login(url)
    assert (*found[:2], None if found[2] is None else found[2].reveal()) == parts


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats", "--topic", "a"], "--topic needs --mqtt, got ('a',)"),
        (["stats", "--client-id", "a"], "--client-id needs --mqtt"),
        (["stats", "--ca-file", "a"], "--ca-file needs --mqtt"),
        (["stats", "--certificate", "a"], "--certificate needs --mqtt"),
        (["stats", "--private-key", "a"], "--private-key needs --mqtt"),
        (["train", "--mqtt", "mqtt://h"], "--mqtt is for etl, stats, pred and a dataflow's JSON file, not for train"),
        (["learn", "--mqtt", "mqtt://h"], "--mqtt is for"),
        (["micro", "KAL", "--mqtt", "mqtt://h"], "--mqtt is for"),
        (["wc", "--mqtt", "mqtt://h"], "--mqtt is for"),
        (["stats", "--mqtt", "mqtt://h", "--input", "x"], "--input cannot be combined with --mqtt"),
        (["stats", "--mqtt", "mqtt://h", "--rate", "5"], "--rate cannot be combined with --mqtt"),
        (["stats", "--mqtt", "mqtt://h", "--form", "plots"], "--form cannot be combined with --mqtt"),
        (["stats", "--mqtt", "http://u:pa55@h"], "url must be mqtt://host:port"),
        (["stats", "--mqtt", "mqtt://u:pa55@h:0"], "url must have"),
        (["stats", "--mqtt", "mqtt://u:pa55@[h"], "--mqtt must be an address"),
        (["stats", "--mqtt", "mqtt://h", "--topic", "a/#/b"], "is not a topic filter"),
        (["stats", "--mqtt", "mqtt://h", "--certificate", "c"], "certificate is for mqtts://"),
    ],
)
def test_wrong_options_are_refused_without_secrets(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        call(*words)
    assert message in str(refused.value)
    assert "pa55" not in str(refused.value)


def test_dataflow_with_other_fields_is_refused(tmp_path):
    flow = ro.Dataflow("other")
    flow.sink("out", flow.source("raw", schema={"value": "double"}).to(t.NoOp(), id="same"))
    (tmp_path / "flow.json").write_text(flow.to_json())
    with pytest.raises(
        ConfigError, match="--mqtt gives the fields seq, event_time, payload, topic, but the source 'raw'"
    ):
        call(str(tmp_path / "flow.json"), "--mqtt", "mqtt://h")


def test_etl_does_not_check_unknown_sensors_and_pred_needs_models(tmp_path):
    job = Job("etl", runner="local", out=tmp_path, mqtt="mqtt://h")
    assert not {"bloom", "annotate"} & {*job.dataflow(job.services).nodes}
    job = Job("pred", runner="local", out=tmp_path, mqtt="mqtt://h")
    with pytest.raises(ConfigError, match="pred over --mqtt needs trained models"):
        job.sources(None)


def test_login_is_not_in_the_job(tmp_path):
    job = Job("stats", runner="local", out=tmp_path, mqtt=f"mqtt://{LOGIN}h")
    assert "ss/w" not in repr(job) and "ss%2Fw" not in repr(job)
    assert job.feed.source(paced=True).credentials == ("riot", PASSWORD)
