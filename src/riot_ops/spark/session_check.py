"""What a session needs, looked at before anything starts.

Spark itself tells most of it only from within the first micro-batch, in words of its own.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from riot_ops.core.errors import ConfigError, excerpt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PROVIDER", "ROCKSDB", "check_session", "is_connect", "refuse_connect"]

#: Spark's store of state, and the only one that arbitrary state works with.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Spark's settings for copies of tasks that take long, and for what the files of a store are called: from 2 on, two
#: tasks that save the same state write files of their own.
COPIES = "spark.speculation"
STORE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SAFE_FORMAT = 2

#: Contexts whose workers have been looked at.
_SEEN: weakref.WeakSet[Any] = weakref.WeakSet()


def check_session(spark: SparkSession, *, keeps_state: bool) -> None:
    """Raise :class:`ConfigError` with the remedy unless tasks can run in a session.

    Parameters
    ----------
    keeps_state : bool
        Whether there is state to be kept in Spark's store.
    """
    if is_stopped(spark):
        raise ConfigError("the Spark session has been stopped: start another one, riot_ops.spark.session()")
    provider = _setting(spark, PROVIDER)
    # clusters of some vendors have one of their own by that name
    if keeps_state and provider is not None and not provider.endswith(".RocksDBStateStoreProvider"):
        raise ConfigError(
            f"keyed tasks keep their state in Spark's RocksDB store, but {PROVIDER} is {provider or 'not set'}: "
            "riot_ops.spark.configure(spark) sets what this session needs"
        )
    if keeps_state and _copies_meet(spark):
        version = _setting(spark, STORE_FORMAT) or "not set"
        raise ConfigError(
            f"{COPIES} is true: Spark runs copies of tasks that take long, and with {STORE_FORMAT} {version} two "
            f'copies of one save their state in the same files. Set {COPIES} to "false" where the session is built, or '
            f'{STORE_FORMAT} to "{SAFE_FORMAT}" and begin with a new checkpoint'
        )
    # a function of a declarative pipeline, which has such a session, must not run anything
    if not is_connect(spark) and spark.sparkContext not in _SEEN:
        _check_workers(spark)
        _SEEN.add(spark.sparkContext)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, with its JVM elsewhere."""
    return not hasattr(spark, "_jsc")


def refuse_connect(connect: bool, what: str) -> None:
    """Raise :class:`ConfigError` where something needs the JVM and there is only Spark Connect."""
    if connect:
        raise ConfigError(
            f"{what} needs Spark's JVM, which a session of Spark Connect does not reach; there, flow.transform, "
            "flow.frames(…).write_each and task.transform work"
        )


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session, or the JVM behind it, is no more."""
    if is_connect(spark):
        remote: Any = spark
        return bool(remote.is_stopped)
    from py4j.protocol import Py4JError

    context = spark._jsc  # noqa: SLF001 (PySpark has no public word for it)
    try:
        return spark.sparkContext._jsc is None or bool(context.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError):
        return True


def _setting(spark: SparkSession, name: str) -> str | None:
    """A setting, empty where there is none; None where the session does not tell, as some vendors' do."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(name, ""))
    except PySparkException:
        return None


def _copies_meet(spark: SparkSession) -> bool:
    """Whether Spark may run a task twice at once, and both would save the same state in the same files."""
    master = _setting(spark, "spark.master") or ""
    if master == "local" or master.startswith("local["):
        return False  # in one process there are no copies
    version = _setting(spark, STORE_FORMAT)
    copies = (_setting(spark, COPIES) or "").strip().lower() == "true"
    return copies and version is not None and int(version or 1) < SAFE_FORMAT


def _check_workers(spark: SparkSession) -> None:
    context = spark.sparkContext
    python = context.pythonExec
    try:
        missing = context.parallelize([0], 1).map(_lacks()).collect()[0]
    except Exception as error:
        named = re.search(r"No module named '([\w.]+)'", str(error))
        if named is None:
            raise ConfigError(f"Spark's Python workers ({python}) do not start: {_cause(error)}. {_REMEDY}") from error
        missing = [named[1]]  # of what they are forked from
    if missing:
        raise ConfigError(f"Spark's Python workers ({python}) lack {', '.join(missing)}. {_REMEDY}")


_REMEDY = (
    "On one machine, before Spark is started: os.environ['PYSPARK_PYTHON'] = sys.executable; "
    "on a cluster, pip install 'riot_ops[spark]' for the Python of its workers"
)


def _lacks() -> Any:
    # a function within a function travels as code, not as the name of a module that may be what is missing
    def lacks(_: int) -> list[str]:
        from importlib.util import find_spec

        def found(name: str) -> bool:
            try:
                return find_spec(name) is not None
            except ModuleNotFoundError:  # of a package around it
                return False

        return [n for n in ("riot_ops", "pyarrow", "pandas", "google.protobuf") if not found(n)]

    return lacks


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if "Error" in line or "No module" in line or "version" in line]
    return excerpt(told[-1] if told else lines[0] if lines else type(error).__name__)
