"""Progress, warnings and the answer to Ctrl-C on the terminal."""

from __future__ import annotations

import io
import logging
import os
import signal
import threading
import time

import pytest
from rich.console import Console

from riot_ops.cli.progress import Progress, Rate, announce_interrupts, progress_line, run_in_thread, show_log
from riot_ops.measure.metrics import Summary


def test_rate_does_not_fall_between_micro_batches():
    rate = Rate(now=0.0, over_s=10.0)
    shown = []
    for second in range(1, 61):
        rate.add(float(second), second // 4 * 4000)  # 4,000 messages each 4 s
        shown.append(rate.per_second(float(second)))
    assert shown[:3] == [0.0] * 3
    assert shown[3:] == [1000.0] * 57


def test_rate_follows_changes_and_falls_without_messages():
    rate = Rate(now=0.0, over_s=10.0)
    for second in range(1, 21):
        rate.add(float(second), 100 * second)
    for second in range(21, 41):
        rate.add(float(second), 2000 + 500 * (second - 20))
    assert rate.per_second(40.0) == 500.0
    assert rate.per_second(45.0) == 500.0
    assert rate.per_second(80.0) == pytest.approx(5000 / 50)


@pytest.mark.parametrize(
    ("messages", "total", "rate", "text"),
    [
        (0, None, 0.0, "0 messages  –/s  lag –  0 rejected"),
        (0, 100, 0.0, "0 messages (0 %)  –/s  lag –  0 rejected"),
        (25, 100, 1.0, "25 messages (25 %)  1/s  1:15 left  lag –  0 rejected"),
        (100, 100, 1.0, "100 messages (100 %)  1/s  lag –  0 rejected"),
        (150, 100, 1.0, "150 messages (100 %)  1/s  lag –  0 rejected"),
    ],
)
def test_line_shows_share_rate_and_remaining_time(messages, total, rate, text):
    assert progress_line(Summary(messages=messages), total, rate, "") == text


def test_line_shows_lag_rejections_and_the_runners_text():
    summary = Summary(messages=1, rows={"errors": 1234})
    summary.latency.add(0.0, 0.0, 1_500_000.0, 1)
    assert progress_line(summary, None, 0.0, "micro-batch 12 ms").endswith(
        "lag 1.50 s  1,234 rejected  micro-batch 12 ms"
    )


def test_line_of_records_that_were_there_before_has_no_lag():
    summary = Summary(messages=1)
    summary.latency.add(0.0, 0.0, 1_500_000.0, 1)
    assert progress_line(summary, None, 0.0, "", lag=False) == "1 messages  –/s  0 rejected"


@pytest.mark.parametrize("terminal", [True, False])
def test_line_is_shown_at_intervals(terminal, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=30)
    progress = Progress(console, 1000)
    for tenth in range(1, 51):
        now[0] = tenth / 10
        progress.show(Summary(messages=10 * tenth))
    progress.close()
    if terminal:
        assert "480 messages (48 %)" in out.getvalue()
        assert "…" in out.getvalue(), "a narrow terminal cuts the line"
    else:
        assert out.getvalue().splitlines() == [
            "200 messages (20 %)  100/s  0:08 left  lag –  0 rejected",
            "400 messages (40 %)  100/s  0:06 left  lag –  0 rejected",
        ]


def test_ctrl_c_is_answered_at_once():
    out = io.StringIO()
    heard = []
    usual = signal.signal(signal.SIGINT, lambda *_: heard.append(out.getvalue()))
    try:
        with announce_interrupts(Console(file=out)):
            os.kill(os.getpid(), signal.SIGINT)
            until = time.monotonic() + 5
            while "stopping" not in out.getvalue() and time.monotonic() < until:
                pass  # as in a loop that does not end
        assert "stopping …" in out.getvalue()
        assert heard
    finally:
        signal.signal(signal.SIGINT, usual)


def test_ctrl_c_does_not_wait_for_work_in_a_thread():
    release = threading.Event()
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_thread(lambda: release.wait(30))
        assert time.monotonic() - begun < 15
    finally:
        release.set()
        timer.join()


def test_error_of_work_in_a_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0)


def test_warnings_of_the_library_are_printed(capsys):
    with show_log():
        logging.getLogger("riot_ops.connectors").warning("lost %d", 3)
        logging.getLogger("riot_ops").info("nothing to see")
    logging.getLogger("riot_ops").warning("later")
    assert capsys.readouterr().err.splitlines()[:1] == ["riot-ops: warning: lost 3"]


def test_json_lines_on_a_full_disk_end_with_one_warning(capsys):
    with show_log(json_lines="/dev/full"):
        for i in range(5):
            logging.getLogger("riot_ops").info("message %d %s", i, "x" * 10_000)
    error = capsys.readouterr().err
    assert error.count("--log-json: /dev/full cannot be written: [Errno 28] No space left on device") == 1, error
    assert "Traceback" not in error and "Logging error" not in error


def test_json_lines_that_nobody_reads_end_with_one_warning(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with show_log(json_lines=str(tmp_path / "pipe")):
        os.close(reader)
        for i in range(5):
            logging.getLogger("riot_ops").info("message %d", i)
    error = capsys.readouterr().err
    assert error.count("pipe cannot be written: [Errno 32] Broken pipe; the run goes on without") == 1, error
    assert "Traceback" not in error
