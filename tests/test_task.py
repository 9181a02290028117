"""The registry of tasks, as a notebook and a second package use it."""

from __future__ import annotations

import pytest

from riot_ops import task as registry
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.core import source
from riot_ops.core.errors import ConfigError
from riot_ops.task import StatelessTask, find_task, register


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def define(name, code, module="__main__"):
    """A class as a cell of a notebook makes it, when it is run."""
    kind = type(name, (StatelessTask,), {"code": code, "__module__": module, "apply": lambda self, batch, dead: batch})
    return kind


@pytest.mark.parametrize("module", ["__main__", "my_package.tasks"])
def test_a_class_defined_anew_takes_the_place_of_the_earlier_one(module):
    first = register(define("Doubling", "DBL", module))
    second = register(define("Doubling", "DBL", module))
    assert find_task("doubling") is find_task("DBL") is second is not first
    third = register(define("Doubling", "TWO", module))
    assert find_task("doubling") is find_task("TWO") is third
    with pytest.raises(ConfigError, match="unknown task 'DBL'"):
        find_task("DBL")


def test_a_class_of_a_notebook_may_change_its_name():
    register(define("Doubling", "DBL"))
    second = register(define("Twice", "DBL"))
    assert find_task("twice") is find_task("DBL") is second
    with pytest.raises(ConfigError, match="unknown task 'doubling'"):
        find_task("doubling")


@pytest.mark.parametrize("module", ["__main__", "my_package.tasks"])
@pytest.mark.parametrize(("name", "code"), [("KalmanFilter", "KFX"), ("Smooth", "KAL")])
def test_the_name_of_another_task_is_refused(module, name, code):
    with pytest.raises(ConfigError, match=r"riot_ops\.tasks\.statistical\.kalman_filter\.KalmanFilter has that name"):
        register(define(name, code, module))
    assert find_task("kalman_filter") is find_task("KAL") is t.KalmanFilter


def test_two_tasks_of_one_module_keep_their_codes():
    register(define("Doubling", "DBL", "my_package.tasks"))
    with pytest.raises(ConfigError, match=r"'DBL': my_package\.tasks\.Doubling has that name"):
        register(define("Twice", "DBL", "my_package.tasks"))


def test_a_task_needs_a_code():
    with pytest.raises(ConfigError, match="its code is empty"):
        register(define("Doubling", ""))


def test_the_name_of_another_source_is_refused(monkeypatch):
    monkeypatch.setattr(source, "_REGISTRY", dict(source._REGISTRY))
    with pytest.raises(ConfigError, match=r"registered as 'MQS': .*MQTTSource has that name"):
        source.register_source(type("Other", (MQTTSource,), {"code": "MQS"}))
    assert source.register_source(MQTTSource) is MQTTSource  # again, as by a module that is loaded twice
    other = source.register_source(type("Other", (MQTTSource,), {"code": "OTH"}))
    assert {MQTTSource, other} <= set(source.sources())
