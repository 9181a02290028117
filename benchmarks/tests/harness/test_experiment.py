"""Which measures a figure shows, and where."""

from __future__ import annotations

import pytest
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure

from riot_ops.core.errors import ConfigError


def measures(*names):
    return [Measure(name, float(i), "s") for i, name in enumerate(names)]


def test_pattern_matches_full_names():
    figure = Figure("k", "T", r"a/(?P<x>\d+)", "x", "y")
    assert [(s, x, m.value) for s, x, m in figure.points(measures("a/1", "a/2s", "b/a/3", "a/40"))] == [
        ("", "1", 0.0),
        ("", "40", 3.0),
    ]


def test_series_group_is_optional():
    figure = Figure("k", "T", r"a(/(?P<series>[a-z]+))?/(?P<x>\w+)", "x", "y", kind="line", log="xy")
    assert [(s, x) for s, x, _ in figure.points(measures("a/b/1", "a/2"))] == [("b", "1"), ("", "2")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pattern": "a("}, "pattern must be a regular expression, got 'a[(]'"),
        ({"pattern": "a/(?P<series>.)"}, "pattern must have a group 'x', got 'a/[(][?]P<series>[.][)]'"),
        ({"kind": "pie"}, "kind must be 'bar' or 'line', got 'pie'"),
        ({"log": "yx"}, "log must be '', 'x', 'y' or 'xy', got 'yx'"),
    ],
    ids=str,
)
def test_misuse_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Figure(**{"key": "k", "title": "T", "pattern": "(?P<x>.)", "x": "x", "y": "y", **wrong})


def test_defaults_of_experiments_and_figures():
    one = Experiment("a/b", "T", lambda quick: iter(()))
    assert (one.about, one.figures, one.seconds, one.seed) == ("", (), (60, 600), 1)
    assert (Figure("k", "T", "(?P<x>.)", "x", "y").kind, Figure("k", "T", "(?P<x>.)", "x", "y").log) == ("bar", "")
