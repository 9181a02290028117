"""Local Spark sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from riot_bench.harness.requirements import require_extra

__all__ = ["spark_session"]


@contextmanager
def spark_session(
    cores: int = 2, *, jvm: Literal["light", "full"] = "light", settings: dict[str, str] | None = None
) -> Iterator[Any]:
    """Open a local session and stop it at the end; ``jvm="full"`` is for comparisons with Spark's own operators."""
    require_extra("this benchmark", "bench", "psutil", "orjson")
    require_extra("this benchmark", "spark", "pyspark", "pandas")
    from riot_ops.spark import session

    spark = session(cores=cores, jvm=jvm, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()
