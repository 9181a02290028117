"""Description of an application in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Baseline"]


@dataclass(frozen=True)
class Baseline:
    """How to run an application in plain PySpark.

    Attributes
    ----------
    description : str
        The Spark functions that it uses.
    mode : str
        Spark's output mode.
    parameters : mapping of str to any
        Parameters with which riot_ops' builder gives the same results.
    python : bool
        Whether state or some work is in Python; otherwise all of it is JVM expressions.
    open_windows : mapping of str to str
        By stream, the field with the time of its records, if it leaves out windows that are open at the end of the
        input. riot_ops may have more records there, all of them later than the last one of plain PySpark.
    omitted_fields : tuple of str
        Fields of results that are in records of streams of their own, since Spark allows one aggregation.
    stream_options : mapping of str to any
        Options of the generated streams with which both sides give the same results.
    preloaded : tuple of str
        Sources that are read completely as a batch before the streams begin; their time is not measured.
    """

    description: str
    mode: Literal["append", "update"] = "append"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    python: bool = True
    open_windows: Mapping[str, str] = field(default_factory=dict)
    omitted_fields: tuple[str, ...] = ()
    stream_options: Mapping[str, Any] = field(default_factory=dict)
    preloaded: tuple[str, ...] = ()
