"""The session that riot_ops makes: what it sets, what it leaves alone, and where its workers find PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.cloudpickle import dumps

import riot_ops as ro
from riot_ops import dataflows, streams
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark import session
from riot_ops.spark.pickling import packed_processor, packed_sink, packed_source
from riot_ops.spark.session import LIGHT
from riot_ops.spark.sink import Outlet, Writer
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor

pytestmark = pytest.mark.spark


def test_workers_import_pyspark_with_its_bytecode(spark):
    def where(_):
        import pyspark

        return pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ, "it is set only while Spark starts"


def in_another_process(sent, code):
    """What a process prints that unpickles something as Spark's do."""
    code = f"""
import pickle, sys, types
sent = {sent!r}
{code}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(("module", "told"), [("transform_with_state_driver_worker", ""), ("another", "steps\n")])
def test_the_helper_that_tells_of_its_steps_is_silent(module, told):
    done = in_another_process(
        dumps(packed_processor(None)),
        f"""
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.sql.streaming.{module}")
pickle.loads(sent)
print("steps")
print("errors", file=sys.stderr)
""",
    )
    assert (done.stdout, done.stderr) == (told, "errors\n")


def test_processes_that_only_plan_import_nothing_of_ours():
    stats = plan(dataflows.stats("city"))
    labels = {1: [0], 2: [0]}
    stage = SourceStage(stats, "city", streams.city(messages=1), Outlet({}, {}), labels, ARRIVAL, Buffering(), None, 1)
    processor = StageProcessor(stats, 1, labels, "run", ARRIVAL, Buffering())
    sink = packed_sink("sink", Writer({"out": ro.MemorySink()}, "metrics"))
    done = in_another_process(
        dumps((packed_source("source", Reader(stage)), sink, packed_processor(processor))),
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


def test_what_a_process_has_read_is_no_garbage_behind_its_first_task(tmp_path):
    source = packed_source("source", types.SimpleNamespace(read=lambda partition: iter([partition, 2])))
    processor = packed_processor(types.SimpleNamespace(process=lambda bucket, rows, chain: iter([bucket, chain])))
    sink = packed_sink("sink", Writer({"out": ro.MemorySink()}, str(tmp_path / "metrics")))
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
print({call}, gc.get_freeze_count() <= before)  # once, lest garbage stays
""",
        )
        assert done.stdout == "True\nTrue True True\nTrue True\n", module


def test_workers_are_forked_from_a_process_that_has_read_what_they_need(spark):
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
    assert [row.parent for row in rows] == [process], "one such process for all kinds of work"

    def frozen(_):
        import gc

        return gc.get_freeze_count()

    read = spark.sparkContext.parallelize([0], 1).map(frozen).collect()[0]
    assert read > 100_000, "a worker's garbage is looked for in what is its own alone"


def test_workers_and_the_jvm_talk_through_sockets_of_this_machine(spark):
    """Through TCP each task of a source waits 40 ms for its part."""

    def local(_):
        return os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()

    assert spark.sparkContext.parallelize([0], 1).map(local).collect() == ["true"]


def test_a_worker_whose_task_the_jvm_gave_up_ends_without_a_word():
    done = in_another_process(
        b"",
        """
import os, socket
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
from pyspark import daemon, worker
from riot_ops.spark.worker_daemon import worker as ours

def told_in_vain(infile, outfile):
    outfile.write(b"done")

worker.main = told_in_vain
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
                "spark.driver.extraJavaOptions": f"{LIGHT} -Xarchive",
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
def test_what_spark_starts_with(options, wanted, monkeypatch):
    """Of a session that is started; others find a Spark that runs."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(sys.modules["riot_ops.spark.session"], "class_options", lambda: "-Xarchive")
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


def test_the_jvm_takes_its_options(spark):
    options = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    options = [str(option) for option in options]
    for option in LIGHT.split():
        elsewhere = os.environ.get("SPARK_SUBMIT_OPTS", "").split().count(option)  # what all Sparks of the tests get
        assert options.count(option) == elsewhere + 1


def test_there_is_room_for_the_code_of_many_queries(spark):
    """Each compiles some of its own; where the room is full the JVM compiles no more, for good."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = sum(pool.getUsage().getMax() for pool in pools if "Code" in str(pool.getName()))
    assert room >= 200 << 20


def test_misuse():
    with pytest.raises(ConfigError, match="jvm must be 'light' or 'full', got 'server'"):
        session(jvm="server")
    with pytest.raises(ConfigError, match="cores must be >= 1, got -1"):
        session(cores=-1)
