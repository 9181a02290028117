"""All sides of a comparison compute the same, and the suites are there."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from riot_bench.baselines.python.windows import plain_window_means
from riot_bench.baselines.spark.windows import spark_window_means
from riot_bench.harness.data import LineFiles, RecordFiles, write_city, write_readings
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import rate_of
from riot_bench.harness.timing import kernel_times
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites import registry as bench
from riot_bench.suites import windows
from riot_bench.suites.kernels import CODES, LOOKUP_KERNELS, task_under_test
from riot_bench.suites.keyed import kalman_flow

from riot_ops import tasks as t
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.streams.riotbench.city import CitySource

MESSAGES, FILES, SENSORS = 1200, 3, 7


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_city(tmp_path_factory.mktemp("bench") / "city", MESSAGES, FILES, SENSORS)


@pytest.fixture(scope="module")
def expected(city: Path) -> dict[str, Any]:
    """What riot_ops gives, sorted."""
    result = tumbling_stats().run(LineFiles(city, MESSAGES // FILES))
    assert result.summary.errors == 0
    return {kind: by_record(result[kind]) for kind in ("avg", "slr", "dac")}


def by_record(table: pa.Table) -> Any:
    return table.to_pandas().sort_values(["seq", "ordinal"]).reset_index(drop=True)


def same(ours: Any, theirs: Any, keys: list[str]) -> None:
    """Equal but for rounding: sums are taken in another order, and ours are compensated."""
    assert len(ours) == len(theirs) > 0
    for key in keys:
        assert ours[key].tolist() == theirs[key].tolist()
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-9)
    if "predictions" in ours and "predictions" in theirs:
        np.testing.assert_allclose(np.stack(ours["predictions"]), np.stack(theirs["predictions"]), rtol=1e-9)


# -- suites ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bench.describe_suites())
def test_suite_exists(name: str) -> None:
    assert callable(bench.find_suite(name))


def test_unknown_suite_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match='did you mean "kernels"'):
        bench.find_suite("kernel")


def test_run_prints_a_json_object_per_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measures(quick: bool) -> Any:
        yield Measure("growth/a", 2.0, "ratio", "b", 1.5)
        yield Measure("growth/c", float("nan"), "ms")

    monkeypatch.setattr("riot_bench.suites.growth.measures", measures)
    found = bench.run_suite("growth", as_json=True)
    assert [m.met for m in found] == [True, None]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [
        ["measure", "value", "values", "unit", "against", "reach", "at_most", "published", "load", "machine"]
    ] * 2
    before, after = lines[0].pop("load")[0]
    assert 0 <= before < 1000 and 0 <= after < 1000
    assert lines[0] == {
        "measure": "growth/a",
        "value": 2.0,
        "values": [2.0],
        "unit": "ratio",
        "against": "b",
        "reach": 1.5,
        "at_most": False,
        "published": None,
        "machine": found[0].machine,
    }
    assert lines[1]["value"] is None
    assert lines[1]["reach"] is None


def test_run_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        "riot_bench.suites.growth.measures",
        lambda quick: iter([Measure("growth/a", 3.0, "ms", "on local[2]", 2, at_most=True)]),
    )
    bench.run_suite("growth")
    shown = capsys.readouterr().out
    assert "growth/a" in shown
    assert "on local[2]" in shown
    assert "no" in shown


def test_a_table_marks_lower_bounds_and_shows_the_range_of_micro_batches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Measure("growth/a", 3.0, "ratio", sample=(2.0, 3.0, 5.0), lower_bound=True)
    monkeypatch.setattr("riot_bench.suites.growth.measures", lambda quick: iter([one]))
    bench.run_suite("growth")
    shown = capsys.readouterr().out
    assert ">= 3" in shown
    assert "2–5" in shown


def test_a_query_that_was_stopped_tells_so() -> None:
    assert rate_of(([7.0, 2.0, 1.0], None), 10, 60.0) == (7.5, "", False)
    assert rate_of(([4.0], 60.0), 10, 60.0) == (2.5, "; the first micro-batch only", False)
    assert rate_of(([], 20.0), 10, 60.0) == (0.5, "; none finished within 60 s", True)
    assert rate_of(([], None), 60, 60.0).value == 1.0


def test_runs_are_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    values = iter([3.0, 9.0, 4.0])
    loads = iter([0.25, 1.5, 1.75, 2.0, 2.25, 2.5] * 2)
    monkeypatch.setattr(
        "riot_bench.suites.growth.measures", lambda quick: iter([Measure("growth/a", next(values), "ms")])
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 7.0, 7.0))
    (found,) = bench.run_suite("growth", as_json=True, repeat=3)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found.value, found.values) == (4.0, (3.0, 9.0, 4.0))
    assert (line["value"], line["values"]) == (4.0, [3.0, 9.0, 4.0])
    assert line["load"] == [[0.25, 1.5], [1.75, 2.0], [2.25, 2.5]]
    values = iter([3.0, 9.0, 4.0])
    bench.run_suite("growth", repeat=3)
    shown = capsys.readouterr().out
    assert "3–9" in shown
    assert "load 2.25 before, up to 2.5 meanwhile" in " ".join(shown.split())
    with pytest.raises(ConfigError, match="repeat must be >= 1, got 0"):
        bench.run_suite("growth", repeat=0)


def test_the_median_leaves_out_runs_without_a_figure() -> None:
    found = Measure.of_runs([Measure("x", v, "ms") for v in (float("nan"), 1.0, 3.0)])
    assert found.value == 2.0
    assert json.loads(found.to_json())["values"] == [None, 1.0, 3.0]


@pytest.mark.parametrize(
    ("values", "unit", "reach", "at_most", "value", "met"),
    [
        ((0.0, 0.0, 0.0, 812.0, 1044.0), "messages", 0, True, 1044.0, False),
        ((0.0, 0.0, 0.0), "messages", 0, True, 0.0, True),
        ((1.0, 1.0, 0.0), "truth", 1, False, 0.0, False),
        ((100.0, 100.0, 99.5), "%", 100, False, 99.5, False),
        ((1e-12, 1e-12, 1e-3), "probability", 1e-9, True, 1e-3, False),
        ((float("inf"), 0.0, 3.0), "messages", 0, True, None, False),
        ((float("nan"), 0.2, 0.2), "s", 20, True, 0.2, True),
        ((float("inf"), float("nan"), 0.2), "s", 20, True, None, False),
        ((float("nan"), 0.5), "ratio", 1, False, None, False),
        # what may swing is judged by its median
        ((4.0, 4.0, 9.0), "ms", 5, True, 4.0, True),
        ((2.0, 2.0, 0.5), "ratio", 1, False, 2.0, True),
        ((95.0, 95.0, 80.0), "%", 90, False, 95.0, True),
        ((0.0, 0.0, 5.0), "messages", None, False, 0.0, None),
    ],
)
def test_what_must_hold_in_each_run_is_as_good_as_the_worst(
    values: tuple[float, ...], unit: str, reach: float | None, at_most: bool, value: float | None, met: bool | None
) -> None:
    runs = [Measure("x", one, unit, "", reach, at_most=at_most) for one in values]
    found = Measure.of_runs(runs)
    again = Measure.of_runs([Measure.from_json(found.to_json())])
    for one in (found, again):
        assert one.met == met and (math.isnan(one.value) if value is None else one.value == value)
        assert len(one.values) == len(values)


def test_several_values_of_a_run_are_not_as_many_runs() -> None:
    runs = [Measure("x", v, "ms", values=(v - 1, v, v + 1)) for v in (10.0, 30.0, 20.0)]
    found = Measure.of_runs(runs)
    assert (found.value, found.values) == (20.0, (10.0, 30.0, 20.0))
    assert Measure.of_runs(runs[:1]).values == (9.0, 10.0, 11.0)
    lost = [Measure("x", 0.0, "messages", reach=0, at_most=True, values=(0.0, v)) for v in (0.0, 3.0)]
    assert Measure.of_runs(lost).value == 3.0, "what must hold, holds in each"


def test_a_table_tells_of_which_measures_it_shows_the_worst(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = iter((0.0, 812.0, 0.0))

    def measures(quick: bool) -> Any:
        yield Measure("growth/lost", next(values), "messages", reach=0, at_most=True)
        yield Measure("growth/once", 7.0, "ms", reach=9, at_most=True)

    monkeypatch.setattr("riot_bench.suites.growth.measures", measures)
    bench.run_suite("growth", repeat=3)
    shown = capsys.readouterr().out
    assert "worst 812" in shown
    assert shown.count("worst") == 1


@pytest.mark.parametrize("code", CODES)
def test_kernel_suite_measures_the_task_of_each_code(code: str) -> None:
    assert task_under_test(code, 4).code == code


def test_the_time_of_a_kernel_is_without_finding_the_state_of_the_key() -> None:
    session = task_under_test("KAL", 4).session()
    batch = pa.record_batch({"seq": [0], "sensor_id": ["sensor-000001"], "value": [1.0]})
    session.push_batch(batch)
    with kernel_times() as times:
        session.push_batch(batch)
    assert set(times.spent) - set(LOOKUP_KERNELS) == {"kalman_filter.kalman"}


# -- same results ----------------------------------------------------------------------------------


def test_files_hold_the_stream(city: Path) -> None:
    source = LineFiles(city, MESSAGES // FILES)
    read = pa.Table.from_batches(source.read({"first": 0, "end": FILES}))
    assert read["seq"].to_pylist() == list(range(MESSAGES))
    wanted = CitySource(SENSORS, MESSAGES).lines(0, MESSAGES)
    assert [line.rstrip() for line in read["payload"].to_pylist()] == wanted.column("payload").to_pylist()


def test_orjson_parses_the_same() -> None:
    from riot_bench.baselines.python.senml import parse

    lines = CitySource(SENSORS, 500).lines(0, 500)
    dead = DeadLetters("parse")
    ours = t.ParseSenML(schema="city").apply(lines, dead)
    assert dead.count == 0
    assert parse(lines.column("payload").to_pylist()).equals(ours)


@pytest.mark.parametrize("code", ["MLR", "DTC"])
def test_models_give_what_scikit_learn_gives(code: str) -> None:
    from riot_bench.baselines.python.models import predict_batch, predict_each
    from riot_bench.suites.models import INPUTS, readings, train_models

    task, estimator = train_models()[code]
    batch = readings(300, seed=9)
    ours = task.session().push_batch(batch).column(task.output)
    rows = np.column_stack([batch.column(name) for name in INPUTS]).tolist()
    theirs = predict_batch(estimator, rows)
    single = predict_each(estimator, rows[:20])
    if code == "MLR":  # sums are taken in another order, in their two ways as well
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        np.testing.assert_allclose(single, theirs[:20], rtol=1e-12)
    else:
        assert ours.to_pylist() == theirs.tolist()
        assert single == theirs[:20].tolist()


def test_plain_python_stats_gives_the_same(city: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    from riot_bench.baselines.python.stats import stats

    rows = stats(LineFiles(city, 1).files, tmp_path)
    for kind, ours in expected.items():
        theirs = by_record(pq.read_table(tmp_path / f"{kind}.parquet"))
        assert rows[kind] == len(ours)
        same(ours, theirs, ["seq", "ordinal", "event_time", "sensor_id", "obs_type"])


def test_plain_python_counts_what_riot_ops_counts(tmp_path: Path) -> None:
    """Also where a sensor's first reading is missing, as with many sensors some are."""
    from riot_bench.baselines.python.stats import stats

    lines = LineFiles(write_city(tmp_path / "city", 4000, 2, 300), 2000)
    parsed = t.ParseSenML(schema="city").session().push_batch(next(lines.batches(0))).to_pandas()
    first = parsed.drop_duplicates(["sensor_id", "obs_type"])
    assert first["value"].isna().any()
    counted = tumbling_stats().run(lines, sinks=DiscardSink()).summary.rows
    assert stats(lines.files) == counted


@pytest.mark.parametrize("theirs", [{"avg": 1}, None], ids=["differ", "agree"])
def test_counting_is_measured_where_both_sides_agree(
    city: Path, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, int] | None
) -> None:
    from riot_bench.baselines.python import stats as stats_python
    from riot_bench.suites.stats import suite as stats

    monkeypatch.setattr(stats, "MESSAGES_PER_FILE", MESSAGES // FILES)
    if theirs is not None:
        monkeypatch.setattr(stats_python, "stats", lambda files: theirs)
        with pytest.raises(RiotError, match=r"differ in the number of records: .*\{'avg': 1\}"):
            list(stats._count_only(city, MESSAGES // FILES, MESSAGES, 1))
        return
    found = {m.measure: m for m in stats._count_only(city, MESSAGES // FILES, MESSAGES, 1)}
    assert all(m.value > 0 for m in found.values())
    reaches = {name: m.reach for name, m in found.items() if m.unit == "ratio"}
    assert reaches == {"stats/local-all-cores-vs-one": 1.6, "stats/count-only-vs-plain-python": 12}


@pytest.mark.spark
def test_idiomatic_pyspark_stats_gives_the_same(
    spark: Any, city: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    from riot_bench.baselines.spark.stats import stats
    from riot_bench.harness.micro_batches import timed_query

    for i, file in enumerate(sorted(city.iterdir())):  # Spark takes the oldest first
        os.utime(file, (1000 + i, 1000 + i))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(city))
    timed_query(stats(lines.coalesce(1)), tmp_path / "checkpoint", "parquet", out=tmp_path / "out")
    found = spark.read.parquet(str(tmp_path / "out")).toPandas()
    order = ["obs_type", "sensor_id", "event_time"]
    for kind in ("avg", "slr"):
        ours = expected[kind].sort_values(order).reset_index(drop=True)
        theirs = found[found.kind == kind].sort_values(order).reset_index(drop=True)
        same(ours, theirs, ["sensor_id", "obs_type"])
    # the order of rows of one type, over all sensors, is Spark's: the last count is what must agree
    ours = expected["dac"].groupby("obs_type")["value"]
    theirs = found[found.kind == "dac"].groupby("obs_type")["value"]
    assert ours.size().to_dict() == theirs.size().to_dict()
    assert ours.max().to_dict() == theirs.max().to_dict()


@pytest.mark.spark
def test_keyed_sides_give_the_same(spark: Any, tmp_path: Path) -> None:
    from riot_bench.baselines.spark.keyed import bare_pass, kalman_per_key
    from riot_bench.harness.micro_batches import timed_query

    rows, batches = 400, 2
    data = write_readings(tmp_path / "data", batches, rows, keys=9, files=1)
    query = kalman_flow().start(spark, RecordFiles(data, rows), max_records=rows)
    query.wait()
    ours = query["kalman"].to_pandas().sort_values("seq").reset_index(drop=True)
    frame = (
        spark.readStream.schema("seq long, device string, value double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
    )
    sides = {}
    for name, side in (("per-key", kalman_per_key(frame.coalesce(1))), ("bare", bare_pass(frame))):
        seconds, unfinished = timed_query(side, tmp_path / f"checkpoint-{name}", "parquet", out=tmp_path / name)
        assert len(seconds) == batches
        assert unfinished is None
        sides[name] = spark.read.parquet(str(tmp_path / name)).toPandas().sort_values("seq").reset_index(drop=True)
    assert sides["bare"].device.tolist() == ours.device.tolist()
    assert sides["per-key"].device.tolist() == ours.device.tolist()
    np.testing.assert_array_equal(sides["per-key"].value, ours.value)


def test_windows_in_plain_python_are_the_same() -> None:
    table = windows.readings(150_000)
    ours = windows.window_flow(windows.WINDOWS["tumbling"][0]).run(table)["window"].to_pandas()
    minutes = ours.window_start.astype("int64") // 60_000_000
    found = {(d, m): (mean, n) for d, m, mean, n in zip(ours.device, minutes, ours["mean"], ours.n, strict=True)}
    theirs = plain_window_means(table)
    assert len(theirs) == len(found) == 3000
    for device, minute, mean, n in theirs:
        assert found[device, minute] == (pytest.approx(mean, rel=1e-12), n)


@pytest.mark.spark
def test_windows_of_spark_are_the_same(spark: Any, tmp_path: Path) -> None:
    from riot_bench.harness.micro_batches import timed_query

    data = tmp_path / "data"
    data.mkdir()
    for i in range(3):  # Spark closes a window when the micro-batch after it is there
        pq.write_table(windows.readings(100_000, 100_000 * i), data / f"{i}.parquet")
    query = windows.window_flow(windows.WINDOWS["tumbling"][0]).start(
        spark, RecordFiles(data, 100_000, windows.SCHEMA), max_records=100_000
    )
    query.wait()
    ours = {(row["device"], row["window_start"]): row for row in query["window"].to_pylist()}
    fields = "seq long, event_time timestamp, device string, value double"
    stream = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).parquet(str(data))
    timed_query(spark_window_means(stream), tmp_path / "checkpoint", "parquet", out=tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out")).selectExpr("device", "window.start", "mean", "n")
    theirs = [row for row in frame.toArrow().to_pylist()]
    assert len(theirs) >= 3000
    for row in theirs:
        mine = ours[row["device"], row["start"]]
        assert (mine["n"], mine["mean"]) == (row["n"], pytest.approx(row["mean"], rel=1e-12))


def test_discard_takes_everything(city: Path) -> None:
    summary = tumbling_stats().run(LineFiles(city, MESSAGES // FILES), sinks=DiscardSink()).summary
    assert summary.messages == MESSAGES
    assert summary.rows["dac"] == 5 * MESSAGES
