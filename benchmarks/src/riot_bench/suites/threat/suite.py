"""Threat detection: how right the network is, throughput by cores, and what a failure does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from riot_bench.harness.data import Discard, needs
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure, median, one_core, seconds
from riot_bench.harness.micro_batches import folder, intervals, spark_session
from riot_bench.suites.streambench.data import NumberedLines, write_numbered
from riot_bench.suites.threat.cluster import crashed, lost_driver, lost_parts
from riot_bench.suites.threat.failure import forgotten, killed
from riot_ops import dataflows
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.measure.classification import Judgement, judged
from riot_ops.models import NetworkModel
from riot_ops.runtime.parallel import available
from riot_ops.streams.streambench import FlowsSource
from riot_ops.streams.streambench.flow_packets import CLASSES
from riot_ops.streams.streambench.flows import FEATURES

__all__ = ["EXPERIMENTS", "measures"]

#: Flows of a training, of which 70 % are learnt from and the others judged.
FLOWS, LEARNT = 10_000, 0.7


@dataclass(frozen=True)
class Sizes:
    """Trainings; lines of a micro-batch, and how many there are; repetitions in process; cores; triggers."""

    trainings: int
    batch: int
    batches: int
    repetitions: int
    cores: tuple[int, ...]
    triggers: tuple[str | None, ...]


FULL = Sizes(5, 100_000, 10, 7, (1, 2, 4), (None, "0.5 seconds"))
QUICK = Sizes(3, 20_000, 4, 3, (1, 2), (None,))


def classifier(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Accuracy, precision, recall and F1 of networks that scikit-learn trains, and how far its own are from ours."""
    needs("this benchmark", "ml", "sklearn")
    sizes = sizes or (QUICK if quick else FULL)
    found: list[Judgement] = []
    apart = 0.0
    for seed in range(1, sizes.trainings + 1):
        one, difference = _trained(seed)
        found.append(one)
        apart = max(apart, difference)
    how = f"of {round(FLOWS * (1 - LEARNT)):,} flows, by networks trained on {round(FLOWS * LEARNT):,} others"
    told: dict[str, Callable[[Judgement], float]] = {"accuracy": lambda one: one.accuracy}
    for name in CLASSES:
        told[f"precision/{name}"] = lambda one, name=name: one.precision[name]  # type: ignore[misc]
        told[f"recall/{name}"] = lambda one, name=name: one.recall[name]  # type: ignore[misc]
        told[f"f1/{name}"] = lambda one, name=name: one.f1[name]  # type: ignore[misc]
    for name, figure in told.items():
        values = tuple(figure(one) for one in found)
        yield Measure(f"threat/classifier/{name}", median(values), "share", how, values=values)
    for row, truth in enumerate(CLASSES):
        for column, name in enumerate(CLASSES):
            amounts = tuple(float(one.confusion[row, column]) for one in found)
            yield Measure(
                f"threat/confusion/{truth}/{name}", median(amounts), "flows", "truly, and found", values=amounts
            )
    against = "largest difference from predict_proba of the pipeline that it was made of"
    yield Measure("threat/classifier/difference", apart, "probability", against, 1e-9, at_most=True)


def _trained(seed: int) -> tuple[Judgement, float]:
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, label = FlowsSource(seed=seed, records=FLOWS).vectors()
    names = np.array(CLASSES)[label]
    learnt, rest, of_learnt, of_rest = train_test_split(x, names, train_size=LEARNT, stratify=names, random_state=seed)
    network = MLPClassifier((24,), activation="relu", max_iter=200, early_stopping=True, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), network).fit(learnt, of_learnt)
    model = NetworkModel.from_sklearn(pipeline, FEATURES, "threat", classes=CLASSES)
    probabilities = model.probabilities(rest)
    order = [CLASSES.index(name) for name in pipeline.classes_]
    apart = float(np.abs(probabilities[:, order] - pipeline.predict_proba(rest)).max())
    truth = [CLASSES.index(name) for name in of_rest]
    return judged(truth, model.winners(probabilities), CLASSES), apart


def throughput(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Messages per minute by the cores, in process and on Spark; messages are there before a run begins."""
    needs("this benchmark", "bench", "psutil")
    sizes = sizes or (QUICK if quick else FULL)
    with folder() as base:
        data = write_numbered("flows", base / "lines", sizes.batches + 1, sizes.batch)
        yield from _by_cores(
            "local", {p: _in_process(data, sizes, p) for p in (1, 2) if p <= max(2, available())}, data
        )
        for trigger in sizes.triggers:
            label = "spark" if trigger is None else "spark-interval"
            yield from _by_cores(label, {p: _on_spark(data, p, trigger) for p in sizes.cores}, data)


def _in_process(data: NumberedLines, sizes: Sizes, cores: int) -> tuple[float, ...]:
    flow = dataflows.threat()

    def run() -> None:
        flow.run(data.source(), sinks=Discard(), cores=cores)

    run()  # compiles
    if cores > 1:
        return tuple(60 * data.total / seconds(run, 1, warm=0) for _ in range(sizes.repetitions))
    with one_core():
        return tuple(60 * data.total / seconds(run, 1, warm=0) for _ in range(sizes.repetitions))


def _on_spark(data: NumberedLines, cores: int, trigger: str | None) -> tuple[float, ...]:
    """From the end of each micro-batch to that of the next; the results of the first are those in process."""
    flow = dataflows.threat()
    with spark_session(cores) as spark:
        query = flow.start(spark, data.first(1).source(), partitions=cores)
        query.wait()
        wanted, found = (_results(one) for one in (flow.run(data.first(1).source()), query))
        if wanted != found:
            raise RiotError(f"threat detection on {cores} cores of Spark does not come to what it does in process")
        options: dict[str, Any] = {"sinks": Discard(), "max_records": data.batch, "partitions": cores}
        query = flow.start(spark, data.source(cores), trigger=trigger, **options)
        query.wait()
        spent = intervals(query.streaming, data.total // data.batch)
    return tuple(60 * data.batch / s for s in spent)


def _results(result: Any) -> list[tuple[Any, ...]]:
    table = result["threats"].select(["seq", "class", "class_probability"]).sort_by("seq")
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def _by_cores(where: str, rates: Mapping[int, Sequence[float]], data: NumberedLines) -> Iterator[Measure]:
    """By cores the rates of several runs in process, or of the micro-batches of a run on Spark."""
    for cores, values in rates.items():
        crowded = f", more than the {available()} there are" if cores > available() else ""
        how = f"{data.total:,} messages, {cores} cores{crowded}"
        at = f"threat/throughput/{where}/{cores}"
        several: dict[str, Any] = {"values" if where == "local" else "sample": tuple(values)}
        yield Measure(at, median(values), "messages/min", how, **several)
        if cores > 1:
            gain = median(values) / median(rates[1])
            yield Measure(f"threat/speedup/{where}/{cores}", gain, "ratio", f"{how}, against one")
            yield Measure(f"threat/efficiency/{where}/{cores}", gain / cores, "ratio", "that by the cores")


def failures(quick: bool) -> Iterator[Measure]:
    """In process, a run that is killed and started again; on Spark parts of a cluster, in the full form the driver."""
    yield from killed(quick)
    yield from lost_parts(quick)
    if not quick:
        yield from crashed()
        yield from lost_driver()


#: The parts by name.
PARTS: Mapping[str, Callable[[bool], Iterator[Measure]]] = {
    "classifier": classifier,
    "throughput": throughput,
    "failure": failures,
    "at-most-once": forgotten,
}


def measures(quick: bool = False, *, suite: str | None = None) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    suite : str, optional
        One of :data:`PARTS`; by default all of them.
    """
    needs("this benchmark", "bench", "psutil")
    if suite is not None and suite not in PARTS:
        raise ConfigError(f"--suite must be one of {', '.join(PARTS)}, got {suite!r}{did_you_mean(suite, PARTS)}")
    for run in PARTS.values() if suite is None else [PARTS[suite]]:
        yield from run(quick)


def _experiment(name: str, title: str, about: str, seconds: tuple[float, float], *figures: Figure) -> Experiment:
    return Experiment(f"threat/{name}", title, partial(measures, suite=name), about, figures, seconds)


#: The parts as the report shows them.
EXPERIMENTS = (
    _experiment(
        "classifier",
        "Threat detection: how right it is",
        "Networks of one hidden layer of 24 units, trained by scikit-learn on 7,000 generated flows, 80 % of them "
        "ordinary, and held against 3,000 others. The paper tells neither features nor network nor data.",
        (6, 40),
        Figure(
            "threat-classifier",
            "Threat detection: precision, recall and F1 by class",
            r"threat/classifier/(?P<series>precision|recall|f1)/(?P<x>[a-z]+)",
            "class",
            "share",
        ),
    ),
    _experiment(
        "throughput",
        "Threat detection: throughput by cores",
        "Flows that are there before the run are judged as fast as possible, in process and on Spark. The paper found "
        "one core of Storm at least half as fast again as the others, Flink linear, and Spark and Storm saturated from "
        "six and four cores on; up to 15 times between native engines and Spark's micro-batches.",
        (30, 110),
        Figure(
            "threat-throughput",
            "Threat detection: throughput",
            r"threat/throughput/(?P<series>[a-z-]+)/(?P<x>\d+)",
            "cores",
            "messages/min",
            "line",
        ),
    ),
    _experiment(
        "failure",
        "Threat detection: a failure",
        "Messages come at half of the rate that can be done. In process, a run with a checkpoint is killed and started "
        "again; on Spark, a worker is killed and another one started, in the full form an executor, a node for good, "
        "and the driver. The paper lost nothing on Spark, 12.8 % on Flink and 22.2 % on Storm.",
        (121, 1060),
        Figure(
            "threat-failure",
            "Threat detection: messages analysed",
            r"threat/failure/(?P<series>[a-z-]+)/analysed/(?P<x>[\d.]+)",
            "seconds since messages come",
            "messages/s",
            "line",
        ),
    ),
    _experiment(
        "at-most-once",
        "Threat detection: messages that are forgotten",
        "The same in process with a source that takes messages for done when it hands them out, as engines without "
        "acknowledgement or replay do: what was under way when the process was killed is lost. The seconds of the "
        "stream that are lost hang on how often results are written, their share on how long messages come; the 22.2 % "
        "that the paper found on Storm are of a lost worker among eight machines, over a time that it does not tell.",
        (30, 200),
    ),
)
