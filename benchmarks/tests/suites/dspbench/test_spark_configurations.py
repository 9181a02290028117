"""Search of the fastest configuration on Spark: equal work, equal results."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pytest
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.measure import Measure
from riot_bench.suites.dspbench import spark_configurations
from riot_bench.suites.dspbench.spark_configurations import SearchSizes

from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows import application

SIZES = SearchSizes(40, (20, 40), 8)


class FinishedQuery(dict[str, pa.Table]):
    """A query that has results."""

    def wait(self) -> None:
        pass


class FakeSpark:
    """Dataflows on Spark that run in process, and the options of all queries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: int = 0, dropped: int = 0) -> None:
        self.timed: list[tuple[int, int, int | None]] = []
        self.compared: list[tuple[int, int]] = []
        fake = self

        def start(self: Dataflow, spark: Any, sources: Any, *, max_records: int, partitions: int) -> FinishedQuery:
            fake.compared.append((max_records, partitions))
            return FinishedQuery(counts=self.run(sources)["counts"].slice(lost))

        def run_packed(spark: Any, data: InputLines, parameters: Any, batch: int, partitions: int | None = None) -> Any:
            fake.timed.append((data.total, batch, partitions))
            rows = data.application.builder().run(data.sources()).summary.rows
            return 1000.0 * (partitions or 9) + batch, {"counts": rows["counts"] - dropped}

        monkeypatch.setattr(Dataflow, "start", start)
        monkeypatch.setattr(spark_configurations, "run_packed", run_packed)


def test_configurations_on_spark_read_equal_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = FakeSpark(monkeypatch)
    found = list(spark_configurations.configuration_measures(spark, application("wc"), 2, SIZES))
    pairs = [(partitions, batch) for partitions in (1, 2, 4) for batch in (20, 40)]
    assert spark.timed == [(40, 40, None), *((40, batch, partitions) for partitions, batch in pairs)]
    assert spark.compared == [(4, 1), (4, 2), (4, 4)]  # two micro-batches each
    at = "dspbench/wc/spark-configuration/2-cores"
    assert [m.measure for m in found] == [f"{at}/{p}-partitions/{b}" for p, b in pairs]
    assert [m.value for m in found] == [1000.0 * p + b for p, b in pairs]
    assert found[0].against.endswith("results of 8 lines agree")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"lost": 1}, "word_count differs on Spark with 1 partitions"),
        ({"dropped": 1}, "word_count with 2-cores/1-part"),
    ],
    ids=["compared", "timed"],
)
def test_configuration_with_other_results_is_refused(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, int], message: str
) -> None:
    spark = FakeSpark(monkeypatch, **fault)
    with pytest.raises(RiotError, match=message):
        list(spark_configurations.configuration_measures(spark, application("wc"), 2, SIZES))


def test_fastest_configuration_on_spark_is_found() -> None:
    at = "dspbench/wc/spark-configuration"
    rates = {f"{at}/2-cores": 3.0, f"{at}/1-cores": 4.0, "dspbench/tm/spark-configuration/1-cores": 9.0}
    found = spark_configurations.best_configuration("wc", [Measure(*rate, "lines/s") for rate in rates.items()])
    assert (found.measure, found.value) == ("dspbench/wc/spark-best-configuration", 4.0)
    assert found.against.startswith("1-cores, the fastest of 2 configurations")


def test_search_has_a_process_for_each_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(codes: Any, cores: int, sizes: SearchSizes) -> list[Measure]:
        asked.append((codes, cores, sizes))
        return [Measure(f"dspbench/{code}/spark-configuration/{cores}", cores, "lines/s") for code in codes]

    monkeypatch.setattr(spark_configurations, "_run_in_child", run)
    chosen = [application(code) for code in ("wc", "fd", "tm")]
    found = [m.measure for m in spark_configurations.search_measures(chosen, SIZES)]
    assert asked == [(["wc", "tm"], cores, SIZES) for cores in (2, 1)]
    assert found[-2:] == [f"dspbench/{code}/spark-best-configuration" for code in ("wc", "tm")]
    assert not list(spark_configurations.search_measures(chosen[1:2], SIZES))


def test_failed_search_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(RiotError, match="the search with 2 cores ended with exit code 1"):
        list(spark_configurations.search_measures([application("wc")], SIZES))
