"""The suite operators: every task runs in it, and its measures are costs."""

from __future__ import annotations

import pytest
from riot_bench.suites import operators


@pytest.mark.parametrize("name", operators.KEYED)
def test_task_runs_with_few_and_many_keys(name):
    assert operators._record_cost(operators.KEYED[name](), 50, 500, 1) > 0


@pytest.mark.parametrize("name", operators.WINDOWED)
def test_task_runs_with_short_and_long_windows(name):
    for length in (2, 50):
        assert operators._record_cost(operators.WINDOWED[name](length), 3, 500, 1) > 0


def test_measures_have_the_growth_of_cost(monkeypatch):
    monkeypatch.setattr(operators, "KEYED", {"slow": lambda: "task"})
    monkeypatch.setattr(operators, "WINDOWED", {"wide": lambda n: n})
    costs = {1_000: 2e-9, 1_000_000: 10e-9}

    def cost(task, keys, rows, repetitions):
        return costs[keys] if task == "task" else task * 1e-9

    monkeypatch.setattr(operators, "_record_cost", cost)
    found = {m.measure: m for m in operators.measures()}
    assert found["operators/slow/keys"].value == pytest.approx(10)
    growth = found["operators/slow/keys/growth"]
    assert (growth.value, growth.reach, growth.at_most) == (pytest.approx(5), 4, True)
    assert found["operators/wide/window/growth"].value == pytest.approx(10_000)
