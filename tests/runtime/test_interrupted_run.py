"""What Ctrl-C leaves of a run in process: an exact result, in the error and at the dataflow."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from datetime import UTC, datetime

import pytest

import riot_ops as ro

SECONDS = 60


def _interrupt_after(seen):
    def wait():
        seen.wait(SECONDS)
        time.sleep(0.1)  # a signal that comes just before the main thread waits is noticed with the next record only
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def _flow():
    flow = ro.Dataflow("interrupted")
    readings = flow.source("readings", {"value": "double", "event_time": "timestamp[us, tz=UTC]"})
    flow.sink("out", readings, readings.key_by().window("1min").agg(n="count", id="minute"))
    return flow


class _Open(ro.MemorySource):
    """Records of three minutes, and no more; but the source does not end."""

    def __init__(self):
        super().__init__(
            [{"value": float(i), "event_time": datetime(2024, 5, 1, 12, i // 3, tzinfo=UTC)} for i in range(9)]
        )

    def finished(self, offset):
        return False


def _stopped(flow, **options):
    """Interrupt a run once it has processed all records of its source."""
    processed = threading.Event()

    def look(summary):
        if summary.messages == 9:
            processed.set()

    _interrupt_after(processed)
    with pytest.raises(KeyboardInterrupt) as caught:
        flow.run(_Open(), progress=look, **options)
    return caught.value


def test_result_has_all_that_was_processed():
    flow = _flow()
    error = _stopped(flow)
    assert isinstance(error, ro.RunInterruptedError)
    assert "'interrupted' was stopped after 9 messages" in str(error)
    result = flow.partial_result
    assert result is error.result
    assert result["readings"]["value"].to_pylist() == [float(i) for i in range(9)]
    assert result["minute"]["n"].to_pylist() == [3, 3]  # the third window was open
    assert result.summary.messages == 9
    assert result.summary.rows == {"readings": 9, "minute": 2}


def test_result_in_files_is_readable(tmp_path):
    result = _stopped(_flow(), out=tmp_path / "out").result
    assert result["readings"].num_rows == 9


def test_next_run_forgets_the_result():
    flow = _flow()
    _stopped(flow)
    assert flow.partial_result is not None
    flow.run([{"value": 1.0}])
    assert flow.partial_result is None


def test_pickle_has_no_result():
    flow = _flow()
    _stopped(flow)
    copy = pickle.loads(pickle.dumps(flow))
    assert copy.partial_result is None
    assert copy.to_dict() == flow.to_dict()


def test_interrupt_before_the_start_has_no_result(monkeypatch):
    flow = _flow()

    class Sink(ro.MemorySink):
        def begin(self, overwrite):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        flow.run([{"value": 1.0}], sinks=Sink())
    assert type(caught.value) is KeyboardInterrupt
    assert flow.partial_result is None


def test_second_interrupt_within_the_commit_leaves_what_was_committed():
    flow = _flow()
    commits = []

    class Sink(ro.MemorySink):
        def commit(self, batch_id, messages):
            if commits:
                commits.append(batch_id)
                raise KeyboardInterrupt  # as a second Ctrl-C does
            commits.append(batch_id)
            super().commit(batch_id, messages)

    with pytest.raises(ro.RunInterruptedError) as caught:
        flow.run([{"value": 1.0}, {"value": 2.0}], sinks=Sink(), epoch_rows=1, batch_size=1, cores=1)
    assert commits == [0, 1, 1]
    assert caught.value.result.summary.rows["readings"] == 1
    assert flow.partial_result is caught.value.result
