"""Neptune's senders and jobs: their joint rates, and reports of their losses."""

from __future__ import annotations

import io
import math
import queue
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from riot_bench.suites.neptune import processes, scaling
from riot_bench.suites.neptune import suite as neptune
from riot_bench.suites.neptune.equipment import run_monitoring, write_readings
from riot_bench.suites.neptune.link import LinkSink, LinkSource, connect
from riot_bench.suites.neptune.messages import MessageSource
from riot_bench.suites.neptune.processes import run_stage
from riot_bench.suites.neptune.scaling import run_senders, steady_rate

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflows import equipment_monitoring
from riot_ops.streams.dspbench.equipment import EquipmentSource


@pytest.mark.slow
def test_senders_and_jobs():
    rate, lost = run_senders(2, 0.1)
    assert rate > 0
    assert lost == 0
    found = {m.measure: m for m in scaling.relay_measures((1, 2), 1, 0.1)}
    assert found["neptune/jobs/relay/2"].value > 0
    assert found["neptune/jobs/relay/lost"].met is True
    assert 0 < found["neptune/jobs/relay/2/cores"].value < 8
    found = {m.measure: m for m in scaling.equipment_measures((1, 2), 1, 3000)}
    assert found["neptune/jobs/equipment/2"].value > 0
    assert 0 < found["neptune/jobs/equipment/2/cores"].value < 8
    assert found["neptune/jobs/equipment/lost"].met is True


def test_job_processes_all_readings_of_the_file(tmp_path):
    path = write_readings(tmp_path / "readings.arrow", 30_000)
    found = run_monitoring(path, Buffering())
    source = EquipmentSource(messages=30_000, seed=1, dirt=False)
    result = equipment_monitoring().run(source)
    assert found["messages"] == 30_000
    assert found["rows"] == {name: result[name].num_rows for name in ("monitor", "delays", "alarms")}
    assert found["rows"]["delays"] > 5
    assert run_monitoring(path, Buffering(), 500)["messages"] == 500


def of_equipment(n, lost=0):
    """Reports of jobs: the first takes a second, the next two, and so on; the last one lacks readings."""
    reports = [
        {"messages": 1000, "rows": {"delays": 5, "alarms": 1}, "seconds": 1.0 + i, "cores": 0.5 + i} for i in range(n)
    ]
    reports[-1] = {**reports[-1], "messages": 1000 - lost, "rows": {"delays": 5 - lost}} if lost else reports[-1]
    return reports


def test_equipment_jobs_count_until_the_last_one_ends(monkeypatch):
    monkeypatch.setattr(scaling, "run_jobs", lambda kind, n, path: of_equipment(n))
    found = {m.measure: m for m in scaling.equipment_measures((1, 2, 4), 3, 1000)}
    at = "neptune/jobs/equipment"
    assert [found[f"{at}/{n}"].values for n in (1, 2, 4)] == [(1000,) * 3, (1000,) * 3, (1000,) * 3]
    assert [found[f"{at}/{n}"].published for n in (1, 2, 4)] == [300_000, None, None]
    assert found[f"{at}/2/fairness"].value == pytest.approx(1500**2 / (2 * (1000**2 + 500**2)))
    assert f"{at}/1/fairness" not in found
    assert found[f"{at}/lost"].met is True
    shown = [point for one in neptune.EXPERIMENTS for f in one.figures for point in f.points(found.values())]
    assert [(series, x) for series, x, _ in shown] == [("equipment", x) for x in ("1", "2", "4", "2", "4")]
    monkeypatch.setattr(scaling, "run_jobs", lambda kind, n, path: of_equipment(n, lost=n - 1))
    *_, lost = scaling.equipment_measures((1, 2), 1, 1000)
    assert (lost.value, lost.met) == (1 + 1 + 1, False)  # a reading, a delay, an alarm


def test_concurrent_relays_count_together(monkeypatch):
    reports = [
        {"rate": 100.0, "lost": 0, "disorder": 0, "cores": 1.0},
        {"rate": 50.0, "lost": -2, "disorder": 1, "cores": 0.5},
    ]
    monkeypatch.setattr(scaling, "run_jobs", lambda kind, n, *_: reports[:n])
    found = {m.measure.removeprefix("neptune/jobs/relay/"): m for m in scaling.relay_measures((1, 2), 2, 0.1)}
    assert (found["1"].values, found["2"].values) == ((100.0, 100.0), (150.0, 150.0))
    assert (found["1"].published, found["2"].published) == (2e6, None)
    assert found["2/fairness"].value == pytest.approx(0.9)
    assert (found["1/cores"].values, found["2/cores"].values) == ((1.0, 1.0), (0.75, 0.75))
    assert (found["lost"].value, found["lost"].met) == (6, False)


@pytest.mark.parametrize("lines", [990, 1010])
def test_wrong_number_of_readings_is_reported(monkeypatch, lines):
    reports = {"messages": lines, "rows": {"delays": 5}, "seconds": 1.0, "cores": 1.0}
    monkeypatch.setattr(scaling, "run_jobs", lambda kind, n, path: [reports] * n)
    *_, lost = scaling.equipment_measures((1,), 1, 1000)
    assert (lost.value, lost.met) == (10, False)


def test_steady_rate_counts_while_all_senders_send():
    notes = [(100.0, 7), (101.9, 7), (102.0, 7), (103.0, 10), (106.0, 30), (108.0, 20), (108.1, 7), (110.0, 7)]
    assert steady_rate(notes) == pytest.approx(60 / 6)  # records from second 102 to 108, after the first
    assert math.isnan(steady_rate(notes[:1]))
    assert math.isnan(steady_rate([]))
    assert math.isnan(steady_rate([(0.0, 1), (5.0, 1), (10.0, 1)]))


class Sender:
    """A sender in a thread: it waits for the word, sends, and reports ``more`` messages than it sent."""

    begun = threading.Barrier(2)

    def __init__(self, path, more=0, code=0):
        self.replies, self.word = queue.Queue(), threading.Event()
        self.stdout = SimpleNamespace(readline=lambda: self.replies.get(timeout=20))
        self.stdin = SimpleNamespace(write=self.written, flush=self.word.set)
        self.code = code
        self.thread = threading.Thread(target=self.send, args=(path, more))
        self.thread.start()

    def written(self, text):
        assert text == "\n"

    def wait(self, seconds):
        self.thread.join(seconds)
        return self.code

    def send(self, path, more):
        link = LinkSink(connect(path), scaling.BUFFERS)
        self.replies.put("ready\n")
        assert self.word.wait(20)
        self.begun.wait(20)  # the others are started before this one is done
        run_stage(MessageSource(scaling.SIZE, total=5000), link, scaling.BUFFERS)
        self.replies.put("" if self.code else f"{link.sent + more}\n")
        link.link.close()


@pytest.mark.parametrize(("more", "code"), [(0, 0), (8, 0), (0, -9)])
def test_senders_start_together_and_report_their_counts(monkeypatch, more, code):
    @contextmanager
    def stage(kind, buffering, path, size, seconds):
        assert (kind, size, seconds) == ("send", 50, 0.5)
        sender = Sender(path, more, code)
        yield sender
        sender.thread.join(20)

    monkeypatch.setattr(scaling, "stage_process", stage)
    monkeypatch.setattr(Sender, "begun", threading.Barrier(2))
    if code:
        with pytest.raises(RiotError, match="a job process failed with exit code -9"):
            run_senders(2, 0.5)
    else:
        assert run_senders(2, 0.5)[1] == 2 * more


def test_losses_of_senders_are_reported(monkeypatch):
    figures = iter([(10.0, 0), (20.0, 8), (30.0, -8)])
    monkeypatch.setattr(scaling, "run_senders", lambda n, seconds: next(figures))
    monkeypatch.setattr(scaling, "relay_measures", lambda *_: iter(()))
    monkeypatch.setattr(scaling, "equipment_measures", lambda *_: iter(()))
    found = {m.measure.removeprefix("neptune/senders/"): m for m in scaling.scaling(True)}
    assert [found[str(n)].value for n in (1, 2, 4)] == [10, 20, 30]
    assert (found["lost"].value, found["lost"].met) == (16, False)


def test_warm_up_of_a_sender_sends_nothing():
    a, b = socket.socketpair()
    link = LinkSink(a, Buffering(codec=None))
    assert processes._send(link, 50, None, link.buffering) == 0
    thread = threading.Thread(target=lambda: processes._send(link, 50, 0.02, link.buffering))
    thread.start()
    rows = []
    sink = CallbackSink(lambda _, batch: rows.append(batch.num_rows))
    run_stage(LinkSource(b, MessageSource(50).schema), sink, link.buffering)
    thread.join(20)
    assert link.sent == sum(rows) > 0


def test_job_without_start_or_end_is_an_error(monkeypatch):
    for word, code, text in (
        ("", 0, "did not start"),
        ("ready\n", 0, "a job process failed with exit code 0"),
        ("ready\n{}\n", 3, "a job process failed with exit code 3"),
    ):

        @contextmanager
        def stage(*_, word=word, code=code):
            yield SimpleNamespace(stdin=io.StringIO(), stdout=io.StringIO(word), wait=lambda seconds: code)

        monkeypatch.setattr(scaling, "stage_process", stage)
        with pytest.raises(RiotError, match=text):
            scaling.run_jobs("equipment-job", 2, "readings")
