"""The check of aggregates: it passes what may be cut anywhere, and names what is wrong with others."""

from __future__ import annotations

import math

import pytest

from riot_ops import tasks as t
from riot_ops.testing import check_aggregate


def _add(cell, x):
    cell[0] = min(cell[0], x)
    cell[1] += 1.0


def _merge(cell, other):
    cell[0] = min(cell[0], other[0])
    cell[1] += other[1]


def _result(cell):
    return cell[0] / cell[1] if cell[1] > 0 else math.nan


def _forgetful(cell, other):
    cell[0] = other[0]
    cell[1] = other[1]


def _greedy(cell, other):
    cell[0] = min(cell[0], other[0])
    cell[1] += other[1]
    other[1] = 0.0


def _spoiling(cell):
    cell[1] += 1.0
    return cell[0]


def aggregate(initial=(math.inf, 0.0), merge=_merge, result=_result):
    return t.Aggregate("low", initial, _add, merge, result)


def test_sound_aggregate_passes_with_any_values():
    check_aggregate(aggregate())
    check_aggregate(aggregate(), [])
    check_aggregate(aggregate(), [5.0])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (aggregate(merge=_forgetful), "low: 1 values merged with 6 have the result"),
        (aggregate(initial=(0.0, 1.0)), "low: 0 values merged with 7"),
        (aggregate(merge=_greedy), "low: merge changes its second argument"),
        (aggregate(result=_spoiling), "low: result changes the cell"),
    ],
)
def test_fault_is_named(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_aggregate(broken)
