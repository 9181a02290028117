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
    omits_open_windows : bool
        Whether windows that are open at the end of the input are not emitted.
    preloaded : tuple of str
        Sources that are read completely as a batch before the streams begin; their time is not measured.
    """

    description: str
    mode: Literal["append", "update"] = "append"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    python: bool = True
    omits_open_windows: bool = False
    preloaded: tuple[str, ...] = ()
