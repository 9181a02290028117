"""Spark sessions with the settings that riot_ops needs."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.spark.jvm_stderr import start_jvm
from riot_ops.spark.launcher import class_options, find_java, started_from
from riot_ops.spark.session_check import PROVIDER, ROCKSDB, is_connect, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "PARTITIONS",
    "active",
    "arrow_batches",
    "block_batches",
    "configure",
    "fitting",
    "session",
    "settings_of_query",
    "usual_partitions",
    "workers_apart",
]

#: Its settings for the batches between the JVM and Python, and how many records these hold where bytes bound them.
ARROW_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_RECORDS = 65_536
#: What Spark takes for no bound of bytes; how many a batch of packed blocks then has at most, and where they bound it.
NO_BOUND = "2147483647"
MOST_BYTES, BATCH_BYTES = 1 << 30, 64 << 20

#: What any session needs for tasks that keep state.
NEEDED = {
    PROVIDER: ROCKSDB,
    # changelogs make its commits small
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
#: What a local session of this library's own has besides, and what Spark takes only when it starts.
OWN = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # the text of an error is all that differs, but Spark forks its workers from one more process for that
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # after each row the JVM would else add up the bytes of all columns, which takes as long as all else that it does to
    # hand the row to Python; so there are fewer rows in a batch, and packed blocks are small enough for as many
    ARROW_BYTES: NO_BOUND,
    ARROW_RECORDS: "4096",
    # as the library's own files have it: Spark's usual form takes twelve bytes and a dictionary that is tried in vain,
    # and others read it back without a time zone
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # the default one starts a process for every link it looks at: some twenty per micro-batch
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
AT_START = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # through TCP a worker of a source waits 40 ms for its part of a micro-batch: the JVM holds its second small piece
    # back until the first is confirmed, which the worker's side puts off for that long
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # packed blocks are compressed already
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}

#: What ``jvm="light"`` is: a fifth of the time less for the first million messages, half of the JVM's work and memory.
#: Over hundreds of micro-batches of packed blocks the second compiler gains nothing; the JVM has little to do there.
#: One compiler alone has room for 48 MiB of code, which some dozens of queries fill; then it stops for good.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
#: Spark's setting for the number of partitions behind a shuffle, and who may change it.
PARTITIONS = "spark.sql.shuffle.partitions"
#: Its setting for what Python workers are forked from.
DAEMON = "spark.python.daemon.module"
_PARTITIONING = threading.Lock()
#: Workers with another environment are others; and who may change it.
OF_STATE = "RIOT_OPS_STATE"
_APART = threading.Lock()

_log = logging.getLogger("riot_ops")

T = TypeVar("T")


def configure(target: T) -> T:
    """Set what a Spark session of one's own needs for tasks that keep state; returns what was given.

    These are the two settings of Spark's RocksDB state store. They concern queries that are started afterwards.

    Parameters
    ----------
    target : SparkSession.Builder, SparkConf, SparkSession, or a session's ``conf``

    Raises
    ------
    ConfigError
        Where it is none of these.

    Examples
    --------
    ::

        spark = configure(SparkSession.builder.master("yarn")).getOrCreate()
        configure(spark)  # a session that is there already
    """
    holder: Any = getattr(target, "conf", target)  # of a session; others have none
    put = getattr(holder, "config", None) or getattr(holder, "set", None)
    if put is None:
        raise ConfigError(
            f"configure needs a SparkSession, its builder or conf, or a SparkConf, got {type(target).__name__}"
        )
    for name, value in NEEDED.items():
        put(name, value)
    return target


def session(
    cores: int | None = None,
    *,
    memory: str = "4g",
    jvm: Literal["light", "full"] = "light",
    app_name: str = "riot_ops",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """A local Spark session, correctly configured.

    Where Spark runs in this process already, it is one more session beside those that are there: they
    keep their settings, and this one has its own. What belongs to all of them (master, memory, name, log
    level) stays as it is, and stopping one stops them all.

    Parameters
    ----------
    cores : int, optional
        Cores to use; by default all. As many shuffle partitions are set.
    memory : str, default "4g"
        Heap of the JVM.
    jvm : "light" or "full", default "light"
        "light": it compiles its code once and quickly, and collects its garbage in one thread. That is what
        dataflows want, whose work is done in Python processes. "full": as Spark has it, for pipelines that
        aggregate and join in Spark SQL besides.
    settings : dict, optional
        Further Spark settings; they win. Those that cannot be changed any more are logged as a warning.

    Notes
    -----
    Between the JVM and Python the records of a DataFrame go in batches of 4,096, of 2 GiB at most: a bound of bytes, as
    Spark has it, costs as much as handing them over does. For records of more than half a megabyte give
    ``settings={"spark.sql.execution.arrow.maxBytesPerBatch": "64MB"}``.
    """
    from pyspark import SparkContext
    from pyspark.sql.utils import is_remote

    if cores is not None and cores < 1:
        raise ConfigError(f"cores must be >= 1, got {cores}")
    if jvm not in ("light", "full"):
        raise ConfigError(f"jvm must be 'light' or 'full', got {jvm!r}")
    refuse_connect(is_remote(), "riot_ops.spark.session")
    running = SparkContext._active_spark_context  # noqa: SLF001 (PySpark has no public word for it)
    if running is not None and running._jsc is not None:  # noqa: SLF001
        return _beside(cores or running.defaultParallelism, settings or {})
    return _started(
        cores or os.cpu_count() or 1,
        LIGHT if jvm == "light" else "",
        {
            "spark.app.name": app_name,
            "spark.driver.memory": memory,
            **(settings or {}),
        },
    )


def _beside(cores: int, settings: Mapping[str, str]) -> SparkSession:
    """One more session of the Spark that runs."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spark: SparkSession = configure(there.newSession())
    local = str(there.sparkContext.master).startswith("local")
    for name, value in {
        **(OWN if local else {}),
        PARTITIONS: str(cores),
        **settings,
    }.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif there.sparkContext.getConf().get(name) != value:
            _log.warning("Spark runs already: %s cannot be set to %s any more", name, value)
    return spark


def _started(cores: int, java_options: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    find_java()
    conf = configure(SparkConf(loadDefaults=False).setMaster(f"local[{cores}]"))
    for name, value in {
        **OWN,
        **AT_START,
        PARTITIONS: str(cores),
        "spark.driver.extraJavaOptions": f"{java_options} {class_options()}".strip(),
        **({DAEMON: "riot_ops.spark.worker_daemon"} if os.environ["PYSPARK_PYTHON"] == sys.executable else {}),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "riot_ops-warehouse"),
        **settings,
    }.items():
        conf.set(name, value)
    with started_from():
        start_jvm(conf)
        spark: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a session the one that Spark takes in this thread, where it looks up sources written in Python."""
    kind: Any = spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
    before = kind.getActiveSession()
    kind.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            kind.setActiveSession(before.get())
        else:
            kind.clearActiveSession()


@contextlib.contextmanager
def workers_apart(spark: Any) -> Iterator[None]:
    """While a stage with state is defined: its tasks get Python workers that no other tasks get.

    Spark hands a task whichever worker is free. Those of stages with state keep it from one micro-batch to the next:
    the fewer they are, the more often they have it, and the fewer copies there are. Spark may still start more of them
    than there are cores, where a task begins before the worker of the last one is free again.
    """
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    with _APART:
        before = context.environment
        context.environment = {**before, OF_STATE: "1"}  # another thread may be reading that of before
        try:
            yield
        finally:
            context.environment = before


@contextlib.contextmanager
def settings_of_query(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """While a query starts: it gets these settings, such as the number of partitions behind each shuffle.

    A query takes a copy of its session's settings in ``start()`` and lives with that. A session of its own would keep
    it out of sight of the user's listeners and ``spark.streams``; so the setting is the user's again right behind.
    """
    with _PARTITIONING:
        before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, earlier)


def arrow_batches(buffering: Buffering) -> dict[str, str]:
    """Settings of a query by which the batches between the JVM and Python are as large as its buffers."""
    if not buffering.capacity:
        return {ARROW_RECORDS: "1"}
    return {ARROW_RECORDS: str(min(MOST_RECORDS, buffering.capacity)), ARROW_BYTES: str(buffering.capacity)}


def block_batches(spark: SparkSession) -> dict[str, str]:
    """Settings of a query in which nothing but packed blocks crosses between the JVM and Python: bytes bound them."""
    return {ARROW_BYTES: str(BATCH_BYTES)} if _bounds_records_alone(spark) else {}


def fitting(buffering: Buffering, spark: SparkSession) -> Buffering:
    """Blocks for a query in which records cross as well: small ones where the session bounds those alone."""
    if not _bounds_records_alone(spark):
        return buffering
    records = int(spark.conf.get(ARROW_RECORDS) or 0)
    return replace(buffering, capacity=min(buffering.capacity, MOST_BYTES // records)) if records > 0 else buffering


def _bounds_records_alone(spark: SparkSession) -> bool:
    return (spark.conf.get(ARROW_BYTES, None) or "").rstrip("bB") == NO_BOUND


def usual_partitions(spark: SparkSession) -> int:
    """How many partitions a shuffle has in a session, whatever query starts in it now."""
    with _PARTITIONING:
        return int(spark.conf.get(PARTITIONS) or 1)
