"""Figures of an outcome."""

from __future__ import annotations

import gc
import json
import math

import pytest

from benchmarks.tests.outcomes import FIGURES, outcome
from riot_ops.measure.probe_report import Report


def test_figures_of_a_known_run() -> None:
    figures = {k: v for k, (v, _) in outcome().figures().items()}
    assert set(figures) == FIGURES
    assert figures["latency-p50"] == pytest.approx(20, abs=0.1)
    assert figures["rate"] == pytest.approx(100, rel=0.02)
    assert (figures["peak"], figures["selectivity"], figures["cpu"], figures["memory"]) == (100, 1, 25, 100)
    assert figures["jitter"] == pytest.approx(0, abs=0.02)


def test_outcome_releases_its_samples() -> None:
    before = reports()
    kept = outcome()
    assert reports() == before and kept.run.output_rate.size == 9


def reports() -> int:
    """Return the number of reports in memory; a dead weak proxy raises where its class is asked for, so types are."""
    gc.collect()
    return sum(issubclass(type(one), Report) for one in gc.get_objects())


def test_jitter_is_relative_to_the_expected_rate() -> None:
    figures = {k: v for k, (v, _) in outcome(sigma=2.0).figures().items()}
    assert (figures["selectivity"], figures["sigma"]) == (1, 2)
    assert figures["jitter"] == pytest.approx(-0.5, abs=0.01)


def test_silent_task_has_no_latency_and_no_jitter() -> None:
    silent = outcome("BLT", silent=True)
    assert all(math.isnan(silent.figures()[name][0]) for name in ("latency-p50", "jitter"))
    text = json.dumps(silent.as_dict(), allow_nan=False)
    assert json.loads(text)["figures"]["latency-p50"] is None
