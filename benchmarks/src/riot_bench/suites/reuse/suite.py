"""Savings by sharing: the same dataflows are submitted and removed, separately and with shared steps."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_bench.suites.reuse import capacity, ends, local, many_dataflows, near_peak, paper_range, spark, submission
from riot_bench.suites.reuse.traces import Action, count_steps
from riot_bench.suites.reuse.workloads import TERMS, opmw_like, pi_series, riot21
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import signatures

__all__ = ["EXPERIMENTS", "measures"]

TRACES = ("seq", "rw1", "rw2")
WORKLOADS = ("riot", "opmw")
BACKENDS = ("null", "local", "spark")

#: Maximum number of dataflows on Spark: as many as two cores carry as separate queries.
MAX_CONCURRENT = 12
#: Actions of a walk (full and quick form); on Spark each takes about fifteen seconds, three times.
WALK, WALK_ON_SPARK = (local.WALK_ACTIONS, 10), (16, 10)
#: In the quick form, records are processed after every this many actions.
QUICK_TURN_EVERY = {"riot": 1, "opmw": 3}
#: Messages of each source whose results are compared (full and quick form): for dataflows that are submitted together,
#: and between two actions of a trace. A task of opmw works for a millisecond on each.
COMPARED_MESSAGES = {"riot": (1000, 100), "opmw": (10, 1)}
LIFETIME_MESSAGES = {"riot": (20, 2), "opmw": (1, 1)}


def measures(
    quick: bool = False,
    trace: Sequence[str] = TRACES,
    workload: Sequence[str] = WORKLOADS[:1],
    backend: str = "local",
    many: int | None = None,
    carried: bool = False,
    at_once: int = MAX_CONCURRENT,
    steps: bool = False,
) -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    trace : sequence of str, default all
        ``seq``: all dataflows are submitted, then all removed; ``rw1``, ``rw2``: random walks.
    workload : sequence of str, default ("riot",)
        ``riot``: 21 dataflows of RIoTBench's tasks; ``opmw``: 35 synthetic ones with a millisecond per record and task.
    backend : "local", "null" or "spark", default "local"
        ``null`` only counts steps. ``spark`` runs up to ``at_once`` dataflows as queries, separate and shared; walks
        have
        fewer actions there, so that a trace takes less than half an hour.
    many : int, optional
        Measure only this number of dataflows over one stream, in process or on Spark.
    carried : bool, default False
        Measure only how many dataflows at 100 messages per second two cores carry on Spark, separate and shared.
    at_once : int, default 12
        Maximum number of dataflows on Spark; the default is what two cores carry as separate queries. The first seven
        of "riot" read one stream and share as much as all. A walk takes as many dataflows as respect this maximum.
    steps : bool, default False
        Whether to yield the measures after each action, too, as the paper's figures show.
    """
    if many is not None:
        if backend not in ("local", "spark"):
            raise ConfigError(f"--many needs --backend local or spark, got {backend!r}")
        yield from many_dataflows.many_measures(many, quick, backend)
        return
    if carried and backend != "spark":
        raise ConfigError(f"--carried needs --backend spark, got {backend!r}")
    if at_once < 1:
        raise ConfigError(f"at_once must be >= 1, got {at_once}")
    for given, known in ((trace, TRACES), (workload, WORKLOADS), ((backend,), BACKENDS)):
        for one in given:
            if one not in known:
                raise ConfigError(f"{one!r} is not one of {', '.join(known)}{did_you_mean(one, known)}")
    if backend != "spark" and "riot" in workload:  # once for all experiments
        yield submission.submit_measure()
    for load in workload:
        made = riot21() if load == "riot" else opmw_like(work=_tenth_of_work if quick else pi_series)
        flows = {flow.name: flow for flow in made}
        light = flows if load == "riot" else {flow.name: flow for flow in opmw_like(work=_hundredth_of_work)}
        if carried:
            some = dict(list(flows.items())[: capacity.CONCURRENT if quick else None])
            yield from capacity.capacity_measures(f"reuse/{load}/carried", some, quick, local.open_source)
            continue
        if backend == "local":  # also loads all code
            yield local.check_outputs(f"reuse/{load}/outputs-equal", flows, COMPARED_MESSAGES[load][quick])
        for walk in trace:
            found = local.step_measures(f"reuse/{load}/{walk}", load, walk, flows)
            yield from (one for one in found if steps or not _is_trace_point(one))
            if backend == "local":
                actions = local.make_trace(walk, flows, WALK[quick])
                yield local.check_lifetimes(
                    f"reuse/{load}/{walk}/outputs-equal", actions, light, LIFETIME_MESSAGES[load][quick]
                )
                with pinned_to_one_core():
                    found = local.cpu_measures(
                        f"reuse/{load}/{walk}", load, actions, flows, QUICK_TURN_EVERY[load] if quick else 1
                    )
                    yield from (one for one in found if steps or not _is_trace_point(one))
        if backend == "local" and tuple(trace) == TRACES:
            yield from _seed_measures(load, flows, quick)
        if backend == "spark":
            found = _spark(f"reuse/{load}", flows, trace, quick, at_once)
            yield from (one for one in found if steps or not _is_trace_point(one))


def _seed_measures(load: str, flows: dict[str, Dataflow], quick: bool) -> Iterator[Measure]:
    """Measure walks of several seeds, and workloads of several seeds if they are random."""
    seeds = QUICK_SEEDS if quick else SEEDS
    walks = {seed: local.make_trace(f"rw{seed}", flows, WALK[quick]) for seed in seeds}
    yield from _savings_by_seed(f"reuse/{load}/walks", load, {seed: (walks[seed], flows) for seed in seeds}, quick)
    if load == "opmw":
        made = {seed: opmw_like(seed, work=_tenth_of_work if quick else pi_series) for seed in seeds}
        named = {seed: {flow.name: flow for flow in several} for seed, several in made.items()}
        runs = {seed: (local.make_trace("seq", several), several) for seed, several in named.items()}
        yield from _savings_by_seed("reuse/opmw/workloads", load, runs, quick)


def _savings_by_seed(
    name: str, load: str, runs: dict[int, tuple[list[Action], dict[str, Dataflow]]], quick: bool
) -> Iterator[Measure]:
    """Measure the savings of each seed: median and all values."""
    tasks, cpu = list[float](), list[float]()
    for actions, flows in runs.values():
        tasks.append(count_steps(actions, {f.name: signatures(f).values() for f in flows.values()}).total)
        with pinned_to_one_core():
            found = local.cpu_measures("", load, actions, flows, QUICK_TURN_EVERY[load] if quick else 1)
            cpu += [one.value for one in found if one.measure == "/cpu-reduction"]
    how = f"median of the seeds {', '.join(map(str, runs))}, summed over the trace"
    yield Measure(f"{name}/tasks-sum-reduction", median(tasks), "share", how, values=tuple(tasks))
    paper = local.PAPER_CPU_SAVINGS[load]
    yield Measure(f"{name}/cpu-reduction", median(cpu), "share", how, values=tuple(cpu), published=paper)


def _spark(
    name: str, flows: dict[str, Dataflow], trace: Sequence[str], quick: bool, at_once: int = MAX_CONCURRENT
) -> Iterator[Measure]:
    """Measure some of the dataflows on Spark, separate and shared."""
    traces = {walk: _limited_trace(walk, flows, at_once, WALK_ON_SPARK[quick]) for walk in trace}
    return spark.measures(name, flows, traces, quick, local.open_source, at_once)


def _limited_trace(walk: str, flows: dict[str, Dataflow], at_once: int, steps: int) -> Sequence[Action]:
    """Create the trace of the longest prefix of the dataflows that runs at most ``at_once`` of them concurrently."""
    for n in range(len(flows), 1, -1):
        actions = local.make_trace(walk, dict(list(flows.items())[:n]), steps)
        if max(spark.running_counts(actions)) <= at_once:
            return actions
    return local.make_trace(walk, dict(list(flows.items())[:1]), steps)


def _tenth_of_work(row: dict[str, Any]) -> dict[str, Any]:
    """Do a tenth of a task's work: with all of it, three walks take five minutes."""
    return pi_series(row, TERMS // 10)


def _hundredth_of_work(row: dict[str, Any]) -> dict[str, Any]:
    """Do a hundredth of a task's work, where only outputs are compared."""
    return pi_series(row, TERMS // 100)


def _is_trace_point(one: Measure) -> bool:
    """Return whether a measure is a point of a trace in a figure."""
    return re.search(r"/(tasks|cpu|cores)/", one.measure) is not None


# -- the paper's figures ---------------------------------------------------------------------------

#: Seeds of random walks and of random workloads.
SEEDS, QUICK_SEEDS = (1, 2, 3, 4, 5), (1, 2)
NAMES = {"riot": "21 dataflows of RIoTBench's tasks", "opmw": "35 synthetic dataflows"}
#: Dataflows over one stream, in process and on Spark (full and quick form).
MANY = {"local": (3000, 300), "spark": (300, None)}
WALKS = {"seq": "all submitted, then all removed", "rw1": "first walk", "rw2": "second walk"}


OPMW_NOTE = (
    " Here a task that two others feed joins their records, so that each task processes each message once. In the "
    "quick form a task does a tenth of its work, and records are processed after every third action."
)
RIOT_NOTE = (
    " At the low rates here, most of the saved CPU time is the fixed cost of batches; reuse/near-peak has the saving "
    "at a high rate, reuse/ends that with sources and sinks at a broker."
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
    """Measure the traces of RIoTBench's tasks on Spark and the capacity of two cores; the quick form is one trace."""
    flows = {flow.name: flow for flow in riot21()}
    if quick:
        yield from _spark("reuse/spark", flows, TRACES[:1], quick, capacity.CONCURRENT)
        return
    yield from _spark("reuse/spark", flows, TRACES, quick)
    yield from capacity.capacity_measures("reuse/spark/carried", flows, quick, local.open_source)


def _many_experiment(quick: bool) -> Iterator[Measure]:
    """Measure many dataflows over one stream, in process and on Spark."""
    for backend, counts in MANY.items():
        n = counts[quick]
        if n:
            for one in many_dataflows.many_measures(n, quick, backend):
                yield replace(one, measure=one.measure.replace("many/", f"many/{backend}/"))


def _ends_experiment(quick: bool) -> Iterator[Measure]:
    """Measure the sequential trace of RIoTBench's tasks with both kinds of ends; the quick form has one stream."""
    flows = {flow.name: flow for flow in riot21() if flow.name.startswith("grid") or not quick}
    yield from ends.end_measures("reuse/ends", flows, local.make_trace("seq", flows))


def _near_peak_experiment(quick: bool) -> Iterator[Measure]:
    """Measure RIoTBench's tasks near the peak rate of separate dataflows; the quick form has one stream."""
    flows = {flow.name: flow for flow in riot21() if flow.name.startswith("grid") or not quick}
    yield from near_peak.peak_measures("reuse/near-peak", flows, quick, local.open_source)


def _range_experiment(quick: bool) -> Iterator[Measure]:
    """Measure as many dataflows as the paper's journal version has; the quick form only counts tasks."""
    flows = paper_range.paper_dataflows(_tenth_of_work)
    yield from paper_range.range_measures("reuse/range", flows, local.make_trace("seq", flows), run=not quick)


EXPERIMENTS = (
    *(
        Experiment(
            f"reuse/{load}",
            f"Dataflows that share their steps: {NAMES[load]}",
            functools.partial(_experiment, load),
            "Dataflows are submitted and removed, run separately and with each distinct step run once. The paper, with "
            "Storm on nodes of eight cores, has 38 to 46 % fewer running tasks and 36 to 51 % less CPU time, the lower "
            "ends for the synthetic dataflows; for these, sharing costs more than it saves when most dataflows have "
            "been removed." + (OPMW_NOTE if load == "opmw" else RIOT_NOTE),
            _figures(load),
            seconds,
        )
        for load, seconds in (("riot", (18.0, 140.0)), ("opmw", (22.0, 400.0)))
    ),
    Experiment(
        "reuse/spark",
        "Dataflows that share their steps, on Spark",
        _spark_experiment,
        "Dataflows are submitted and removed, as separate queries and through the manager, without and with merging of "
        f"connected queries. At most {MAX_CONCURRENT} run concurrently ({capacity.CONCURRENT} in the quick form), "
        "which two cores carry as separate queries. CPU time is that of driver, JVM and workers. The full form also "
        "measures how many dataflows at 100 messages per second two cores carry. In the paper, sharing takes 36 "
        "to 51 % less CPU time. At these low rates, most of the saved CPU time is the fixed cost of micro-batches; "
        "reuse/near-peak has the saving at a high rate, in process.",
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
        "Dataflows over one subscription of 500 messages per second, each with its own filter and an average by "
        "sensor: "
        "latency of the results, and memory of each dataflow.",
        (),
        (12.0, 300.0),
    ),
    Experiment(
        "reuse/ends",
        "Dataflows that share their steps, with sources and sinks at a broker",
        _ends_experiment,
        "The sequential trace of RIoTBench's tasks in process, with two kinds of ends. `discard`: sources generate "
        "their messages, sinks discard, as in the other experiments. `mqtt`: each separate dataflow subscribes to its "
        "stream at a Mosquitto, shared ones have one subscription per stream, and each dataflow publishes its results, "
        "with QoS 1. The paper runs an Apollo broker over MQTT; what its sources and sinks cost is not known. CPU time "
        "is that of the dataflows with their clients; the broker's is a row of its own. In the paper, sharing takes 36 "
        "to 51 % less CPU time. The quick form has the seven dataflows of one stream.",
        (),
        (4.0, 40.0),
    ),
    Experiment(
        "reuse/near-peak",
        "Dataflows that share their steps, near the peak rate",
        _near_peak_experiment,
        "All 21 dataflows of RIoTBench's tasks run on one core. A search finds the peak rate of separate and of shared "
        f"dataflows. At {100 * near_peak.LOAD:.0f} % of the peak of the separate ones, dataflows are removed and "
        "submitted again; the CPU time of these actions and that between them are rows of their own. Here batches are "
        "large, so that their fixed cost counts little. What remains is the work on records, most of it in the steps "
        "that publish and insert, which no other dataflow shares. The quick form has the seven dataflows of one "
        "stream, and its search is rough.",
        (),
        (7.0, 480.0),
    ),
    Experiment(
        "reuse/range",
        "As many dataflows as the paper has",
        _range_experiment,
        f"{paper_range.DATAFLOWS} dataflows, as many as the paper's journal version has: 21 of RIoTBench's tasks and "
        f"synthetic ones, whose tasks do a tenth of their work. {paper_range.BETWEEN_S} s of the streams pass between "
        "two actions, with ten messages per second of RIoTBench's streams and one of each other. The quick form counts "
        "tasks without running them. The journal version has 34 to 45 % fewer running tasks and 29 to 63 % less CPU "
        "time; its rates, its work per task and the time between its actions are not known.",
        (),
        (2.0, 1300.0),
    ),
)
