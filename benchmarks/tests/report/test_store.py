"""Results of a report: stored at once, read again, and missing runs."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from riot_bench.harness.machine import describe_machine
from riot_bench.harness.measure import Measure
from riot_bench.report import runner, tables
from riot_bench.report.plan import REPORTS, PlannedExperiment, find_experiment, plan_experiments
from riot_bench.report.store import ResultStore, code_digest, commit, commit_of

import riot_ops
from benchmarks.tests import sample_suite
from riot_ops.core.errors import ConfigError

SUITE = "benchmarks.tests.sample_suite"


def of(experiment: Any) -> PlannedExperiment:
    return PlannedExperiment(SUITE, SUITE, experiment)


RELAY, COUNTS = of(sample_suite.RELAY), of(sample_suite.COUNTS)


class Shown:
    """A listener that records the ends of runs."""

    def __init__(self, interrupt: bool = False) -> None:
        self.ends: list[tuple[str, str, str]] = []
        self.interrupt = interrupt

    def begin(self, one: PlannedExperiment) -> None:
        pass

    def tick(self, seconds: float, measures: int) -> None:
        if self.interrupt and Path(os.environ["MADE_UP"]).exists():
            raise KeyboardInterrupt

    def end(self, one: PlannedExperiment, state: str, reason: str) -> None:
        self.ends.append((one.key, state, reason))


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that sample experiments write, and the path to them for child processes."""
    monkeypatch.setenv("MADE_UP", str(tmp_path / "made-up"))
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))))
    return tmp_path / "made-up"


def stored(
    store: ResultStore, one: PlannedExperiment = RELAY, quick: bool = True, value: float = 1.0, state: str = "done"
) -> None:
    writer = store.begin(one, quick)
    writer.measure(Measure("sample/x", value, "s", published=4.0, machine="m", load=((0.5, 1.0),)).to_json())
    if state:
        writer.end(state, "why")


# -- plan ------------------------------------------------------------------------------------------


def test_experiments_are_found_by_suite_and_key() -> None:
    keys = [one.key for one in plan_experiments([SUITE])]
    assert keys == [one.key for one in sample_suite.EXPERIMENTS]
    assert [one.key for one in plan_experiments([SUITE], ["sample/words", "sample/relay"])] == keys[:2]
    assert len(plan_experiments([SUITE, SUITE], ["sample"])) == len(keys)
    assert find_experiment(SUITE, "sample/words") is sample_suite.WORDS
    everything = plan_experiments()
    assert [one.key for one in plan_experiments(REPORTS)] == [one.key for one in everything]
    assert {one.suite for one in everything} <= set(REPORTS)
    assert len({one.key for one in everything}) == len(everything)


def test_quick_form_of_all_experiments_takes_at_most_30_minutes() -> None:
    assert sum(one.experiment.seconds[0] for one in plan_experiments()) <= 1800
    assert all(one.experiment.seconds[0] <= one.experiment.seconds[1] for one in plan_experiments())


@pytest.mark.parametrize(
    ("suites", "experiments", "text"),
    [
        (["riotbnch"], [], "--suite must be one of .*'riotbnch'.*riotbench"),
        (["no.module"], [], "the module 'no.module' has no experiments"),
        (["json.tool"], [], "the module 'json.tool' has no experiments.*EXPERIMENTS"),
        ([SUITE], ["sample/rely"], "unknown experiment 'sample/rely'.*sample/relay"),
        ([SUITE], ["made"], "unknown experiment 'made'"),
    ],
)
def test_unknown_experiments_are_refused_by_name(suites: list[str], experiments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan_experiments(suites, experiments)


# -- store -----------------------------------------------------------------------------------------


def test_stored_line_has_its_origin(tmp_path: Path) -> None:
    stored(ResultStore(tmp_path / "ü"), quick=False, value=math.nan)
    first, last = map(json.loads, (tmp_path / "ü" / "results.jsonl").read_text(encoding="utf-8").splitlines())
    facts = {
        "suite": SUITE,
        "experiment": "sample/relay",
        "quick": False,
        "seed": 7,
        "commit": commit(),
        "measure": "sample/x",
        "value": None,
        "published": 4.0,
        "machine": describe_machine(),
        "load": [[0.5, 1.0]],
    }
    assert facts.items() <= first.items()
    assert first["versions"]["numpy"]
    assert first["time"].endswith("+00:00")
    assert {"state": "done", "reason": "why", "run": first["run"], "quick": False}.items() <= last.items()
    (result,) = ResultStore(tmp_path / "ü").results([RELAY], quick=False)
    assert result.state == "done"
    assert math.isnan(result.measures[0].value)


def test_commit_marks_uncommitted_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    package = tmp_path / "src" / "ü"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("1\n")
    assert commit_of(package) == riot_ops.__version__, "no work tree"
    git("init", "-q")
    (tmp_path / "other").write_text("1")
    git("add", "other")
    git("commit", "-qm", "x")
    assert commit_of(package) == riot_ops.__version__, "installed within a work tree of something else"
    git("add", ".")
    git("commit", "-qm", "y")
    head = git("rev-parse", "HEAD")[:12]
    assert commit_of(package) == head
    (tmp_path / "other").write_text("2")
    assert commit_of(package) == head
    found = {head}
    for number, change in enumerate(("2\n", "3\n")):
        (package / "__init__.py").write_text(change)
        found.add(commit_of(package))
        for text in ("", "new", "old"):  # the content of a new file counts, too
            (package / f"new{number}ü.py").write_text(text)
            found.add(commit_of(package))
    assert len(found) == 9
    monkeypatch.setattr("riot_bench.report.store.MAX_HASHED_BYTES", 2)
    found.add(commit_of(package))
    (package / "new0ü.py").write_text("OLD")  # of a large one its size alone
    found.add(commit_of(package))
    assert len(found) == 10
    (package / "gone.py").symlink_to("nowhere")
    found.add(commit_of(package))
    assert len(found) == 11
    assert all(one.partition("+")[0] == head for one in found)


def test_commit_is_read_once_per_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "riot_bench.report.store.commit_of", lambda *packages: asked.append(packages[0]) or str(len(asked))
    )
    monkeypatch.setattr("riot_bench.report.store._COMMITS", {})
    assert [commit(), commit()] == ["1", "1"]
    writer = ResultStore(tmp_path).begin(RELAY, True)
    assert (writer.about["commit"], commit()) == ("2", "2")
    assert set(asked) == {Path(riot_ops.__file__).parent}


def test_forms_and_experiments_are_separate(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=1)
    stored(store, quick=False, value=2)
    stored(store, COUNTS, value=3)
    values = [
        r.measures[0].value for quick in (True, False) for r in store.results([RELAY, COUNTS], quick) if r.measures
    ]
    assert values == [1, 3, 2]
    assert [r.state for r in store.results([RELAY, COUNTS], quick=False)] == ["done", "missing"]
    assert ResultStore(tmp_path / "none").results([RELAY], quick=True)[0].measures == []


def test_torn_lines_are_skipped(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=5)
    with store.path.open("ab") as file:
        file.write(b'[1]\nnull\n\xff\xfe\n{"experiment": "sample/relay", "quick": true, "run": "x", "measure": "mad')
    stored(store, COUNTS)
    assert [r.state for r in store.results([RELAY, COUNTS], quick=True)] == ["done", "done"]
    whole = store.path.read_bytes()
    for end in range(len(whole)):  # for a power cut at any byte
        store.path.write_bytes(whole[:end])
        store.results([RELAY, COUNTS], quick=True)


@pytest.mark.parametrize("value", [7, "x", None, [1], {"a": 1}, True])
def test_lines_with_values_of_other_types_are_skipped(tmp_path: Path, value: Any) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=5)
    lines = [json.loads(line) for line in store.path.read_text().splitlines()]
    with store.path.open("a") as file:
        for line in lines:
            for name in line:
                file.write(json.dumps({**line, "run": "other", name: value}) + "\n")
    for result in store.shown([RELAY]):
        assert all([tables.describe_state(result), *map(tables.measure_cells, result.measures)])
        tables.describe_origin([result])
    assert RELAY.key in store.stored()


def test_merged_files_count_each_run_once(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for value in (1, 2):
        stored(store, value=value)
    before = store.path.read_bytes()
    stored(store, value=3)
    store.path.write_bytes(before + store.path.read_bytes())
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.state, result.measures[0].values) == (3, "done", (1, 2, 3))


def test_published_values_are_the_current_ones(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    writer = store.begin(COUNTS, True)
    for measure in (Measure("known", 1.0, "ms"), Measure("other", 1.0, "ms"), Measure("own", 1.0, "ms", published=4.0)):
        writer.measure(measure.to_json())
    writer.end("done")
    knows = of(replace(sample_suite.COUNTS, published={"known": 7.5, "own": 8.0}.get))
    for one, published in ((COUNTS, [None, None, 4.0]), (knows, [7.5, None, 4.0])):
        (result,) = store.results([one], quick=True)
        assert [measure.published for measure in result.measures] == published


@pytest.mark.parametrize("line", ["measure", "end"])
def test_run_with_a_damaged_line_does_not_count(tmp_path: Path, line: str) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=5)
    first, last = store.path.read_text().splitlines()
    for damage in ('"values"', '"value": 5.0'):
        text = first.replace(damage, '"value": {}') + "\n" + last + "\n"
        store.path.write_text(text if line == "measure" else f"{first}\n{last[:-9]}\n")
        (result,) = store.results([RELAY], quick=True)
        outcome = (
            ("damaged", "1 of its lines cannot be read") if line == "measure" else ("stopped", "the program was killed")
        )
        assert (result.runs, result.state, result.reason) == (0, *outcome)
        assert runner.missing_runs(store, [RELAY], True) == [RELAY]
    stored(store, value=6)
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.state, result.measures[0].value) == (1, "done", 6)


@pytest.mark.parametrize("other", ["commit", "describe_machine"])
def test_several_runs_of_one_commit_and_machine_are_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    store = ResultStore(tmp_path)
    monkeypatch.setattr(f"riot_bench.report.store.{other}", lambda **_: "old")
    stored(store, value=100)
    monkeypatch.undo()
    for value in (3, 1, 2):
        stored(store, value=value)
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.measures[0].value, result.measures[0].values) == (3, 2, (3, 1, 2))
    assert result.measures[0].published == 4.0
    stored(store, value=50, state="failed")
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.measures[0].value, result.state, result.reason) == (3, 2, "failed", "why")


def test_run_with_surplus_lines_does_not_count(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=5)
    first, last = store.path.read_text().splitlines()
    again = json.dumps(dict(reversed(json.loads(first).items())), separators=(",", ":"))
    store.path.write_text(f"{first}\n{again}\n{last}\n")  # the same, as another program writes it
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.state, result.measures[0].value, result.measures[0].values) == (1, "done", 5, ())
    other = again.replace('"value":5.0', '"value":7.0')
    store.path.write_text(f"{first}\n{other}\n{last}\n")
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.state, result.reason) == (0, "damaged", "it has 1 more lines than it wrote")


def test_values_of_an_unfinished_run_are_shown_if_there_are_no_others(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    stored(store, value=1, state="failed")
    stored(store, value=2, state="")  # killed
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.state, result.reason) == (0, "stopped", "the program was killed")
    assert [m.value for m in result.measures] == [2]


# -- missing runs ----------------------------------------------------------------------------------


def test_stored_runs_are_not_repeated(tmp_path: Path) -> None:
    store, plan = ResultStore(tmp_path), [RELAY, COUNTS]

    def keys(**options: Any) -> list[str]:
        return [one.experiment.key.removeprefix("sample/") for one in runner.missing_runs(store, plan, True, **options)]

    stored(store)
    stored(store, COUNTS, state="late")
    assert keys() == ["counts"]
    assert keys(repeat=2) == ["relay", "counts", "counts"]
    assert keys(again=True) == ["relay", "counts"]
    assert keys(again=True, repeat=2) == ["relay", "counts"] * 2
    assert [one.key for one in runner.missing_runs(store, plan, False)] == ["sample/relay", "sample/counts"]
    for other in ("commit", "describe_machine"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"riot_bench.report.store.{other}", lambda **_: "new")
            assert keys() == ["counts"]  # of another commit or machine: noted, not run again
            assert keys(repeat=2) == ["relay", "counts"] * 2
    with pytest.raises(ConfigError, match="repeat must be >= 1, got 0"):
        keys(repeat=0)


@pytest.mark.parametrize("other", ["commit", "describe_machine"])
def test_later_runs_of_other_machines_do_not_hide_local_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """As where the results of two machines were put together."""
    store = ResultStore(tmp_path)
    for value in (1, 2):
        stored(store, value=value)
    with monkeypatch.context() as patch:
        patch.setattr(f"riot_bench.report.store.{other}", lambda **_: "other")
        stored(store, value=9)
        assert store.results([RELAY], quick=True)[0].measures[0].value == 9
        assert runner.missing_runs(store, [RELAY], True, repeat=3) == [RELAY] * 2
    (result,) = store.results([RELAY], quick=True)
    assert (result.runs, result.measures[0].values) == (2, (1, 2)), "counted runs are shown"
    assert runner.missing_runs(store, [RELAY], True, repeat=2) == []
    assert runner.missing_runs(store, [RELAY], True, repeat=3) == [RELAY]
    assert runner.missing_runs(store, [RELAY], True, repeat=1) == []


def test_quick_and_full_runs_are_not_counted_together(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for quick in (True, False, False):
        stored(store, quick=quick)
    assert runner.missing_runs(store, [RELAY], True, repeat=3) == [RELAY] * 2, "of the quick ones there would be two"
    assert runner.missing_runs(store, [RELAY], True, repeat=2) == [], "the full ones are shown"
    assert runner.missing_runs(store, [RELAY], False, repeat=3) == [RELAY]


# -- running ---------------------------------------------------------------------------------------


def test_failed_experiment_stops_no_other(tmp_path: Path, where: Path) -> None:
    store, show = ResultStore(tmp_path / "out"), Shown()
    plan = [of(sample_suite.BREAKS), of(sample_suite.SILENT), COUNTS]
    assert runner.run_all(store, plan, True, show) is False
    assert show.ends == [
        ("sample/breaks", "failed", "ValueError: no <luck>"),
        ("sample/silent", "failed", "it yielded no measures"),
        ("sample/counts", "done", ""),
    ]
    breaks, _, counts = store.results(plan, quick=True)
    assert [m.measure for m in breaks.measures] == ["sample/breaks/first"]
    (measure,) = counts.measures
    assert measure.machine
    assert len(measure.load) == 1
    assert runner.missing_runs(store, plan, True) == plan[:2]
    assert runner.run_all(store, [COUNTS], False, show) is True
    assert store.results([COUNTS], quick=False)[0].measures[0].value == 2


def test_run_during_a_code_change_does_not_count(tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of neither commit; the next run is of the new one."""
    store, show = ResultStore(tmp_path / "out"), Shown()
    for what in ("commit_of", "code_digest"):
        monkeypatch.setattr(f"riot_bench.report.store.{what}", lambda *_: "new" if where.exists() else "old")
    monkeypatch.setattr("riot_bench.report.store._COMMITS", {})
    assert runner.run_all(store, [COUNTS], True, show) is False
    assert show.ends == [("sample/counts", "failed", "the code was changed meanwhile")]
    (result,) = store.results([COUNTS], quick=True)
    assert (result.runs, result.state, result.about["commit"]) == (0, "failed", "old")
    assert runner.missing_runs(store, [COUNTS], True) == [COUNTS]
    assert runner.run_all(store, [COUNTS], True, show) is True
    (result,) = store.results([COUNTS], quick=True)
    assert (result.runs, result.state, result.about["commit"]) == (1, "done", "new")
    where.unlink()
    monkeypatch.setattr(runner, "_run_one", lambda *_: (where.touch(), ("late", "not done after 9 s"))[1])
    assert runner.run_all(store, [COUNTS], True, show) is False
    assert show.ends[-1] == ("sample/counts", "late", "not done after 9 s; the code was changed meanwhile")


def test_code_digest_covers_file_contents(tmp_path: Path) -> None:
    """Neither git metadata nor compiled or hidden files."""
    package = tmp_path / "ü"
    for name in ("__init__.py", "in/a.py", "in/b.model"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    found = code_digest(package)
    for name in (".git/HEAD", "in/.a.py.swp", "in/__pycache__/a.pyc"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("x")
    (tmp_path / "beside.py").write_text("x")
    assert code_digest(package) == found
    (package / "in" / "b.model").write_text("in/B.model")
    changed = {found, code_digest(package)}
    (package / "in" / "c.py").write_text("")
    changed.add(code_digest(package))
    (package / "in" / "c.py").rename(package / "in" / "d.py")
    changed.add(code_digest(package))
    (package / "in" / "d.py").unlink()
    assert len(changed) == 4
    assert code_digest(package) in changed


@pytest.mark.parametrize("error", [OSError("the disk is full"), SystemExit("enough"), KeyboardInterrupt()])
def test_error_of_the_report_itself_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def raises(*_: object) -> None:
        raise error

    store, show = ResultStore(tmp_path), Shown()
    monkeypatch.setattr(runner, "_run_one", raises)
    with pytest.raises(type(error)):
        runner.run_all(store, [COUNTS], True, show)
    stopped = isinstance(error, KeyboardInterrupt)
    state, reason = ("stopped", "stopped by the user") if stopped else ("failed", f"{type(error).__name__}: {error}")
    (result,) = store.results([COUNTS], quick=True)
    assert (result.state, result.reason) == (state, reason)
    assert show.ends == [("sample/counts", state, "" if stopped else reason)]


def test_killed_process_is_reported_with_its_signal(tmp_path: Path, where: Path) -> None:
    """For example by the system for lack of memory: its last output is not the reason."""
    show, plan = Shown(), [of(sample_suite.KILLED)]
    assert runner.run_all(ResultStore(tmp_path / "out"), plan, True, show) is False
    assert show.ends == [("sample/killed", "failed", "killed by SIGKILL; last printed: all is well")]
    assert runner._exit_reason(-signal.SIGSEGV, "") == "killed by SIGSEGV"
    assert runner._exit_reason(-40, "") == "killed by signal 40"
    assert [runner._exit_reason(3, words) for words in ("", "E: x")] == ["exit code 3", "E: x"]


def ended(pids: list[int]) -> bool:
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=5)
    return not alive


def test_hanging_experiment_is_ended_with_its_children(
    tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when it hangs on, which takes longer on a busy machine, twenty seconds pass at each look."""
    passed, ticks = [0.0], []

    def monotonic() -> float:
        passed[0] += 20.0 * where.exists()
        return time.monotonic() + passed[0]

    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(runner, "START_S", 0.0)
    monkeypatch.setattr(runner, "GRACE_S", 3.0)
    show, plan = Shown(), [of(sample_suite.HANGS), COUNTS]
    monkeypatch.setattr(show, "tick", lambda seconds, measures: ticks.append(seconds))
    with pytest.raises(ConfigError, match="patience must be > 0, got 0"):
        runner.run_all(ResultStore(tmp_path / "out"), plan, True, show, patience=0)
    assert runner.run_all(ResultStore(tmp_path / "out"), plan[:1], True, show, patience=200.0) is False
    assert ticks[-2] <= 200 * sample_suite.HANGS.seconds[0] < ticks[-1]
    ((_, state, reason),) = show.ends
    assert state == "late"
    assert reason.startswith("not done after 2")
    assert ended([int(pid) for pid in where.read_text().split()])


def test_ctrl_c_keeps_finished_results(tmp_path: Path, where: Path) -> None:
    store, show = ResultStore(tmp_path / "out"), Shown(interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        runner.run_all(store, [of(sample_suite.HANGS), RELAY], True, show)
    assert show.ends == [("sample/hangs", "stopped", "")]
    (result,) = store.results([of(sample_suite.HANGS)], quick=True)
    assert [m.measure for m in result.measures] == ["sample/hangs/first"]
    assert (result.state, result.reason) == ("stopped", "stopped by the user")
    assert ended([int(pid) for pid in where.read_text().split()])


def test_one_experiment_alone(where: Path, tmp_path: Path) -> None:
    """Its prints reach only its own output."""
    mouth, ear = os.pipe()
    arguments = [
        sys.executable,
        "-m",
        "riot_bench.report.experiment_process",
        str(ear),
        SUITE,
        "sample/relay",
        "quick",
    ]
    done = subprocess.run(arguments, pass_fds=(ear,), capture_output=True, text=True, check=True)
    os.close(ear)
    with os.fdopen(mouth) as file:
        lines = [Measure.from_json(line) for line in file]
    assert [m.measure for m in lines[:2]] == ["sample/relay/local/50B", "sample/relay/local/1000B"]
    assert done.stdout == "what an experiment prints is its own affair {}\n"
