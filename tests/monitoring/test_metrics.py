"""The names of metrics, in Prometheus, Grafana's dashboard, the documents and log lines."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.monitoring import Monitor, SharedMonitor
from riot_ops.monitoring.metrics import METRICS
from riot_ops.monitoring.prometheus import metrics_text
from riot_ops.reuse import LocalBackend, ReuseManager

ROOT = Path(__file__).parents[2]
NAMES = {one.prometheus for known in METRICS.values() for one in known}


def flow(name="greenhouse"):
    made = ro.Dataflow(name)
    readings = made.source("readings", schema={"bed": "string", "value": "double"})
    return made.sink("out", readings.to(t.KalmanFilter(by="bed"), id="smooth"))


ROWS = [{"bed": "a", "value": 1.0}, {"bed": "b", "value": 2.0}, {"bed": "b", "value": "n/a"}]


def run_text():
    run = flow().launch(ROWS)
    run.wait()
    with Monitor(run) as monitor:
        return metrics_text(monitor.state())


def shared_text():
    manager, readings = ReuseManager(LocalBackend()), ro.MemorySource([{"bed": "a", "value": 1.0}] * 30)
    for name in ('a "quoted" name', "b"):
        manager.submit(flow(name), readings, ro.MemorySink(), owner="ada")
    manager.backend.run()
    with SharedMonitor(manager) as monitor:
        return metrics_text(monitor.state())


def test_shared_dataflows_have_metrics_of_their_own():
    families = {family.name: family for family in text_string_to_metric_families(shared_text())}
    found = {name: {tuple(s.labels.values())[2:]: s.value for s in one.samples} for name, one in families.items()}
    assert found["riot_ops_shared_dataflows"] == {(): 2} and found["riot_ops_shared_steps"] == {(): 3}  # also the sink
    assert found["riot_ops_shared_steps_alone"] == {(): 6} and found["riot_ops_shared_saved_records"] == {(): 60}
    assert found["riot_ops_shared_dataflow_records"] == {('a "quoted" name',): 30, ("b",): 30}
    assert set(found["riot_ops_shared_step_records"].values()) == {30}


@pytest.mark.parametrize("text", [run_text, shared_text])
def test_names_follow_the_conventions(text):
    for family in text_string_to_metric_families(text()):
        assert re.fullmatch(r"riot_ops(_[a-z]+)+", family.name), family.name
        assert family.documentation.endswith(".") and family.type in ("counter", "gauge")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert not {"quantile", "le", "job", "instance"} & {*sample.labels}, "these have meanings of their own"
            assert not re.search("(milli|micro|nano|kilo|mega)(seconds|bytes)|_(ms|us|mb)(_|$)", sample.name)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("text", [run_text, shared_text])
def test_promtool_has_no_remark(text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_dashboard_asks_for_metrics_that_exist():
    board = json.loads((ROOT / "examples/deploy/grafana/riot_ops.json").read_text(encoding="utf-8"))
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    asked = {name for target in targets for name in re.findall(r"riot_ops_\w+", target["expr"])}
    assert asked == NAMES  # it shows all
    labels = {"dataflow", "runner", "stream", "step", "reason", "percentile", "part", "name"}
    for target in targets:
        by = re.findall(r"by \(([^)]*)\)", target["expr"])
        shown = {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])}
        assert shown <= labels and all({*group.split(", ")} <= labels for group in by)
        assert not by or shown <= {*by[0].split(", ")}, target


def test_documents_list_every_metric():
    text = (ROOT / "docs/howto/live.md").read_text(encoding="utf-8")
    assert {*re.findall(r"`(riot_ops_\w+)`", text)} >= NAMES


def test_log_lines_have_the_same_names():
    text, logger = io.StringIO(), logging.getLogger("riot_ops")
    handler = logging.StreamHandler(text)
    handler.setFormatter(ro.JSONFormatter())
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        run = flow().launch(ROWS)
        run.wait()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    ended = json.loads(text.getvalue().splitlines()[-1])
    assert ended["event"] == "ended"
    with Monitor(run) as monitor:
        families = {one.name: one.samples for one in text_string_to_metric_families(metrics_text(monitor.state()))}

    def labelled(name, *labels):
        return {".".join(s.labels[label] for label in labels): s.value for s in families[f"riot_ops_{name}"]}

    for name in ("messages", "late", "batches", "state_keys", "lag_seconds"):
        assert labelled(name) == {"": ended[name]}, name
    assert labelled("records", "stream") == ended["records"]
    assert sum(labelled("rejected", "step", "reason").values()) == ended["rejected"] == 1
    for name in ("read", "rejected"):
        assert labelled(f"step_{name}", "step") == {step: one[name] for step, one in ended["steps"].items()}
    wanted = {name.removeprefix("p"): value for name, value in ended["latency_seconds"].items()}
    assert labelled("latency_seconds", "percentile") == pytest.approx(wanted)
