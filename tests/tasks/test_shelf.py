"""The shelf ``riot_ops.tasks``: what it offers, and that all other tasks are found by name and code."""

from __future__ import annotations

import importlib
import json
import pkgutil

import pytest

import riot_ops as ro
from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.task import find_task, registered_tasks
from riot_ops.tasks.window.windowing.window_task import WindowTask

OFFERED = [value for value in (getattr(t, name) for name in t.__all__) if isinstance(value, type)]
#: Tasks that one package of applications needs, by the package that offers them.
OWN = {
    package.name: importlib.import_module(f"{package.name}.operators")
    for package in pkgutil.iter_modules(dataflows.__path__, f"{dataflows.__name__}.")
    if package.ispkg and package.name != "riot_ops.dataflows.streambench"
}


def test_shelf_has_at_most_70_operators():
    operators = {kind for kind in OFFERED if issubclass(kind, t.Task) and kind.code}
    presets = {kind for kind in operators if issubclass(kind, WindowTask)} - {t.Window}
    assert t.RunningCount in presets
    assert len(operators - presets) <= 70


def test_applications_offer_what_only_they_need():
    for package, operators in OWN.items():
        offered = {getattr(operators, name) for name in operators.__all__}
        assert offered == {kind for kind in registered_tasks() if kind.__module__.startswith(f"{package}.")}
        assert offered.isdisjoint(OFFERED)
        assert {*operators.__all__} <= {*dir(operators)}


def test_every_registered_task_of_the_shelf_is_offered():
    registered = {kind for kind in registered_tasks() if kind.__module__.startswith("riot_ops.tasks.")}
    assert {kind.__name__ for kind in registered - {*OFFERED}} == {"JoinSide"}  # which IntervalJoin adds by itself


@pytest.mark.parametrize("code", ["MKS", "PDL", "QLB", "PI", "JSD"])
def test_task_of_an_application_is_found_by_its_code_and_read_from_json(code):
    kind = find_task(code)
    task = next(iter(kind.cases())).task
    assert ro.tasks.Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert not hasattr(t, kind.__name__)
