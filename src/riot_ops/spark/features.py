"""What differs between Spark 4.0 and 4.3: the names that a version lacks, and their older forms.

Everything asks here by feature. A feature is found by the presence of its name where that tells; a version is compared
only for what lies in the JVM. No other module imports names of PySpark that Spark 4.0 lacks.

The classes of read limits exist here for versions without them, so that a limit has one form everywhere. Before 4.2
Spark asks a source for its latest offset without a start and without a limit: a reader keeps its own place there, see
:class:`riot_ops.spark.source.Reader`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource

from riot_ops.core.errors import ConfigError
from riot_ops.runtime.spark_schema import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

__all__ = [
    "ARROW_STREAM_WRITERS",
    "READ_LIMITS",
    "STATE_OVER_CONNECT",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "checkpoint_file_manager",
    "has",
    "installed_version",
    "parse_version",
    "require",
    "to_arrow_schema",
]

#: Whether a streaming sink in Python may take Arrow batches, since 4.1; else it takes rows.
ARROW_STREAM_WRITERS: bool = hasattr(datasource, "DataSourceStreamArrowWriter")
#: Whether Spark gives a streaming source in Python a start and a limit, since 4.2.
READ_LIMITS: bool

if not TYPE_CHECKING:
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", getattr(datasource, "DataSourceStreamWriter", None)
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        READ_LIMITS = True
    except ImportError:
        READ_LIMITS = False

        class ReadLimit:
            """How much a micro-batch may take."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """All that is there."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """At most a number of rows."""

            max_rows: int

        # a mark for later versions: no class of ours, which processes of Spark would import for it
        SupportsTriggerAvailableNow = object


STATE_OVER_CONNECT = "state over Spark Connect"
#: Features that a user may ask for and an older Spark lacks: since when, and the attribute that tells in PySpark, as
#: ``module:name``; None where only the version tells.
SINCE: dict[str, tuple[tuple[int, int], str | None]] = {
    "row-wise transformWithState": ((4, 1), "pyspark.sql.group:GroupedData.transformWithState"),
    STATE_OVER_CONNECT: ((4, 1), "pyspark.sql.connect.group:GroupedData.transformWithStateInPandas"),
    "Arrow UDFs": ((4, 1), "pyspark.sql.functions:arrow_udf"),
    "real-time mode": ((4, 1), None),
    "declarative pipelines": ((4, 1), "pyspark.pipelines:table"),
    "limits of streaming sources": ((4, 2), "pyspark.sql.streaming.datasource:ReadMaxRows"),
    "repartition of a checkpoint": ((4, 2), None),
}


def parse_version(text: str) -> tuple[int, int]:
    """Return the major and minor number of a version, whatever a vendor has put behind them.

    >>> parse_version("4.0.0.dbr17"), parse_version("4.1.0-SNAPSHOT"), parse_version("4.3")
    ((4, 0), (4, 1), (4, 3))
    >>> parse_version("v4.2.1+amzn-0")
    (4, 2)
    """
    found = re.match(r"\D*(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ConfigError(f"the version of Spark cannot be read: {text!r}; a text like '4.0.1' is expected")
    return int(found[1]), int(found[2] or 0)


def installed_version() -> tuple[int, int]:
    """Return the major and minor number of the PySpark of this process."""
    return parse_version(pyspark.__version__)


def has(feature: str, spark: Any = None) -> bool:
    """Whether a feature of ``SINCE`` can be had, in PySpark and in the session if one is given."""
    since, name = SINCE[feature]
    if name is not None:  # vendors bring names to earlier versions
        return _has_name(name)
    return (
        min(installed_version(), installed_version() if spark is None else parse_version(str(spark.version))) >= since
    )


def require(feature: str, spark: Any = None) -> None:
    """Raise :class:`ConfigError` with the version that has a feature, unless it can be had.

    >>> require("limits of rainfall")
    Traceback (most recent call last):
    KeyError: 'limits of rainfall'
    """
    if has(feature, spark):
        return
    since, _ = SINCE[feature]
    old = spark is not None and parse_version(str(spark.version)) < since
    whose = f"this session has {spark.version}" if old else f"the installed PySpark is {pyspark.__version__}"
    verb = "need" if feature.endswith(("sources", "UDFs", "pipelines")) else "needs"
    raise ConfigError(f"{feature} {verb} Spark {since[0]}.{since[1]} or later: {whose}")


def _has_name(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        found: Any = __import__(module, fromlist=["_"])
    except ImportError:
        return False
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def checkpoint_file_manager() -> str:
    """Return the class that writes files of a checkpoint without starting a process for each link."""
    package = "" if installed_version() < (4, 1) else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
