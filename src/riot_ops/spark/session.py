"""Spark sessions with the settings that riot_ops needs."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, excerpt, value_text
from riot_ops.core.paths import temporary_folder
from riot_ops.runtime.memory import SMALL_BATCH_SIZE, SMALL_BUFFERING
from riot_ops.spark.features import checkpoint_file_manager
from riot_ops.spark.launcher import (
    class_archive_options,
    find_java,
    hide_closed_accumulators,
    linked_spark_home,
    start_jvm,
)
from riot_ops.spark.session_check import PROVIDER, ROCKSDB, is_connect, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "PARTITIONS",
    "active_session",
    "arrow_batch_settings",
    "block_batch_settings",
    "configure",
    "core_count",
    "default_partitions",
    "fit_buffering",
    "query_settings",
    "session",
    "small_batch_settings",
    "stateful_workers",
]

#: Spark's settings for the Arrow batches between the JVM and Python, and their records where bytes limit them.
ARROW_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = 65_536
#: Spark's value for no limit of bytes; the maximum bytes of a batch of packed blocks then, and where bytes limit it.
NO_BOUND = "2147483647"
MAX_BYTES, BATCH_BYTES = 1 << 30, 64 << 20

#: Settings that every session needs for tasks that keep state.
REQUIRED_SETTINGS = {
    PROVIDER: ROCKSDB,
    # with changelogs its commits are small
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
#: Further settings of a local session of this library, and below those that Spark reads only when it starts.
LOCAL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # it affects only the text of errors, but Spark forks its workers from one more process for it
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # with a limit the JVM adds up the bytes of all columns after each row, which doubles the cost of handing the row to
    # Python; so a batch has fewer rows instead, and packed blocks are small enough for as many
    ARROW_BYTES: NO_BOUND,
    ARROW_RECORDS: "4096",
    # as in the library's own files: Spark's default takes twelve bytes and a useless attempt at a dictionary, and other
    # readers see it without a time zone
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # the default one starts a process for every link that it checks: some twenty per micro-batch
    "spark.sql.streaming.checkpointFileManagerClass": checkpoint_file_manager(),
}
STARTUP_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # over TCP a worker of a source waits 40 ms for its part of a micro-batch: the JVM holds its second small packet
    # back until the first is acknowledged, and the worker delays the acknowledgement (Nagle and delayed ACK)
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # packed blocks are already compressed
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}

#: ``jvm="light"`` saves a fifth of the time for the first million messages, and half of the JVM's work and memory. Over
#: hundreds of micro-batches of packed blocks the second compiler gains nothing, as the JVM has little to do. One
#: compiler alone has 48 MiB for its code, which some dozens of queries fill; then it stops for good: hence 240 MiB.
LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
#: A size of the JVM's heap.
HEAP = re.compile(r"[1-9][0-9]*[kKmMgGtT][bB]?")
#: Spark's setting for the number of shuffle partitions.
PARTITIONS = "spark.sql.shuffle.partitions"
#: Its default, for platforms on which it may be a word, such as "auto".
SPARK_PARTITIONS = 200
#: Spark's setting for the module from which Python workers are forked.
DAEMON = "spark.python.daemon.module"
#: Spark pools Python workers by environment: this variable gives stateful stages a pool of their own.
STATE_WORKERS = "RIOT_OPS_STATE"
#: Guards the settings of sessions while a query starts.
_SETTINGS_LOCK = threading.Lock()
#: Guards ``SparkContext.environment``.
_ENVIRONMENT_LOCK = threading.Lock()

_log = logging.getLogger("riot_ops")

T = TypeVar("T")


def configure(session: T) -> T:
    """Set what your own Spark session needs for tasks that keep state; returns its argument.

    These are the two settings of Spark's RocksDB state store. They apply to queries that are started afterwards. A
    setting that the platform refuses is logged as a warning; ``flow.start`` and ``transform`` check the store later.

    Parameters
    ----------
    session : SparkSession.Builder, SparkConf, SparkSession, or a session's ``conf``

    Raises
    ------
    ConfigError
        If ``session`` is none of these.

    Examples
    --------
    >>> from riot_ops.spark import configure
    >>> configure(spark) is spark
    True

    Or on the builder of a session: ``spark = configure(SparkSession.builder.master("yarn")).getOrCreate()``.
    """
    holder: Any = getattr(session, "conf", session)  # only a session has one
    put = getattr(holder, "config", None) or getattr(holder, "set", None)
    if put is None:
        raise ConfigError(
            f"configure needs a SparkSession, its builder or conf, or a SparkConf, got {type(session).__name__}"
        )
    refused_settings(put, REQUIRED_SETTINGS)
    return session


def refused_settings(put: Callable[[str, str], Any], settings: Mapping[str, str]) -> list[str]:
    """Apply settings; returns and logs those that the platform refuses, as serverless ones do."""
    from pyspark.errors import PySparkException

    refused = []
    for name, value in settings.items():
        try:
            put(name, value)
        except PySparkException as error:
            refused.append(name)
            _log.warning("this Spark refuses the setting %s=%s: %s", name, value, excerpt(str(error)))
    return refused


def session(
    cores: int | None = None,
    *,
    memory: str = "4g",
    jvm: Literal["light", "full"] = "light",
    app_name: str = "riot_ops",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Return a local Spark session with suitable settings.

    If Spark already runs in this process, this is one more session beside the existing ones: they keep their settings,
    and this one has its own. Settings of the whole Spark (master, memory, name, log level) do not change, and stopping
    one session stops them all.

    Parameters
    ----------
    cores : int, optional
        Cores to use, and number of shuffle partitions; by default all cores.
    memory : str, default "4g"
        Heap of the JVM: a number with ``m`` or ``g``, as Java writes it.
    jvm : "light" or "full", default "light"
        "light": the JVM compiles its code once and quickly, and collects garbage in one thread. This suits
        dataflows, which work in Python processes. "full": Spark's defaults, for pipelines that also
        aggregate and join in Spark SQL.
    settings : dict, optional
        Further Spark settings; they take precedence. Those that cannot be changed any more are logged as a warning.

    Notes
    -----
    The JVM and Python exchange the records of a DataFrame in batches of 4,096, of at most 2 GiB: Spark's default, a
    limit of bytes, would cost as much as the exchange itself. For records of more than half a megabyte give
    ``settings={"spark.sql.execution.arrow.maxBytesPerBatch": "64MB"}``.

    Examples
    --------
    >>> from riot_ops.spark import session
    >>> spark = session(cores=2)
    >>> spark.range(3).count()
    3
    """
    from pyspark.sql.utils import is_remote
    from pyspark.util import is_remote_only

    if cores is not None and (type(cores) is not int or cores < 1):
        raise ConfigError(f"cores must be a whole number >= 1, got {value_text(cores)}")
    if not isinstance(memory, str) or not HEAP.fullmatch(memory):
        other = "; for small machines give memory='small' to flow.run or flow.start" if memory == "small" else ""
        raise ConfigError(
            f"memory must be the heap of the JVM, such as '4g' or '800m', got {value_text(memory)}{other}"
        )
    if jvm not in ("light", "full"):
        raise ConfigError(f"jvm must be 'light' or 'full', got {jvm!r}")
    refuse_connect(is_remote() or is_remote_only(), "riot_ops.spark.session")
    from pyspark import SparkContext

    running = SparkContext._active_spark_context  # noqa: SLF001 (PySpark has no public word for it)
    if running is not None and running._jsc is not None:  # noqa: SLF001
        return _additional_session(cores or running.defaultParallelism, settings or {})
    return _start_session(
        cores or os.cpu_count() or 1,
        LIGHT_JVM if jvm == "light" else "",
        {
            "spark.app.name": app_name,
            "spark.driver.memory": memory,
            **(settings or {}),
        },
    )


def _additional_session(cores: int, settings: Mapping[str, str]) -> SparkSession:
    """Return one more session of the Spark that runs."""
    from pyspark.sql import SparkSession

    existing = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spark: SparkSession = configure(existing.newSession())
    local = str(existing.sparkContext.master).startswith("local")
    for name, value in {
        **(LOCAL_SETTINGS if local else {}),
        PARTITIONS: str(cores),
        **settings,
    }.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif existing.sparkContext.getConf().get(name) != value:
            _log.warning("Spark runs already: %s cannot be set to %s any more", name, value)
    return spark


def _warehouse() -> Path:
    """Return the folder for tables that a user saves without a path: of this process, removed at its end."""
    folder = temporary_folder("riot_ops-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _start_session(cores: int, java_options: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    find_java()
    conf = configure(SparkConf(loadDefaults=False).setMaster(f"local[{cores}]"))
    for name, value in {
        **LOCAL_SETTINGS,
        **STARTUP_SETTINGS,
        PARTITIONS: str(cores),
        "spark.driver.extraJavaOptions": f"{java_options} {class_archive_options()}".strip(),
        **({DAEMON: "riot_ops.spark.worker_daemon"} if os.environ["PYSPARK_PYTHON"] == sys.executable else {}),
        "spark.sql.warehouse.dir": str(_warehouse()),
        **settings,
    }.items():
        conf.set(name, value)
    with linked_spark_home():
        start_jvm(conf)
        spark: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    hide_closed_accumulators(spark)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread, in which Spark looks up Python data sources."""
    if is_connect(spark):  # the server looks them up in its own session
        yield
        return
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
def stateful_workers(spark: Any) -> Iterator[None]:
    """Give the tasks of stages defined within the block Python workers of their own.

    Spark hands a task to any free worker. The workers of stages with state keep it from one micro-batch to the next. So
    the fewer there are, the more often they already have the state, and the fewer copies exist. Spark may still start
    more of them than there are cores, if a task begins before the worker of the last one is free.
    """
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    with _ENVIRONMENT_LOCK:
        before = context.environment
        context.environment = {**before, STATE_WORKERS: "1"}  # a copy, as another thread may read the old one
        try:
            yield
        finally:
            context.environment = before


@contextlib.contextmanager
def query_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to queries started within the block, such as the number of shuffle partitions.

    A query copies its session's settings in ``start()`` and keeps the copy. A session of its own would hide the query
    from the user's listeners and ``spark.streams``; so the session's settings are changed and then restored.
    """
    with _SETTINGS_LOCK:
        before = {name: spark.conf.get(name, None) for name in settings}
        for name in refused_settings(spark.conf.set, settings):
            before.pop(name)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, earlier)


def arrow_batch_settings(buffering: Buffering) -> dict[str, str]:
    """Return query settings by which the batches between the JVM and Python are as large as the buffers."""
    if not buffering.capacity:
        return {ARROW_RECORDS: "1"}
    return {ARROW_RECORDS: str(min(MAX_RECORDS, buffering.capacity)), ARROW_BYTES: str(buffering.capacity)}


def small_batch_settings() -> dict[str, str]:
    """Return the settings of a query with ``memory="small"`` for the batches between the JVM and Python."""
    return {**arrow_batch_settings(SMALL_BUFFERING), ARROW_RECORDS: str(SMALL_BATCH_SIZE)}


def block_batch_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a query in which only packed blocks cross between the JVM and Python: a limit of bytes."""
    return {ARROW_BYTES: str(BATCH_BYTES)} if _limits_records_only(spark) else {}


def fit_buffering(buffering: Buffering, spark: SparkSession) -> Buffering:
    """Limit the size of blocks for a query in which records cross as well, if only records limit its Arrow batches."""
    if not _limits_records_only(spark):
        return buffering
    records = int(spark.conf.get(ARROW_RECORDS) or 0)
    return replace(buffering, capacity=min(buffering.capacity, MAX_BYTES // records)) if records > 0 else buffering


def _limits_records_only(spark: SparkSession) -> bool:
    return (spark.conf.get(ARROW_BYTES, None) or "").rstrip("bB") == NO_BOUND


def default_partitions(spark: SparkSession) -> int:
    """Return the session's number of shuffle partitions, unaffected by a query that is being started."""
    with _SETTINGS_LOCK:
        setting = spark.conf.get(PARTITIONS) or ""
    return int(setting) if setting.isdecimal() else SPARK_PARTITIONS


def core_count(spark: SparkSession) -> int:
    """Return the number of cores that run tasks; over Spark Connect, the number of shuffle partitions."""
    return default_partitions(spark) if is_connect(spark) else int(spark.sparkContext.defaultParallelism)
