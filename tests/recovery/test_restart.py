"""Restarts: stopped, crashed and killed runs give the results of an uninterrupted run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.graph.plan import Plan
from riot_ops.testing import ABORT, EOF, PAUSE, ScriptedSource, exact
from tests.recovery import job
from tests.search import seeds

STREAMS = ("smooth", "average", "errors")


def file_contents(folder: Path) -> dict[str, Counter[str]]:
    """Return the records of each stream in a folder of Parquet files."""
    return {
        s: Counter(exact(row) for f in sorted((folder / s).glob("*.parquet")) for row in pq.read_table(f).to_pylist())
        for s in STREAMS
    }


def assert_equal(got: dict[str, Counter[str]], wanted: dict[str, Counter[str]]) -> None:
    for name in STREAMS:
        assert wanted[name], f"the test compares nothing: {name} is empty"
        doubled, lost = got[name] - wanted[name], wanted[name] - got[name]
        assert not doubled and not lost, f"{name}: {sum(doubled.values())} too many, {sum(lost.values())} lost"


def result_contents(result) -> dict[str, Counter[str]]:
    return {s: Counter(exact(row) for row in result[s].to_pylist()) for s in STREAMS}


def _script(*events):
    """Return the job's records in pieces, with events between them."""
    batch = job.table(1200).combine_chunks().to_batches()[0]
    step = batch.num_rows // (len(events) + 1)
    script = []
    for i in range(len(events) + 1):
        script.append(batch.slice(i * step, step))
        script += [m for m in events[i : i + 1] if m is not None]
    return ScriptedSource(script)


# -- local ------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [(ABORT,), (EOF, ABORT, None, EOF), (PAUSE(), ABORT, ABORT, PAUSE("2ms"))])
def test_restarts_after_crashes_and_ends(tmp_path, events):
    source = _script(*events)
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "epoch_rows": 100, "batch_size": 64}
    ends = events.count(EOF)
    for _ in events:
        try:
            job.dataflow().run(source, **options)
        except ConnectorError as error:
            assert "ABORT" in str(error)
    job.dataflow().run(source, **options)
    wanted = result_contents(job.dataflow().run(_script(*(None for _ in events))))
    got = file_contents(tmp_path / "out")
    if ends:  # each end flushes partial windows
        assert not wanted["average"] - got["average"]
        assert sum((got["average"] - wanted["average"]).values()) <= ends
        got["average"] = wanted["average"]
    assert_equal(got, wanted)


def test_restart_after_crash_before_end(tmp_path):
    batch = job.table(100).combine_chunks().to_batches()[0]
    source = ScriptedSource([batch, ABORT])
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "epoch_rows": 1}
    with pytest.raises(ConnectorError):
        job.dataflow().run(source, **options)
    job.dataflow().run(source, **options)  # only the end is left
    assert_equal(file_contents(tmp_path / "out"), result_contents(job.dataflow().run(ScriptedSource([batch]))))


def test_restart_of_finished_run_adds_nothing(tmp_path):
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    job.dataflow().run(job.table(1000), **options)
    before = file_contents(tmp_path / "out")
    job.dataflow().run(job.table(1000), **options)
    assert_equal(file_contents(tmp_path / "out"), before)


def test_output_of_another_run_is_refused(tmp_path):
    job.dataflow().run(job.table(100), out=tmp_path / "out")
    with pytest.raises(ConnectorError, match="overwrite=True"):
        job.dataflow().run(job.table(100), out=tmp_path / "out", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(ConnectorError, match="overwrite=True"):  # the second try is refused like the first
        job.dataflow().run(job.table(100), out=tmp_path / "out", checkpoint=tmp_path / "checkpoint")


def test_state_of_other_dataflow_is_refused(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    job.dataflow().run(job.table(100), checkpoint=checkpoint)
    with pytest.raises(StateError, match=r"step 'smooth'.*process_noise was 0\.125 and is 0\.5"):
        job.dataflow(0.5).run(job.table(100), checkpoint=checkpoint)
    with pytest.raises(StateError, match="step 'average'"):
        job.dataflow(average="mean").run(job.table(100), checkpoint=checkpoint)
    other = ro.Dataflow("other")
    other.sink("out", other.source("numbers", schema={"device": "string", "value": "double"}))
    with pytest.raises(StateError, match="no step 'smooth' any more"):
        other.run(job.table(100), checkpoint=checkpoint)


# -- killed ----------------------------------------------------------------------------------------


def _kill(runner: str, folder: Path, rows: int, kills: int, seed: int, patience_s: float) -> None:
    """Run the job several times, and kill its process group at random moments.

    It cannot end earlier: each run gets a part of the records only, some more than the one before.
    """
    choose = random.Random(seed)
    max_files, longest_s = (4, 0.03) if runner == "local" else (1, 1.0)
    repository = Path(__file__).resolve().parents[2]
    paths = [str(repository), *filter(None, [os.environ.get("PYTHONPATH")])]
    # uncompiled kernels: half the time of a job this small is loading the compiler into each process
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, str(repository / "tests" / "recovery" / "job.py"), runner, str(folder), str(rows)]
    for attempt in range(kills):
        with open(folder / "log.txt", "ab") as log:
            process = subprocess.Popen(
                [*command, str(rows * (attempt + 1) // (kills + 1))],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        try:
            _wait_for_output(process, folder, more=choose.randint(0, max_files), patience_s=patience_s)
            time.sleep(choose.random() * longest_s)
            assert process.poll() is None, "ended before it was killed\n" + _log(folder)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-3000:]


def _wait_for_output(process: subprocess.Popen[bytes], folder: Path, more: int, patience_s: float) -> None:
    def files() -> set[str]:
        return {p.name[:11] for p in folder.glob("out/smooth/part-*.parquet")}

    before = files()
    until = time.monotonic() + patience_s
    while len(files() - before) <= more:
        assert time.monotonic() < until, "no output\n" + _log(folder)
        assert process.poll() is None, "ended before it was killed\n" + _log(folder)
        time.sleep(0.002)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2))
def test_restart_of_killed_local_run(tmp_path, seed):
    _kill("local", tmp_path, 8_000, kills=2, seed=seed, patience_s=60)
    job.run("local", tmp_path, 8_000, 8_000)
    assert_equal(file_contents(tmp_path / "out"), result_contents(job.dataflow().run(job.table(8_000))))
    assert not list((tmp_path / "out").glob("*/.part-*")), "temporary files stayed"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "kills"), [(1_500, 1), pytest.param(6_000, 3, marks=pytest.mark.slow)], ids=["once", "often"]
)
def test_restart_of_killed_query(spark, tmp_path, rows, kills):
    _kill("spark", tmp_path, rows, kills, seed=1, patience_s=240)
    # the dozen lines of Spark's helper that inspects stages with state are filtered
    log = (tmp_path / "log.txt").read_text(errors="replace")
    assert "log4j" in log and "TransformWithStateInPandas" not in log
    job.query(spark, tmp_path, rows, rows).wait(timeout="4min")
    assert_equal(file_contents(tmp_path / "out"), result_contents(job.dataflow().run(job.table(rows))))
    assert not list((tmp_path / "out").glob("*/.part-*")), "temporary files stayed"


# -- on Spark --------------------------------------------------------------------------------------


@pytest.mark.spark
def test_restart_of_stopped_and_crashed_query(spark, tmp_path):
    options = {
        "out": tmp_path / "out",
        "checkpoint": str(tmp_path / "checkpoint"),
        "max_records": 300,
        "partitions": 2,
    }

    def start():
        return job.dataflow().start(spark, _script(None, ABORT, None), **options)

    query = start()
    with pytest.raises(RiotError, match="ABORT"):
        query.wait(timeout="2min")
    query = start()
    while query.active and not query.poll().batches:
        time.sleep(0.05)
    query.stop()
    query = start()
    query.wait(timeout="2min")
    assert_equal(file_contents(tmp_path / "out"), result_contents(job.dataflow().run(_script(None, None, None))))

    # a checkpoint of other parameters, steps or layouts is refused before anything runs
    with pytest.raises(StateError, match=r"step 'smooth'.*process_noise was 0\.125 and is 0\.5"):
        job.dataflow(0.5).start(spark, _script(), **options)
    with pytest.raises(StateError, match="no step 'average' any more"):
        job.dataflow(average="mean").start(spark, _script(), **options)
    with pytest.raises(StateError, match="partitions=2"):
        job.dataflow().start(spark, _script(), **{**options, "partitions": 3})
    with pytest.raises(StateError, match="order='arrival'"):
        job.dataflow().start(spark, _script(), **options, order="event_time")
    together = property(lambda plan: [plan.stages[1:]])  # as if planned with one shuffle
    with mock.patch.object(Plan, "shuffles", together), pytest.raises(StateError, match=r"'average'.*stage was 2 and"):
        job.dataflow().start(spark, _script(), **options)
    manifest = tmp_path / "checkpoint" / "riot_ops.json"
    written = manifest.read_text()
    for text, complaint in (
        (written[:50], "damaged"),
        ("{}", "damaged"),
        (written.replace(": 2,", ": 0,", 1), "format 0"),
    ):
        manifest.write_text(text)
        (manifest.parent / f".{manifest.name}.crc").unlink(missing_ok=True)
        with pytest.raises(StateError, match=complaint):
            job.dataflow().start(spark, _script(), **options)
    with pytest.raises(ConnectorError, match="overwrite=True"):
        job.dataflow().start(spark, _script(), out=tmp_path / "out", checkpoint=str(tmp_path / "new"))
    with pytest.raises(ConnectorError, match="overwrite=True"):
        job.dataflow().start(spark, _script(), out=tmp_path / "out", checkpoint=str(tmp_path / "new"))
