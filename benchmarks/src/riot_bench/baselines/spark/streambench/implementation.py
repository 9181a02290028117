"""Description of a program's implementation in plain PySpark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from riot_bench.baselines.arrow.streambench import BATCH_FUNCTIONS, SCHEMAS

__all__ = ["Implementation", "map_in_arrow", "udf_implementations"]


@dataclass(frozen=True)
class Implementation:
    """An implementation in plain PySpark.

    Attributes
    ----------
    description : str
        The Spark functions that it uses.
    build : function
        Maps the DataFrame of the lines, streaming or not, to that of the results. Its keywords are those of the
        program's builder.
    mode : str
        Spark's output mode.
    python : bool
        Whether some work is in Python; otherwise all of it is JVM expressions.
    """

    description: str
    build: Callable[..., Any]
    mode: Literal["append", "update"] = "append"
    python: bool = True


def map_in_arrow(name: str, lines: Any, **options: Any) -> Any:
    """Apply a program's Arrow function to each batch of lines with ``mapInArrow``."""
    part = BATCH_FUNCTIONS[name]

    def parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield part(batch, **options)

    return lines.select("seq", "value").mapInArrow(parts, SCHEMAS[name])


def udf_implementations(
    by: str, build: Callable[..., Any], mode: Literal["append", "update"] = "append"
) -> dict[str, Implementation]:
    """Return the implementations with a Python function per line: with Spark's default transfer, and with pickles.

    ``build`` takes the keywords of the program's builder and ``arrow``, whether records are transferred with Arrow;
    None is Spark's default.
    """
    return {
        "udf": Implementation(by, build, mode),
        "pickled": Implementation(f"{by}, transferred as pickles", functools.partial(build, arrow=False), mode),
    }
