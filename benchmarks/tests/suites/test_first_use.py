"""The children of the suite report what they cost, with the settings of a user."""

from __future__ import annotations

import pytest
from riot_bench.suites import first_use


def test_child_reports_its_cost_with_kernels_deferred():
    code = first_use.IMPORT + first_use.REPORT + first_use.PUSH + "assert 'numba' not in __import__('sys').modules\n"
    found = first_use._child(code + first_use.END)
    assert 0 < found["cpu"] < 60
    assert 0 < found["wall"] < 600
    assert 20 < found["peak"] < 160
    measure = first_use._measure("first-push", [found], "wall", 0.15, "")
    assert (measure.measure, measure.at_most, measure.unit) == ("first-use/first-push", True, "s")


@pytest.mark.long
def test_kernels_that_have_changed_over_are_compared_with_direct_calls():
    first_use._child(first_use.IMPORT + first_use.REPORT + first_use.PUSH + first_use.END, RIOT_OPS_COMPILE="immediate")
    ratios = first_use._child(first_use.IMPORT + first_use.CHANGEOVER, "1", "5")["ratios"]
    assert len(ratios) == 31 and min(ratios) > 0
