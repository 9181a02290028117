"""Where the current generation of a checkpoint is: Spark's own checkpoint, in our folder or in one below it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import scheme_of
from riot_ops.runtime.checkpoint import MANIFEST
from riot_ops.spark.session_check import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["current_generation", "generation_folder", "hadoop_path", "server_path"]

GENERATION = re.compile(r"generation-(\d+)")


def generation_folder(folder: str, generation: int) -> str:
    """Return the folder of a generation; the first one is in the checkpoint itself.

    >>> generation_folder("kept", 0), generation_folder("kept", 2)
    ('kept', 'kept/generation-2')
    """
    return f"{folder}/generation-{generation}" if generation else folder


def server_path(place: str | os.PathLike[str]) -> str:
    """Return the place of a checkpoint as the server takes it: a URI, or a path in its default file system."""
    text = os.fspath(place)
    if not scheme_of(text) and not text.startswith("/"):
        raise ConfigError(
            f"checkpoint must be an absolute path or a URI over Spark Connect, as the server has another working "
            f"folder, got {text!r}"
        )
    return text


def hadoop_path(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """Return Hadoop's file system and path for a name; PySpark offers no file API of its own."""
    jvm: Any = spark._jvm  # noqa: SLF001
    where = jvm.org.apache.hadoop.fs.Path(name)
    return where.getFileSystem(spark._jsc.hadoopConfiguration()), where  # noqa: SLF001


def current_generation(spark: SparkSession, folder: str) -> int:
    """Return the newest complete generation of a checkpoint: the newest with a manifest."""
    if is_connect(spark):
        try:
            found = spark.read.format("binaryFile").load(f"{folder}/generation-*/{MANIFEST}").inputFiles()
        except Exception:  # of the server: no generation but the first
            return 0
        names = [path.split("/")[-2] for path in found]
    else:
        system, root = hadoop_path(spark, folder)
        entries = system.listStatus(root) if system.exists(root) else []
        found = [entry.getPath().getName() for entry in entries]
        manifests = {n: hadoop_path(spark, f"{folder}/{n}/{MANIFEST}")[1] for n in found if GENERATION.fullmatch(n)}
        names = [name for name, path in manifests.items() if system.exists(path)]
    return max((int(match[1]) for name in names if (match := GENERATION.fullmatch(name))), default=0)
