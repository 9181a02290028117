"""What sharing saves: the same dataflows come and go, each by itself and together."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure, one_core
from riot_bench.suites.reuse import carried as reuse_carried
from riot_bench.suites.reuse import local as reuse_local
from riot_bench.suites.reuse import many as reuse_many
from riot_bench.suites.reuse import spark as reuse_spark
from riot_bench.suites.reuse import submit as reuse_submit
from riot_bench.suites.reuse.traces import Action
from riot_bench.suites.reuse.workloads import TERMS, opmw_like, pi_series, riot21
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.dataflow import Dataflow

__all__ = ["EXPERIMENTS", "measures"]

TRACES = ("seq", "rw1", "rw2")
WORKLOADS = ("riot", "opmw")
BACKENDS = ("null", "local", "spark")

#: Dataflows on Spark: as many as two cores carry where each is a query of its own.
AT_ONCE = 12
#: Actions of a walk, in the full and in the quick form; on Spark one takes about fifteen seconds, three times.
WALK, WALK_ON_SPARK = (reuse_local.WALK, 10), (16, 10)
#: In the quick form records move behind every so many actions of a trace.
TURNS = {"riot": 1, "opmw": 3}
#: Messages of each source whose results are compared, of dataflows that come at once, and between two actions of a
#: trace, in the full and in the quick form; a task of opmw works for a millisecond on each.
EQUAL = {"riot": (1000, 100), "opmw": (10, 1)}
STAYED = {"riot": (20, 2), "opmw": (1, 1)}


def measures(
    quick: bool = False,
    trace: Sequence[str] = TRACES,
    workload: Sequence[str] = WORKLOADS[:1],
    backend: str = "local",
    many: int | None = None,
    carried: bool = False,
    at_once: int = AT_ONCE,
    steps: bool = False,
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    trace : sequence of str, default all
        ``seq``: all come, then all go; ``rw1``, ``rw2``: walks.
    workload : sequence of str, default ("riot",)
        ``riot``: 21 dataflows of RIoTBench's tasks; ``opmw``: 35 synthetic ones, a millisecond per record and task.
    backend : "local", "null" or "spark", default "local"
        ``null`` counts steps alone. ``spark`` runs ``at_once`` dataflows of a workload as queries, each by itself and
        together; walks have fewer actions there, so that a trace takes less than half an hour.
    many : int, optional
        In place of the others: so many dataflows over one stream, in process or on Spark.
    carried : bool, default False
        In place of the others, on Spark: how many dataflows at 100 messages per second two cores carry, each as a query
        and together.
    at_once : int, default 12
        Of "spark": as many as two cores carry where each is a query of its own. The first seven of "riot" are over one
        stream, and share as much as all do. Walks are over as many as leave no more than that at once.
    steps : bool, default False
        Whether to tell how it goes through each trace as well: what the paper's figures show.
    """
    if many is not None:
        if backend not in ("local", "spark"):
            raise ConfigError(f"many dataflows are measured with the back end 'local' or 'spark', got {backend!r}")
        yield from reuse_many.many(many, quick, backend)
        return
    if carried and backend != "spark":
        raise ConfigError(f"what two cores carry is measured with the back end 'spark', got {backend!r}")
    if at_once < 1:
        raise ConfigError(f"at_once must be >= 1, got {at_once}")
    for given, known in ((trace, TRACES), (workload, WORKLOADS), ((backend,), BACKENDS)):
        for one in given:
            if one not in known:
                raise ConfigError(f"{one!r} is none of {', '.join(known)}{did_you_mean(one, known)}")
    if backend != "spark" and "riot" in workload:  # once, of the experiments that there are
        yield reuse_submit.submitting()
    for load in workload:
        made = riot21() if load == "riot" else opmw_like(work=_tenth if quick else pi_series)
        flows = {flow.name: flow for flow in made}
        light = flows if load == "riot" else {flow.name: flow for flow in opmw_like(work=_hundredth)}
        if carried:
            some = dict(list(flows.items())[: reuse_carried.AT_ONCE if quick else None])
            yield from reuse_carried.carried(f"reuse/{load}/carried", some, quick, reuse_local.source)
            continue
        if backend == "local":  # which also loads all code
            yield reuse_local.equal(f"reuse/{load}/outputs-equal", flows, EQUAL[load][quick])
        for walk in trace:
            found = reuse_local.counted(f"reuse/{load}/{walk}", load, walk, flows)
            yield from (one for one in found if steps or not _is_step(one))
            if backend == "null":
                yield reuse_submit.drained(f"reuse/{load}/{walk}/after-drain", reuse_local.trace_of(walk, flows), flows)
            if backend == "local":
                actions = reuse_local.trace_of(walk, flows, WALK[quick])
                yield reuse_local.stayed(f"reuse/{load}/{walk}/outputs-equal", actions, light, STAYED[load][quick])
                with one_core():
                    found = reuse_local.run(f"reuse/{load}/{walk}", load, actions, flows, TURNS[load] if quick else 1)
                    yield from (one for one in found if steps or not _is_step(one))
        if backend == "spark":
            found = _spark(f"reuse/{load}", flows, trace, quick, at_once)
            yield from (one for one in found if steps or not _is_step(one))


def _spark(
    name: str, flows: dict[str, Dataflow], trace: Sequence[str], quick: bool, at_once: int = AT_ONCE
) -> Iterator[Measure]:
    """Some of the dataflows as queries, each by itself and together."""
    traces = {walk: _at_most(walk, flows, at_once, WALK_ON_SPARK[quick]) for walk in trace}
    return reuse_spark.measures(name, flows, traces, quick, reuse_local.source, at_once)


def _at_most(walk: str, flows: dict[str, Dataflow], at_once: int, steps: int) -> Sequence[Action]:
    """The trace of as many of the dataflows, in their order, as leave no more than so many at once."""
    for n in range(len(flows), 1, -1):
        actions = reuse_local.trace_of(walk, dict(list(flows.items())[:n]), steps)
        if max(reuse_spark.alive(actions)) <= at_once:
            return actions
    return reuse_local.trace_of(walk, dict(list(flows.items())[:1]), steps)


def _tenth(row: dict[str, Any]) -> dict[str, Any]:
    """A tenth of the work of a task: three walks with all of it take five minutes."""
    return pi_series(row, TERMS // 10)


def _hundredth(row: dict[str, Any]) -> dict[str, Any]:
    """Of what is compared alone."""
    return pi_series(row, TERMS // 100)


def _is_step(one: Measure) -> bool:
    """Whether it is a point of a figure."""
    return re.search(r"/(tasks|cpu|cores)/", one.measure) is not None


# -- the paper's figures ---------------------------------------------------------------------------

NAMES = {"riot": "21 dataflows of RIoTBench's tasks", "opmw": "35 synthetic dataflows"}
#: Dataflows over one stream, in process and on Spark, in the full and in the quick form.
MANY = {"local": (3000, 300), "spark": (300, None)}
WALKS = {"seq": "all come, then all go", "rw1": "first walk", "rw2": "second walk"}


OPMW = (
    " Here a step passes on what each step before it gives, so that records double where two meet: one of the 35 has "
    "62 % of all the work, most of it in steps of its own, and CPU time falls by what is left to share. In the quick "
    "form a task does a tenth of its work, and records move behind every third action."
)


def _figures(load: str) -> tuple[Figure, ...]:
    lines = (
        ("tasks", "Running tasks", "tasks"),
        ("cpu", "CPU time", "CPU time between two actions (ms)"),
    )
    return (
        *(
            Figure(
                f"{walk}-{what}",
                f"{title}, {NAMES[load]}: {WALKS[walk]}",
                rf"reuse/{load}/{walk}/{what}/(?P<series>apart|together)/(?P<x>\d+)",
                "actions",
                unit,
                "line",
            )
            for what, title, unit in lines
            for walk in TRACES
        ),
        Figure(
            "used-by",
            f"How many dataflows use a running task, {NAMES[load]}",
            rf"reuse/{load}/(?P<series>seq|rw1|rw2)/used-by/(?P<x>\d+)",
            "dataflows",
            "share of the running tasks",
        ),
    )


def _experiment(load: str, quick: bool) -> Iterator[Measure]:
    return measures(quick, workload=(load,), steps=True)


def _spark_experiment(quick: bool) -> Iterator[Measure]:
    """The traces of RIoTBench's tasks on Spark, and what two cores carry; the quick form is less of the first trace."""
    flows = {flow.name: flow for flow in riot21()}
    if quick:
        yield from _spark("reuse/spark", flows, TRACES[:1], quick, reuse_carried.AT_ONCE)
        return
    yield from _spark("reuse/spark", flows, TRACES, quick)
    yield from reuse_carried.carried("reuse/spark/carried", flows, quick, reuse_local.source)


def _many_experiment(quick: bool) -> Iterator[Measure]:
    """Many dataflows over one stream, in process and on Spark."""
    for backend, counts in MANY.items():
        n = counts[quick]
        if n:
            for one in reuse_many.many(n, quick, backend):
                yield replace(one, measure=one.measure.replace("many/", f"many/{backend}/"))


EXPERIMENTS = (
    *(
        Experiment(
            f"reuse/{load}",
            f"Dataflows that share their steps: {NAMES[load]}",
            functools.partial(_experiment, load),
            "Dataflows come and go, on one side each by itself, on the other with each distinct step run once. The "
            "paper, with Storm on nodes of eight cores, has 38 to 46 % fewer running tasks and 36 to 51 % less CPU "
            "time, the lower ends with the synthetic dataflows; there sharing costs more than it saves when most are "
            "gone." + (OPMW if load == "opmw" else ""),
            _figures(load),
            seconds,
        )
        for load, seconds in (("riot", (13.0, 60.0)), ("opmw", (17.0, 300.0)))
    ),
    Experiment(
        "reuse/spark",
        "Dataflows that share their steps, on Spark",
        _spark_experiment,
        "Dataflows come and go, on one side each as a query, on the other managed: as they come, and with queries "
        f"that hang together made one. At most {AT_ONCE} at once ({reuse_carried.AT_ONCE} in the quick form), which "
        "two cores carry where each is a query. CPU time is that of driver, JVM and workers. Then, in the full form, "
        "what two cores carry at 100 messages per second each. The paper's dataflows take 36 to 51 % less CPU time "
        "together.",
        tuple(
            Figure(
                f"{walk}-cores",
                f"Cores used on Spark: {WALKS[walk]}",
                rf"reuse/spark/{walk}/cores/(?P<series>[\w-]+)/(?P<x>\d+)",
                "actions",
                "cores",
                "line",
            )
            for walk in TRACES
        ),
        (107.0, 3700.0),
    ),
    Experiment(
        "reuse/many",
        "Many dataflows over one stream",
        _many_experiment,
        "Dataflows over one subscription of 500 messages per second, each a filter of its own and an average by "
        "sensor: how late their results are, and what memory each takes.",
        (),
        (12.0, 300.0),
    ),
)
