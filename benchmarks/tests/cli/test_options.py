"""Every option of ``riot-ops bench``, ``report`` and ``validate`` has a test that fails if the option is ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from riot_ops.cli import main as cli

TESTS = Path(__file__).parents[1]
COMMANDS = ("bench", "report", "validate")


def invoke(*args: Any) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, args)])


#: Option of ``riot-ops bench``: its text, the keyword of ``run_suite`` and the value.
BENCH: dict[str, tuple[str | None, str, Any]] = {
    "--json": (None, "as_json", True),
    "--quick": (None, "quick", True),
    "--repeat": ("3", "repeat", 3),
    "--task": ("KAL", "task", ["KAL"]),
    "--name": ("etl", "name", ["etl"]),
    "--stream": ("fit", "stream", ["fit"]),
    "--app": ("wc", "app", ["wc"]),
    "--runner": ("local", "runner", "local"),
    "--out": ("o", "out", Path("o")),
    "--duration": ("1.5", "duration", 1.5),
    "--trace": ("rw1", "trace", ["rw1"]),
    "--workload": ("opmw", "workload", ["opmw"]),
    "--backend": ("null", "backend", "null"),
    "--many": ("6", "many", 6),
    "--carried": (None, "carried", True),
    "--at-once": ("3", "at_once", 3),
    "--suite": ("knobs", "suite", "knobs"),
    "--program": ("grep", "program", ["grep"]),
    "--scale": ("0.5", "scale", 0.5),
    "--rate": ("7.5", "rate", [7.5]),
    "--seconds": ("9", "seconds", 9.0),
}
#: Options with a test of their own.
TESTED_ELSEWHERE = {
    "bench --list": "cli/test_options.py::test_list_of_benchmarks_runs_none",
    "report --suite": "report/test_page.py::test_list_of_experiments",
    "report --quick": "cli/test_options.py::test_limits_and_quick_form_reach_the_runner",
    "report --out": "cli/test_options.py::test_limits_and_quick_form_reach_the_runner",
    "report --experiment": "report/test_page.py::test_two_experiments_from_end_to_end",
    "report --repeat": "report/test_page.py::test_two_experiments_from_end_to_end",
    "report --again": "report/test_page.py::test_two_experiments_from_end_to_end",
    "report --page": "report/test_page.py::test_two_experiments_from_end_to_end",
    "report --patience": "cli/test_options.py::test_limits_and_quick_form_reach_the_runner",
    "report --list": "report/test_page.py::test_list_of_experiments",
    "validate --input": "cli/test_validate.py::test_run_agrees_with_plain_python",
    "validate --out": "cli/test_validate.py::test_difference_is_reported",
    "validate --set": "cli/test_validate.py::test_difference_is_reported",
    "validate --json": "cli/test_validate.py::test_run_agrees_with_plain_python",
    "validate --all": "cli/test_validate_all.py::test_command_reports_every_variant",
    "validate --quick": "cli/test_validate_all.py::test_command_reports_every_variant",
}


def test_every_option_has_a_test() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    declared = [
        {f"{command} {name}" for name in (*option.opts, *option.secondary_opts)}
        for command in COMMANDS
        for option in commands[command].params
        if option.param_type_name == "option" and "--help" not in option.opts
    ]
    tested = {*TESTED_ELSEWHERE, *(f"bench {name}" for name in BENCH)}
    assert [sorted(names) for names in declared if not names & tested] == []
    assert tested <= set().union(*declared)
    for place in set(TESTED_ELSEWHERE.values()):
        file, name = place.split("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), place


def test_each_option_of_a_benchmark_reaches_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    monkeypatch.setattr("riot_bench.suites.registry.run_suite", lambda *args, **options: calls.append((args, options)))
    defaults = {"as_json": False, "quick": False, "repeat": 1}
    for option, (text, keyword, value) in BENCH.items():
        result = invoke("bench", "any", option, *([] if text is None else [text]))
        assert result.exit_code == 0, result.exception
        assert calls.pop() == (("any",), {**defaults, keyword: value}), option


def test_list_of_benchmarks_runs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("riot_bench.suites.registry.run_suite", lambda *_, **__: pytest.fail("a suite ran"))
    listed = invoke("bench", "kernels", "--list").output
    assert listed == invoke("bench").output
    assert {line.split()[0] for line in listed.splitlines()} >= {"kernels", "reuse", "streambench"}


def test_unknown_benchmark_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["riot-ops", "bench", "nothing"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("riot-ops: ")
    assert "nothing" in line


def test_limits_and_quick_form_reach_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from riot_bench.report import runner

    calls = []

    def run_all(store: Any, runs: Any, quick: bool, show: Any, patience: float) -> bool:
        calls.append((store.folder, quick, patience))
        return True

    monkeypatch.setattr(runner, "missing_runs", lambda *_: [])
    monkeypatch.setattr(runner, "run_all", run_all)
    for options, expected in (([], (True, 4.0)), (["--patience", 9, "--full"], (False, 9.0))):
        result = invoke("report", "--suite", "benchmarks.tests.sample_suite", "--out", tmp_path, *options)
        assert result.exit_code == 0, result.exception
        assert calls.pop() == (tmp_path, *expected)
