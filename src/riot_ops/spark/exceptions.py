"""The exceptions of Spark and its JVM, also where only the client of Spark Connect is installed."""

from __future__ import annotations

import re

from riot_ops.core import errors
from riot_ops.core.errors import RiotError, StateError, excerpt

try:
    from py4j.protocol import Py4JError, Py4JJavaError
except ImportError:  # pyspark-client calls no JVM, and these are never raised

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Py4J is not installed."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef,misc]
        """Py4J is not installed."""


__all__ = ["Py4JError", "Py4JJavaError", "find_cause"]


def find_cause(text: str) -> tuple[type[RiotError], str]:
    """Find the cause of a Spark error: the type to raise, and the line that names it."""
    if named := re.findall(r"^\s*riot_ops\.core\.errors\.(\w+): (.*)$", text, re.MULTILINE):
        name, message = named[-1]
        return getattr(errors, name, RiotError), message
    if damaged := re.search(r"\[(\w*(?:STATE_STORE|STATE_DIRECTORY|CHECKPOINT|STDS_)[\w.]*)\] (.*)", text):
        return StateError, f"its state cannot be read: {damaged[1]}: {excerpt(damaged[2])}; use a new checkpoint"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named_lines = [line for line in lines if "Error: " in line]
    return RiotError, named_lines[-1] if named_lines else lines[0] if lines else text
