"""The check of parameters' names: everything public passes, and each kind of fault is found."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import pytest

import riot_ops
import riot_ops.connectors.stores
import riot_ops.models
import riot_ops.reuse
import riot_ops.sketches
import riot_ops.spark
import riot_ops.tables
from riot_ops import ConfigError
from riot_ops.core.parameters import OWN_CHECK, Duration
from riot_ops.testing import check_parameter_names
from riot_ops.testing.parameter_names import covers, other_word, parameter_uses
from riot_ops.testing.parameter_table import PARAMETERS, SYNONYMS
from riot_ops.testing.public_callables import public_callables

if TYPE_CHECKING:
    from riot_ops.windows import Frame

PACKAGES = (riot_ops, riot_ops.connectors, riot_ops.streams)


@pytest.fixture(scope="module")
def public():
    return public_callables()


def test_public_names_have_one_type_and_a_meaning(public):
    check_parameter_names(public)


def test_public_callables_are_what_users_call(public):
    names = {one.__qualname__ for one in public}
    assert names >= {
        "BloomFilter", "CSVSink", "CSVTable", "CitySource", "Curve", "KalmanFilter", "KeyedStream.window", "MQTTSink",
        "MQTTSource", "ReuseManager.submit", "RunnableGraph.run", "RunnableGraph.start", "SparkBackend", "Stream.join",
        "Tumbling", "Window", "WindowedStream.agg", "apply", "etl", "fit_tree", "map", "open_table", "read", "replay",
        "start", "threat",
    }  # fmt: skip
    assert not names & {"Source", "Sink"}


#: By module, the public functions and classes that are not checked.
OTHERS = {
    riot_ops: {"Distribution", "JSONFormatter", "Secret", "Session", "Sink", "Source", "StreamSchema"},  # bases, or made by riot_ops
    riot_ops.connectors: set(),
    riot_ops.connectors.stores: {"Row"},
    riot_ops.dataflows: {"Application", "application", "micro", "read_ticks", "ticks"},
    riot_ops.models: {  # whose parameters are what a model consists of
        "LinearModel", "MarkovModel", "Model", "ModelFiles", "ModelName", "ModelStore", "NetworkModel", "Roads",
        "TreeModel", "WordTable",
    },
    riot_ops.reuse: {  # what the manager returns, and the contract of its back ends
        "Backend", "Explanation", "NullBackend", "OwnerUsage", "Removed", "StepUsage", "Submitted", "Usage",
        "signatures",
    },
    riot_ops.sketches: set(),
    riot_ops.spark: {"Frames", "Query"},  # returned
    riot_ops.streams: {"TimedSource"},  # a base
    riot_ops.tables: {"InlineTable", "Table", "table_from"},
    riot_ops.windows: {"Frame", "Unbounded", "frame_from"},  # without parameters
}  # fmt: skip


@pytest.mark.parametrize("module", OTHERS, ids=lambda module: module.__name__)
def test_every_public_callable_is_checked_or_listed(public, module):
    ones = {name: getattr(module, name) for name in module.__all__}
    unchecked = {
        name
        for name, one in ones.items()
        if inspect.isfunction(one) or (isinstance(one, type) and not issubclass(one, BaseException))
        if one not in public
    }
    assert unchecked == OTHERS[module]


def test_real_types_are_declared():
    """A type that hides what a value may be has a reason: data of any library, or the user's own values."""
    hidden = {name for name, (declared, _) in PARAMETERS.items() if "Any" in declared.split(" or ")}
    assert hidden <= {"df", "estimator", "initial", "rows", "sinks", "source", "sources", "spark", "totals"}


def test_table_has_nothing_unused(public):
    assert set(PARAMETERS) == set(parameter_uses(public))


def test_table_has_one_word_for_each_meaning():
    assert {name for name in PARAMETERS if other_word(name)} == set()
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


def test_methods_variable_arguments_and_names_of_type_checkers_are_described():
    class Verbs:
        def join(self, *others: str, frame: Frame | None = None, **options: Any): ...

    assert parameter_uses([Verbs.join]) == {
        "others": {"tuple of str": ["Verbs.join"]},
        "frame": {"Frame": ["Verbs.join"]},
    }


def test_sequences_and_forms_are_described():
    def one(
        a: Sequence[str], b: str | Sequence[str], c: Annotated[int | Mapping[str, Any], OWN_CHECK] | None, d: np.ndarray
    ): ...

    assert {name: next(iter(found)) for name, found in parameter_uses([one]).items()} == {
        "a": "tuple of str",
        "b": "str or tuple of str",
        "c": "int or Mapping[str, Any]",
        "d": "array",
    }
    assert covers("tuple of str", "str or tuple of str") and not covers("tuple of str", "str")
