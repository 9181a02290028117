"""Checks of a Spark session before a query starts.

Spark itself reports most of these problems only within the first micro-batch, and in its own terms.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import site
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.spark.exceptions import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PROVIDER", "ROCKSDB", "check_session", "is_connect", "is_one_process", "refuse_connect"]

#: Spark's setting for its state store, and the only store that supports arbitrary state.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Spark's settings for speculative copies of slow tasks, and for the file names of the state store: from version 2 on,
#: two tasks that save the same state write separate files.
SPECULATION = "spark.speculation"
STORE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SAFE_FORMAT = 2

#: Modules that workers import.
NEEDED = ("riot_ops", "pyarrow", "pandas", "google.protobuf")
#: Contexts whose workers have been checked.
CHECKED_CONTEXTS: weakref.WeakSet[Any] = weakref.WeakSet()


def check_session(spark: SparkSession, *, keeps_state: bool) -> None:
    """Raise :class:`ConfigError` with the remedy unless tasks can run in a session.

    Parameters
    ----------
    keeps_state : bool
        Whether the tasks keep state in Spark's store.
    """
    if is_stopped(spark):
        raise ConfigError("the Spark session has been stopped: start another one, riot_ops.spark.session()")
    provider = _setting(spark, PROVIDER)
    # the clusters of some vendors have their own store of this name
    if keeps_state and provider is not None and not provider.endswith(".RocksDBStateStoreProvider"):
        raise ConfigError(
            f"keyed tasks keep their state in Spark's RocksDB store, but {PROVIDER} is {provider or 'not set'}: "
            "riot_ops.spark.configure(spark) sets what this session needs"
        )
    if keeps_state and _copies_collide(spark):
        version = _setting(spark, STORE_FORMAT) or "not set"
        raise ConfigError(
            f"{SPECULATION} is true: Spark runs copies of tasks that take long, and with {STORE_FORMAT} {version} two "
            f'copies of one save their state in the same files. Set {SPECULATION} to "false" where the session is '
            f'built, or {STORE_FORMAT} to "{SAFE_FORMAT}" and begin with a new checkpoint'
        )
    # a function of a declarative pipeline has a Connect session, and must not run anything
    if not is_connect(spark) and spark.sparkContext not in CHECKED_CONTEXTS:
        if not share_modules(spark):
            check_workers(spark)
        CHECKED_CONTEXTS.add(spark.sparkContext)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, whose JVM is elsewhere."""
    return not hasattr(spark, "_jsc")


def refuse_connect(connect: bool, what: str) -> None:
    """Raise :class:`ConfigError` if ``connect``, as ``what`` needs the JVM."""
    if connect:
        raise ConfigError(
            f"{what} needs Spark's JVM, which a session of Spark Connect does not reach; there, flow.transform, "
            "flow.frames(…).write_each and task.transform work"
        )


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session or its JVM has been stopped."""
    if is_connect(spark):
        remote: Any = spark
        return bool(remote.is_stopped)
    context = spark._jsc  # noqa: SLF001 (PySpark has no public word for it)
    try:
        return spark.sparkContext._jsc is None or bool(context.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError):
        return True


def _setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting, empty if it is not set; None if the session does not reveal it, as with some vendors."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(name, ""))
    except PySparkException:
        return None


def _copies_collide(spark: SparkSession) -> bool:
    """Whether Spark may run a task twice at once, with both copies saving the same state in the same files."""
    if is_one_process(spark):
        return False  # Spark does not speculate within one process
    version = _setting(spark, STORE_FORMAT)
    copies = (_setting(spark, SPECULATION) or "").strip().lower() == "true"
    return copies and version is not None and int(version or 1) < SAFE_FORMAT


def is_one_process(spark: SparkSession) -> bool:
    """Whether driver and executor are one process, on one machine."""
    master = _setting(spark, "spark.master") or ""
    return master == "local" or master.startswith("local[")


def share_modules(spark: SparkSession) -> bool:
    """Whether the workers run the Python of this process and find what they need where any new process finds it.

    A task that asks one of them takes more than a second.
    """
    if not is_one_process(spark) or spark.sparkContext.pythonExec != sys.executable:
        return False
    folders = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return all(_is_in(name, folders) for name in NEEDED)


def _is_in(name: str, folders: Sequence[str]) -> bool:
    """Whether a module is found in folders."""
    package, _, rest = name.partition(".")
    found = importlib.machinery.PathFinder.find_spec(package, folders)
    if found is None or not rest:
        return found is not None
    inside = found.submodule_search_locations or ()
    return importlib.machinery.PathFinder.find_spec(name, list(inside)) is not None


def check_workers(spark: SparkSession) -> None:
    context = spark.sparkContext
    python = context.pythonExec
    try:
        missing = context.parallelize([0], 1).map(_missing_finder()).collect()[0]
    except Exception as error:
        named = re.search(r"No module named '([\w.]+)'", str(error))
        if named is None:
            raise ConfigError(f"Spark's Python workers ({python}) do not start: {_cause(error)}. {_REMEDY}") from error
        missing = [named[1]]  # the daemon that forks the workers lacks it
    if missing:
        raise ConfigError(f"Spark's Python workers ({python}) lack {', '.join(missing)}. {_REMEDY}")


_REMEDY = (
    "On one machine, before Spark is started: os.environ['PYSPARK_PYTHON'] = sys.executable; "
    "on a cluster, pip install riot-ops for the Python of its workers, beside the cluster's own PySpark"
)


def _missing_finder() -> Any:
    # a nested function is pickled by value, not as the name of a module that may be missing
    needed = NEEDED

    def find_missing(_: int) -> list[str]:
        from importlib.util import find_spec

        def found(name: str) -> bool:
            try:
                return find_spec(name) is not None
            except ModuleNotFoundError:  # the parent package is missing
                return False

        return [n for n in needed if not found(n)]

    return find_missing


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if "Error" in line or "No module" in line or "version" in line]
    return excerpt(named[-1] if named else lines[0] if lines else type(error).__name__)
