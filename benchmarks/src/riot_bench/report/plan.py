"""What a report runs: the experiments of the papers' suites."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from riot_bench.harness import registry
from riot_bench.harness.experiment import Experiment
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["REPORTS", "Planned", "absent", "find", "planned", "with_stored"]

#: The suites of a report, and the benchmarks that each is made of.
REPORTS: dict[str, tuple[str, ...]] = {
    "riotbench": ("micro", "app", "stats", "scalability"),
    "dspbench": ("dspbench",),
    "neptune": ("neptune",),
    "streambench": ("streambench",),
    "threat": ("threat",),
    "reuse": ("reuse",),
}
UNKNOWN = "Not known here: what is stored of it."


@dataclass(frozen=True)
class Planned:
    """An experiment in a report.

    Attributes
    ----------
    suite : str
        One of :data:`REPORTS`, or a module of one's own.
    source : str
        The benchmark, or module, that has it.
    experiment : Experiment
    """

    suite: str
    source: str
    experiment: Experiment

    @property
    def key(self) -> str:
        """The experiment's."""
        return self.experiment.key


def planned(suites: Iterable[str] = ("all",), experiments: Iterable[str] = ()) -> list[Planned]:
    """The experiments of some suites, in order.

    Parameters
    ----------
    suites : iterable of str, default ``("all",)``
        Of :data:`REPORTS`, ``all``, or names of modules that have ``EXPERIMENTS``, such as ``my_package.my_suite``.
    experiments : iterable of str, default all
        Keys, or their beginnings up to a ``/``, of those wanted.

    Examples
    --------
    >>> [one.key for one in planned(["reuse"])][0].partition("/")[0]
    'reuse'
    """
    found: dict[str, Planned] = {}
    for suite in suites:
        for one in _of_suite(suite):
            found.setdefault(one.key, one)
    wanted = tuple(experiments)
    for key in wanted:
        if not any(_within(one, key) for one in found):
            raise ConfigError(f"unknown experiment {key!r}; known are {', '.join(found)}{did_you_mean(key, found)}")
    return [one for key, one in found.items() if not wanted or any(_within(key, w) for w in wanted)]


def with_stored(chosen: Sequence[Planned], stored: Mapping[str, str]) -> list[Planned]:
    """Experiments that were chosen, and all others that have results: what the page of a report shows.

    Parameters
    ----------
    chosen : sequence of Planned
    stored : mapping of str to str
        Suites by the keys of experiments, as the results tell. No module is loaded because results name it: of those
        that were not chosen, as of experiments that are not there any more, only the measures are known.
    """
    wanted = {**stored, **{one.key: one.suite for one in chosen}}
    suites = list(dict.fromkeys([*REPORTS, *wanted.values()]))
    loaded = {one.suite for one in chosen} | (REPORTS.keys() & wanted.values())
    known = (one for suite in suites if suite in loaded for one in _of_suite(suite))
    found: dict[str, Planned] = {}
    for one in known:
        if one.key in wanted:
            found.setdefault(one.key, one)
    for key, suite in wanted.items():
        about = UNKNOWN + (f" With --suite {suite} there is more." if "." in suite and suite not in loaded else "")
        found.setdefault(key, Planned(suite, suite, Experiment(key, key, lambda quick: iter(()), about)))
    return sorted(found.values(), key=lambda one: suites.index(one.suite))


def absent(shown: Sequence[Planned]) -> tuple[list[str], list[str]]:
    """The experiments that suites have and a report does not show, by key, and the suites that it shows none of.

    Suites that are not shown are not loaded for it. Of a report of one's own suites nothing is absent.

    >>> some = planned(["reuse"])
    >>> experiments, suites = absent(some[1:])
    >>> experiments == [some[0].key], "reuse" in suites, "threat" in suites, absent([])
    (True, False, True, ([], []))
    """
    keys, suites = {one.key for one in shown}, {one.suite for one in shown}
    there = [suite for suite in REPORTS if suite in suites]
    experiments = [one.key for suite in there for one in _of_suite(suite) if one.key not in keys]
    return experiments, [suite for suite in REPORTS if there and suite not in suites]


def find(source: str, key: str) -> Experiment:
    """An experiment of a benchmark or module."""
    return next(one for one in _experiments(source) if one.key == key)


def _within(key: str, wanted: str) -> bool:
    return key == wanted or key.startswith(f"{wanted}/")


def _of_suite(suite: str) -> list[Planned]:
    if suite == "all":
        return [one for name in REPORTS for one in _of_suite(name)]
    if suite in REPORTS:
        there = [source for source in REPORTS[suite] if source in registry.SUITES]
    elif "." in suite:
        there = [suite]
    else:
        known = ("all", *REPORTS)
        raise ConfigError(
            f"--suite must be one of {', '.join(known)}, or a module's name with dots, got {suite!r}"
            f"{did_you_mean(suite, known)}"
        )
    return [Planned(suite, source, one) for source in there for one in _experiments(source)]


def _experiments(source: str) -> tuple[Experiment, ...]:
    if "." not in source:
        return registry.experiments(source)
    try:
        found: tuple[Experiment, ...] = importlib.import_module(source).EXPERIMENTS
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"no experiments in the module {source!r}: {error}") from None
    return found
