"""Viète's product for π, as CPU load."""

import math

import pytest

from riot_ops import ConfigError
from riot_ops.dataflows.riotbench.operators import PiViete


def viete(factors):
    roots = [math.sqrt(2)]
    while len(roots) < factors:
        roots.append(math.sqrt(2 + roots[-1]))
    return 2 / math.prod(root / 2 for root in roots)


@pytest.mark.parametrize("method", ["nested", "carried"])
@pytest.mark.parametrize("factors", [1, 2, 3, 10, 27, 200])
def test_result_equals_the_product(method, factors):
    row = PiViete(iterations=factors, method=method).session().push({"value": None})[0]
    assert row == {"value": None, "pi": pytest.approx(viete(factors), rel=1e-14)}
    assert abs(row["pi"] - math.pi) < max(1.3 / 4**factors, 1e-13)


def test_output_may_replace_a_field():
    row = PiViete(iterations=1, output="value").session().push({"value": 7.0})[0]
    assert row == {"value": pytest.approx(2 * math.sqrt(2))}


def test_wrong_parameters_are_refused_by_name():
    with pytest.raises(ConfigError, match="iterations"):
        PiViete(iterations=0)
