"""What is to be known of an application in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Opponent"]


@dataclass(frozen=True)
class Opponent:
    """How an application in plain PySpark is run.

    Attributes
    ----------
    by : str
        What it is made of, in words.
    mode : str
        Spark's output mode.
    parameters : mapping of str to any
        Those of the builder that make it put out the same.
    python : bool
        Whether state, or some of the work, is in Python; else all of it is expressions of the JVM.
    open_end : bool
        Whether windows that are open at the end of the input are not put out.
    first : tuple of str
        Sources that it reads as a whole before the others begin, and not as streams. Time is that of the others.
    """

    by: str
    mode: Literal["append", "update"] = "append"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    python: bool = True
    open_end: bool = False
    first: tuple[str, ...] = ()
