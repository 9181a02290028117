"""Benchmarks: riot_ops beside what one would otherwise write, on the same data in the same run.

Each suite is a module with a function ``measures(quick)`` that yields :class:`Measure`.
"""

from riot_ops.bench.measure import Measure
from riot_ops.bench.registry import SUITES, describe, run, suite

__all__ = ["SUITES", "Measure", "describe", "run", "suite"]
