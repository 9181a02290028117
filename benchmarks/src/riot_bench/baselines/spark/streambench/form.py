"""What is to be known of a form of a program in plain PySpark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from riot_bench.baselines.python.streambench_arrow import PARTS, SCHEMAS

__all__ = ["Form", "by_arrow", "per_line"]


@dataclass(frozen=True)
class Form:
    """How a program in plain PySpark is run.

    Attributes
    ----------
    by : str
        What it is made of, in words.
    build : function
        Makes the DataFrame of the results of that of the lines, which may be a streaming one or not. Its keywords are
        those of the program's builder.
    mode : str
        Spark's output mode.
    python : bool
        Whether some of the work is in Python; else all of it is expressions of the JVM.
    """

    by: str
    build: Callable[..., Any]
    mode: Literal["append", "update"] = "append"
    python: bool = True


def by_arrow(name: str, lines: Any, **options: Any) -> Any:
    """What a program makes of each batch of lines, by ``mapInArrow``."""
    part = PARTS[name]

    def parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield part(batch, **options)

    return lines.select("seq", "value").mapInArrow(parts, SCHEMAS[name])


def per_line(by: str, build: Callable[..., Any], mode: Literal["append", "update"] = "append") -> dict[str, Form]:
    """The forms with a function of Python per line: as Spark hands it lines by default, and one by one as pickles.

    ``build`` takes besides what the builder does ``arrow``: whether records cross as Arrow's; None is the default.
    """
    return {
        "udf": Form(by, build, mode),
        "pickled": Form(f"{by}, which cross as pickles", functools.partial(build, arrow=False), mode),
    }
