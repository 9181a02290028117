"""Knobs: what each setting of a run on Spark does to throughput and latency, one at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from riot_bench.harness.data import Discard
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import durations, folder, spark_session
from riot_bench.suites.streambench.data import NumberedLines, write_numbered
from riot_bench.suites.streambench.factorial import factorial
from riot_bench.suites.streambench.forms import PROGRAMS, chosen
from riot_bench.suites.streambench.formulas import pareto
from riot_bench.suites.streambench.runs import IN_MEMORY, Run, agreed, flow_of, on_spark, packed, proved
from riot_ops import streams
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.applications import application
from riot_ops.spark.session_check import ROCKSDB
from riot_ops.ingest.pace import Paced

__all__ = ["PUBLISHED", "Found", "Sizes", "effect", "knobs"]

#: Seconds in which a query starts.
START_S = 10.0
#: So many repetitions tell an interval.
ENOUGH = 3
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKSUM = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
#: What the effect of the last against the first setting was, in % of throughput and of latency.
PUBLISHED = {"partitions": (69.0, 33.0), "state": (math.nan, 12.0), "crossing": (33.0, -26.0)}
#: What the setting was whose effect that is.
SAID = {
    "partitions": "published: partitions of the broker, 48 and 162, word count",
    "state": "published: no write-ahead log and one",
    "crossing": "published: Java's serializer and Kryo, with a receiver; without one no difference",
    "records": "published: both rise with the records per micro-batch",
    "trigger": "published: latency far lower with short intervals",
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured: lines of a file, files of a run; settings of the trigger, and its rate and time.

    ``together`` are the programs for which trigger, records and partitions are combined, which the quick form leaves
    out, ``levels`` these records in files. Each setting is run so many ``repetitions``; with ``ends`` only the first
    and the last of each knob.
    """

    each: int
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
    each=25_000,
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


class Found(NamedTuple):
    """One repetition: throughput (records/s), 95th percentile of latency (ms), and what is to be said of it.

    Where only latency is told, throughput is NaN.
    """

    rate: float
    latency: float
    mark: str = ""


@dataclass(frozen=True)
class Setting:
    """How a run is made: options of ``start``, settings of Spark; or a form in plain PySpark and its store of state."""

    options: Mapping[str, Any]
    spark: Mapping[str, str] | None = None
    form: str = "packed"
    store: str | None = None


def settings(each: int) -> dict[str, dict[str, Setting]]:
    """The knobs and their settings, for files of so many lines; the third of ``records`` is where the others stand."""
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
            "memory": Setting(base, form="expressions", store=IN_MEMORY),
            "rocksdb": Setting(base, form="expressions", store=ROCKSDB),
        },
        "crossing": {"pickled": Setting(base, form="pickled"), "arrow": Setting(base, form="udf")},
    }


def effect(first: float, last: float) -> float:
    """By how many % the last is more than the first.

    >>> effect(100.0, 169.0)
    69.0
    """
    if not first > 0:
        raise ConfigError(f"first must be > 0, got {first}")
    return round(100 * (last / first - 1), 9)


def knobs(quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Each knob by itself, from where all others stand in the middle, for packed word count; and some together.

    Parameters
    ----------
    programs : sequence of str
        The first of them is the one, if ``wordcount`` is none; knobs are turned together for those that the sizes name.
    scale : float, default 1
        Times the lines of a file, and the rate.
    """
    sizes = sizes or (QUICK if quick else FULL)
    limit_s = sizes.limit_s * max(1.0, scale)
    sizes = replace(sizes, each=max(4, int(sizes.each * scale)), rate=sizes.rate * scale, limit_s=limit_s)
    programs = chosen(programs, tuple(PROGRAMS))
    name = "wordcount" if "wordcount" in programs else programs[0]
    points: dict[str, tuple[float, float]] = {}
    with folder() as base, spark_session(2) as spark:
        data = write_numbered(application(name).inputs["lines"], base / "lines", sizes.files // 4, 4 * sizes.each)
        first = data.first(1)
        wanted = agreed(name, first)
        packed(spark, name, data, sizes.limit_s)  # the first query of all is slow, for all of its micro-batches
        for knob, of_knob in settings(sizes.each).items():
            if sizes.ends:
                of_knob = dict([*of_knob.items()][:: len(of_knob) - 1])
            found = {}
            for setting in of_knob.values():
                _prove(spark, name, first, wanted, setting)
            for label, setting in of_knob.items():
                found[label] = [_run(spark, name, data, setting, sizes.limit_s) for _ in range(sizes.repetitions)]
                if setting.form == "packed":
                    points[f"{knob}={label}"] = _median(found[label])
                how = f"{setting.form} {name}, {data.total:,} records, all others as they stand"
                yield from _figures(knob, label, found[label], how)
            yield from _effects(knob, found)
        found = {}
        for trigger in sizes.triggers:
            found[trigger] = [_paced(spark, name, data, trigger, sizes) for _ in range(sizes.repetitions)]
            yield from _figures(
                "trigger", trigger.split()[0], found[trigger], f"packed {name}, {sizes.rate:g} records/s"
            )
        yield from _effects("trigger", found)
        for other in [one for one in sizes.together if one in programs]:
            lines = write_numbered(application(other).inputs["lines"], base / other, sizes.files // 4, 4 * sizes.each)
            proved(spark, other, "packed", lines.first(1), agreed(other, lines.first(1)))
            levels = [sizes.each * files for files in sizes.levels]
            yield from factorial(spark, other, lines, (0.0, 1.0), levels, (1, 4), sizes.limit_s)
    best = pareto(points)
    how = f"of packed {name}, no other is better in both: {', '.join(best)}"
    yield Measure("streambench/knobs/pareto", len(best), "settings", how)


def _run(spark: Any, name: str, data: NumberedLines, setting: Setting, limit_s: float) -> Found:
    """Records per second behind the first micro-batch, and the 95th percentile of the time of one."""
    with _conf(spark, setting.spark or {}):
        if setting.form == "packed":
            run: Run = packed(spark, name, data, limit_s, **setting.options)
        else:
            run = on_spark(spark, name, setting.form, data, limit_s, store=setting.store)
    latency = 1000 * float(np.percentile(run.spent, 95))
    return Found(run.lines * len(run.spent) / sum(run.spent), latency, "saturated" if run.saturated else "")


def _prove(spark: Any, name: str, data: NumberedLines, wanted: str, setting: Setting) -> None:
    options = setting.options if setting.form == "packed" else {}
    with _conf(spark, setting.spark or {}):
        proved(spark, name, setting.form, data, wanted, store=setting.store, **options)


def _paced(spark: Any, name: str, data: NumberedLines, trigger: str, sizes: Sizes) -> Found:
    """The 95th percentile of the time from when a record was due until it was put out, and whether it kept up.

    It did where it was done in time, and a micro-batch took no longer than the trigger in the mean. How long the run
    took says nothing of throughput: it starts, and waits for its last trigger.
    """
    messages = round(sizes.rate * sizes.seconds)
    source = Paced(streams.generate(data.stream, messages=messages), rate=sizes.rate)
    begun = time.monotonic()
    query = flow_of(name).start(spark, source, sinks=Discard(), trigger=trigger)
    query.wait(sizes.seconds + sizes.limit_s)
    took = time.monotonic() - begun
    late = query.active
    if late:
        query.stop()
    spent, every = durations(query.streaming), float(trigger.split(maxsplit=1)[0])
    late = late or took > sizes.seconds + START_S + every + 2 * median(spent or [0.0])
    late = late or bool(every and sum(spent) > every * len(spent))
    latency = 1000 * query.summary.latency.quantiles(0.95)[0]
    return Found(math.nan, latency, "did not keep up" if late else "kept up")


@contextmanager
def _conf(spark: Any, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _median(found: Sequence[Found]) -> tuple[float, float]:
    return median(one.rate for one in found), median(one.latency for one in found)


def _said(found: Sequence[Found]) -> str:
    """What is to be said of repetitions: of each that has something to say, once."""
    return "".join(f"; {mark}" for mark in dict.fromkeys(one.mark for one in found) if mark)


def _few(found: Sequence[Found]) -> str:
    return "" if len(found) >= ENOUGH else f"; too few repetitions for an interval: {len(found)} of {ENOUGH}"


def _figures(knob: str, label: str, found: Sequence[Found], how: str) -> Iterator[Measure]:
    rates, latencies, _ = zip(*found, strict=True)
    at, how = f"streambench/knobs/{knob}/{label}", how + _said(found) + _few(found)
    if not math.isnan(rates[0]):
        yield Measure(f"{at}/throughput", median(rates), "records/s", how, values=rates)
    yield Measure(f"{at}/latency-p95", median(latencies), "ms", how, values=latencies)


def _effects(knob: str, found: Mapping[str, Sequence[Found]]) -> Iterator[Measure]:
    """What the last setting does against the first, repetition by repetition, beside what the paper found."""
    (first, least), *_, (last, most) = found.items()
    how = "; ".join(filter(None, (f"{last} against {first}", SAID.get(knob, ""))))
    how += _said([*least, *most]) + _few(least)
    pairs = [(a[:2], b[:2]) for a, b in zip(least, most, strict=True)]
    for place, of in enumerate(("throughput", "latency")):
        if math.isnan(pairs[0][0][place]):
            continue
        said = PUBLISHED.get(knob, (math.nan, math.nan))[place]
        grown = tuple(effect(a[place], b[place]) for a, b in pairs)
        at = f"streambench/knobs/{knob}/effect-{of}"
        yield Measure(at, median(grown), "%", how, published=None if math.isnan(said) else said, values=grown)
