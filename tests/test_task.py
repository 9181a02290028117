"""The registries of tasks and sources, as used by a notebook and by a second package."""

from __future__ import annotations

import pytest

from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import isolated_sources, register_source, registered_sources
from riot_ops.task import StatelessTask, find_task, isolated_tasks, register


@pytest.fixture(autouse=True)
def _isolated_registries():
    with isolated_tasks(), isolated_sources():
        yield


def define(name, code, module="__main__"):
    """Create a task class as a notebook cell does each time it runs."""
    return type(
        name, (StatelessTask,), {"code": code, "__module__": module, "apply": lambda self, batch, rejects: batch}
    )


@pytest.mark.parametrize("module", ["__main__", "my_package.tasks"])
def test_redefined_class_replaces_the_earlier_one(module):
    first = register(define("Doubling", "DBL", module))
    second = register(define("Doubling", "DBL", module))
    assert find_task("doubling") is find_task("DBL") is second is not first
    third = register(define("Doubling", "TWO", module))
    assert find_task("doubling") is find_task("TWO") is third
    with pytest.raises(ConfigError, match="unknown task 'DBL'"):
        find_task("DBL")


def test_notebook_class_may_change_its_name():
    register(define("Doubling", "DBL"))
    second = register(define("Twice", "DBL"))
    assert find_task("twice") is find_task("DBL") is second
    with pytest.raises(ConfigError, match="unknown task 'doubling'"):
        find_task("doubling")


@pytest.mark.parametrize("module", ["__main__", "my_package.tasks"])
@pytest.mark.parametrize(("name", "code"), [("KalmanFilter", "KFX"), ("Smooth", "KAL")])
def test_name_and_code_of_another_task_are_refused(module, name, code):
    with pytest.raises(ConfigError, match=r"riot_ops\.tasks\.math\.kalman_filter\.KalmanFilter has that name"):
        register(define(name, code, module))
    assert find_task("kalman_filter") is find_task("KAL") is t.KalmanFilter


def test_task_cannot_take_the_code_of_another_in_its_module():
    register(define("Doubling", "DBL", "my_package.tasks"))
    with pytest.raises(ConfigError, match=r"'DBL': my_package\.tasks\.Doubling has that name"):
        register(define("Twice", "DBL", "my_package.tasks"))


def test_further_code_of_a_task_finds_it_and_cannot_be_taken():
    for code, (name, _) in t.PRESETS.items():
        assert find_task(code) is find_task(code.lower()) is getattr(t, name)
        with pytest.raises(ConfigError, match=f"{name} has that name"):
            register(define("Doubling", code))


def test_task_without_code_is_refused():
    with pytest.raises(ConfigError, match="its code is empty"):
        register(define("Doubling", ""))


def test_code_of_another_source_is_refused():
    with pytest.raises(ConfigError, match=r"registered as 'MQS': .*MQTTSource has that name"):
        register_source(type("Other", (MQTTSource,), {"code": "MQS"}))
    assert register_source(MQTTSource) is MQTTSource  # again, as by a module that is loaded twice
    other = register_source(type("Other", (MQTTSource,), {"code": "OTH"}))
    assert {MQTTSource, other} <= set(registered_sources())
