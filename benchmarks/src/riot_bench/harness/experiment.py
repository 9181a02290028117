"""Experiments of a suite and the figures that show their measures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from riot_bench.harness.measure import Measure
from riot_ops.core.errors import ConfigError

__all__ = ["Experiment", "Figure"]


@dataclass(frozen=True)
class Figure:
    r"""A chart of related measures, selected and positioned by their names.

    Parameters
    ----------
    key : str
        Name of the file.
    title : str
    pattern : str
        Regular expression that the whole name of a measure must match. Its group ``x`` is the position (a word, or a
        number with or without a unit), the optional group ``series`` the series.
    x, y : str
        Axis titles with units.
    kind : "bar" or "line", default "bar"
    log : "", "x", "y" or "xy", default ""
        Logarithmic axes.

    Examples
    --------
    >>> relay = Figure("relay", "Relay", r"relay/(?P<series>\w+)/(?P<x>\d+)B", "message size in bytes", "messages/s")
    >>> relay.points([Measure("relay/local/50B", 2e6, "messages/s"), Measure("relay/lost", 0, "messages")])
    [('local', '50', Measure(measure='relay/local/50B', value=2000000.0, unit='messages/s', ...))]
    """

    key: str
    title: str
    pattern: str
    x: str
    y: str
    kind: str = "bar"
    log: str = ""

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groupindex
        except re.error as error:
            raise ConfigError(f"pattern must be a regular expression, got {self.pattern!r}: {error}") from None
        if "x" not in groups:
            raise ConfigError(f"pattern must have a group 'x', got {self.pattern!r}")
        if self.kind not in ("bar", "line"):
            raise ConfigError(f"kind must be 'bar' or 'line', got {self.kind!r}")
        if self.log not in ("", "x", "y", "xy"):
            raise ConfigError(f"log must be '', 'x', 'y' or 'xy', got {self.log!r}")

    def points(self, measures: Iterable[Measure]) -> list[tuple[str, str, Measure]]:
        """Return the series, position and measure of each point."""
        matched = ((re.fullmatch(self.pattern, one.measure), one) for one in measures)
        return [(m.groupdict().get("series") or "", m["x"], one) for m, one in matched if m]


@dataclass(frozen=True)
class Experiment:
    """A part of a suite that is run, stored and shown as one.

    Parameters
    ----------
    key : str
        Key such as ``streambench/performance``; the names of its measures begin with the suite.
    title : str
    measures : function
        Runs the experiment and yields each measure when it is known; the argument selects the quick form. The
        ``values`` of a repeated measure hold all repetitions.
    about : str, default ""
        A paragraph on the experiment and the results of the paper.
    figures : tuple of Figure, default ()
    seconds : (float, float), default (60, 600)
        Approximate duration on two cores in the quick and in the full form.
    seed : int, default 1
        Seed of the generated data, stored with the results.
    published : function, optional
        Value that the papers report for a measure's name, if the measure itself has none.
    """

    key: str
    title: str
    measures: Callable[[bool], Iterator[Measure]]
    about: str = ""
    figures: tuple[Figure, ...] = ()
    seconds: tuple[float, float] = (60.0, 600.0)
    seed: int = 1
    published: Callable[[str], float | None] = lambda measure: None
