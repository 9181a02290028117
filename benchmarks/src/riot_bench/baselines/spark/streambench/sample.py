"""Sample in plain PySpark."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.python.streambench.sample import hash_of
from riot_bench.baselines.spark.streambench.implementation import Implementation, map_in_arrow, udf_implementations

__all__ = ["IMPLEMENTATIONS"]


def _expressions(lines: Any, *, share: float = 0.1, seed: int = 0) -> Any:
    below = math.ceil(share * 2.0**64)
    if below in (0, 1 << 64):
        return lines.select("seq", "value").where(f.lit(below > 0))
    hashed = f.xxhash64(f.lit(seed).cast("bigint"), "seq")
    # unsigned comparison: the highest bit is flipped on both sides
    return lines.select("seq", "value").where(hashed.bitwiseXOR(f.lit(-(1 << 63))) < f.lit(below - (1 << 63)))


def _udf(lines: Any, *, share: float = 0.1, seed: int = 0, arrow: bool | None = None) -> Any:
    below, begin = math.ceil(share * 2.0**64), hash_of(seed, 42)
    chosen = f.udf(lambda number: hash_of(number, begin) < below, "boolean", useArrow=arrow)
    return lines.select("seq", "value").where(chosen("seq"))


def _arrow(lines: Any, *, share: float = 0.1, seed: int = 0) -> Any:
    return map_in_arrow("sample", lines, share=share, seed=seed)


IMPLEMENTATIONS = {
    "expressions": Implementation("where xxhash64", _expressions, python=False),
    **udf_implementations("where a function per line", _udf),
    "arrow": Implementation("Arrow's functions in mapInArrow", _arrow),
}
