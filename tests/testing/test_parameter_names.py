"""The check of parameters' names: everything public passes, and each kind of fault is found."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
import pytest

import riot_ops
import riot_ops.models
import riot_ops.reuse
from riot_ops import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.testing import check_parameter_names
from riot_ops.testing.parameter_names import covers, other_word, parameter_uses, public_objects
from riot_ops.testing.parameter_table import EXCEPTIONS, PARAMETERS, SYNONYMS

PACKAGES = (riot_ops, riot_ops.connectors, riot_ops.streams)


@pytest.fixture(scope="module")
def public():
    return list(dict.fromkeys([*public_objects(PACKAGES), *riot_ops.dataflows.BUILDERS.values()]))


def test_public_names_have_one_type_and_a_meaning(public):
    check_parameter_names(public)


def test_public_objects_are_tasks_builders_sources_and_sinks(public):
    names = {one.__name__ for one in public}
    assert {"KalmanFilter", "Window", "etl", "threat", "MQTTSource", "MQTTSink", "CSVSink", "CitySource"} <= names
    assert not names & {"Source", "Sink", "city"}


def test_table_and_exceptions_have_nothing_unused(public):
    uses = parameter_uses(public)
    assert set(PARAMETERS) == set(uses)
    for name, (reason, owners) in EXCEPTIONS.items():
        declared = PARAMETERS[name][0]
        others = {owner for written, found in uses[name].items() if not covers(declared, written) for owner in found}
        assert set(owners.split(", ")) == others and reason.endswith("."), name


def test_table_has_one_word_for_each_meaning():
    assert {name for name in PARAMETERS if other_word(name) and name not in EXCEPTIONS} == set()
    meanings = [meaning for _, meaning in PARAMETERS.values()]
    assert {one for one in meanings if meanings.count(one) > 1} <= {
        "Ends of the ramp of the ratio.",  # one for each score of voip_stream
        "Weight of each score in the total.",
        "Divisors that scale the loads to [0, 1].",
    }
    words = {word for word in SYNONYMS.values() if not word.endswith("…")}
    assert words <= {*PARAMETERS}


def test_times_are_durations():
    named = [name for name in PARAMETERS if {"seconds", "interval", "delay", "timeout"} & set(name.split("_"))]
    assert {name for name in named if PARAMETERS[name][0] != "duration"} == set()


@pytest.mark.parametrize("package", [*PACKAGES, riot_ops.reuse, riot_ops.models, riot_ops.testing])
def test_public_functions_have_no_unit_in_a_name(package):
    """Of a number of milliseconds since 1970, the unit is part of the meaning."""
    objects = [
        one for name in package.__all__ if callable(one := getattr(package, name)) and hasattr(one, "__module__")
    ]
    for one in objects:
        methods = [m for n, m in vars(one).items() if callable(m) and n[0] != "_"] if isinstance(one, type) else []
        for function in (one, *methods):
            try:
                names = inspect.signature(function).parameters
            except ValueError:
                continue
            wrong = [name for name in names if other_word(name).startswith("a duration") and name[-3:] != "_us"]
            assert set(wrong) <= {"start_ms", "end_ms"}, function


def by_number(by: int): ...


@dataclass(frozen=True)
class Summed:
    by: tuple[str, ...] = ()
    ttl: float = 1.0


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([by_number], "by: by_number has 'int', and the table of names 'tuple of str'"),
        ([Summed], "ttl: Summed has 'float', and the table of names 'duration'"),
        ([by_number, Summed], "by: by_number has .*\nttl: Summed"),
    ],
)
def test_other_type_is_reported(objects, message):
    with pytest.raises(AssertionError, match=message):
        check_parameter_names(objects)


def test_exception_is_for_its_owners_alone():
    def mine(size: str): ...

    with pytest.raises(AssertionError, match="size: mine has 'str', and the table of names 'int'"):
        check_parameter_names([mine])


def test_name_without_meaning_is_reported_unless_given():
    def mine(site: str): ...

    with pytest.raises(AssertionError, match="site: mine has 'str', and the table of names has no meaning"):
        check_parameter_names([mine])
    check_parameter_names([mine], {"site": ("str", "The building.")})
    with pytest.raises(AssertionError, match="site: mine has 'str', and the table of names 'int'"):
        check_parameter_names([mine], {"site": ("int", "Number of the building.")})
    with pytest.raises(ConfigError, match="meanings defines names of the table: by"):
        check_parameter_names([mine], {"by": ("int", "The order.")})


def test_none_bounds_and_forms_of_durations_are_one_type():
    def one(ttl: str | timedelta | None, k: Annotated[int, msgspec.Meta(ge=1)] | None): ...
    def two(ttl: Duration, k: int): ...
    def three(window: int): ...
    def four(window: timedelta | str): ...

    check_parameter_names([one, two, three, four])
    assert parameter_uses([one, two])["ttl"] == {"duration": ["one", "two"]}


def test_choices_and_tuples_are_written_out():
    def one(a: Literal["x", "y"], b: tuple[int, float], c: tuple[str, ...] | None, d): ...

    assert {name: list(found) for name, found in parameter_uses([one]).items()} == {
        "a": ["'x' or 'y'"],
        "b": ["(int, float)"],
        "c": ["tuple of str"],
        "d": ["Any"],
    }
