"""Probes: counts and times, against known records."""

from __future__ import annotations

import inspect
import math
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.sink import MemorySink
from riot_ops.dataflow import Dataflow, merge
from riot_ops.graph.selectivity import declared_selectivity
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.probe import Probe, ProbedSource, ProbedWriter
from riot_ops.measure.probe_report import SENT
from riot_ops.streams.riotbench.city import CitySource, city
from riot_ops.task import StatelessTask
from tests.discard_sink import DiscardSink


def smooth() -> Dataflow:
    flow = Dataflow("smooth")
    source = flow.source("in", schema={"value": "double"})
    flow.sink("out", source.to(t.KalmanFilter(), id="kalman"), source.to(t.MovingAverage(window=10), id="avg"))
    return flow


def values(n: int) -> pa.Table:
    return pa.table({"value": np.arange(float(n))})


class Slow(MemorySink):
    """Takes its time with each batch."""

    def writer(self, batch_id: int, partition: int) -> Any:
        writer = super().writer(batch_id, partition)
        write = writer.write
        writer.write = lambda stream, batch: (time.sleep(0.02), write(stream, batch))  # type: ignore[method-assign]
        return writer


# -- counts ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("samples", [1, 7, 1000])
def test_counts_equal_the_records(samples: int) -> None:
    probe = Probe(samples=samples, every=None)
    result = smooth().run(values(12_345), batch_size=1000, probe=probe)
    report = probe.report()
    assert report.inputs == result.summary.messages == 12_345
    assert report.rows == result.summary.rows == {"kalman": 12_345, "avg": 1234}
    assert report.outputs == 12_345 + 1234
    assert report.selectivity == pytest.approx(1.1, abs=1e-3)
    assert len(result["kalman"]) == 12_345  # the wrapped sink still is the user's own


@pytest.mark.parametrize("merging", ["arrival", "number"])
def test_each_delivery_has_the_latency_of_its_message_of_several_sources(merging: str) -> None:
    flow = Dataflow("two", merging=merging)
    late, early = (flow.source(name, schema={"value": "double"}) for name in ("late", "early"))
    check = t.RangeFilter(by=None, bounds={"value": (0, 7)}, on_error="reject")
    flow.sink("out", late, early.to(check, id="few"), merge(late, early).to(t.NoOp(), id="both"))
    probe = Probe(samples=1000, every=None)
    flow.run({"late": values(5), "early": values(10)}, probe=probe, cores=1)
    report = probe.report()
    assert report.rows == {"late": 5, "few": 8, "both": 15, "errors": 2}
    assert report.latencies(-10)[0].size == 30, "the message of each is known"


def test_errors_are_counted() -> None:
    flow = Dataflow("parse")
    flow.sink("out", flow.source("in").to(t.ParseSenML(schema="city"), id="parse"))
    records = pa.table({"payload": [b"{", b"[", None]}).cast(pa.schema([("payload", pa.binary())]))
    records = records.append_column("event_time", pa.nulls(3, pa.timestamp("us", tz="UTC")))
    probe = Probe(every=None)
    summary = flow.run(MemorySource(records), probe=probe).summary
    assert probe.report().rows == summary.rows == {"errors": 3}
    assert math.isfinite(probe.report().latency(0.5)[0])


def test_several_records_of_a_message_are_one_message() -> None:
    flow = Dataflow("smooth")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    flow.sink("out", source.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman"))
    probe = Probe(every=None)
    flow.run(city(sensors=7, messages=1000, format="observations"), sinks=DiscardSink(), probe=probe)
    report = probe.report()
    assert (report.inputs, report.outputs, report.selectivity) == (1000, 5000, 5.0)


def test_run_without_input() -> None:
    probe = Probe(every=None)
    smooth().run(values(0), probe=probe)
    report = probe.report()
    assert (report.inputs, report.outputs) == (0, 0)
    assert math.isnan(report.latency(0.5)[0])
    assert report.series(1.0).times.size == 0
    assert not report.stability().stable
    assert math.isnan(report.cpu())


def test_failed_run_counts_only_committed_records() -> None:
    class Failing(MemorySink):
        def writer(self, batch_id: int, partition: int) -> Any:
            raise OSError("no room")

    probe = Probe(every=None)
    with pytest.raises(OSError, match="no room"):
        smooth().run(values(10), sinks=Failing(), probe=probe)
    assert probe.report().outputs == 0


def test_restarted_run_accepts_another_probe(tmp_path: Path) -> None:
    for n in (30, 75):
        probe = Probe(every=None)
        smooth().run(MemorySource(values(n)), out=tmp_path / "out", checkpoint=tmp_path / "c", probe=probe)
        assert probe.report().inputs == (30 if n == 30 else 45)
    assert len(ParquetSink(tmp_path / "out").files()) == 4


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_latency_counts_from_the_due_time() -> None:
    """A sink of 20 ms per batch, at 100 messages per second: nothing is faster."""
    probe = Probe(every=None)
    begun = time.time()
    smooth().run(PacedSource(MemorySource(values(60)), rate=100), sinks=Slow(), probe=probe)
    report = probe.report()
    assert begun <= report.begin <= begun + 5
    assert report.end - report.begin == pytest.approx(0.59, abs=1e-3)
    least, median, most = report.latency(0.0, 0.5, 1.0)
    assert 0.02 <= least <= median <= most < 5


@pytest.mark.long
def test_latency_of_a_window_is_that_of_its_closing_message() -> None:
    flow = Dataflow("windows")
    flow.sink("out", flow.source("in", schema={"value": "double"}).to(t.MovingAverage(window=50), id="avg"))
    probe = Probe(every=None)
    flow.run(PacedSource(MemorySource(values(100)), rate=200), sinks=DiscardSink(), probe=probe)
    latencies, weights = probe.report().latencies()
    assert weights.tolist() == [1.0, 1.0]
    assert latencies.max() < 0.2  # the first message of a window arrived 0.25 s before it closed


def test_flushed_records_are_counted_but_not_timed() -> None:
    flow = Dataflow("train")
    sensors = flow.source("in", schema={"sensor_id": "string"})
    flow.sink("out", sensors.to(t.TrainBloomFilter(capacity=10), id="train"))
    probe = Probe(every=None)
    flow.run([{"sensor_id": "a"}, {"sensor_id": "ü"}], probe=probe)
    report = probe.report()
    assert report.rows == {"train": 1}
    assert report.latencies()[0].size == 0


@pytest.mark.long
def test_rates_and_queue_of_a_steady_run() -> None:
    probe = Probe(every=None)
    smooth().run(PacedSource(MemorySource(values(3000)), rate=3000), sinks=DiscardSink(), probe=probe)
    report = probe.report()
    run = report.series(0.1)
    assert run.times.size == 9
    np.testing.assert_allclose(run.input_rate, 3000, rtol=0.02)
    assert run.output_rate.sum() * 0.1 == pytest.approx(0.9 * 1.1 * 3000, rel=0.2)
    assert report.input_rate() == pytest.approx(3000, rel=0.01)
    assert report.jitter(0.1, selectivity=1.1).mean() == pytest.approx(0, abs=0.2)


# -- jitter ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Losing(StatelessTask):
    """Says 1:1, and loses every second record."""

    def apply(self, batch: pa.RecordBatch, rejects: Any) -> pa.RecordBatch:
        return batch.filter(pa.array(np.arange(batch.num_rows) % 2 == 0))


def losing() -> Dataflow:
    flow = Dataflow("losing")
    flow.sink("out", flow.source("in", schema={"value": "double"}).to(Losing(), id="losing"))
    return flow


@pytest.mark.long
@pytest.mark.parametrize("how", ["declared", "of the probe", "of the report"])
def test_run_with_half_of_its_records_has_jitter_one_half(how: str) -> None:
    probe = Probe(every=None, selectivity=1.0 if how == "of the probe" else None)
    losing().run(
        PacedSource(MemorySource(values(2000)), rate=4000),
        sinks=DiscardSink(),
        probe=probe,
        buffering=Buffering(flush_after="10ms"),
    )
    report = probe.report()
    assert report.selectivity == pytest.approx(0.5, abs=0.01)
    found = report.jitter(0.1, selectivity=1.0 if how == "of the report" else None)
    assert found.size == 4
    assert np.median(found) == pytest.approx(-0.5, abs=0.15)


def test_expected_records_follow_declared_selectivities() -> None:
    flow = Dataflow("readings")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    by = ("sensor_id", "obs_type")
    kalman = source.to(t.KalmanFilter(by=by), id="kalman")
    flow.sink("out", kalman, source.to(t.SecondOrderMoment(by=by), id="som"))
    flow.sink("again", kalman)
    assert declared_selectivity(flow) == {"city": 3.0}
    probe = Probe(every=None)
    flow.run(city(sensors=7, messages=1000, format="observations"), sinks=DiscardSink(), probe=probe)
    assert probe.report().expected == 15.0  # five readings in a message


def test_copies_for_instances_count_as_expected() -> None:
    flow = Dataflow("copies")
    source = flow.source("in", schema={"value": "double"})
    flow.sink("out", source.broadcast(3).to(t.KalmanFilter(), id="kalman"))
    assert declared_selectivity(flow) == {"in": 3.0}


def test_undeclared_selectivity_gives_no_jitter() -> None:
    probe = Probe(every=None)
    smooth().run(values(100), probe=probe)
    assert math.isnan(probe.report().expected)
    with pytest.raises(ConfigError, match="give selectivity="):
        probe.report().jitter()


@pytest.mark.parametrize("given", [0.0, -1.0, math.nan, math.inf])
def test_invalid_selectivity_is_refused(given: float) -> None:
    with pytest.raises(ConfigError, match="selectivity must be a finite number > 0"):
        Probe(selectivity=given)


# -- clocks ----------------------------------------------------------------------------------------


def elsewhere(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """Let what reads and writes be on a machine whose clock is wrong."""
    monkeypatch.setattr("riot_ops.measure.probe.HOST", "elsewher")
    right = time.time
    code = {ProbedSource.read.__code__, ProbedWriter.write.__code__}

    class Wrong:
        @staticmethod
        def time() -> float:
            return right() + (ahead if inspect.stack(0)[1].frame.f_code in code else 0.0)

    monkeypatch.setattr("riot_ops.measure.probe.time", Wrong)
    monkeypatch.setattr(Probe, "ended", lambda probe: None)  # known only of a run in one process


@pytest.mark.long
@pytest.mark.parametrize("ahead", [0.0, 70.0, -70.0])
@pytest.mark.parametrize("rate", [None, 400.0])
def test_wrong_clock_is_reported_and_corrected(
    monkeypatch: pytest.MonkeyPatch, ahead: float, rate: float | None
) -> None:
    elsewhere(monkeypatch, ahead)
    probe = Probe(every=None)
    source = MemorySource(values(100))
    smooth().run(source if rate is None else PacedSource(source, rate=rate), sinks=DiscardSink(), probe=probe)
    report = probe.report()
    assert report.skew == ({"elsewher": pytest.approx(ahead, abs=1)} if ahead else {})
    assert report.begin == pytest.approx(time.time(), abs=10)
    latencies, _ = report.latencies(-10, 100)
    assert latencies.size > 50
    assert np.abs(latencies).max() < 5
    # a clock that is not corrected leaves all 100 in the queue
    assert rate is None or 0 <= report.series(0.05).queue.max(initial=0) <= 60


# -- use -------------------------------------------------------------------------------------------


def test_second_run_of_a_probe_is_refused() -> None:
    probe = Probe(every=None)
    smooth().run(values(1), probe=probe)
    with pytest.raises(ConfigError, match="one run"):
        smooth().run(values(1), probe=probe)
    with pytest.raises(ConfigError, match="samples must be >= 1, got 0"):
        Probe(samples=0)


def test_source_copy_in_another_process_logs_its_reads(tmp_path: Path) -> None:
    source = ProbedSource(MemorySource(values(5)), tmp_path, 0)
    copy = pickle.loads(pickle.dumps(source))
    assert sum(b.num_rows for b in copy.read({"start": 1, "end": 4, "due": [1_000_000, 3_000_000]})) == 3
    (file,) = tmp_path.glob("sent-*")
    entry = np.fromfile(file, SENT)[0]
    assert (entry["first"], entry["last"], entry["messages"], entry["due"], entry["due_last"]) == (1, 3, 3, 1.0, 3.0)
    assert entry["records"] == 3
    assert math.isnan(entry["planned"])
    source.close()


def test_files_of_a_probe_are_removed_with_it() -> None:
    probe = Probe(every=None)
    smooth().run(values(1), probe=probe)
    folder = probe.folder
    assert any(folder.iterdir())
    del probe
    assert not folder.exists()


# -- Spark -----------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    "sink", [DiscardSink(), pytest.param(None, marks=pytest.mark.slow)], ids=["in the workers", "in memory"]
)
def test_counts_and_times_on_spark(spark: Any, sink: Any) -> None:
    flow = smooth()
    probe = Probe(every="200ms")
    query = flow.start(spark, values(5000), sinks=sink, max_records=2000, probe=probe)
    summary = query.wait()
    report = probe.report()
    assert report.inputs == 5000
    assert report.rows == summary.rows == {"kalman": 5000, "avg": 500}
    least, most = report.latency(0.0, 1.0)
    assert 0 < least <= most < 60
    tree = report.usage
    assert tree is not None and tree.memory.max() > 200e6  # the JVM is among them
    if sink is None:
        assert query["avg"].num_rows == 500
    assert report.skew == {}
    assert math.isnan(report.expected)
