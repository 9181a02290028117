"""An experiment: what is run, stored and shown as one piece of a suite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from riot_bench.harness.measure import Measure
from riot_ops.core.errors import ConfigError

__all__ = ["Experiment", "Figure"]


@dataclass(frozen=True)
class Figure:
    r"""A picture of measures that belong together; which, and where each stands, is told by their names.

    Parameters
    ----------
    key : str
        Name of its file.
    title : str
    pattern : str
        A regular expression that the whole name of a measure matches, with the group ``x`` (position: a number with
        or without a unit, or a word) and perhaps ``series``.
    x, y : str
        Titles of the axes, with units.
    kind : "bar" or "line", default "bar"
    log : "", "x", "y" or "xy", default ""
        Axes that are logarithmic.

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
        """Series, position and measure of what it shows."""
        matched = ((re.fullmatch(self.pattern, one.measure), one) for one in measures)
        return [(m.groupdict().get("series") or "", m["x"], one) for m, one in matched if m]


@dataclass(frozen=True)
class Experiment:
    """A piece of a suite.

    Parameters
    ----------
    key : str
        Such as ``streambench/performance``; names of its measures begin with the suite.
    title : str
    measures : function
        Runs it and yields each measure as it is found; the argument says whether in the quick form. A measure that was
        taken several times has all of them in ``values``.
    about : str, default ""
        What is done and what the paper found: a paragraph.
    figures : tuple of Figure, default ()
    seconds : (float, float), default (60, 600)
        About how long it takes on two cores in the quick and in the full form.
    seed : int, default 1
        Of its generated data; kept with the results.
    published : function, optional
        What the papers found, of a measure by its name, where the measure does not tell it itself.
    """

    key: str
    title: str
    measures: Callable[[bool], Iterator[Measure]]
    about: str = ""
    figures: tuple[Figure, ...] = ()
    seconds: tuple[float, float] = (60.0, 600.0)
    seed: int = 1
    published: Callable[[str], float | None] = lambda measure: None
