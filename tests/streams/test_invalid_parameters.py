"""Every parameter of every generated stream refuses invalid values, by its name and with the value."""

import inspect
import math

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams.catalog import LINES
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.streams.riotbench.fit import FitSource
from riot_ops.streams.riotbench.grid import GridSource
from riot_ops.streams.riotbench.taxi import TaxiSource

KINDS = [*LINES.values(), CitySource, FitSource, GridSource, TaxiSource]
PARAMETERS = [(kind, name) for kind in KINDS for name in inspect.signature(kind).parameters]


@pytest.mark.parametrize(("kind", "name"), PARAMETERS, ids=[f"{kind.__name__}-{name}" for kind, name in PARAMETERS])
def test_invalid_parameters_are_refused(kind, name):
    default = inspect.signature(kind).parameters[name].default
    wrong = ["some", math.nan, math.inf, [1]]
    wrong += [1, 0] if isinstance(default, bool) else [True]
    wrong += [] if isinstance(default, bool) or name == "seed" else [-1]
    for value in wrong:
        with pytest.raises(ConfigError) as refused:
            kind(**{name: value})
        assert name in str(refused.value) and repr(value) in str(refused.value)
