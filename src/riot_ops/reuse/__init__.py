"""Edit a running job: add, change and remove dataflows without stopping the others; equal steps run once."""

from importlib import import_module
from typing import TYPE_CHECKING

from riot_ops.reuse.backend import Backend, NullBackend
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.local import LocalBackend
from riot_ops.reuse.manager import ReuseManager
from riot_ops.reuse.reports import Explanation, Removed, Submitted
from riot_ops.reuse.signature import signatures
from riot_ops.reuse.submission import Request
from riot_ops.reuse.usage import OwnerUsage, StepUsage, Usage

if TYPE_CHECKING:
    from riot_ops.reuse.spark.spark_backend import SparkBackend

__all__ = [
    "Backend",
    "Explanation",
    "Limits",
    "LocalBackend",
    "NullBackend",
    "OwnerUsage",
    "Removed",
    "Request",
    "ReuseManager",
    "SparkBackend",
    "StepUsage",
    "Submitted",
    "Usage",
    "signatures",
]


def __getattr__(name: str) -> object:
    """Import pyspark only when SparkBackend is used."""
    if name != "SparkBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("riot_ops.reuse.spark.spark_backend"), name)
