"""The STATS application from SenML text to Parquet files, against plain PySpark and plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riot_bench.harness.data import LineFiles, write_city
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import Rate, durations, rate_of, timed_query
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median, median_seconds
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites.stats.dataframe import run_frames, write_rate
from riot_ops.core.errors import RiotError
from riot_ops.runtime.parallel import available_cores

__all__ = ["EXPERIMENTS", "measures"]

#: Messages per file; about 7.5 MB.
MESSAGES_PER_FILE = 20_000
#: Warm-up passes: the JVM compiles code that has run often, and the baseline's queries run for minutes.
WARM_UP_PASSES = 2


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    require_extra("this benchmark", "bench", "orjson", "psutil")
    small, large, repetitions, limit_s = (20_000, 40_000, 1, 18.0) if quick else (100_000, 400_000, 3, 240.0)
    with temporary_folder() as base:
        data = write_city(base / "city", 3 * large, 3 * large // MESSAGES_PER_FILE)
        local, plain = _in_process(base, data, small, large, repetitions)
        how = "{:,} messages of CITY, 1,000 sensors, one core, SenML text to Parquet"
        yield Measure("stats/local", local, "messages/s", how.format(large))
        yield Measure("stats/plain-python", plain, "messages/s", how.format(small) + "; orjson and dicts")
        yield Measure("stats/local-vs-plain-python", local / plain, "ratio", "orjson and dicts, one core each", 10)
        yield from _count_only(data, small, 3 * large, repetitions)
        with spark_session(jvm="full") as spark:
            for i in range(WARM_UP_PASSES):
                _on_spark(spark, base / f"out-warm-up-{i}", data, large)
            fast = _on_spark(spark, base / "out-large", data, large)
            same = _on_spark(spark, base / "out-small", data, small)
            how = "local[2], micro-batches of {:,} messages, after a warm-up"
            yield Measure("stats/spark", fast, "messages/s", how.format(large))
            yield Measure("stats/spark-small-batches", same, "messages/s", how.format(small))
            yield Measure(
                "stats/spark-vs-plain-python",
                fast / plain,
                "ratio",
                "orjson and dicts, one process; riot_ops on local[2]",
                4,
            )
            yield from _frames(spark, base, data, large, fast, repetitions)
            for suffix, batch, ours, reach in (("", large, fast, 20), ("-small-batches", small, same, 18)):
                slow = _plain_pyspark(spark, base, data, batch, limit_s)
                note = how.format(batch) + slow.note
                yield Measure(f"stats/spark-idiomatic{suffix}", slow.value, "messages/s", note)
                yield Measure(
                    f"stats/spark-vs-idiomatic{suffix}",
                    ours / slow.value,
                    "ratio",
                    "from_json, explode, transformWithStateInPandas per key; both with micro-batches of "
                    f"{batch:,} messages{slow.note}",
                    reach,
                    lower_bound=slow.stopped,
                )


def _in_process(base: Path, data: Path, small: int, large: int, repetitions: int) -> tuple[float, float]:
    from riot_bench.baselines.python.stats import stats

    flow = tumbling_stats()
    few, many = _first_files(data, small), _first_files(data, large)
    with pinned_to_one_core():
        ours = median_seconds(lambda: flow.run(many, out=base / "local", overwrite=True), repetitions)
        theirs = median_seconds(lambda: stats(few.files, base / "plain"), repetitions, warm=0)
    return large / ours, small / theirs


def _count_only(data: Path, small: int, large: int, repetitions: int) -> Iterator[Measure]:
    """Measure the same without output, counting the records of each stream; the implementations alternate."""
    from riot_bench.baselines.python.stats import stats

    flow = tumbling_stats()
    few, many = _first_files(data, small), _first_files(data, large)

    def ours(source: LineFiles) -> dict[str, int]:
        return flow.run(source, sinks=DiscardSink()).summary.rows

    with pinned_to_one_core():
        counted, wanted = ours(few), stats(few.files)
    if counted != wanted:
        raise RiotError(f"the implementations differ in the number of records: {counted} and {wanted}")
    ours(many)  # on all cores
    one, several, plain = list[float](), list[float](), list[float]()
    for _ in range(2 * repetitions + 1):
        with pinned_to_one_core():
            one.append(median_seconds(lambda: ours(many), 1, warm=0) / large)
            plain.append(median_seconds(lambda: stats(few.files), 1, warm=0) / small)
        several.append(median_seconds(lambda: ours(many), 1, warm=0) / large)
    how = "{:,} messages of CITY, 1,000 sensors, {}, SenML text to counts, nothing written"
    cores = f"{available_cores()} cores"
    yield Measure("stats/count-only", 1 / median(one), "messages/s", how.format(large, "one core"))
    yield Measure("stats/count-only-all-cores", 1 / median(several), "messages/s", how.format(large, cores))
    yield Measure("stats/count-only-plain-python", 1 / median(plain), "messages/s", how.format(small, "one core"))
    gain = median(a / b for a, b in zip(one, several, strict=True))
    yield Measure("stats/local-all-cores-vs-one", gain, "ratio", f"{cores} against one, nothing written", 1.6)
    gain = median(a / b for a, b in zip(plain, one, strict=True))
    against = "orjson and dicts, one core each, nothing written"
    yield Measure("stats/count-only-vs-plain-python", gain, "ratio", against, 12)


def _first_files(data: Path, messages: int) -> LineFiles:
    source = LineFiles(data, MESSAGES_PER_FILE)
    source.files = source.files[: messages // MESSAGES_PER_FILE]
    return source


def _on_spark(spark: Any, out: Path, data: Path, batch: int) -> float:
    query = tumbling_stats().start(spark, _first_files(data, 3 * batch), out=out, max_records=batch)
    query.wait()
    return median(batch / s for s in durations(query.streaming)[1:])


def _frames(spark: Any, base: Path, data: Path, batch: int, fast: float, repetitions: int) -> Iterator[Measure]:
    """Measure the dataflow on a DataFrame of the text files, and Spark's writing of the finished results alone."""
    made = run_frames(_text_stream(spark, base / "frames-in", data, 3 * batch, batch), base, batch)
    how = f"flow.frames(df).write_each to Parquet, micro-batches of {batch:,} messages, after a warm-up"
    yield Measure("stats/frames", made, "messages/s", how)
    yield Measure("stats/frames-vs-start", made / fast, "ratio", "flow.start with the packed source", 0.5)
    bound = write_rate(spark, base, base / "out-large", batch, repetitions)
    how = f"finished results of {batch:,} messages: read from Arrow files with mapInArrow, written by Spark as Parquet"
    yield Measure("stats/frames-bound", bound, "messages/s", how)
    against = "flow.start, which also computes the results; the same results, written by Spark in the same way"
    yield Measure("stats/frames-bound-vs-start", bound / fast, "ratio", against)
    yield Measure("stats/frames-vs-bound", made / bound, "ratio", "Spark writing the finished results alone")


def _text_stream(spark: Any, part: Path, data: Path, messages: int, batch: int) -> Any:
    """Read the first messages as a streaming DataFrame of lines."""
    part.mkdir()
    for name in sorted(f.name for f in data.iterdir())[: messages // MESSAGES_PER_FILE]:
        (part / name).symlink_to(data / name)
    return spark.readStream.option("maxFilesPerTrigger", batch // MESSAGES_PER_FILE).text(str(part))


def _plain_pyspark(spark: Any, base: Path, data: Path, batch: int, limit_s: float) -> Rate:
    from riot_bench.baselines.spark.stats import stats

    out = base / f"idiomatic-{batch}"
    lines = _text_stream(spark, base / f"part-{batch}", data, 2 * batch, batch)
    return rate_of(timed_query(stats(lines), base / f"checkpoint-{batch}", "parquet", limit_s, out), batch, limit_s)


_SERIES = "local|plain-python|spark|spark-idiomatic|frames|frames-bound|count-only|count-only-plain-python"
EXPERIMENTS = (
    Experiment(
        "stats",
        "STATS against plain Python and plain PySpark",
        measures,
        "STATS over CITY from SenML text to Parquet, in process and on Spark, and the same without riot_ops.",
        (Figure("rates", "Throughput", rf"stats/(?P<x>{_SERIES})", "implementation", "messages/s", log="y"),),
        (85, 260),
    ),
)
