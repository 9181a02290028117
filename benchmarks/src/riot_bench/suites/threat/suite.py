"""Threat detection: accuracy of the network, throughput by cores, and recovery from failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import intervals
from riot_bench.harness.numbered_lines import NumberedLines, write_numbered
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median, median_seconds
from riot_bench.suites.threat.cluster_failures import cluster_failures, driver_loss, executor_crash
from riot_bench.suites.threat.job_failures import at_most_once, job_failure
from riot_ops import dataflows
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.measure.classification import ClassificationReport, evaluate
from riot_ops.models import NetworkModel
from riot_ops.runtime.parallel import available_cores
from riot_ops.streams.streambench import FlowsSource
from riot_ops.streams.streambench.flow_packets import CLASSES
from riot_ops.streams.streambench.flows import FEATURES

__all__ = ["EXPERIMENTS", "measures"]

#: Flows of a training run, and the share that is used for training; the others are for testing.
FLOWS, TRAINING_SHARE = 10_000, 0.7


@dataclass(frozen=True)
class Sizes:
    """Number of trainings, lines and number of micro-batches, repetitions in process, cores and triggers."""

    trainings: int
    batch: int
    batches: int
    repetitions: int
    cores: tuple[int, ...]
    triggers: tuple[str | None, ...]


FULL = Sizes(5, 100_000, 10, 7, (1, 2, 4), (None, "0.5 seconds"))
QUICK = Sizes(3, 20_000, 4, 3, (1, 2), (None,))


def classifier(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Measure accuracy, precision, recall and F1 of networks trained by scikit-learn, and the difference from it."""
    require_extra("this benchmark", "ml", "sklearn")
    sizes = sizes or (QUICK if quick else FULL)
    found: list[ClassificationReport] = []
    apart = 0.0
    for seed in range(1, sizes.trainings + 1):
        one, difference = _train(seed)
        found.append(one)
        apart = max(apart, difference)
    trained = round(FLOWS * TRAINING_SHARE)
    how = f"over {FLOWS - trained:,} flows, networks trained on {trained:,} others"
    reported: dict[str, Callable[[ClassificationReport], float]] = {"accuracy": lambda one: one.accuracy}
    for name in CLASSES:
        reported[f"precision/{name}"] = lambda one, name=name: one.precision[name]  # type: ignore[misc]
        reported[f"recall/{name}"] = lambda one, name=name: one.recall[name]  # type: ignore[misc]
        reported[f"f1/{name}"] = lambda one, name=name: one.f1[name]  # type: ignore[misc]
    for name, figure in reported.items():
        values = tuple(figure(one) for one in found)
        yield Measure(f"threat/classifier/{name}", median(values), "share", how, values=values)
    for row, truth in enumerate(CLASSES):
        for column, name in enumerate(CLASSES):
            amounts = tuple(float(one.confusion[row, column]) for one in found)
            yield Measure(
                f"threat/confusion/{truth}/{name}",
                median(amounts),
                "flows",
                "true class, predicted class",
                values=amounts,
            )
    against = "maximum difference from predict_proba of the trained pipeline"
    yield Measure("threat/classifier/difference", apart, "probability", against, 1e-9, at_most=True)


def _train(seed: int) -> tuple[ClassificationReport, float]:
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, label = FlowsSource(seed=seed, records=FLOWS).vectors()
    names = np.array(CLASSES)[label]
    learnt, rest, of_learnt, of_rest = train_test_split(
        x, names, train_size=TRAINING_SHARE, stratify=names, random_state=seed
    )
    network = MLPClassifier((24,), activation="relu", max_iter=200, early_stopping=True, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), network).fit(learnt, of_learnt)
    model = NetworkModel.from_sklearn(pipeline, FEATURES, "threat", classes=CLASSES)
    probabilities = model.probabilities(rest)
    order = [CLASSES.index(name) for name in pipeline.classes_]
    apart = float(np.abs(probabilities[:, order] - pipeline.predict_proba(rest)).max())
    truth = [CLASSES.index(name) for name in of_rest]
    return evaluate(truth, model.winners(probabilities), CLASSES), apart


def throughput(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Measure messages per minute by cores, in process and on Spark; messages exist before a run begins."""
    require_extra("this benchmark", "bench", "psutil")
    sizes = sizes or (QUICK if quick else FULL)
    with temporary_folder() as base:
        data = write_numbered("flows", base / "lines", sizes.batches + 1, sizes.batch)
        yield from _by_cores(
            "local", {p: _in_process(data, sizes, p) for p in (1, 2) if p <= max(2, available_cores())}, data
        )
        for trigger in sizes.triggers:
            label = "spark" if trigger is None else "spark-interval"
            yield from _by_cores(label, {p: _on_spark(data, p, trigger) for p in sizes.cores}, data)


def _in_process(data: NumberedLines, sizes: Sizes, cores: int) -> tuple[float, ...]:
    flow = dataflows.threat()

    def run() -> None:
        flow.run(data.source(), sinks=DiscardSink(), cores=cores)

    run()  # compiles
    if cores > 1:
        return tuple(60 * data.total / median_seconds(run, 1, warm=0) for _ in range(sizes.repetitions))
    with pinned_to_one_core():
        return tuple(60 * data.total / median_seconds(run, 1, warm=0) for _ in range(sizes.repetitions))


def _on_spark(data: NumberedLines, cores: int, trigger: str | None) -> tuple[float, ...]:
    """Return the rates between the ends of micro-batches, after checking the first one's results against in process."""
    flow = dataflows.threat()
    with spark_session(cores) as spark:
        query = flow.start(spark, data.first_batches(1).source(), partitions=cores)
        query.wait()
        wanted, found = (_results(one) for one in (flow.run(data.first_batches(1).source()), query))
        if wanted != found:
            raise RiotError(f"threat detection on {cores} cores of Spark has other results than in process")
        options: dict[str, Any] = {"sinks": DiscardSink(), "max_records": data.batch, "partitions": cores}
        query = flow.start(spark, data.source(cores), trigger=trigger, **options)
        query.wait()
        spent = intervals(query.streaming, data.total // data.batch)
    return tuple(60 * data.batch / s for s in spent)


def _results(result: Any) -> list[tuple[Any, ...]]:
    table = result["threats"].select(["seq", "class", "class_probability"]).sort_by("seq")
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def _by_cores(where: str, rates: Mapping[int, Sequence[float]], data: NumberedLines) -> Iterator[Measure]:
    """Yield throughput, speedup and efficiency from rates by cores.

    The rates are of runs in process, or of micro-batches on Spark.
    """
    for cores, values in rates.items():
        crowded = f", more than the {available_cores()} there are" if cores > available_cores() else ""
        how = f"{data.total:,} messages, {cores} cores{crowded}"
        at = f"threat/throughput/{where}/{cores}"
        several: dict[str, Any] = {"values" if where == "local" else "sample": tuple(values)}
        yield Measure(at, median(values), "messages/min", how, **several)
        if cores > 1:
            gain = median(values) / median(rates[1])
            yield Measure(f"threat/speedup/{where}/{cores}", gain, "ratio", f"{how}, against one core")
            yield Measure(f"threat/efficiency/{where}/{cores}", gain / cores, "ratio", "speedup divided by cores")


def failures(quick: bool) -> Iterator[Measure]:
    """Measure failures: of a run in process, of parts of a Spark cluster and, in the full form, of the driver."""
    yield from job_failure(quick)
    yield from cluster_failures(quick)
    if not quick:
        yield from executor_crash()
        yield from driver_loss()


#: Parts of the suite by name.
PARTS: Mapping[str, Callable[[bool], Iterator[Measure]]] = {
    "classifier": classifier,
    "throughput": throughput,
    "failure": failures,
    "at-most-once": at_most_once,
}


def measures(quick: bool = False, *, suite: str | None = None) -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    suite : str, optional
        One of :data:`PARTS`; by default all.
    """
    require_extra("this benchmark", "bench", "psutil")
    if suite is not None and suite not in PARTS:
        raise ConfigError(f"--suite must be one of {', '.join(PARTS)}, got {suite!r}{did_you_mean(suite, PARTS)}")
    for run in PARTS.values() if suite is None else [PARTS[suite]]:
        yield from run(quick)


def _experiment(name: str, title: str, about: str, seconds: tuple[float, float], *figures: Figure) -> Experiment:
    return Experiment(f"threat/{name}", title, partial(measures, suite=name), about, figures, seconds)


#: Parts of the suite in the report.
EXPERIMENTS = (
    _experiment(
        "classifier",
        "Threat detection: accuracy",
        "Networks with one hidden layer of 24 units, trained by scikit-learn on 7,000 generated flows, 80 % of them "
        "ordinary, and tested on 3,000 others. The paper does not state features, network or data.",
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
        "Flows that exist before the run are classified as fast as possible, in process and on Spark. In the "
        "paper, one "
        "core of Storm was at least 1.5 times as fast as one of the others, Flink scaled linearly, Spark and "
        "Storm were "
        "saturated from six and four cores on, and native engines were up to 15 times as fast as Spark's "
        "micro-batches.",
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
        "Threat detection: failures",
        "Messages arrive at half of the peak rate. In process, a run with a checkpoint is killed and restarted; on "
        "Spark, a worker is killed and replaced, in the full form also an executor, a node without replacement, "
        "and the "
        "driver. The paper lost nothing on Spark, 12.8 % on Flink and 22.2 % on Storm.",
        (121, 1060),
        Figure(
            "threat-failure",
            "Threat detection: messages analysed",
            r"threat/failure/(?P<series>[a-z-]+)/analysed/(?P<x>[\d.]+)",
            "seconds since the first message",
            "messages/s",
            "line",
        ),
    ),
    _experiment(
        "at-most-once",
        "Threat detection: at-most-once delivery",
        "The same in process with a source that acknowledges messages when they are read, like engines without "
        "acknowledgement or replay: messages that are in flight when the process is killed are lost. The lost seconds "
        "of the stream depend on how often results are written, their share on the length of the stream; the 22.2 % of "
        "the paper on Storm are for a lost worker among eight machines, over a time that it does not state.",
        (30, 200),
    ),
)
