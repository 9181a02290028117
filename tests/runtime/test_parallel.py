"""Runs on several cores equal runs on one core: results, failures and stops."""

from __future__ import annotations

import queue
import random
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.source import WrappedSource
from riot_ops.graph.lowering import lower
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.parallel import MIN_THREADED_ROWS, MIN_THREADED_ROWS_IDLE, Pipeline, available_cores, is_reentrant
from riot_ops.testing import ABORT, ScriptedSource, exact
from tests.random_flows import SCHEMA, ordered, random_flow, random_input
from tests.recovery import job
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)
READINGS = {"device": "string", "value": "double"}


def readings(n):
    return pa.table({"device": [f"d{i % 7}" for i in range(n)], "value": [float(i * 37 % 101) for i in range(n)]})


def emitted(result, flow, nodes):
    """Return the rows of all streams in their order of output."""
    streams = {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)} & nodes
    found = {name: list(map(exact, result[name].to_pylist())) for name in streams}
    errors = [row for row in result["errors"].to_pylist() if row["task"] in nodes]
    return {**found, "errors": list(map(exact, errors))}


BEFORE: set[threading.Thread] = set()


@pytest.fixture(scope="module", autouse=True)
def _before():
    """Tests of other modules may have left a thread that waits for an iterator."""
    BEFORE.update(threading.enumerate())


def threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("riot_ops-") and t not in BEFORE]


@pytest.fixture
def two_available(monkeypatch):
    monkeypatch.setattr("riot_ops.runtime.parallel.available_cores", lambda: 2)


# -- the same results ------------------------------------------------------------------------------


@pytest.mark.long
@given(SEEDS, st.integers(1, 40), st.integers(1, 2), st.sampled_from(["arrival", "event_time"]))
@settings(max_examples=depth(60))
def test_rows_and_order_are_independent_of_cores(choose, batch_size, sources, order):
    flow = random_flow(choose, sources=sources)
    records = {n.id: random_input(choose, 60) for n in flow.nodes_of_kind("source")}
    nodes = ordered(flow)
    one = flow.run(records, batch_size=batch_size, order=order, cores=1)
    for cores in (2, 3):
        several = flow.run(records, batch_size=batch_size, order=order, cores=cores)
        assert emitted(several, flow, nodes) == emitted(one, flow, nodes)
        if sources == 1:
            for what in ("messages", "batches", "rows", "reasons", "steps"):
                assert getattr(several.summary, what) == getattr(one.summary, what)
    assert threads() == []


@pytest.mark.parametrize("cores", [2, 3])
def test_commits_are_independent_of_cores(tmp_path, cores):
    files = {}
    for n in (1, cores):
        out = tmp_path / str(n)
        job.dataflow().run(job.table(1000), out=out, batch_size=30, epoch_rows=100, epoch="10000d", cores=n)
        files[n] = {
            path.relative_to(out): list(map(exact, pa.parquet.read_table(path).to_pylist()))
            for path in out.glob("*/part-*.parquet")
        }
    assert len(files[1]) > 20
    assert files[cores] == files[1]


def test_task_with_held_records_equals_one_core():
    flow = ro.Dataflow("join")
    rows = flow.source(
        "in",
        schema={"device": "string", "event_time": "timestamp[us, tz=UTC]", "obs_type": "string", "value": "double"},
    )
    flow.sink(
        "out",
        rows.to(
            t.AssembleMessage(by=("device", "event_time"), schema=None, fields=("a", "b")),
            id="joined",
        ),
    )
    table = [
        {"device": f"d{i % 3}", "event_time": 1_000_000 * (i // 6), "obs_type": "ab"[(i // 3) % 2], "value": float(i)}
        for i in range(120)
        if i % 11
    ]
    one, two = (flow.run(table, batch_size=7, cores=n) for n in (1, 2))
    assert one["joined"].num_rows > 40
    for stream in ("joined", "errors"):
        assert list(map(exact, two[stream].to_pylist())) == list(map(exact, one[stream].to_pylist()))


def test_iterator_source_equals_one_core():
    flow = ro.Dataflow("once")
    flow.sink("out", flow.source("in", schema=READINGS).to(t.KalmanFilter(by=("device",)), id="kalman"))
    rows = readings(300).to_pylist()
    one, two = (flow.run(iter(rows), batch_size=20, cores=n)["kalman"] for n in (1, 2))
    assert two.equals(one)
    assert two.num_rows == 300


# -- threads ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spy(t.StatelessTask):
    """Record the threads that run it, and let others run at the same time."""

    seen: Any

    def apply(self, batch, rejects):
        self.seen.append(threading.current_thread().name)
        time.sleep(0.005)
        return batch


def spied(records, **options):
    flow, spy = ro.Dataflow("spied"), Spy(seen=[])
    flow.sink("out", flow.source("in", schema=READINGS).to(spy, id="spy").to(t.NoOp(), id="nothing"))
    flow.run(records, **options)
    return spy.seen


@pytest.mark.usefixtures("two_available")
def test_default_threads_only_large_batches():
    here = threading.current_thread().name
    assert set(spied(readings(MIN_THREADED_ROWS - 1))) == {here}
    assert set(spied(readings(10 * MIN_THREADED_ROWS), batch_size=MIN_THREADED_ROWS - 1)) == {here}
    assert set(spied(readings(10 * MIN_THREADED_ROWS), batch_size=MIN_THREADED_ROWS)) == {
        "riot_ops-spied_0",
        "riot_ops-spied_1",
    }
    assert set(spied(readings(10 * MIN_THREADED_ROWS), batch_size=MIN_THREADED_ROWS, cores=1)) == {here}


class Now(WrappedSource):
    """Has ``each`` more records at a poll, and then none for a while."""

    def __init__(self, records, each):
        super().__init__(MemorySource(records))
        self.each, self.last = each, 0.0

    def latest(self, start, limit=None):
        if time.monotonic() - self.last < 0.2:
            return start
        self.last = time.monotonic()
        return self.source.latest(start, self.each)


@pytest.mark.long
@pytest.mark.usefixtures("two_available")
def test_default_threads_larger_batches_only_while_source_keeps_up():
    here = threading.current_thread().name
    assert set(
        spied(
            Now(readings(2 * MIN_THREADED_ROWS_IDLE), MIN_THREADED_ROWS_IDLE - 1), batch_size=4 * MIN_THREADED_ROWS_IDLE
        )
    ) == {here}
    assert here not in spied(
        Now(readings(2 * MIN_THREADED_ROWS_IDLE), MIN_THREADED_ROWS_IDLE), batch_size=4 * MIN_THREADED_ROWS_IDLE
    )
    assert here not in spied(
        Now(readings(2 * MIN_THREADED_ROWS), MIN_THREADED_ROWS), batch_size=MIN_THREADED_ROWS
    )  # a full batch may mean that more are waiting
    assert here not in spied(Now(readings(20), 10), batch_size=100, cores=2)


def test_given_cores_thread_small_batches():
    assert set(spied(readings(100), batch_size=5, cores=3)) == {f"riot_ops-spied_{i}" for i in range(3)}


def test_available_cores_follow_affinity():
    import os

    before = os.sched_getaffinity(0)
    assert available_cores() == len(before)
    os.sched_setaffinity(0, {max(before)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("two_available")
@pytest.mark.parametrize("cores", [None, 1, 2])
def test_user_functions_get_batches_in_order(cores):
    here, running, seen = threading.current_thread(), threading.Lock(), []

    def look(batch):
        assert running.acquire(blocking=False), "called twice at once"
        seen.append((batch.column("seq")[0].as_py(), threading.current_thread() is here))
        time.sleep(random.random() / 200)
        running.release()
        return batch

    flow = ro.Dataflow("mine")
    rows = flow.source("in", schema=READINGS)
    flow.sink("out", rows.to(ro.map_batches(look), id="mine"))
    flow.run(readings(10 * MIN_THREADED_ROWS), batch_size=MIN_THREADED_ROWS, cores=cores)
    assert [seq for seq, _ in seen] == [i * MIN_THREADED_ROWS for i in range(10)]
    assert {in_this for _, in_this in seen} == {cores != 2}


def test_reentrant_steps():
    flow = ro.Dataflow("several")
    rows = flow.source("in", schema=READINGS)
    free = rows.shuffle(2).to(t.KalmanFilter(by=("device",)), id="kalman")
    routed = rows.partition_custom(lambda batch: [0] * batch.num_rows, 2).to(
        t.KalmanFilter(by=("device",)), id="routed"
    )
    published = rows.to(t.PublishMQTT(topic="a", url="memory://a", payload=None), id="published")
    flow.sink("out", free, routed, published)
    assert [s.id for s in lower(flow) if not is_reentrant(s)] == ["in->routed", "published"]


@pytest.mark.parametrize("name", ["cores", "batch_size", "epoch_rows"])
@pytest.mark.parametrize(
    ("value", "allowed"),
    [(0, "a whole number >= 1"), (-1, "a whole number >= 1"), (2.5, "a whole number"), ("3", "a whole")],
)
def test_counts_must_be_positive(name, value, allowed):
    with pytest.raises(ConfigError, match=f"{name} must be {allowed}.*, got {value!r}"):
        ro.Dataflow("none").run([], **{name: value})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10.0, "epoch must be a timedelta or a text such as '10s' or '1h30m', got 10.0"),
        (None, "epoch must be a timedelta or a text .*, got None"),
        ("3", "epoch: '3' is not a duration"),
        (timedelta(seconds=-1), "epoch must be >= 0 and at most .* seconds, got -1.0"),
        ("20000d", "epoch must be >= 0 and at most .* seconds, got 1728000000.0"),
    ],
)
def test_wrong_epoch_is_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        ro.Dataflow("none").run([], epoch=value)


# -- state -----------------------------------------------------------------------------------------


def test_restart_with_other_cores(tmp_path):
    batch = job.table(1200).combine_chunks().to_batches()[0]
    pieces = [batch.slice(i * 300, 300) for i in range(4)]
    source = ScriptedSource([pieces[0], ABORT, pieces[1], ABORT, pieces[2], ABORT, pieces[3]])
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "epoch_rows": 100, "batch_size": 64}
    for cores in (2, 4, 1):
        with pytest.raises(ConnectorError, match="ABORT"):
            job.dataflow().run(source, cores=cores, **options)
    got = job.dataflow().run(source, cores=3, **options)
    wanted = job.dataflow().run(ScriptedSource(pieces), cores=1)
    for stream in ("smooth", "average", "errors"):
        assert wanted[stream].num_rows
        assert sorted(map(exact, got[stream].to_pylist())) == sorted(map(exact, wanted[stream].to_pylist()))


def test_checkpoints_are_independent_of_cores(tmp_path):
    for cores in (1, 2):
        job.dataflow().run(job.table(500), checkpoint=tmp_path / str(cores), batch_size=40, epoch="10000d", cores=cores)
    one, two = (sorted((tmp_path / str(n)).iterdir()) for n in (1, 2))
    assert [p.name for p in two] == [p.name for p in one]
    for a, b in zip(one, two, strict=True):
        first, second = (Checkpoint(path.parent).read(path) for path in (a, b))
        assert first.run != second.run  # the identity of a run
        assert msgspec.structs.replace(first, run="") == msgspec.structs.replace(second, run="")


# -- the end ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Raising(t.StatelessTask):
    """Raises at a record; the earlier the record, the longer it waits."""

    at: int
    word: str

    def apply(self, batch, rejects):
        if self.at in batch.column("seq").to_pylist():
            time.sleep((60 - self.at) / 500)
            raise LookupError(self.word)
        return batch


def failing(**steps):
    """A dataflow with steps that raise, each at its record."""
    flow = ro.Dataflow("failing")
    kalman = flow.source("in", schema=READINGS).to(t.KalmanFilter(by=("device",)), id="kalman")
    for word, at in steps.items():
        kalman = kalman.to(Raising(at=at, word=word), id=word)
    return flow.sink("out", kalman.to(t.MovingAverage(window=2), id="average"))


@pytest.mark.long
@pytest.mark.parametrize(("first", "second", "wanted"), [(55, 25, "second"), (25, 55, "first"), (25, 26, "first")])
def test_first_exception_is_raised(first, second, wanted):
    done = []
    flow = failing(first=first, second=second)
    for cores in (1, 2):
        with pytest.raises(LookupError, match=wanted) as caught:
            flow.run(readings(100), batch_size=10, cores=cores, sinks=ro.CallbackSink(lambda s, b: done.append(b)))
        assert caught.value.__notes__ == [f"in the step '{wanted}' (Raising)"]
        assert sum(b.num_rows for b in done) == 10, "earlier output is complete"
        done.clear()
    assert threads() == []


def test_sink_error_ends_run():
    def refuse(stream, batch):
        raise OSError("full")

    flow = failing()
    with pytest.raises(OSError, match="full"):
        flow.run(readings(10_000), batch_size=10, cores=2, sinks=ro.CallbackSink(refuse))
    assert threads() == []


@pytest.mark.parametrize("kept", [False, True])
def test_interrupt_finishes_batches_without_checkpoint(tmp_path, kept):
    """A checkpoint has no offset within a range of the source; without a checkpoint, batches in flight are finished."""
    seen = []

    def progress(summary):
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(summary.messages)

    options = {"batch_size": 10, "cores": 2, "out": tmp_path / "out"}
    folder = {"checkpoint": tmp_path / "checkpoint"} if kept else {}
    with pytest.raises(KeyboardInterrupt):
        failing().run(readings(1000), progress=progress, **options, **folder)
    out = ro.ParquetSink(tmp_path / "out").table("average")
    assert out.column("seq").to_pylist() == list(range(1, 60, 2))
    if kept:
        failing().run(readings(1000), **options, **folder)
        assert ro.ParquetSink(tmp_path / "out").table("average").num_rows == 500
    assert threads() == []


@dataclass(frozen=True, kw_only=True)
class Interrupting(t.StatelessTask):
    """Raises as Ctrl-C does within a batch."""

    at: int

    def apply(self, batch, rejects):
        if self.at in batch.column("seq").to_pylist():
            raise KeyboardInterrupt
        return batch


@pytest.mark.parametrize(("epoch_rows", "wanted"), [(100, 200), (10_000, 0)])
def test_summary_of_an_interrupted_run_counts_committed_records(tmp_path, epoch_rows, wanted):
    """With a checkpoint, the output of a range that was under way is dropped, and its records are read again."""
    flow = ro.Dataflow("interrupted")
    flow.sink("out", flow.source("in", schema=READINGS).to(Interrupting(at=255), id="step"))
    seen = []
    with pytest.raises(KeyboardInterrupt):
        flow.run(
            readings(1000),
            progress=seen.append,
            batch_size=10,
            epoch_rows=epoch_rows,
            epoch="10000d",
            cores=1,
            out=tmp_path / "out",
            checkpoint=tmp_path / "checkpoint",
        )
    assert seen[-1].messages == wanted
    assert ro.ParquetSink(tmp_path / "out").table("step").num_rows == wanted


def test_results_are_emitted_while_source_is_silent():
    came = threading.Event()

    def rows():
        yield from readings(10).to_pylist()
        assert came.wait(20), "the first records were emitted only with the next"

    flow = failing()
    flow.run(rows(), cores=2, epoch="10000d", sinks=ro.CallbackSink(lambda s, b: came.set()))


def test_batches_in_flight_are_limited():
    assert Pipeline(Engine(lower(failing()), {"average"}), ARRIVAL, 3).max_in_flight == 4
    read, done, ahead = 0, 0, 0

    def rows():
        nonlocal read
        for row in readings(30_000).to_pylist():
            read += 1
            yield row

    def note(stream, batch):
        nonlocal done, ahead
        done += 2 * batch.num_rows
        ahead = max(ahead, read - done)

    failing().run(
        rows(),
        batch_size=100,
        buffering=ro.Buffering(queue=1 << 16, capacity=1 << 16),
        cores=2,
        sinks=ro.CallbackSink(note),
    )
    assert done == 30_000
    assert ahead <= 2 * 8192 + 700


# -- the pipeline alone ----------------------------------------------------------------------------


def test_pipeline_reports_and_returns_batches_in_order():
    flow = ro.Dataflow("alone")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.MovingAverage(window=3, partial=True), id="avg"))
    batches = random_input(random.Random(1), 40).to_batches(max_chunksize=8)
    shared, engine = (Engine(lower(flow), {"avg"}) for _ in range(2))
    pipeline = Pipeline(shared, ARRIVAL, 2)
    done: queue.Queue[object] = queue.Queue()
    pipeline.on_complete = lambda: done.put(True)
    in_flight = [pipeline.begin({"in": [batch]}) for batch in batches]
    assert all(done.get(timeout=20) for _ in in_flight)
    for one, batch in zip(in_flight, batches, strict=True):
        assert pipeline.finish(one) == engine.process({"in": [batch]})
    assert shared.snapshot() == engine.snapshot()
    assert pipeline.counts() == engine.counts()
    assert shared.process({}, flush=True) == engine.process({}, flush=True)
    pipeline.stop()


def test_key_hashes_are_computed_once(monkeypatch):
    """They are made in a stage of their own, not by the tasks that need them."""
    from riot_ops.kernels.arrays import hashing

    calls = []
    plain = hashing._hash_column
    monkeypatch.setattr(
        hashing, "_hash_column", lambda column, secret: calls.append(len(column)) or plain(column, secret)
    )
    flow = ro.Dataflow("hashes")
    rows = flow.source("in", schema=READINGS)
    kalman = rows.to(t.KalmanFilter(by=("device",)), id="kalman")
    average = rows.to(t.MovingAverage(by=("device",), window=2), id="average")
    flow.sink("out", average, kalman.to(t.SlidingRegression(by=("device",), window=2, horizon=1), id="slr"))
    flow.run(readings(40), batch_size=10, cores=2)
    assert calls == [10] * 4


def test_time_windows_on_two_cores():
    flow = ro.Dataflow("windows")
    window = t.Window(by=("device",), frame=timedelta(seconds=2), allowed_lateness=timedelta(seconds=3))
    flow.sink("out", flow.source("in", schema=SCHEMA).to(window, id="window"))
    table = random_input(random.Random(3), 200)
    one, two = (flow.run(table, batch_size=11, cores=n)["window"] for n in (1, 2))
    assert one.num_rows > 10
    assert list(map(exact, two.to_pylist())) == list(map(exact, one.to_pylist()))
