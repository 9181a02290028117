"""The suite streambench: its data, its forms, what is said against a run, and its options."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from riot_bench.baselines.arrow.streambench import BATCH_FUNCTIONS, run_batched
from riot_bench.harness import micro_batches as sparks
from riot_bench.harness.digest import digest
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import NumberedLines, measure_read_rate, write_numbered
from riot_bench.harness.validation import plain_results
from riot_bench.report import tables
from riot_bench.suites import registry
from riot_bench.suites.streambench import cost as streambench_cost
from riot_bench.suites.streambench import durability as streambench_durability
from riot_bench.suites.streambench import performance as streambench_performance
from riot_bench.suites.streambench import runs as streambench_runs
from riot_bench.suites.streambench import suite as streambench
from riot_bench.suites.streambench.cost import Cost, CostMonitor
from riot_bench.suites.streambench.paper import paper_value
from riot_bench.suites.streambench.performance import Sizes
from riot_bench.suites.streambench.programs import PROGRAMS, final_results
from riot_bench.suites.streambench.runs import Run, check_implementations, run_in_process
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.dataflows import application
from riot_ops.streams import generate


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NumberedLines]:
    base = tmp_path_factory.mktemp("numbered")
    return {stream: write_numbered(stream, base / stream, 3, 400) for stream in ("searches", "packets")}


# -- data --------------------------------------------------------------------------------------------


def test_lines_are_numbered_and_cyclic(tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "s", 3, 8_000)
    assert (len(data.files), data.lines_per_file, data.batch, data.total) == (12, 2_000, 8_000, 24_000)
    source = data.source()
    read = [b for split in source.splits({"file": 0}, {"file": 12}, 5) for b in source.read(split)]
    table = pa.Table.from_batches(read)
    assert table["seq"].to_pylist() == list(range(24_000))
    payload = table["payload"].to_pylist()
    assert payload[:4_000] == payload[10_000:14_000] == payload[20_000:]
    seed = [v for b in generate("searches", messages=10, seed=1).read({"start": 0, "end": 10}) for v in b["payload"]]
    assert payload[:10] == [v.as_py() for v in seed]
    assert data.line_bytes == pytest.approx(60, abs=1)
    assert data.first_batches(2).total == 16_000
    assert measure_read_rate(data) > 0


def test_a_source_is_read_in_so_many_parts(lines: dict[str, NumberedLines]) -> None:
    ends = {"file": 0}, {"file": 4}
    assert [len(lines["searches"].source(n).splits(*ends, 3)) for n in (None, 1, 2, 4)] == [3, 1, 2, 3]


# -- forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_forms_in_process_come_to_the_same(name: str, lines: dict[str, NumberedLines]) -> None:
    found = check_implementations(name, lines[application(name).inputs["lines"]])
    assert not found.startswith("0-")


def test_forms_that_differ_are_refused(lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch) -> None:
    for implementation in ("loop", "numpy"):
        with monkeypatch.context() as patch:
            opponent = streambench_runs._run_baseline

            def one_less(
                name: str,
                which: str,
                data: NumberedLines,
                implementation: str = implementation,
                opponent: Any = opponent,
            ) -> Any:
                return opponent(name, which, data.first_batches(2 if which == implementation else 3))

            patch.setattr(streambench_runs, "_run_baseline", one_less)
            with pytest.raises(
                RiotError, match=r"the implementations of grep have different results: .*'numpy'.*'loop'"
            ):
                check_implementations("grep", lines["searches"])


def test_results_are_proved_with_the_store_of_state_that_figures_are_taken_with(
    lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Conf(dict[str, str]):
        set = dict.__setitem__

    spark = SimpleNamespace(conf=Conf({streambench_runs.STORE_PROVIDER: "the session's"}))
    result = streambench_runs.program_flow("wordcount").run(lines["searches"].source())["counts"].to_pylist()
    stores: dict[bool, set[str]] = {}

    def collected(_: Any, implementation: Any, __: Path) -> Any:
        stores.setdefault(implementation.python, set()).add(spark.conf[streambench_runs.STORE_PROVIDER])
        return result

    monkeypatch.setattr(streambench_runs, "_packed_results", lambda *_: final_results("wordcount", result))
    monkeypatch.setattr(streambench_runs, "collect_rows", collected)
    monkeypatch.setattr(NumberedLines, "frame", lambda *_, **__: None)
    known = streambench_runs.find_implementations("wordcount")
    fakes = {name: replace(implementation, build=lambda _: None) for name, implementation in known.items()}
    monkeypatch.setattr(streambench_runs, "find_implementations", lambda _: fakes)
    assert check_implementations("wordcount", lines["searches"], spark) == digest(final_results("wordcount", result))
    assert stores == {False: {streambench_runs.IN_MEMORY_STORE}, True: {"the session's"}}
    assert spark.conf[streambench_runs.STORE_PROVIDER] == "the session's"


#: The module of a suite, where it has another name.
MODULES = {"knobs": "tuning"}


@pytest.mark.parametrize("suite", ["recipients", "saturation", "knobs"])
def test_no_figure_is_told_of_a_form_that_differs(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's results lack the last one of what a run in process has; no query is ever timed."""
    module = importlib.import_module(f"riot_bench.suites.streambench.{MODULES.get(suite, suite)}")

    def one_less(_: Any, name: str, data: NumberedLines, **__: Any) -> Any:
        return final_results(name, streambench_runs.program_flow(name).run(data.source())[PROGRAMS[name].stream])[:-1]

    def timed(*_: Any, **__: Any) -> Run:
        return Run((1.0,), 40)

    monkeypatch.setattr(streambench_runs, "_packed_results", one_less)
    monkeypatch.setattr(module, "run_packed", timed)
    monkeypatch.setattr(module, "spark_session", lambda *_, **__: contextlib.nullcontext(None))
    sizes = replace(module.QUICK, **({"lines_per_file": 20} if suite == "knobs" else {"lines": 80}))
    told = getattr(module, MODULES.get(suite, suite))(True, ["wordcount"], 1.0, sizes)
    with pytest.raises(
        RiotError, match=r"the packed implementation of wordcount has the results \d+-.* instead of \d+-"
    ):
        next(told)


OPTIONS = [
    ("sample", {"share": 0.3, "seed": -4}),
    ("sample", {"share": 0.0}),
    ("sample", {"share": 1.0}),
    ("projection", {"field": 4}),
    ("grep", {"text": "http", "invert": True}),
    ("grep", {"text": "ü"}),
    ("distinct", {"field": 1}),
    ("statistics", {"field": "v6_bytes"}),
    ("wordcount", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_batches_of_arrow_by_plain_python(name: str, options: dict[str, Any]) -> None:
    odd = ["", "7", "7\tü b  c\t\t", "\t\t\t\t\t", "201309,40,1e3,x, 5 ,-3", "1,2,inf,nan,n/a,.5", " a\tb "]
    source = generate(application(name).inputs["lines"], messages=300, dirt=True)
    texts = odd + [v.as_py().decode() for b in source.read({"start": 0, "end": 300}) for v in b["payload"]]
    texts = [text.replace(".5", "5") for text in texts]  # sums are of whole numbers
    batches = [
        pa.record_batch({"seq": range(a, b), "value": texts[a:b]})
        for a, b in itertools.pairwise((0, 3, 90, len(texts)))
    ]
    found = [
        row
        for one in run_batched(name, batches, **options)
        for row in (one.to_pylist() if isinstance(one, pa.RecordBatch) else [one])
    ]
    rows = plain_results(application(name), {"lines": [text.encode() for text in texts]}, options)
    one = PROGRAMS[name]
    fields = application(name).results[one.stream]
    wanted = final_results(name, [{"seq": 0, **dict(zip(fields, row, strict=True))} for row in rows[one.stream]])
    got = final_results(name, [{**row, "seq": 0} for row in found])
    assert digest(got) == digest(wanted)


def test_nothing_comes_of_no_batches() -> None:
    assert [run_batched(name, []) for name in BATCH_FUNCTIONS] == [[]] * 7


def test_a_run_in_process(lines: dict[str, NumberedLines]) -> None:
    run = run_in_process("wordcount", "local", lines["searches"], 2)
    assert (len(run.spent), run.lines, len(run.latency_s)) == (2, 1_200, 2)
    assert all(0 < a < 10 for a in (*run.spent, *run.latency_s))


@pytest.mark.parametrize("implementation", ["numpy", "loop"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_of_other_forms_in_process_are_timed(
    name: str, implementation: str, lines: dict[str, NumberedLines]
) -> None:
    run = run_in_process(name, implementation, lines[application(name).inputs["lines"]], 2)
    assert len(run.latency_s) == 2
    assert all(0 < latency < spent for latency, spent in zip(run.latency_s, run.spent, strict=True))


def test_time_at_a_batch_counts_by_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(streambench_runs.time, "perf_counter", lambda: now[0])
    batches = streambench_runs.BatchTimer()
    for batch in batches(["a" * 30, "b" * 10]):
        now[0] += 1.0 if batch[0] == "a" else 5.0
    assert batches.mean == (30 * 1.0 + 10 * 5.0) / 40


def test_a_watch_is_from_a_micro_batch_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds 5 to 11, in which the fourth, fifth and sixth were done; the second was behind the first too soon."""
    told: list[int | None] = [None, None, 1, 1, 2, 4, 4, 5, 5]
    now = [0.0]

    def burnt(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(streambench_cost.ProcessTree, "spent", lambda _: 2 * now[0])
    monkeypatch.setattr(streambench_cost.time, "perf_counter", lambda: now[0])
    with CostMonitor(5) as watch:
        burnt(3.0)
        for last in told:
            burnt(1.0)
            watch(SimpleNamespace(lastProgress=None if last is None else {"batchId": last}))
        burnt(9.0)
    assert (watch.cost.seconds, watch.cost.cores, watch.cost.parts) == (6.0, 2.0, 3)
    assert 1e6 < watch.cost.memory < 1e12
    run = Run((1.0,) * 6, 100, cost=watch.cost)
    assert run.line_us == 20_000.0
    assert math.isnan(Run((1.0,), 100).line_us)
    assert streambench_runs._cost(run, watch) is watch.cost
    stopped = Run((1.0, 1.0), 100, saturated=True)
    assert streambench_runs._cost(stopped, watch) is None
    assert streambench_runs._cost(Run((1.0,) * 7, 100), watch) is None, "more than half was not seen"
    with CostMonitor(5) as watch:
        watch(SimpleNamespace(lastProgress={"batchId": 4}))
    assert streambench_runs._cost(Run((1.0,), 100), watch) is None
    with CostMonitor() as watch:
        burnt(4.0)
    assert (watch.cost.seconds, watch.cost.cores, watch.cost.parts) == (8.0, 2.0, 1), "of what is no query all counts"


def test_a_query_in_plain_pyspark_is_watched_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last micro-batch ends between two looks."""
    seen: list[int] = []
    left = [True, False]
    query = SimpleNamespace(lastProgress={"batchId": 0}, recentProgress=[])

    def ended(_: float) -> bool:
        if left.pop():
            query.lastProgress = {"batchId": 3}
            return True
        return False

    class Writer:
        def __getattr__(self, _: str) -> Any:
            return lambda *_, **__: self

        def start(self) -> Any:
            return query

    query.awaitTermination = ended

    def watch(of: Any) -> None:
        seen.append(sparks.completed_batches(of))

    sparks.timed_query(SimpleNamespace(writeStream=Writer()), tmp_path, watch=watch)
    assert seen == [1, 4]


# -- the performance suite ---------------------------------------------------------------------------


def test_what_is_said_against_a_run() -> None:
    marks = streambench_performance._caveats
    good = Run((1.0,) * 10, 100)
    assert marks(good, True, 200.0) == ""
    assert marks(good, True, 199.0) == "; source-bound"
    assert marks(Run((1.0,) * 9, 100), True, 200.0) == "; short"
    assert marks(Run((1.0,) * 9, 100), False, 200.0) == ""
    assert marks(Run((1.0,), 100, (), True), True, 1.0) == "; saturated; short; source-bound"


def test_micro_batches_of_a_run_are_no_runs(lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run((1.0, 2.0, 4.0), 100, (1.0, 2.0, 4.0))
    monkeypatch.setattr(streambench_performance, "run_in_process", lambda *_: run)
    monkeypatch.setattr(streambench_performance, "_on_spark", lambda *_: run)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    rates, spent = (100.0, 50.0, 25.0), (1000.0, 2000.0, 4000.0)
    highest = [3800.0, 3960.0]  # between the second and the third, of which the one is at 50 % and the other at 100
    for implementation, several in (("local", "values"), ("packed", "sample"), ("udf", "sample")):
        given = (spark, "grep", implementation, lines["searches"], "1x", 1e9, streambench_performance.QUICK)
        found = list(streambench_performance._implementation_measures(*given))
        names = [one.measure.removeprefix(f"streambench/grep/{implementation}/1x/") for one in found]
        assert names == [
            "throughput",
            "latency",
            *(["latency-p95", "latency-p99"] if implementation != "local" else []),
        ]
        assert [one.value for one in found[2:]] == pytest.approx(highest if implementation != "local" else [])
        over = "runs" if implementation == "local" else "micro-batches"
        assert found[1].against.startswith(f"median over {over} of the mean time from fetching a record to the end of")
        assert all(one.against.startswith(("95th", "99th")) and "micro-batches" in one.against for one in found[2:])
        found = found[:2]
        assert [(one.values, one.sample) for one in found] == [
            (of, ()) if several == "values" else ((), of) for of in (rates, spent)
        ]


def test_programs_against_one_another(lines: dict[str, NumberedLines]) -> None:
    of = {
        "identity/packed/2x/throughput": (8.0, 6.0, 9.0),
        "wordcount/packed/2x/throughput": (2.0, 3.0),
        "wordcount/packed/1x/throughput": (1.0,),
        "wordcount/local/2x/throughput": (99.0,),
        "statistics/packed/2x/throughput": (3.0,),
        "identity/packed/2x/latency": (1.0, 2.0),
        "statistics/packed/2x/latency": (10.0, 10.0),
    }
    found = {f"streambench/{k}": Measure(f"streambench/{k}", v[0] * 1e6, "x", sample=v) for k, v in of.items()}
    data = {name: lines[application(name).inputs["lines"]] for name in ("identity", "wordcount", "statistics")}
    made = {m.measure: m for m in streambench_performance.program_ratios(data, found, 2)}
    at = "streambench/between"
    assert list(made) == [f"{at}/fastest/2x", f"{at}/identity-vs-wordcount/2x", f"{at}/statistics-vs-identity/2x"]
    fastest, rates, latencies = made.values()
    assert fastest.value == pytest.approx(3 * lines["packets"].line_bytes)
    assert fastest.against == "packed statistics, the fastest program"
    assert (rates.value, rates.sample) == (3.0, (4.0, 2.0))
    assert (latencies.value, latencies.sample) == (7.5, (10.0, 5.0))
    (alone,) = streambench_performance.program_ratios(data, found, 1)
    assert alone.measure == f"{at}/fastest/1x"
    assert list(streambench_performance.program_ratios(data, {}, 1)) == []


def test_the_papers_figures_stand_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "streambench/between/fastest/10x": 100.0,
        "streambench/between/identity-vs-wordcount/1x": 2.5,
        "streambench/between/statistics-vs-identity/4x": 5.0,
        "streambench/grep/packed/1x/latency": 1000.0,
        "streambench/wordcount/packed-cluster/10x/latency": 1000.0,
        "streambench/distinct/state/2x/latency": 1000.0,
        "streambench/statistics/packed/1x/latency": None,
        "streambench/grep/local/1x/latency": None,
        "streambench/grep/packed/1x/throughput": None,
        "streambench/saturation/statistics/packed/volume": 50e6,
        "streambench/saturation/wordcount/packed/volume": None,
        "streambench/durability/200000/availability": 100.0,
        "streambench/durability/1e+06/availability": 100.0,
    }
    own = Measure("streambench/durability/1/availability", 1.0, "%", published=7.0)
    monkeypatch.setattr(
        streambench, "SUITES", {"knobs": lambda *_: iter([*(Measure(name, 1.0, "x") for name in wanted), own])}
    )
    assert {m.measure: m.published for m in streambench.measures()} == {**wanted, own.measure: 7.0}
    known = {implementation for name in PROGRAMS for implementation in streambench_runs.implementation_names(name)} - {
        *streambench_runs.IN_PROCESS
    }
    assert all(paper_value(f"streambench/grep/{implementation}/1x/latency") == 1000.0 for implementation in known)


@pytest.mark.parametrize("saturated", [True, False])
def test_against_what_was_stopped_a_ratio_is_a_lower_bound(saturated: bool) -> None:
    runs = {"packed": Run((1.0, 2.0, 1.0), 100), "udf": Run((4.0, 4.0), 100, saturated=saturated)}
    (found,) = streambench_performance._ratio_measures("grep", "packed", "udf", runs, "how", 10.0)
    assert (found.value, found.sample, found.values, found.lower_bound) == (3.0, (4.0, 2.0), (), saturated)
    assert found.met is (None if saturated else False)


@pytest.mark.parametrize(
    ("theirs", "met", "told"),
    [(True, None, "; both were stopped: nothing"), (False, False, "; packed was stopped: at most 3")],
)
def test_of_what_was_stopped_itself_no_ratio_is_told(theirs: bool, met: bool | None, told: str) -> None:
    """However much faster it was up to then: it may have come to a standstill."""
    runs = {"packed": Run((1.0, 2.0, 1.0), 100, saturated=True), "udf": Run((4.0, 4.0), 100, saturated=theirs)}
    (found,) = streambench_performance._ratio_measures("grep", "packed", "udf", runs, "how", 2.0)
    assert math.isnan(found.value)
    assert (found.sample, found.met) == ((), met)
    assert found.against.startswith(f"how{told}")
    assert tables.format_value(found) == "–"
    finished = replace(found, value=5.0, lower_bound=False, values=())
    several = Measure.of_runs([finished, found, finished])
    assert (several.value, several.measured, several.met) == (5.0, (5.0, 5.0), True)


def test_limits_grow_with_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []
    monkeypatch.setattr(streambench_performance, "spark_session", lambda *_, **__: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_performance, "check_implementations", lambda *_, **__: "")
    monkeypatch.setattr(streambench_performance, "_implementation_measures", lambda *_: iter(()))

    def compared(*given: Any) -> Any:
        asked.append((given[-1].limit_s, given[-1].large_limit_s))
        return iter(())

    monkeypatch.setattr(streambench_performance, "_large_batch_measures", compared)
    sizes = replace(streambench_performance.QUICK, lines=40, large=80, written=40, limit_s=15.0, large_limit_s=45.0)
    for scale in (0.5, 1.0, 3.0):
        assert list(streambench_performance.performance(True, ["grep"], scale, sizes))
    assert asked == [(15.0, 45.0), (15.0, 45.0), (45.0, 135.0)]
    full = streambench_performance.FULL
    assert full.limit_s == full.large_limit_s == 600.0


@pytest.mark.parametrize(("spent", "told"), [(1.0, True), (0.0, False)])
def test_processor_times_too_short_to_be_told_are_not_compared(
    spent: float, told: bool, lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streambench_performance, "run_packed", lambda *_, **__: Run((1.0,), 1, cost=Cost(spent, 1, 1)))
    monkeypatch.setattr(streambench_performance, "run_pyspark", lambda *_, **__: Run((2.0,), 1, cost=Cost(3.0, 1, 1)))
    sizes = replace(streambench_performance.QUICK, large_batches=1, against=("expressions",))
    found = {
        m.measure: m.value
        for m in streambench_performance._large_batch_measures(None, "grep", lines["searches"], 1, sizes)
    }
    at = "streambench/grep/packed-vs-expressions"
    assert found == {at: 2.0} | ({f"{at}-processor": 3.0} if told else {})


@pytest.mark.spark
def test_a_small_performance_suite(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []

    def session(*cores: int, **options: Any) -> Any:
        sessions.append((*cores, options.get("settings", {}).get("spark.master")))
        return contextlib.nullcontext(spark)

    monkeypatch.setattr(streambench_performance, "spark_session", session)
    monkeypatch.setattr(streambench_performance, "wait_for_executors", lambda _, count: sessions.append(count))
    proved: list[tuple[str, int]] = []

    def noted(name: str, data: NumberedLines, *_: Any, **options: Any) -> str:
        proved.append((name, data.total))
        return check_implementations(name, data)

    written: list[tuple[str, int, int]] = []

    def write(stream: str, at: Path, batches: int, batch: int) -> NumberedLines:
        written.append((at.name, batches, batch))
        return write_numbered(stream, at, batches, batch)

    monkeypatch.setattr(streambench_performance, "write_numbered", write)
    held: list[Any] = []

    def proof(_: Any, name: str, implementation: str, data: NumberedLines, wanted: str) -> None:
        held.append((name, implementation, data.total, len(sessions), wanted == check_implementations(name, data)))

    monkeypatch.setattr(streambench_performance, "check_implementations", noted)
    monkeypatch.setattr(streambench_performance, "check_on_spark", proof)
    monkeypatch.setattr(streambench_performance, "implementation_names", lambda _: (*chosen, "udf"))
    chosen = ("local", "loop", "packed", "expressions")
    against = ("expressions", "pickled")
    sizes = Sizes((1,), 40, 1, 80, 1, 40, 1, False, 1, 60.0, 90.0, ("wordcount", "grep"), ("udf", "state"), against)
    found = {}
    for measure in streambench_performance.performance(True, ("grep", "grep"), 2.0, sizes):
        assert "-cluster" not in measure.measure or held
        assert measure.measure not in found, "a program that is named twice is measured once"
        assert proved or measure.measure.startswith("streambench/source/")  # no figure before the proof
        found[measure.measure] = measure
    assert proved == [("grep", 80)]
    assert held == [("grep", "packed", 80, 3, True)]  # in the second session
    assert written == [("searches-1x", 2, 80), ("searches-large", 1, 40)]
    assert "micro-batches of 160 records" in found["streambench/grep/packed-vs-expressions"].against
    assert sessions == [(None,), (2, "local-cluster[2,1,1024]"), 2]
    for what in ("throughput", "latency"):
        assert found[f"streambench/grep/packed-cluster/1x/{what}"].value > 0
    assert "streambench/grep/udf/1x/throughput" not in found
    fastest = found["streambench/between/fastest/1x"]
    assert f", {fastest.value:.3g} MB/s" in found["streambench/grep/packed/1x/throughput"].against
    for implementation in chosen:
        one = found[f"streambench/grep/{implementation}/1x/throughput"]
        assert one.value > 0
        assert one.unit == "records/s"
        assert ("; short" in one.against) == (implementation not in streambench_runs.IN_PROCESS)
        assert f"streambench/grep/{implementation}/1x/latency" in found
        assert (f"streambench/grep/{implementation}/1x/latency-p99" in found) == (
            implementation not in streambench_runs.IN_PROCESS
        )
    assert "micro-batches of 80 records" in found["streambench/grep/packed/1x/throughput"].against
    assert [
        found[f"streambench/grep/packed-vs-{implementation}"].reach for implementation in ("expressions", "pickled")
    ] == [0.7, 10.0]
    assert "streambench/grep/packed-vs-udf" not in found and "streambench/grep/expressions-vs-expressions" not in found
    bound = found["streambench/grep/expressions-vs-pickled"]
    assert bound.reach is None and bound.against.startswith("bound of packed-vs-pickled; micro-batches of 160 rec")
    ratios = [found[f"streambench/grep/packed-vs-{implementation}"].value for implementation in against]
    assert bound.value == pytest.approx(ratios[1] / ratios[0], rel=1e-3)
    # of micro-batches that are over at once nobody may see the first end
    spent = {name: one.value for name, one in found.items() if name.endswith("processor")}
    assert {"streambench/grep/local/1x/processor", "streambench/grep/loop/1x/processor"} <= spent.keys()
    assert all(0 < value < 1e9 for value in spent.values())
    shown = {figure.key: len(figure.points(found.values())) for figure in streambench.EXPERIMENTS[0].figures}
    assert shown == {
        "streambench-forms": 4,
        "streambench-scales": 1,
        "streambench-processor": sum(
            f"streambench/grep/{implementation}/1x/processor" in spent for implementation in chosen
        ),
        "streambench-ratios": 3,
        "streambench-between": 0,
        "streambench-latency": 1,
    }


# -- options -----------------------------------------------------------------------------------------


def test_options_reach_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def noted(name: str) -> Any:
        def run(*given: Any) -> Any:
            asked.append((name, *given))
            yield Measure(f"streambench/{name}", 1.0, "x")

        return run

    monkeypatch.setattr(streambench, "SUITES", {name: noted(name) for name in ("performance", "faults")})
    words = ["--suite", "faults", "--program", "grep", "--program", "identity", "--scale", "2.5", "--quick", "--json"]
    shown = CliRunner().invoke(app, ["bench", "streambench", *words], catch_exceptions=False).stdout
    assert shown.startswith('{"measure": "streambench/faults"')
    assert asked == [("faults", True, ["grep", "identity"], 2.5)]
    asked.clear()
    assert len(list(streambench.measures())) == 2
    assert asked == [(name, False, (), 1.0) for name in ("performance", "faults")]


def test_rates_and_seconds_reach_durability(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    class Enough(Exception):
        pass

    def start(_: Any, per_minute: float, seconds: float) -> Any:
        asked.append((per_minute, seconds))
        if len(asked) == 2:
            raise Enough
        return contextlib.nullcontext(), None

    session = lambda *_: contextlib.nullcontext(None)  # noqa: E731
    monkeypatch.setattr(streambench_durability, "_start", start)
    monkeypatch.setattr(streambench_durability, "spark_session", session)
    words = ["bench", "streambench", "--suite", "durability", "--scale", "2"]
    own = ["--rate", "30", "--rate", "70", "--seconds", "9"]
    for more, wanted in (
        (own, [(60.0, 9.0), (140.0, 9.0)]),
        (own[:4], [(60.0, 1800.0), (140.0, 1800.0)]),
        (own[4:], [(20_000.0, 9.0), (400_000.0, 9.0)]),
        (["--quick"], [(20_000.0, 120.0), (400_000.0, 120.0)]),
    ):
        asked.clear()
        with pytest.raises(Enough):
            CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
        assert asked == wanted
    assert streambench_durability.format_plain(2_880_000_000.0) == "2880000000"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": [5.0], "suite": "knobs"}, "--rate needs --suite durability, got 'knobs'"),
        ({"seconds": 5.0}, "--seconds needs --suite durability, got None"),
        ({"rate": [5.0, -1.0], "suite": "durability"}, "--rate must be a finite number > 0, got -1"),
        ({"seconds": 0.0, "suite": "durability"}, "--seconds must be a finite number > 0, got 0"),
        ({"suite": "fault"}, "--suite must be one of performance, .*got 'fault'"),
        ({"program": ["grap"]}, "--program must be one of identity, .*got 'grap'.*grep"),
        (
            {"suite": "durability", "program": ["wordcount", "identity"]},
            "--program must be wordcount in the suite durability, got 'identity'",
        ),
        ({"rate": [10.0], "scale": 0.5, "suite": "durability"}, "--rate times --scale must be at least 6 records .*5"),
        ({"scale": 0.0}, "--scale must be a finite number > 0, got 0"),
        ({"scale": float("inf")}, "--scale must be a finite number > 0, got inf"),
    ],
    ids=[
        "rate of another",
        "seconds of all",
        "rate",
        "seconds",
        "suite",
        "program",
        "not-of-the-suite",
        "rare",
        "none",
        "endless",
    ],
)
def test_misuse(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        next(streambench.measures(True, **options))


def test_experiments_are_the_suites() -> None:
    found = registry.find_experiments("streambench")
    assert [one.key for one in found] == [f"streambench/{name}" for name in streambench.SUITES]
    assert all(isinstance(one, Experiment) and one.about and one.figures for one in found)


def test_the_help_names_all_suites() -> None:
    shown = " ".join(CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "400"}).output.split())
    *others, last = streambench.SUITES
    assert f"streambench: {', '.join(others)} or {last};" in shown
