"""Metrics, read by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.monitoring import Monitor
from riot_ops.monitoring.prometheus import metrics_text


def test_counts_are_those_of_the_run():
    flow = ro.Dataflow('a "quoted" name')
    readings = flow.source("readings", schema={"room": "string", "value": "double"})
    flow.sink("out", readings.to(t.KalmanFilter(by="room"), id="smooth"))
    rows = [{"room": "a", "value": 1.0}, {"room": "b", "value": 2.0}, {"room": "b", "value": "n/a"}]
    run = flow.launch(rows)
    run.wait()
    with Monitor(run) as monitor:
        text = metrics_text(monitor.state())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    run_labels = {"dataflow": 'a "quoted" name', "runner": "in process"}

    def value(name, family=None, **labels):
        found = [
            s.value for s in families[family or name].samples if s.name == name and s.labels == run_labels | labels
        ]
        assert len(found) == 1, (name, families[family or name].samples)
        return found[0]

    assert value("riot_ops_messages_total", "riot_ops_messages") == 3
    assert value("riot_ops_records_total", "riot_ops_records", stream="smooth") == 2
    assert value("riot_ops_records_total", "riot_ops_records", stream="errors") == 1
    assert value("riot_ops_step_read_total", "riot_ops_step_read", step="smooth") == 2
    assert value("riot_ops_step_rejected_total", "riot_ops_step_rejected", step="readings") == 1
    assert value("riot_ops_rejected_total", "riot_ops_rejected", step="readings", reason="wrong_type") == 1
    assert value("riot_ops_late_total", "riot_ops_late") == 0
    assert value("riot_ops_state_keys") == 2 and value("riot_ops_up") == 0 and value("riot_ops_queue_bytes") == 0
    assert 0 <= value("riot_ops_latency_seconds", percentile="50") <= value("riot_ops_latency_seconds", percentile="99")
    assert value("riot_ops_state_bytes") > 0
    for family in families.values():
        assert family.type in ("counter", "gauge") and family.documentation.endswith(".")
