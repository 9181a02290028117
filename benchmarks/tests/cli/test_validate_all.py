"""``riot-ops validate --all``: the variants of runs, and their comparison."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness import variants
from riot_bench.harness.validation import plain_program
from riot_bench.harness.variants import (
    REFERENCE,
    Case,
    Outcome,
    Variant,
    combine,
    matches_plain_python,
    prepare_case,
    query_groups,
    run_local,
)
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import APPLICATIONS, application
from riot_ops.streams import generate
from riot_ops.testing import exact

MODES = ("whole", "cut", "restarted")
LOCAL = [v for v in variants.variants() if v.runner == "local"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with few messages."""
    monkeypatch.setattr(variants, "DEFAULT_MESSAGES", 200)


def test_variants_are_all_combinations_of_runner_cores_and_mode() -> None:
    every = variants.variants()
    assert len({(v.runner, v.partitions, v.mode) for v in every}) == len(every) == 2 * 2 * 3
    assert every[0] == REFERENCE == Variant("local", 1, "whole")
    quick = variants.variants(quick=True)
    assert [v for v in quick if v.runner == "local"] == LOCAL
    assert [v.name for v in quick if v.runner == "spark"] == ["spark-1-restarted", "spark-2-cut"]


def read(source: Any, most: int | None = None) -> int:
    at, rounds = source.initial(), 0
    while rounds < 20 and not source.finished(at):
        end = source.latest(at, most)
        if end == at:
            break
        at, rounds = end, rounds + 1
    return int(source.count(source.initial(), at))


def test_first_part_of_a_source_ends_waits_or_fails() -> None:
    whole = generate("text", messages=50)
    parts = {then: variants._FirstMessages(whole, 20, then) for then in ("end", "wait", "fail")}
    assert read(parts["end"]) == read(parts["end"], 7) == read(parts["wait"], 7) == 20
    at = parts["wait"].latest(parts["wait"].initial())
    assert [parts[then].finished(at) for then in parts] == [True, False, False]
    assert [parts[then].waits() for then in parts] == [False, True, True]
    with pytest.raises(ConnectorError, match="lost after message 20"):
        parts["fail"].latest(at)
    assert read(variants._FirstMessages(whole, 80)) == 50


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["word_count", "bargain_index", "spam_filter", "statistics"])
def test_variants_in_process_have_equal_digests(name: str, tmp_path: Path) -> None:
    given = prepare_case(application(name), tmp_path / "in")
    found = {v: run_local(given, v, tmp_path / v.name) for v in LOCAL}
    digests = {one.digest for one in found.values()}
    assert len(digests) == 1
    assert not digests.pop().startswith("0-")
    assert all(one.records == found[REFERENCE].records for one in found.values())
    assert (tmp_path / "local-2-restarted" / "checkpoint").exists()
    assert matches_plain_python(given) is True
    other = prepare_case(application(name), tmp_path / "in", seed=8)
    assert run_local(other, REFERENCE, tmp_path).digest != found[REFERENCE].digest


@pytest.mark.usefixtures("few")
def test_lost_state_after_a_restart_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its state, the second half starts from nothing, and the digest differs."""
    given = prepare_case(application("statistics"), tmp_path)
    restarted, wanted = Variant("local", 1, "restarted"), run_local(given, REFERENCE, tmp_path)
    run, calls = type(given.flow).run, []

    def forgetful(self: Any, sources: Any, **options: Any) -> Any:
        calls.append(options)
        if len(calls) == 2:
            sources = {name: variants._FirstMessages(one, 150) for name, one in sources.items()}
        return run(self, sources, **options)

    monkeypatch.setattr(type(given.flow), "run", forgetful)
    found = run_local(given, restarted, tmp_path / "kept")
    assert [set(options) >= {"out", "checkpoint"} for options in calls] == [True, True]
    assert found.digest != wanted.digest
    assert found.records["figures"] == 150


@pytest.mark.usefixtures("few")
def test_difference_from_plain_python_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = prepare_case(application("identity"), tmp_path)
    monkeypatch.setattr(variants, "plain_results", lambda *_: {"records": [(b"x",)]})
    assert matches_plain_python(given) is False
    assert matches_plain_python(Case(APPLICATIONS["stats"], given.flow, given.sources, 1)) is None


@pytest.mark.usefixtures("few")
def test_combined_applications_have_the_results_of_each(tmp_path: Path) -> None:
    """On Spark, several applications run as one dataflow; here it runs in process."""
    cases = [prepare_case(application(name), tmp_path) for name in ("word_count", "voip_stream", "sentiment_analysis")]
    flow = combine({given.name: given.flow for given in cases})
    result = flow.run({f"{g.name}.{n}": s for g in cases for n, s in g.sources.items()}, batch_size=70)
    for given in cases:
        alone = given.flow.run(given.sources)
        for stream in given.streams[:-1]:
            assert alone[stream].num_rows
            wanted = sorted(map(exact, alone[stream].to_pylist()))
            assert sorted(map(exact, result[f"{given.name}.{stream}"].to_pylist())) == wanted
    errors = sorted(row["task"].partition(".")[0] for row in result.errors.to_pylist())
    assert set(errors) <= {given.name for given in cases}


@pytest.mark.usefixtures("few")
def test_query_groups_have_one_length_and_separate_streams(tmp_path: Path) -> None:
    names = ("word_count", "bargain_index", "grep", "ads_analytics", "equipment_monitoring")
    found = [[g.name for g in group] for group in query_groups([prepare_case(application(n), tmp_path) for n in names])]
    assert sorted(map(sorted, found)) == [
        ["ads_analytics"],
        ["bargain_index"],
        ["equipment_monitoring"],
        ["grep", "word_count"],
    ]


def test_failure_is_an_outcome_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = prepare_case(application("grep"), tmp_path)

    def broken() -> Any:
        raise ConfigError("no Spark <here>")

    wanted = [REFERENCE, Variant("spark", 2, "cut")]
    logged: list[str] = []
    local, spark = variants.run_variants([given], wanted, broken, tmp_path, logged.append)
    assert local.digest
    assert (spark.digest, spark.reason) == ("", "ConfigError: no Spark <here>")
    assert logged == ["local-1-whole: grep", "spark-2-cut: grep"]


def test_applications_of_a_failed_query_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [prepare_case(application(name), tmp_path) for name in ("grep", "wordcount", "identity")]
    tried: list[list[str]] = []

    def on_spark(spark: Any, group: Any, variant: Variant, folder: Path) -> Any:
        tried.append([given.name for given in group])
        for given in group:
            if given.name == "wordcount":
                raise ValueError("worn out")
            yield Outcome(given.name, variant, "1-a")

    monkeypatch.setattr(variants, "run_on_spark", on_spark)
    found = list(variants.run_variants(cases, [Variant("spark", 2, "cut")], lambda: None, tmp_path, lambda _: None))
    together, *alone = tried
    assert sorted(together) == ["grep", "identity", "wordcount"]
    assert alone == [[name] for name in together]
    assert {one.application: one.reason for one in found} == {
        "grep": "",
        "identity": "",
        "wordcount": "ValueError: worn out",
    }
    assert len(found) == 3


# -- the command -----------------------------------------------------------------------------------


def validate(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["validate", *args])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


@pytest.mark.usefixtures("few")
def test_command_reports_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr(variants, "variants", lambda quick: given.append(quick) or LOCAL)
    lines = [json.loads(line) for line in validate("--all", "wc", "grep", "--json").splitlines()]
    assert [(one["application"], one["partitions"], one["form"]) for one in lines[:3]] == [
        ("word_count", 1, "whole"),
        ("word_count", 1, "cut"),
        ("word_count", 1, "restarted"),
    ]
    assert len(lines) == 2 * len(LOCAL)
    assert all(one["equal"] is True and one["plain_python"] is True and one["runner"] == "local" for one in lines)
    assert lines[0]["records"]["counts"] > 0
    assert lines[0]["suite"] == "dspbench"
    shown = validate("--all", "grep", "--quick")
    assert given == [False, True]
    assert "grep" in shown
    assert shown.count("equal") >= len(LOCAL)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("how", ["digest", "reason", "plain"])
def test_difference_sets_the_exit_code(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "variants", lambda quick: LOCAL[:2])
    run = variants.run_local

    def other(given: Case, variant: Variant, folder: Path) -> Any:
        found = run(given, variant, folder)
        if variant == REFERENCE or how == "plain":
            return found
        if how == "reason":
            raise ValueError("lost")
        return replace(found, digest="0-0")

    monkeypatch.setattr(variants, "run_local", other)
    if how == "plain":
        monkeypatch.setattr(variants, "matches_plain_python", lambda given: False)
    shown = validate("--all", "grep", code=1)
    assert {"digest": "differs", "reason": "failed", "plain": "differs"}[how] in shown
    lines = [json.loads(line) for line in validate("--all", "grep", "--json", code=1).splitlines()]
    assert lines[1]["equal"] is (how == "plain")
    assert lines[1]["reason"] == ("ValueError: lost" if how == "reason" else "")


@pytest.mark.usefixtures("few")
def test_failed_application_keeps_the_rows_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One application cannot be prepared, one fails in process, one is correct, and Spark is missing."""
    monkeypatch.setattr(variants, "variants", lambda quick: [*LOCAL[:2], *(Variant("spark", 2, f) for f in MODES)])
    made, run, starts = variants.prepare_case, Dataflow.run, []

    def made_or_not(one: Any, folder: Path) -> Case:
        if one.name == "grep":
            raise RuntimeError("no [data]")
        return made(one, folder)

    def runs_or_not(self: Dataflow, *args: Any, **options: Any) -> Any:
        if self.name == "wordcount":
            raise ValueError("lost\nfor ever")
        return run(self, *args, **options)

    def spark_session() -> Any:
        starts.append(1)
        raise ConnectorError("no Java")

    monkeypatch.setattr(variants, "prepare_case", made_or_not)
    monkeypatch.setattr(Dataflow, "run", runs_or_not)
    monkeypatch.setattr("riot_bench.harness.session.spark_session", spark_session)
    names = ("grep", "wordcount", "identity")
    rows = [json.loads(line) for line in validate("--all", *names, "--json", code=1).splitlines()]
    assert [(row["application"], row["runner"], row["form"]) for row in rows] == [
        (name, *of) for name in names for of in [("local", "whole"), ("local", "cut"), *(("spark", f) for f in MODES)]
    ]
    why = ["RuntimeError: no [data]"] * 5 + ["ValueError: lost\nfor ever"] * 2 + ["ConnectorError: no Java"] * 3
    assert [row["reason"] for row in rows] == [*why, "", "", *["ConnectorError: no Java"] * 3]
    assert [row["result"] for row in rows] == [*["failed"] * 10, "equal", "equal", *["failed"] * 3]
    assert rows[10]["plain_python"] is True
    assert rows[0]["plain_python"] is rows[5]["plain_python"] is None
    assert len(starts) == 1
    monkeypatch.setenv("COLUMNS", "200")
    shown = validate("--all", *names, code=1)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert len(lines) == 15
    assert lines[0] == ["grep", "local", "1", "whole", "0", "none", "failed: RuntimeError: no [data]"]
    assert lines[5] == ["wordcount", "local", "1", "whole", "0", "none", "failed: ValueError: lost for ever"]
    assert lines[10][5:] == ["equal", "equal"]


@pytest.mark.usefixtures("few")
def test_results_before_ctrl_c_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    run = variants.run_local

    def interrupted(given: Case, variant: Variant, folder: Path) -> Any:
        if variant == LOCAL[1]:
            raise KeyboardInterrupt
        return run(given, variant, folder)

    monkeypatch.setattr(variants, "run_local", interrupted)
    rows = [json.loads(line) for line in validate("--all", "grep", "--quick", "--json", code=130).splitlines()]
    assert [row["result"] for row in rows[:3]] == ["equal", "not run", "not run"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--all", "--out", "x"], "--all generates its input"),
        (["--all", "--set", "x=1"], "--all generates its input"),
        (["--all", "wcc"], "unknown application 'wcc'"),
        (["wc", "--quick", "--input", "x", "--out", "x"], "--quick needs --all"),
        (["wc", "fd", "--input", "x", "--out", "x"], "NAME must be one application without --all, got wc, fd"),
        ([], "NAME must be one application without --all, got none"),
        (["wc", "--out", "x"], "name --input and --out of a run"),
        (["wc", "--input", "x"], "name --input and --out of a run"),
    ],
)
def test_misuse_is_refused(args: list[str], text: str) -> None:
    result = CliRunner().invoke(app, ["validate", *args])
    assert isinstance(result.exception, ConfigError)
    assert text in str(result.exception)


@pytest.mark.spark
@pytest.mark.slow  # the command itself compares them
def test_variants_on_spark_have_equal_digests(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "DEFAULT_MESSAGES", 200)
    cases = [prepare_case(application(name), tmp_path) for name in ("word_count", "statistics")]
    wanted = [REFERENCE, Variant("spark", 2, "restarted")]
    found = list(variants.run_variants(cases, wanted, lambda: spark, tmp_path, lambda _: None))
    assert [one.reason for one in found] == [""] * 4
    for given in cases:
        assert len({one.digest for one in found if one.application == given.name}) == 1


@pytest.mark.spark
@pytest.mark.slow
def test_all_applications_are_equal_in_all_variants() -> None:
    validate("--all", "--quick")


@pytest.mark.usefixtures("few")
def test_application_without_plain_python_has_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr(variants, "plain_results", none)
    assert matches_plain_python(prepare_case(application("word_count"), tmp_path)) is None


def test_missing_package_of_plain_python_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra and is raised before any run."""
    monkeypatch.setitem(sys.modules, "orjson", None)
    monkeypatch.delitem(sys.modules, "riot_bench.baselines.python.dspbench.click_analytics", raising=False)
    one, needs = application("click_analytics"), r"plain Python needs .* 'riot-bench'"
    with pytest.raises(MissingExtraError, match=needs):
        plain_program(one)
    monkeypatch.setattr(variants, "DEFAULT_MESSAGES", 5)
    with pytest.raises(MissingExtraError, match=needs):
        matches_plain_python(prepare_case(one, tmp_path))
    monkeypatch.setattr(variants, "run_variants", lambda *_: pytest.fail("it was run"))
    lines = tmp_path / "lines"
    lines.touch()
    for args in (["--all"], ["--out", str(tmp_path), "--input", str(lines)]):
        result = CliRunner().invoke(app, ["validate", one.name, *args])
        assert isinstance(result.exception, MissingExtraError), result.output
    assert plain_program(application("word_count"))({"lines": []}) == {"counts": []}
    with pytest.raises(ModuleNotFoundError, match=r"baselines\.python\.dspbench\.stats"):
        plain_program(APPLICATIONS["stats"])
