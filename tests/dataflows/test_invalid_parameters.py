"""Every parameter of every builder refuses values of a wrong type, naming the parameter and the value."""

import inspect
import math
import typing

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import BUILDERS

PARAMETERS = [
    (kind, name) for kind in sorted({*BUILDERS.values()}, key=str) for name in inspect.signature(kind).parameters
]
NUMBERS = [
    (kind, name)
    for kind, name in PARAMETERS
    if inspect.signature(kind).parameters[name].default.__class__ in (int, float)
]
CHOICES = [
    (kind, name) for kind, name in PARAMETERS if typing.get_origin(typing.get_type_hints(kind)[name]) is typing.Literal
]


def _named(pairs):
    return {
        "argnames": ("kind", "name"),
        "argvalues": pairs,
        "ids": [f"{kind.__name__}-{name}" for kind, name in pairs],
    }


@pytest.mark.parametrize(**_named(PARAMETERS))
def test_arguments_of_a_wrong_type_are_refused(kind, name):
    for value in (b"some", [1], object()):
        with pytest.raises(ConfigError) as refused:
            kind(**{name: value})
        assert name in str(refused.value) and repr(value)[:8] in str(refused.value)


@pytest.mark.parametrize(**_named(NUMBERS))
def test_non_finite_numbers_are_refused(kind, name):
    for value in ("some", True, math.nan, math.inf):
        with pytest.raises(ConfigError) as refused:
            kind(**{name: value})
        assert name in str(refused.value) and repr(value) in str(refused.value)


@pytest.mark.parametrize(**_named(CHOICES))
def test_unknown_choice_is_refused_with_the_known_ones(kind, name):
    with pytest.raises(ConfigError) as refused:
        kind(**{name: "some"})
    for part in (name, "'some'", *(repr(one) for one in typing.get_args(typing.get_type_hints(kind)[name]))):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("voip_stream", "per_word", 0),
        ("voip_stream", "variation_error", 0),
        ("machine_outlier", "decay", -1),
        ("etl", "batch_size", 0),
        ("stats", "average_window", 0),
        ("reinforcement_learner", "feedback_every", 0),
        ("reinforcement_learner", "explore", -0.5),
        ("trending_topics", "rankers", 0),
        ("equipment_monitoring", "max_pending", 0),
    ],
)
def test_numbers_out_of_range_are_refused_by_parameter_name(kind, name, value):
    with pytest.raises(ConfigError, match=f"{kind}: {name} = {value}"):
        BUILDERS[kind](**{name: value})
