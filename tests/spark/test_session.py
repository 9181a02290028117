"""The session that riot_ops makes: its settings, its workers and its JVM."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.cloudpickle import dumps

import riot_ops as ro
from riot_ops import dataflows, streams
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark import configure, features, session
from riot_ops.spark.pickling import pickled_processor, pickled_sink, pickled_source
from riot_ops.spark.session import (
    LIGHT_JVM,
    PARTITIONS,
    STATE_WORKERS,
    default_partitions,
    query_settings,
    stateful_workers,
)
from riot_ops.spark.sink import SinkCommitter, SinkRoutes
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor

pytestmark = pytest.mark.spark


def test_workers_import_pyspark_with_its_bytecode(spark):
    def where(_):
        import pyspark

        return pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ, "SPARK_HOME is set only while Spark starts"


def in_another_process(sent, code):
    """Run code in a process that unpickles an object like Spark's processes."""
    code = f"""
import pickle, sys, types
sent = {sent!r}
{code}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(("module", "output"), [("transform_with_state_driver_worker", ""), ("another", "steps\n")])
def test_output_of_inspecting_process_is_hidden(module, output):
    done = in_another_process(
        dumps(pickled_processor(None)),
        f"""
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.sql.streaming.{module}")
pickle.loads(sent)
print("steps")
print("errors", file=sys.stderr)
""",
    )
    assert (done.stdout, done.stderr) == (output, "errors\n")


def test_planning_processes_do_not_import_riot_ops():
    stats = plan(dataflows.stats("city"))
    labels = {1: [0], 2: [0]}
    stage = SourceStage(
        stats, "city", streams.city(messages=1), SinkRoutes({}, {}), labels, ARRIVAL, Buffering(), None, 1
    )
    processor = StageProcessor(stats, 1, labels, "run", ARRIVAL, Buffering())
    sink = pickled_sink("sink", SinkCommitter({"out": ro.MemorySink()}, "metrics"))
    done = in_another_process(
        dumps((pickled_source("source", Reader(stage)), sink, pickled_processor(processor))),
        """
source, sink, processor = pickle.loads(sent)
made = source({}), sink({})
reader, writer = made[0].streamReader(made[0].schema()), made[1].streamWriter(None, False)
processor.init(types.SimpleNamespace(getMapState=lambda *args: print(source.name(), sink.name())))
print([name for name in sys.modules if name.startswith("riot_ops")])
print(reader.initialOffset()["ended"], "riot_ops" in sys.modules)
""",
    )
    assert done.stdout == "source sink\n[]\nFalse True\n"


def test_objects_are_frozen_after_first_task(tmp_path):
    source = pickled_source("source", types.SimpleNamespace(read=lambda partition: iter([partition, 2])))
    processor = pickled_processor(types.SimpleNamespace(process=lambda bucket, rows, chain: iter([bucket, chain])))
    sink = pickled_sink("sink", SinkCommitter({"out": ro.MemorySink()}, str(tmp_path / "metrics")))
    calls = {
        "another": "list(source({}).streamReader('').read(1)) == [1, 2]",
        "worker": "list(processor.handleInputRows((3,), [], None)) == [3, 0]",
        "python_streaming_sink_runner": "sink({}).streamWriter(None, False).commit([], 0) is None",
        "write_into_data_source": "sink({}).streamWriter(None, False) is not None",
    }
    for module, call in calls.items():
        done = in_another_process(
            dumps((source, processor, sink)),
            f"""
import gc
source, processor, sink = pickle.loads(sent)
processor.chain = 0
sys.argv = ["daemon.py", "pyspark.sql.worker.{module}"]
if {module!r} != "write_into_data_source":
    sink({{}}).streamWriter(None, False)
print(gc.get_freeze_count() == 0)
print({call}, gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 5_000)
before = gc.get_freeze_count()
print({call}, gc.get_freeze_count() <= before)  # frozen only once, so that garbage is still collected
""",
        )
        assert done.stdout == "True\nTrue True True\nTrue True\n", module


def test_workers_are_forked_from_daemon(spark):
    def parent(_):
        import os

        return os.getppid(), Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")

    def of_a_function(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})

    process, command = spark.sparkContext.parallelize([0], 1).map(parent).collect()[0]
    assert "riot_ops.spark.worker_daemon" in command
    rows = spark.range(1).mapInArrow(of_a_function, "parent long").collect()
    assert [row.parent for row in rows] == [process], "one daemon for all kinds of work"

    def frozen(_):
        import gc

        return gc.get_freeze_count()

    read = spark.sparkContext.parallelize([0], 1).map(frozen).collect()[0]
    assert read > 100_000, "objects of the daemon are not frozen"


@pytest.mark.skipif(features.installed_version() < (4, 1), reason="Spark has Unix sockets from 4.1 on")
def test_workers_use_unix_sockets(spark):
    """Over TCP each task of a source waits 40 ms for its part."""

    def local(_):
        return os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()

    assert spark.sparkContext.parallelize([0], 1).map(local).collect() == ["true"]


@pytest.mark.skipif(features.installed_version() < (4, 1), reason="Spark 4.0 prints nothing itself")
def test_worker_ends_silently_if_jvm_has_hung_up():
    done = in_another_process(
        b"",
        """
import os, socket
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
from pyspark import daemon, worker
from riot_ops.spark.worker_daemon import worker as ours

def write_result(infile, outfile):
    outfile.write(b"done")

worker.main = write_result
for run in daemon.worker, ours:
    end, of_the_jvm = socket.socketpair()
    of_the_jvm.close()
    try:
        print(run(end, True))
    except BrokenPipeError:
        print("loud")
""",
    )
    assert (done.stdout, done.stderr) == ("loud\n1\n", "")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            {},
            {
                "spark.driver.memory": "4g",
                "spark.app.name": "riot_ops",
                "spark.driver.extraJavaOptions": f"{LIGHT_JVM} -Xarchive",
            },
        ),
        (
            {"jvm": "full", "memory": "3g", "app_name": "mine"},
            {"spark.driver.memory": "3g", "spark.app.name": "mine", "spark.driver.extraJavaOptions": "-Xarchive"},
        ),
        (
            {"settings": {"spark.driver.extraJavaOptions": "-Xss8m", "spark.driver.memory": "1g"}},
            {"spark.driver.memory": "1g", "spark.app.name": "riot_ops", "spark.driver.extraJavaOptions": "-Xss8m"},
        ),
    ],
)
def test_startup_settings(options, wanted, monkeypatch):
    """Only the first session starts Spark."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(sys.modules["riot_ops.spark.session"], "class_archive_options", lambda: "-Xarchive")
    started = {}

    def start(conf):
        started.update(conf.getAll())
        raise RuntimeError("no JVM here")

    monkeypatch.setattr(sys.modules["riot_ops.spark.session"], "start_jvm", start)
    with pytest.raises(RuntimeError, match="no JVM here"):
        session(cores=3, **options)
    assert started["spark.master"] == "local[3]"
    assert {name: value for name, value in started.items() if name.startswith(("spark.driver.", "spark.app"))} == {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **wanted,
    }


def test_jvm_options(spark):
    options = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    options = [str(option) for option in options]
    for option in LIGHT_JVM.split():
        elsewhere = os.environ.get("SPARK_SUBMIT_OPTS", "").split().count(option)  # options of all Sparks of the tests
        assert options.count(option) == elsewhere + 1


def test_code_cache_size(spark):
    """Each query compiles code; once the code cache is full the JVM stops compiling for good."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = sum(pool.getUsage().getMax() for pool in pools if "Code" in str(pool.getName()))
    assert room >= 200 << 20


def test_misuse():
    with pytest.raises(ConfigError, match="jvm must be 'light' or 'full', got 'server'"):
        session(jvm="server")
    with pytest.raises(ConfigError, match="cores must be a whole number >= 1, got -1"):
        session(cores=-1)
    with pytest.raises(ConfigError, match="cores must be a whole number >= 1, got True"):
        session(cores=True)
    with pytest.raises(
        ConfigError, match=r"heap of the JVM.*got 'small'.*give memory='small' to flow.run or flow.start"
    ):
        session(memory="small")
    for memory in (4, "4", "0g", "-1g", "4 g", "", "4g -XX:x", None):
        with pytest.raises(ConfigError, match="memory must be the heap of the JVM, such as '4g' or '800m', got"):
            session(memory=memory)


SCHEMA = {"device": "string", "obs_type": "string", "value": "double"}


@pytest.mark.parametrize("value", ["7", None])
def test_start_restores_partitions_of_session(spark, value):
    mine = spark.newSession()
    mine.conf.unset(PARTITIONS) if value is None else mine.conf.set(PARTITIONS, value)
    usual = default_partitions(mine)
    with contextlib.suppress(ValueError), query_settings(mine, {PARTITIONS: "3"}):
        assert mine.conf.get(PARTITIONS) == "3"
        raise ValueError
    assert mine.conf.get(PARTITIONS, None) == value
    assert default_partitions(mine) == usual


@pytest.mark.parametrize(("setting", "wanted"), [("16", 16), ("auto", 200), (None, 200)])
def test_partitions_of_platforms_may_be_a_word(setting, wanted):
    platform = SimpleNamespace(conf=SimpleNamespace(get=lambda name, *default: setting))
    assert default_partitions(platform) == wanted


def test_stateful_stages_have_separate_workers(spark):
    """So there are few, and a bucket often finds its state in its worker."""

    def place():
        return {"pid": os.getpid(), "apart": os.environ.get(STATE_WORKERS)}

    fields = {"pid": "int64", "apart": "string"}
    flow = ro.Dataflow("apart")
    rows = flow.source("in", schema=SCHEMA)
    plain = rows.to(
        ro.map(lambda row: {**place(), "device": row["device"]}, schema={**fields, "device": "string"}), id="plain"
    )
    counted = rows.to(ro.keyed(lambda n, row: (n + 1, place()), initial=0, by="device", schema=fields), id="counted")
    flow.sink("out", plain, counted)
    table = pa.Table.from_pylist([{"device": f"d{i % 7}", "obs_type": "t", "value": 1.0} for i in range(60)])
    query = flow.start(spark, table, max_records=15, partitions=2)
    query.wait(timeout="2min")
    assert {row["apart"] for row in query["plain"].to_pylist()} == {None}
    assert {row["apart"] for row in query["counted"].to_pylist()} == {"1"}
    pids = [set(query[name]["pid"].to_pylist()) for name in ("plain", "counted")]
    assert not pids[0] & pids[1]
    assert STATE_WORKERS not in spark.sparkContext.environment


def test_threads_do_not_corrupt_environment():
    """Spark iterates over it in one thread, while another thread defines a stage."""
    kept = {"A": "1", "B": "2"}
    spark = SimpleNamespace(_jsc=None, sparkContext=SimpleNamespace(environment=kept))
    seen = []

    def define():
        with stateful_workers(spark):
            time.sleep(0.01)
            seen.append(spark.sparkContext.environment)

    threads = [threading.Thread(target=define) for _ in range(4)]
    for name in kept:  # fails if it changes in the meantime
        for thread in threads if name == "A" else ():
            thread.start()
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert seen == [{**kept, STATE_WORKERS: "1"}] * 4
    assert spark.sparkContext.environment == kept == {"A": "1", "B": "2"}


def test_settings_that_a_platform_refuses_are_reported(caplog):
    """Serverless platforms allow few settings; ``configure`` and queries do without the others."""
    from pyspark.errors import PySparkException

    class Conf:
        def __init__(self):
            self.known = {"spark.sql.shuffle.partitions": "7"}

        def get(self, name, default=None):
            return self.known.get(name, default)

        def set(self, name, value):
            if name not in self.known:
                raise PySparkException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")
            self.known[name] = value

    class Session:
        conf = Conf()

    assert configure(Session) is Session
    assert "this Spark refuses the setting spark.sql.streaming.stateStore.providerClass=" in caplog.text
    assert "CONFIG_NOT_AVAILABLE" in caplog.text and Session.conf.known == {"spark.sql.shuffle.partitions": "7"}
    with query_settings(Session, {"spark.sql.shuffle.partitions": "2", "spark.other": "1"}):
        assert Session.conf.known == {"spark.sql.shuffle.partitions": "2"}
    assert Session.conf.known == {"spark.sql.shuffle.partitions": "7"}
