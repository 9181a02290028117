"""What runs log at level INFO, with a clock of the test."""

from __future__ import annotations

import logging
import signal

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.measure.metrics import Summary
from riot_ops.measure.run_log import LAG_SECONDS, LOG_SECONDS, RunLog


@pytest.fixture
def messages(caplog):
    """The messages of the logger so far."""
    caplog.set_level(logging.INFO, "riot_ops")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "riot_ops.run"]


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def log(now, messages):
    return RunLog("fl\now", clock=lambda: now[0])


def test_commits_are_logged_at_most_once_a_minute(log, now, messages):
    for second in range(0, 200, 10):
        now[0] = float(second)
        log.committed(Summary(messages=100 * second))
    assert messages() == [
        "the dataflow 'fl\\now' has committed 0 messages (0/s), and rejected 0 records",
        "the dataflow 'fl\\now' has committed 6,000 messages (100/s), and rejected 0 records",
        "the dataflow 'fl\\now' has committed 12,000 messages (100/s), and rejected 0 records",
        "the dataflow 'fl\\now' has committed 18,000 messages (100/s), and rejected 0 records",
    ]


def test_new_rejections_are_logged_by_reason(log, now, messages):
    for second, bad in ((1, 0), (2, 3), (10, 4), (70, 9), (140, 9)):
        now[0] = float(second)
        log.committed(Summary(messages=10, reasons={"parse\x1b[1m: malformed": bad, "a: b": 2} if bad else {}))
    assert [line for line in messages() if "more records" in line] == [
        "the dataflow 'fl\\now' has rejected 5 more records: a: b 2, parse\\x1b[1m: malformed 3",
        "the dataflow 'fl\\now' has rejected 6 more records: parse\\x1b[1m: malformed 6",
    ]


def test_lag_is_logged_at_its_begin_each_minute_and_at_its_end(log, now, messages):
    summary = Summary()
    for second, lag in ((0, 1), (10, LAG_SECONDS), (20, 30), (69, 40), (70, 50), (131, 2), (140, 20), (200, 1)):
        now[0] = float(second)
        summary.latency.add(0, 0, lag * 1e6, 1)
        log.committed(summary)
    assert [line.partition("' ")[2] for line in messages() if "lags" in line or "caught" in line] == [
        "lags: its last records were 10 s old",
        "lags: its last records were 50 s old",
        "has caught up",
        "lags: its last records were 20 s old",
        "has caught up",
    ]
    assert LOG_SECONDS == 60


def flow():
    made = ro.Dataflow("service")
    low = made.source("in", schema={"value": "double"}).to(t.RangeFilter(bounds={"value": (0, 5)}, by=None), id="low")
    return made.sink("out", low)


def test_run_logs_start_commit_rejections_and_end(messages):
    flow().run([{"value": "secret"}, *({"value": float(i)} for i in range(4))])
    lines = messages()
    assert lines[0] == "the dataflow 'service' runs in process"
    assert lines[1] == "the dataflow 'service' has committed 5 messages ({}/s), and rejected 1 records".format(
        lines[1].split("(")[1].split("/s")[0]
    )
    assert lines[2] == "the dataflow 'service' has rejected 1 more records: in: wrong_type 1"
    assert lines[3].startswith("the dataflow 'service' has ended after ")
    assert lines[3].endswith(" s: 5 messages are committed, 1 records were rejected")
    assert len(lines) == 4
    assert "secret" not in "".join(lines)


def test_run_logs_continuation_interrupt_and_failure(messages, tmp_path):
    signals = [signal.SIGINT]

    def stop(stream, batch):
        if signals:
            signal.raise_signal(signals.pop())

    def fail(stream, batch):
        raise ValueError("secret")

    rows = [{"value": float(i)} for i in range(6)]
    options = {"checkpoint": tmp_path / "kept", "buffering": "immediate", "epoch_rows": 1, "cores": 1}
    with pytest.raises(KeyboardInterrupt):
        flow().run(rows, sinks=ro.CallbackSink(stop), **options)
    with pytest.raises(ValueError, match="secret"):
        flow().run([*rows, *rows], sinks=ro.CallbackSink(fail), checkpoint=tmp_path / "other")
    flow().run(rows, sinks=ro.CallbackSink(lambda s, b: None), **options)
    lines = messages()
    assert any(" was interrupted after " in line for line in lines)
    assert any(" has failed (ValueError) after " in line for line in lines)
    assert lines[-1].startswith("the dataflow 'service' has ended")
    assert "the dataflow 'service' runs in process, continued from its checkpoint" in lines
    assert "secret" not in "".join(lines)


def test_successful_run_within_an_error_handler_has_ended(messages):
    try:
        raise ValueError("earlier")
    except ValueError:
        flow().run([{"value": 1.0}])
    assert messages()[-1].startswith("the dataflow 'service' has ended")
