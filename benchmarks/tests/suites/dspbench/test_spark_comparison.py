"""Applications on Spark beside the same in plain PySpark: equal results, equal conditions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from riot_bench.harness.input_lines import InputLines, write_input_lines
from riot_bench.harness.validation import compare, plain_results
from riot_bench.suites.dspbench import spark_comparison
from riot_bench.suites.dspbench import suite as dspbench
from riot_bench.suites.dspbench.spark_comparison import SparkSizes, baseline_results, find_baseline

from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows import APPLICATIONS, application

BASELINES = [name for name, one in APPLICATIONS.items() if one.suite in dspbench.SUITES and find_baseline(name)]
#: How many lines it takes until windows end, and there is something of each result; else 2000.
LINES_OF = {"yahoo_streaming": 40_000, "smart_grid": 6000, "equipment_monitoring": 20_000, "trending_topics": 20_000}
#: By stream, the fields of a key whose last row alone counts.
KEYS = {
    "counts": ("word",),
    "volume": ("minute",),
    "status": ("response",),
    "countries": ("country", "city"),
    "visits": (),
    "locations": ("country", "city"),
    "ctr": ("query_id", "ad_id"),
}
#: Opponents that are compared in each run of the tests; the others in the slow ones.
OFTEN = ("trending_topics",)


def latest(stream: str, table: pa.Table) -> list[tuple[Any, ...]]:
    """The last row of each key."""
    of_key = {tuple(row[name] for name in KEYS[stream]): tuple(row.values()) for row in table.to_pylist()}
    return list(of_key.values())


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in BASELINES]
)
def test_pyspark_equals_plain_python(name: str, spark: Any, tmp_path: Path) -> None:
    lines = LINES_OF.get(name, 2000)
    given, build = find_baseline(name)  # type: ignore[misc]
    data = write_input_lines(application(name), tmp_path / "written", lines, lines, **given.stream_options)
    wanted = plain_results(data.application, data.plain_lines(), given.parameters)
    found = baseline_results(spark, data, tmp_path, given, build)
    for stream, rows in wanted.items():
        fields = data.application.results[stream]
        kept = [i for i, name in enumerate(fields) if name not in given.omitted_fields]
        theirs = found[stream]
        of_stream = latest(stream, theirs) if given.mode == "update" else zip(*theirs.to_pydict().values(), strict=True)
        difference = compare(stream, (tuple(row[i] for i in kept) for row in rows), of_stream)
        assert difference.equal or (stream in given.open_windows and not difference.unexpected), difference
        assert difference.found > 0


@pytest.mark.slow  # it times whole queries; the comparison has quicker tests
@pytest.mark.spark
def test_both_sides_on_spark_run_in_turn_after_equal_warm_up(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_input_lines(application("wc"), tmp_path / "lines", 1200, 400)
    sizes = SparkSizes({200: 2, 400: 3}, 2, 800, 60.0)
    queries: list[tuple[str, int]] = []
    packed, baseline = spark_comparison.run_packed, spark_comparison.run_baseline

    def noted_packed(spark: Any, lines: InputLines, *args: Any) -> Any:
        queries.append(("ours", lines.total))
        return packed(spark, lines, *args)

    def noted_baseline(spark: Any, lines: InputLines, *args: Any) -> Any:
        queries.append(("theirs", lines.total))
        return baseline(spark, lines, *args)

    monkeypatch.setattr(spark_comparison, "run_packed", noted_packed)
    monkeypatch.setattr(spark_comparison, "run_baseline", noted_baseline)
    found = {m.measure: m for m in spark_comparison.comparison_measures(spark, data, sizes)}
    of_size = [f"spark-{kind}/{size}" for size in ("200", "400") for kind in ("same", "idiomatic", "vs-idiomatic")]
    assert [name.removeprefix("dspbench/wc/") for name in found] == [*of_size, "spark"]
    ratio = found["dspbench/wc/spark-vs-idiomatic/200"]
    assert len(ratio.sample) == 2
    assert "results of 800 lines agree" in ratio.against
    last = [("ours", 400), ("ours", 1200)]  # with the default parameters
    both = [[("ours", n), ("theirs", n)] * times for n, times in ((200, 1), (400, 2), (400, 1), (1200, 2))]
    assert queries == [*itertools.chain.from_iterable(both), *last]


def test_row_of_one_side_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_input_lines(application("wc"), tmp_path, 8, 8)
    found = pa.table({"word": ["a", "b"], "count": pa.array([1, 2])})
    monkeypatch.setattr(Dataflow, "start", lambda *_, **__: FinishedQuery(counts=found))
    given, build = find_baseline("word_count")  # type: ignore[misc]
    for theirs, message in ((found.slice(1), "differ on Spark"), (found.take([0, 0]), "differ on Spark"), (found, "")):
        monkeypatch.setattr(spark_comparison, "baseline_results", lambda *_, theirs=theirs: {"counts": theirs})
        if message:
            with pytest.raises(RiotError, match=f"the implementations of word_count {message}"):
                spark_comparison.compare_results(None, data, tmp_path, given, build)
        else:
            text = spark_comparison.compare_results(None, data, tmp_path, given, build)
            assert text == "all 2 results of 8 lines agree"


def test_window_open_at_the_end_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_input_lines(application("ysb"), tmp_path, 8, 8)
    times = pa.array([10, 20, 30], pa.timestamp("us", "UTC"))
    found = pa.table({"window_start": times, "campaign_id": ["a", "b", "c"], "count": pa.array([1, 2, 3])})
    monkeypatch.setattr(Dataflow, "start", lambda *_, **__: FinishedQuery(campaigns=found))
    given, build = find_baseline("yahoo_streaming")  # type: ignore[misc]
    monkeypatch.setattr(spark_comparison, "baseline_results", lambda *_: {"campaigns": found.slice(0, 2)})
    text = spark_comparison.compare_results(None, data, tmp_path, given, build)
    assert text == "all 2 results of 8 lines agree, 1 of windows that are open at the end apart"
    monkeypatch.setattr(spark_comparison, "baseline_results", lambda *_: {"campaigns": found.take([0, 2])})
    with pytest.raises(RiotError, match="differ on Spark"):  # the window in the middle is not open
        spark_comparison.compare_results(None, data, tmp_path, given, build)


class FinishedQuery(dict[str, pa.Table]):
    """A query that has results."""

    def wait(self) -> None:
        pass
