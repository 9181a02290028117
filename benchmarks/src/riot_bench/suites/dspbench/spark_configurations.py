"""Search of the fastest configuration on Spark: cores, shuffle partitions and records of a micro-batch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from riot_bench.harness.child_process import die_with_parent
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import FILES_PER_BATCH, InputLines, write_input_lines
from riot_bench.harness.measure import Measure
from riot_bench.harness.session import spark_session
from riot_bench.harness.validation import compare_columns
from riot_bench.suites.dspbench.spark_comparison import format_lines, run_packed
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import Application, application
from riot_ops.runtime.local import Result

__all__ = [
    "FULL_SEARCH",
    "QUICK_SEARCH",
    "SEARCHED",
    "SearchSizes",
    "best_configuration",
    "configuration_measures",
    "search_measures",
]

#: Applications with a search: those whose parallelism the paper varies on Spark.
SEARCHED = ("wc", "lp", "tm")
#: The session's cores, and the partitions of shuffles.
CORES, PARTITIONS = (2, 1), (1, 2, 4)


@dataclass(frozen=True)
class SearchSizes:
    """Amount of work of a search.

    Attributes
    ----------
    lines : int
        Lines of each source that each configuration reads.
    batches : tuple of int
        Lines of each source in a micro-batch, ascending.
    checked : int
        Lines of each source over which all results of each number of cores and partitions are compared.
    """

    lines: int
    batches: tuple[int, ...]
    checked: int


FULL_SEARCH = SearchSizes(12_000_000, (250_000, 1_000_000, 4_000_000), 250_000)
QUICK_SEARCH = SearchSizes(100_000, (25_000, 50_000), 25_000)


def search_measures(chosen: Sequence[Application], sizes: SearchSizes) -> Iterator[Measure]:
    """Measure each configuration of each application once, over the same lines; then yield the fastest of each.

    Each number of cores has a process of its own, so that neither finds a JVM that has compiled for the other. There an
    application runs over all lines as its warm-up. Before a number of partitions is timed, all its results over some
    lines are compared with those of a run in process. The first micro-batch of a query does not count.

    Raises
    ------
    RiotError
        A configuration has other results, or another number of them.
    """
    codes, found = [one.code for one in chosen if one.code in SEARCHED], list[Measure]()
    for cores in CORES if codes else ():
        for measure in _run_in_child(codes, cores, sizes):
            found.append(measure)
            yield measure
    for code in codes:
        yield best_configuration(code, found)


def best_configuration(code: str, found: Sequence[Measure]) -> Measure:
    """Return the fastest of the measured configurations of an application."""
    prefix = f"dspbench/{code}/spark-configuration/"
    own = [one for one in found if one.measure.startswith(prefix)]
    best = max(own, key=lambda one: one.value)
    how = f"{best.measure.removeprefix(prefix)}, the fastest of {len(own)} configurations, a single run each"
    return Measure(f"dspbench/{code}/spark-best-configuration", best.value, "lines/s", how)


def _run_in_child(codes: Sequence[str], cores: int, sizes: SearchSizes) -> Iterator[Measure]:
    words = json.dumps([codes, cores, asdict(sizes)])
    command = [*die_with_parent(), sys.executable, "-m", __name__, words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    yield from map(Measure.from_json, done.stdout.splitlines())
    if done.returncode:
        raise RiotError(f"the search with {cores} cores ended with exit code {done.returncode}")


def main(words: str) -> None:
    """Measure all configurations with a number of cores and print the measures."""
    codes, cores, sizes = json.loads(words)
    with spark_session(cores, jvm="full") as spark:
        for code in codes:
            for measure in configuration_measures(spark, application(code), cores, SearchSizes(**sizes)):
                print(measure.to_json(), flush=True)


def configuration_measures(spark: Any, one: Application, cores: int, sizes: SearchSizes) -> Iterator[Measure]:
    """Measure all configurations of an application in a session with a number of cores."""
    with temporary_folder() as base:
        data = write_input_lines(one, base / "lines", sizes.lines, sizes.batches[0])
        few = write_input_lines(one, base / "few", sizes.checked, sizes.checked)
        flow = one.builder()
        wanted, numbers = flow.run(few.sources(), cores=1), flow.run(data.sources(), sinks=DiscardSink()).summary.rows
        run_packed(spark, data, {}, sizes.batches[-1])
        for partitions in PARTITIONS:
            compared = _compare(spark, few, partitions, wanted)
            for batch in sizes.batches:
                rate, found = run_packed(spark, data, {}, batch, partitions=partitions)
                name = f"{cores}-cores/{partitions}-partitions/{format_lines(batch)}"
                for stream in one.results:
                    if found.get(stream, 0) != numbers[stream]:
                        raise RiotError(
                            f"{one.name} with {name} has {found.get(stream, 0):,} results in {stream}, "
                            f"not {numbers[stream]:,}"
                        )
                how = f"{data.total:,} lines, one run; all {compared:,} results of {few.total:,} lines agree"
                yield Measure(f"dspbench/{one.code}/spark-configuration/{name}", rate, "lines/s", how)


def _compare(spark: Any, few: InputLines, partitions: int, wanted: Result) -> int:
    """Compare all results in two micro-batches with those in process and return their number."""
    one, compared = few.application, 0
    query = one.builder().start(
        spark, few.sources(), max_records=few.lines_per_file * FILES_PER_BATCH // 2, partitions=partitions
    )
    query.wait()
    for stream, fields in one.results.items():
        difference = compare_columns(stream, *(rows[stream].select(list(fields)) for rows in (wanted, query)))
        if not difference.equal:
            raise RiotError(f"{one.name} differs on Spark with {partitions} partitions: {difference}")
        compared += difference.wanted
    return compared


if __name__ == "__main__":
    main(sys.argv[1])
