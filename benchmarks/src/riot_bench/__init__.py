"""Benchmarks of riot_ops against plain Python, plain PySpark and other engines, on the same data in the same run.

Each suite is a module of :mod:`riot_bench.suites` with a function ``measures(quick)`` that yields
:class:`~riot_bench.harness.measure.Measure`. The suites are run by ``riot-ops bench``, the experiments of papers by
``riot-ops report``, and ``riot-ops validate`` compares results with those of plain Python.
"""
