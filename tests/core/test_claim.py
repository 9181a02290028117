"""Runs that write to the same address: the one that starts last has it, and nothing is lost or counted twice."""

from __future__ import annotations

import os
import pickle
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.claim import Claim, Holder
from riot_ops.core.errors import ConnectorError
from riot_ops.core.manifest import ManifestFolder
from riot_ops.core.storage import Address
from riot_ops.core.text_sinks import CSVSink
from riot_ops.runtime.checkpoint import Checkpoint, CheckpointData
from riot_ops.testing.services import Azurite, Moto

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {"out": pa.schema([("value", pa.int64())])}


@pytest.fixture
def place(request):
    return Address.of(f"memory://{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}", {})


def write(sink, batch, values, stream="out"):
    writer = sink.writer(batch, 0)
    writer.write(stream, pa.RecordBatch.from_pydict({"value": values}))
    return writer.finish()


def begun(place, **options):
    """A sink as a runner has it."""
    sink = ro.ParquetSink(str(place), **options).bind(SCHEMAS)
    sink.identify("run")
    return sink


def values(place):
    return ro.ParquetSink(str(place)).bind(SCHEMAS).table("out")["value"].to_pylist()


LOST = r"another run writes to memory://\S+ now: process \d+ on this host since .*; one run at a time can write there"


def test_earlier_run_is_refused_and_what_it_writes_too_late_does_not_count(place, monkeypatch):
    first, second = begun(place), begun(place)
    first.begin(False)
    first.commit(0, [write(first, 0, [0])])
    late = write(first, 1, [1])
    second.recover(1)
    assert values(place) == [0]
    with pytest.raises(ConnectorError, match=LOST):
        first.commit(1, [late])
    assert values(place) == [0], "the first run has written its manifest before it looked"
    mine = write(second, 1, [10])
    write(first, 1, [11])
    second.commit(1, [mine])
    assert values(place) == [0, 10]
    with pytest.raises(ConnectorError, match=LOST):
        first.commit(63, [write(first, 63, [63])])
    assert values(place) == [0, 10]


def test_a_run_that_is_refused_removes_no_files(place):
    """Rolling removes what it has joined: not if another run counts on it."""
    first, second = begun(place, roll_bytes=1), begun(place, roll_interval="1h")
    first.begin(False)
    first.commit(0, [write(first, 0, [0])])
    finished = write(first, 1, [1])
    second.recover(1)
    with pytest.raises(ConnectorError, match=LOST):
        first.commit(1, [finished])
    assert values(place) == [0]
    with pytest.raises(ConnectorError, match=LOST):
        first.end(SCHEMAS)
    assert values(place) == [0]


def test_copies_of_a_sink_in_other_processes_write_for_the_same_run(place):
    """Over Spark Connect the sink begins in a copy on the server, and workers have further ones."""
    sink = begun(place)
    server, worker = (pickle.loads(pickle.dumps(sink)) for _ in range(2))
    with pytest.raises(ConnectorError, match="another run"):
        sink.commit(0, [])
    server.begin(False)
    sink.commit(0, [write(worker, 0, [0])])
    assert values(place) == [0]
    begun(place).recover(1)
    for copy in (sink, server, worker):
        with pytest.raises(ConnectorError, match="another run"):
            copy.commit(1, [write(copy, 1, [1])])
    assert values(place) == [0]


def test_of_two_that_start_at_the_same_time_one_is_refused(place, monkeypatch):
    one, other = (Claim(place, token=token) for token in ("aaa", "bbb"))
    written = Address.write

    def write_both(self, data):
        monkeypatch.setattr(Address, "write", written)
        one.take()  # it has seen the same as the other
        one.check()
        written(self, data)

    monkeypatch.setattr(Address, "write", write_both)
    other.take()
    assert (one.holder, other.holder) == (Holder(1, "aaa"), Holder(1, "bbb"))
    with pytest.raises(ConnectorError, match=LOST):
        one.check()

    again, loser = Claim(place, token="ddd"), Claim(place, token="ccc")

    def write_winner(self, data):
        monkeypatch.setattr(Address, "write", written)
        again.take()
        written(self, data)

    monkeypatch.setattr(Address, "write", write_winner)
    with pytest.raises(ConnectorError, match=LOST):
        loser.take()
    again.check()


@pytest.mark.parametrize(
    ("suffix", "streams", "conflicts"),
    [
        ("parquet", ["b", "c"], True),
        ("parquet", None, True),
        ("parquet", ["c"], False),
        ("csv", ["b"], False),
    ],
)
def test_runs_of_other_streams_and_formats_do_not_collide(place, suffix, streams, conflicts):
    first = Claim(place, "parquet", ["a", "b"])
    first.take()
    second = Claim(place, suffix, streams)
    second.take()
    second.clean()
    if conflicts:
        with pytest.raises(ConnectorError, match="another run"):
            first.check()
    else:
        first.check()


def test_sinks_of_other_streams_share_a_folder(place):
    schemas = {name: SCHEMAS["out"] for name in "abc"}
    ab = ro.ParquetSink(str(place)).bind({name: schemas[name] for name in "ab"})
    c = ro.ParquetSink(str(place)).bind({"c": schemas["c"]})
    text = CSVSink(str(place)).bind({"a": schemas["a"]})
    for sink in (ab, c, text):
        sink.identify("run")
        sink.begin(False)
    ab.commit(0, [write(ab, 0, [1], "a"), write(ab, 0, [2], "b")])
    c.commit(0, [write(c, 0, [3], "c")])
    text.commit(0, [write(text, 0, [4], "a")])
    bc = ro.ParquetSink(str(place)).bind({name: schemas[name] for name in "bc"})
    bc.identify("run")
    bc.recover(1)
    bc.commit(1, [write(bc, 1, [5], "b")])
    with pytest.raises(ConnectorError, match="another run"):
        ab.commit(1, [write(ab, 1, [6], "a"), write(ab, 1, [7], "b")])
    parquet = ro.ParquetSink(str(place)).bind(schemas)
    assert [parquet.table(name)["value"].to_pylist() for name in "bc"] == [[2, 5], [3]]
    assert text.table("a")["value"].to_pylist() == [4]


def test_claims_and_manifests_of_earlier_runs_are_removed(place):
    for run in range(5):
        sink = begun(place)
        sink.recover(run)
        sink.commit(run, [write(sink, run, [run])])
    assert len((place / "_riot_ops").files()) == 3  # a claim, what counted at its start, and a batch
    assert values(place) == list(range(5))


def test_damaged_manifest_of_all_files_is_refused_even_if_its_batch_comes_again(place):
    sink = begun(place)
    sink.begin(False)
    for batch in range(64):
        sink.commit(batch, [write(sink, batch, [batch])])
    (whole,) = (one.name for one in (place / "_riot_ops").files() if one.name.endswith(".all.json"))
    file = place / "_riot_ops" / whole
    file.write(file.read()[:-9])
    with pytest.raises(ConnectorError, match=r"manifest .* is damaged"):
        begun(place).recover(0)


def test_checkpoint_that_an_earlier_run_writes_too_late_does_not_count(place):
    def saved(epoch, name):
        return CheckpointData(epoch, False, {"in": {"at": name}}, {}, {})

    first, second = Checkpoint(place), Checkpoint(place)
    first.claim()
    first.write(saved(0, "first"))
    first.write(saved(1, "first"))
    second.claim()
    with pytest.raises(ConnectorError, match=LOST):
        first.write(saved(2, "first"))
    for reader in (second, Checkpoint(place)):
        assert reader.read(reader.latest_path()).epoch == 1
        assert [reader.read(path).epoch for path in reader.paths()] == [0, 1]
    # the next run begins, but ends before it knows what counts
    Claim(place).take()
    assert Checkpoint(place).read(Checkpoint(place).latest_path()).epoch == 1
    third = Checkpoint(place)
    third.claim()
    third.write(saved(2, "third"))
    assert [third.read(path).offsets["in"]["at"] for path in Checkpoint(place).paths()] == ["first", "third"]
    third.write(saved(3, "third"))
    assert len([one for one in place.files() if one.name.startswith("state-")]) == 2


def test_refused_start_leaves_the_running_one_alone(place):
    """What cannot continue does not take the address."""
    out, state = str(place / "out"), str(place / "state")
    running = begun(place / "out")
    running.begin(False)
    running.commit(0, [write(running, 0, [0])])
    checkpoint = Checkpoint(place / "state")
    checkpoint.write(CheckpointData(1, False, {}, {"readings": {}}, {}))
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        named("out").run([{"value": 1}], out=out)
    with pytest.raises(ro.StateError, match="of another dataflow"):
        named("other").run([{"value": 1}], out=out, checkpoint=state)
    running.commit(1, [write(running, 1, [1])])
    checkpoint.write(CheckpointData(2, False, {}, {"readings": {}}, {}))
    assert values(place / "out") == [0, 1]


# -- any order of steps ----------------------------------------------------------------------------


def named(stream):
    made = ro.Dataflow("claims")
    made.sink("sink", made.source(stream, schema={"value": "int64"}))
    return made


class Killed(BaseException):
    """The process has gone."""


class Turns:
    """Lets threads take steps in the store one at a time, in the order of a random generator; some end in between."""

    def __init__(self, seed, monkeypatch, deaths=0.004):
        self.deaths = deaths
        self.random = random.Random(seed)
        self.condition = threading.Condition()
        self.waiting, self.alive, self.turn, self.killed = set(), set(), None, set()
        for name in ("read", "write", "delete", "files", "size"):
            monkeypatch.setattr(Address, name, self.stepped(getattr(Address, name)))

    def stepped(self, function):
        def step(*args):
            me = threading.current_thread()
            if me not in self.alive:
                return function(*args)
            with self.condition:
                self.waiting.add(me)
                self.choose()
                while self.turn is not me:
                    self.condition.wait()
                self.turn = None
                self.waiting.discard(me)
                if me in self.killed or self.random.random() < self.deaths:
                    self.killed.add(me)  # what it does to clean up is not done either
                    raise Killed
                return function(*args)

        return step

    def choose(self):
        if self.turn is None and self.waiting and self.waiting == self.alive:
            self.turn = self.random.choice(sorted(self.waiting, key=lambda one: one.name))
            self.condition.notify_all()

    def run(self, *jobs):
        def work(job):
            try:
                job()
            except (ConnectorError, Killed) as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
            finally:
                with self.condition:
                    self.alive.discard(threading.current_thread())
                    self.choose()

        outcomes = []
        threads = [threading.Thread(target=work, args=(job,), name=f"run-{i}") for i, job in enumerate(jobs)]
        self.alive = set(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        return outcomes


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("rolls", [{}, {"roll_bytes": 1}])
def test_any_order_of_the_steps_of_several_runs_loses_and_doubles_nothing(place, seed, rolls, monkeypatch):
    """Runs that start at any time, some of which end between two steps; one that comes after them finishes."""
    rows = [{"value": i} for i in range(12)]

    def job():
        sinks = ro.ParquetSink(str(place / "out"), **rolls)
        checkpoint = str(place / "state")
        named("out").run(rows, sinks=sinks, checkpoint=checkpoint, batch_size=2, epoch_rows=2)

    with monkeypatch.context() as patch:
        # a first run may have done something before the others start
        outcomes = Turns(seed, patch).run(*[job] * (2 + seed % 2))
    for error in outcomes:
        if isinstance(error, ConnectorError):
            assert "another run writes to" in str(error) or "earlier run" in str(error), error
    job()
    assert values(place / "out") == list(range(12))
    left = {one.name for one in (place / "out" / "out").files()}
    listed = {path.name for _, _, path in ro.ParquetSink(str(place / "out"), **rolls).bind(SCHEMAS).files()}
    assert left == listed


@pytest.mark.parametrize("seed", range(10))
def test_readers_see_all_files_while_runs_replace_each_other(place, seed, monkeypatch):
    sink = begun(place)
    sink.begin(False)
    for batch in range(3):
        sink.commit(batch, [write(sink, batch, [batch])])

    def read():
        for _ in range(5):
            found.append([one.batch for one in ManifestFolder(place, "parquet", {"out"}).parts()])

    found = []
    with monkeypatch.context() as patch:
        Turns(seed, patch, deaths=0).run(read, *[lambda: begun(place).recover(3)] * 4)
    assert found and all(one == [0, 1, 2] for one in found)


# -- processes -------------------------------------------------------------------------------------

JOB = """
import sys, time
import riot_ops as ro
from tests.core.test_claim import named

out, state, pause = sys.argv[1:]

def pace(summary):
    print(summary.messages, flush=True)
    time.sleep(float(pause))

rows = [{"value": i} for i in range(100)]
named("out").run(rows, out=out, checkpoint=state, batch_size=5, epoch_rows=5, progress=pace)
"""


def start(place, pause, settings):
    command = [sys.executable, "-c", JOB, f"{place}/out", f"{place}/state", str(pause)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        command,
        env={**os.environ, **settings, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compete(place, settings):
    first = start(place, 0.5, settings)
    assert first.stdout.readline() and first.stdout.readline()  # it has committed something
    second = start(place, 0, settings)
    _, wrong = second.communicate(timeout=120)
    assert second.returncode == 0, wrong[-2000:]
    rest, error = first.communicate(timeout=120)
    assert first.returncode == 1 and len(rest.splitlines()) < 18
    # it is named unless its claim goes between two requests
    assert re.search(
        rf"ConnectorError: another run writes to {place}/(out|state) now(: process {second.pid} on this host|;)", error
    ), error
    assert "riot-never-checked" not in error
    Address.of(f"{place}/out", {}).check()
    assert sorted(values(Address.of(f"{place}/out", {}))) == list(range(100))


@pytest.mark.integration
@pytest.mark.long
def test_second_process_takes_an_address_of_s3(monkeypatch):
    with Moto() as moto:
        for name, value in moto.settings().items():
            monkeypatch.setenv(name, value)
        compete(moto.create_bucket("compete"), moto.settings())


@pytest.mark.integration
@pytest.mark.slow
def test_second_process_takes_an_address_of_azure(monkeypatch):
    from azure.storage.blob import BlobServiceClient

    with Azurite() as azurite:
        settings = {"AZURE_STORAGE_CONNECTION_STRING": azurite.connection}
        monkeypatch.setenv(*next(iter(settings.items())))
        BlobServiceClient.from_connection_string(azurite.connection).create_container("compete")
        compete("az://compete/a", settings)
