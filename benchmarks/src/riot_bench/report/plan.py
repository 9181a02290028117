"""The experiments that a report runs and shows."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from riot_bench.harness.experiment import Experiment
from riot_bench.suites import registry
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["REPORTS", "PlannedExperiment", "find_experiment", "not_shown", "plan_experiments", "plan_with_stored"]

#: Suites of a report, and the benchmarks that each consists of.
REPORTS: dict[str, tuple[str, ...]] = {
    "riotbench": ("micro", "app", "stats", "scalability"),
    "dspbench": ("dspbench",),
    "neptune": ("neptune",),
    "streambench": ("streambench",),
    "threat": ("threat",),
    "reuse": ("reuse",),
}
UNKNOWN = "Unknown experiment, shown from stored results only."


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment in a report.

    Attributes
    ----------
    suite : str
        One of :data:`REPORTS`, or a user's module.
    source : str
        Benchmark or module that defines the experiment.
    experiment : Experiment
    """

    suite: str
    source: str
    experiment: Experiment

    @property
    def key(self) -> str:
        """Key of the experiment."""
        return self.experiment.key


def plan_experiments(suites: Iterable[str] = ("all",), experiments: Iterable[str] = ()) -> list[PlannedExperiment]:
    """Return the selected experiments of some suites, in order.

    Parameters
    ----------
    suites : iterable of str, default ``("all",)``
        Names in :data:`REPORTS`, ``all``, or modules with ``EXPERIMENTS`` such as ``my_package.my_suite``.
    experiments : iterable of str, default all
        Keys, or prefixes of keys up to a ``/``.

    Examples
    --------
    >>> [one.key for one in plan_experiments(["reuse"])][0].partition("/")[0]
    'reuse'
    """
    found: dict[str, PlannedExperiment] = {}
    for suite in suites:
        for one in _of_suite(suite):
            found.setdefault(one.key, one)
    wanted = tuple(experiments)
    for key in wanted:
        if not any(_within(one, key) for one in found):
            raise ConfigError(f"unknown experiment {key!r}; known are {', '.join(found)}{did_you_mean(key, found)}")
    return [one for key, one in found.items() if not wanted or any(_within(key, w) for w in wanted)]


def plan_with_stored(chosen: Sequence[PlannedExperiment], stored: Mapping[str, str]) -> list[PlannedExperiment]:
    """Return the experiments that the page shows: the chosen ones and all others with stored results.

    Parameters
    ----------
    chosen : sequence of PlannedExperiment
    stored : mapping of str to str
        Suite of each stored experiment, by key. A module is not loaded just because results name it: for experiments
        of such modules, and for experiments that no longer exist, only the stored measures are known.
    """
    wanted = {**stored, **{one.key: one.suite for one in chosen}}
    suites = list(dict.fromkeys([*REPORTS, *wanted.values()]))
    loaded = {one.suite for one in chosen} | (REPORTS.keys() & wanted.values())
    known = (one for suite in suites if suite in loaded for one in _of_suite(suite))
    found: dict[str, PlannedExperiment] = {}
    for one in known:
        if one.key in wanted:
            found.setdefault(one.key, one)
    for key, suite in wanted.items():
        about = UNKNOWN + (f" --suite {suite} loads its figures." if "." in suite and suite not in loaded else "")
        found.setdefault(key, PlannedExperiment(suite, suite, Experiment(key, key, lambda quick: iter(()), about)))
    return sorted(found.values(), key=lambda one: suites.index(one.suite))


def not_shown(shown: Sequence[PlannedExperiment]) -> tuple[list[str], list[str]]:
    """Return the keys of experiments that a report leaves out, and the suites without any shown experiment.

    Suites that are not shown are not loaded. A report of user modules only leaves nothing out.

    >>> some = plan_experiments(["reuse"])
    >>> experiments, suites = not_shown(some[1:])
    >>> experiments == [some[0].key], "reuse" in suites, "threat" in suites, not_shown([])
    (True, False, True, ([], []))
    """
    keys, suites = {one.key for one in shown}, {one.suite for one in shown}
    there = [suite for suite in REPORTS if suite in suites]
    experiments = [one.key for suite in there for one in _of_suite(suite) if one.key not in keys]
    return experiments, [suite for suite in REPORTS if there and suite not in suites]


def find_experiment(source: str, key: str) -> Experiment:
    """Find an experiment of a benchmark or module by its key."""
    return next(one for one in _experiments(source) if one.key == key)


def _within(key: str, wanted: str) -> bool:
    return key == wanted or key.startswith(f"{wanted}/")


def _of_suite(suite: str) -> list[PlannedExperiment]:
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
    return [PlannedExperiment(suite, source, one) for source in there for one in _experiments(source)]


def _experiments(source: str) -> tuple[Experiment, ...]:
    if "." not in source:
        return registry.find_experiments(source)
    try:
        found: tuple[Experiment, ...] = importlib.import_module(source).EXPERIMENTS
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the module {source!r} has no experiments: {error}") from None
    return found
