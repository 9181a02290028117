"""Records that agree but for a tolerance, in pairs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from riot_bench.harness.validation import compare

from tests.search import depth

Row = tuple[Any, ...]
#: Numbers that agree with their neighbours only, and some far from all others.
STEP = 0.7e-6
NEAR = [1 + i * STEP for i in range(5)] + [0.0, 0.9e-9, -0.9e-9, 7.0, math.inf, -math.inf, math.nan]


def agree(a: Row, b: Row) -> bool:
    """The tolerance, field by field, as documented."""

    def close(x: Any, y: Any) -> bool:
        if not (isinstance(x, float) and isinstance(y, float)):
            return type(x) is type(y) and x == y
        if not (math.isfinite(x) and math.isfinite(y)):
            return repr(x) == repr(y)
        return abs(x - y) <= max(1e-6 * max(abs(x), abs(y)), 1e-9)

    return all(map(close, a, b))


def most_pairs(left: list[Row], right: list[Row]) -> int:
    """By trying everything."""
    if len(left) > len(right):
        left, right = right, left
    return max(sum(map(agree, left, some)) for some in itertools.permutations(right, len(left)))


def rows(width: int) -> st.SearchStrategy[list[Row]]:
    number = st.sampled_from(NEAR)
    return st.lists(st.tuples(st.sampled_from(["a", "b", None]), *[number] * width), max_size=5)


@settings(max_examples=depth(300))
@given(st.integers(0, 2).flatmap(lambda width: st.tuples(rows(width), rows(width))))
# the first that agrees is the wrong one to take: by one number, and by two
@example(([("a", NEAR[1]), ("a", NEAR[0])], [("a", NEAR[1]), ("a", NEAR[2])]))
@example(([("a", 1.0, NEAR[1]), ("a", NEAR[1], NEAR[0])], [("a", 1.0, NEAR[0]), ("a", 1.0, NEAR[2])]))
def test_number_of_pairs_is_maximal(sides: tuple[list[Row], list[Row]]) -> None:
    left, right = sides
    found = compare("x", left, right)
    assert (found.wanted, found.found) == (len(left), len(right))
    assert found.differing == len(left) + len(right) - 2 * most_pairs(left, right)
    assert found.equal == (found.differing == 0)
    for shown, side in ((found.missing, left), (found.unexpected, right)):
        assert Counter(map(repr, shown)) <= Counter(map(repr, side))


def test_augmenting_paths_of_any_length() -> None:
    """Along a chain each record agrees with two; of two numbers, taken by turns, the order says nothing."""
    chain = [(1 + STEP * (i // 2), 1 + STEP * ((i + 1) // 2)) for i in range(60)]
    assert compare("x", chain[:-1:2], chain[1::2]).equal
    assert compare("x", chain[::2][::-1], [*chain[1:-1:2], chain[0]]).equal
    assert compare("x", chain[2::2], chain[1:-1:2]).equal


MANY = 20_000


@pytest.mark.parametrize(
    ("left", "right", "differing"),
    [
        ([("a", float(i)) for i in range(MANY)], [("a", i + 0.5) for i in range(MANY)], 2 * MANY),
        ([("a", 0.0, float(i)) for i in range(MANY)], [("a", 0.0, i + 0.5) for i in range(MANY)], 2 * MANY),
        ([(i, 1.0) for i in range(MANY)], [(i, 2.0) for i in range(MANY)], 2 * MANY),
        ([("a", 1.0)] * MANY, [("a", 2.0)] * MANY, 2 * MANY),
        ([("a", 1.0)] * MANY + [("a", 3.0)], [("a", 1 + i * 1e-12) for i in range(MANY)] + [("a", 4.0)], 2),
        ([("a", 1 + i * 1e-7) for i in range(MANY)], [("a", 1 + i * 1e-7 + 1e-4) for i in range(MANY)], 2 * 990),
        ([("a", "b")] * MANY, [("a", "b")] * (MANY - 1) + [("b", "a")], 2),
    ],
    ids=["apart", "apart in one of two", "by key", "in heaps", "one heap", "a chain", "no numbers"],
)
def test_matching_takes_linear_comparisons(
    left: list[Row], right: list[Row], differing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = math.isclose, itertools.count()

    def counted(*numbers: float, **tolerance: float) -> bool:
        assert next(calls) < 50 * MANY, "all with all would be 400 million"
        return real(*numbers, **tolerance)

    monkeypatch.setattr(math, "isclose", counted)
    assert compare("x", left, right[::-1]).differing == differing


def test_nan_within_a_list_is_nan() -> None:
    assert compare("x", [([1.0, math.nan],)], [([1.0, float("nan")],)]).equal
