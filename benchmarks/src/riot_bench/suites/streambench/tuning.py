"""StreamBench's tuning suite ("knobs"): effect of single settings of a run on Spark on throughput and latency."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations
from riot_bench.harness.numbered_lines import NumberedLines, write_numbered
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.streambench.factorial import factorial
from riot_bench.suites.streambench.formulas import pareto_front
from riot_bench.suites.streambench.programs import PROGRAMS, choose_programs
from riot_bench.suites.streambench.runs import (
    IN_MEMORY_STORE,
    Run,
    check_implementations,
    check_on_spark,
    program_flow,
    run_packed,
    run_pyspark,
)
from riot_ops import streams
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.applications import application
from riot_ops.ingest.pace import PacedSource
from riot_ops.spark.session_check import ROCKSDB

__all__ = ["PAPER_EFFECTS", "SettingRun", "Sizes", "relative_effect", "tuning"]

#: Seconds that a query may take to start.
START_S = 10.0
#: Minimum number of repetitions for an interval.
MIN_REPETITIONS = 3
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKSUM = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
#: Effect of the last against the first setting in the paper, in % of throughput and of latency.
PAPER_EFFECTS = {"partitions": (69.0, 33.0), "state": (math.nan, 12.0), "crossing": (33.0, -26.0)}
#: Notes on the corresponding settings of the paper.
PAPER_NOTES = {
    "partitions": "published: partitions of the broker, 48 and 162, word count",
    "state": "published: no write-ahead log and one",
    "crossing": "published: Java's serializer and Kryo, with a receiver; without one no difference",
    "records": "published: both rise with the records per micro-batch",
    "trigger": "published: latency far lower with short intervals",
}


@dataclass(frozen=True)
class Sizes:
    """Amount of work.

    Attributes
    ----------
    lines_per_file, files : int
        Lines of a file, and files of a run.
    triggers : tuple of str
    rate, seconds : float
        Records per second and duration of the runs with different triggers.
    limit_s : float
        Time limit of a run.
    together : tuple of str
        Programs of the factorial experiment; none in the quick form.
    levels : (int, int)
        Records of a micro-batch in the factorial experiment, in files.
    repetitions : int
    ends : bool
        Whether to run only the first and the last setting of each knob.
    """

    lines_per_file: int
    files: int
    triggers: tuple[str, ...]
    rate: float
    seconds: float
    limit_s: float
    together: tuple[str, ...]
    levels: tuple[int, int]
    repetitions: int
    ends: bool = False


FULL = Sizes(
    lines_per_file=25_000,
    files=40,
    triggers=("0 seconds", "0.5 seconds", "1 second", "5 seconds", "20 seconds"),
    rate=20_000.0,
    seconds=60.0,
    limit_s=600.0,
    together=("wordcount", "identity"),
    levels=(2, 8),
    repetitions=3,
)
QUICK = Sizes(8_000, 16, ("0 seconds", "5 seconds"), 10_000.0, 12.0, 30.0, (), (2, 4), 1, ends=True)


class SettingRun(NamedTuple):
    """A repetition: throughput (records/s; NaN if not measured), 95th percentile of latency (ms), and a caveat."""

    rate: float
    latency: float
    caveat: str = ""


@dataclass(frozen=True)
class Setting:
    """Options of ``start`` and settings of Spark, or an implementation in plain PySpark and its state store."""

    options: Mapping[str, Any]
    spark: Mapping[str, str] | None = None
    implementation: str = "packed"
    store: str | None = None


def tuning_settings(each: int) -> dict[str, dict[str, Setting]]:
    """Return the settings of each knob for files of ``each`` lines.

    Other knobs use the third setting of ``records``.
    """
    base = {"max_records": 4 * each, "partitions": 2, "buffering": Buffering()}

    def options(name: str, *values: Any) -> dict[str, Setting]:
        return {str(value): Setting({**base, name: value}) for value in values}

    def buffers(name: str, *values: Any) -> dict[str, Setting]:
        return {str(value): Setting({**base, "buffering": replace(Buffering(), **{name: value})}) for value in values}

    return {
        "records": options("max_records", each, 2 * each, 4 * each, 8 * each),
        "partitions": options("partitions", 1, 2, 4, 8),
        "block": buffers("capacity", 1 << 14, 1 << 18, 1 << 23),
        "compression": buffers("codec", None, "lz4", "zstd"),
        "state": {
            "snapshots": Setting(base, spark={CHANGELOG: "false"}),
            "changelog": Setting(base, spark={CHANGELOG: "true"}),
        },
        "checksum": {
            "off": Setting(base, spark={CHECKSUM: "false"}),
            "on": Setting(base, spark={CHECKSUM: "true"}),
        },
        "store": {
            "memory": Setting(base, implementation="expressions", store=IN_MEMORY_STORE),
            "rocksdb": Setting(base, implementation="expressions", store=ROCKSDB),
        },
        "crossing": {"pickled": Setting(base, implementation="pickled"), "arrow": Setting(base, implementation="udf")},
    }


def relative_effect(first: float, last: float) -> float:
    """Return by how many % ``last`` exceeds ``first``.

    >>> relative_effect(100.0, 169.0)
    69.0
    """
    if not first > 0:
        raise ConfigError(f"first must be > 0, got {first}")
    return round(100 * (last / first - 1), 9)


def tuning(quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Measure each knob with default settings of all others for packed word count, and a factorial experiment.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        Programs; without ``wordcount``, the first of them is measured. The factorial experiment runs those that
        ``sizes`` names.
    scale : float, default 1
        Factor of the lines of a file and of the rate.
    sizes : Sizes, optional
        By default those of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    limit_s = sizes.limit_s * max(1.0, scale)
    sizes = replace(
        sizes, lines_per_file=max(4, int(sizes.lines_per_file * scale)), rate=sizes.rate * scale, limit_s=limit_s
    )
    programs = choose_programs(programs, tuple(PROGRAMS))
    name = "wordcount" if "wordcount" in programs else programs[0]
    points: dict[str, tuple[float, float]] = {}
    with temporary_folder() as base, spark_session(2) as spark:
        data = write_numbered(
            application(name).inputs["lines"], base / "lines", sizes.files // 4, 4 * sizes.lines_per_file
        )
        first = data.first_batches(1)
        wanted = check_implementations(name, first)
        run_packed(spark, name, data, sizes.limit_s)  # the very first query is slow in all of its micro-batches
        for knob, of_knob in tuning_settings(sizes.lines_per_file).items():
            if sizes.ends:
                of_knob = dict([*of_knob.items()][:: len(of_knob) - 1])
            found = {}
            for setting in of_knob.values():
                _check_results(spark, name, first, wanted, setting)
            for label, setting in of_knob.items():
                found[label] = [_run(spark, name, data, setting, sizes.limit_s) for _ in range(sizes.repetitions)]
                if setting.implementation == "packed":
                    points[f"{knob}={label}"] = _median(found[label])
                how = f"{setting.implementation} {name}, {data.total:,} records, default settings of all other knobs"
                yield from _figures(knob, label, found[label], how)
            yield from _effects(knob, found)
        found = {}
        for trigger in sizes.triggers:
            found[trigger] = [_run_paced(spark, name, data, trigger, sizes) for _ in range(sizes.repetitions)]
            yield from _figures(
                "trigger", trigger.split()[0], found[trigger], f"packed {name}, {sizes.rate:g} records/s"
            )
        yield from _effects("trigger", found)
        for other in [one for one in sizes.together if one in programs]:
            lines = write_numbered(
                application(other).inputs["lines"], base / other, sizes.files // 4, 4 * sizes.lines_per_file
            )
            check_on_spark(
                spark, other, "packed", lines.first_batches(1), check_implementations(other, lines.first_batches(1))
            )
            levels = [sizes.lines_per_file * files for files in sizes.levels]
            yield from factorial(spark, other, lines, (0.0, 1.0), levels, (1, 4), sizes.limit_s)
    best = pareto_front(points)
    how = f"packed {name}, Pareto front of throughput and latency: {', '.join(best)}"
    yield Measure("streambench/knobs/pareto", len(best), "settings", how)


def _run(spark: Any, name: str, data: NumberedLines, setting: Setting, limit_s: float) -> SettingRun:
    """Measure records per second after the first micro-batch, and the 95th percentile of a micro-batch's duration."""
    with _spark_conf(spark, setting.spark or {}):
        if setting.implementation == "packed":
            run: Run = run_packed(spark, name, data, limit_s, **setting.options)
        else:
            run = run_pyspark(spark, name, setting.implementation, data, limit_s, store=setting.store)
    latency = 1000 * float(np.percentile(run.spent, 95))
    return SettingRun(run.lines * len(run.spent) / sum(run.spent), latency, "saturated" if run.saturated else "")


def _check_results(spark: Any, name: str, data: NumberedLines, wanted: str, setting: Setting) -> None:
    options = setting.options if setting.implementation == "packed" else {}
    with _spark_conf(spark, setting.spark or {}):
        check_on_spark(spark, name, setting.implementation, data, wanted, store=setting.store, **options)


def _run_paced(spark: Any, name: str, data: NumberedLines, trigger: str, sizes: Sizes) -> SettingRun:
    """Measure the 95th percentile of the time from when a record is due until its output, and whether the run kept up.

    It kept up if it was done in time and micro-batches took no longer than the trigger on average. The duration of the
    run does not show the throughput, since it includes the start and the wait for the last trigger.
    """
    messages = round(sizes.rate * sizes.seconds)
    source = PacedSource(streams.generate(data.stream, messages=messages), rate=sizes.rate)
    begun = time.monotonic()
    query = program_flow(name).start(spark, source, sinks=DiscardSink(), trigger=trigger)
    query.wait(timedelta(seconds=sizes.seconds + sizes.limit_s))
    took = time.monotonic() - begun
    late = query.active
    if late:
        query.stop()
    spent, every = durations(query.streaming), float(trigger.split(maxsplit=1)[0])
    late = late or took > sizes.seconds + START_S + every + 2 * median(spent or [0.0])
    late = late or bool(every and sum(spent) > every * len(spent))
    latency = 1000 * query.summary.latency.quantiles(0.95)[0]
    return SettingRun(math.nan, latency, "did not keep up" if late else "kept up")


@contextmanager
def _spark_conf(spark: Any, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _median(found: Sequence[SettingRun]) -> tuple[float, float]:
    return median(one.rate for one in found), median(one.latency for one in found)


def _caveats(found: Sequence[SettingRun]) -> str:
    """Join the distinct caveats of repetitions."""
    return "".join(f"; {mark}" for mark in dict.fromkeys(one.caveat for one in found) if mark)


def _repetition_note(found: Sequence[SettingRun]) -> str:
    return (
        ""
        if len(found) >= MIN_REPETITIONS
        else f"; too few repetitions for an interval: {len(found)} of {MIN_REPETITIONS}"
    )


def _figures(knob: str, label: str, found: Sequence[SettingRun], how: str) -> Iterator[Measure]:
    rates, latencies, _ = zip(*found, strict=True)
    at, how = f"streambench/knobs/{knob}/{label}", how + _caveats(found) + _repetition_note(found)
    if not math.isnan(rates[0]):
        yield Measure(f"{at}/throughput", median(rates), "records/s", how, values=rates)
    yield Measure(f"{at}/latency-p95", median(latencies), "ms", how, values=latencies)


def _effects(knob: str, found: Mapping[str, Sequence[SettingRun]]) -> Iterator[Measure]:
    """Yield the effect of the last against the first setting, repetition by repetition, with the paper's values."""
    (first, least), *_, (last, most) = found.items()
    how = "; ".join(filter(None, (f"{last} against {first}", PAPER_NOTES.get(knob, ""))))
    how += _caveats([*least, *most]) + _repetition_note(least)
    pairs = [(a[:2], b[:2]) for a, b in zip(least, most, strict=True)]
    for place, of in enumerate(("throughput", "latency")):
        if math.isnan(pairs[0][0][place]):
            continue
        paper_effect = PAPER_EFFECTS.get(knob, (math.nan, math.nan))[place]
        grown = tuple(relative_effect(a[place], b[place]) for a, b in pairs)
        at = f"streambench/knobs/{knob}/effect-{of}"
        yield Measure(
            at, median(grown), "%", how, published=None if math.isnan(paper_effect) else paper_effect, values=grown
        )
