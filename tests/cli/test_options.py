"""Every option of every command has a test: it reaches its target, or the test that sees its effect is named here."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

import riot_ops as ro
from riot_ops.cli import main as cli
from riot_ops.cli import reuse as cli_reuse
from riot_ops.cli.job import Job
from riot_ops.cli.plugins import GROUP, KNOWN
from riot_ops.cli.train_job import TrainJob
from riot_ops.core.errors import ConfigError
from tests.cli.commands import invoke

TESTS = Path(__file__).parents[1]


def refused(*args):
    error = invoke(*args).exception
    assert isinstance(error, ConfigError), error
    return str(error)


class Recorder:
    """A stand-in for the function that a command starts; records its arguments."""

    def __init__(self):
        self.positional, self.given = (), {}

    def __call__(self, *positional, **given):
        self.positional, self.given = positional, given
        return SimpleNamespace(run=lambda console: None, all_rejected=False, **given)


#: Option of ``riot-ops run``: its text, the field of the job and the value.
RUN = {
    "--stream": ("taxi", "stream", "taxi"),
    "--messages": ("7", "messages", 7),
    "--sensors": ("8", "sensors", 8),
    "--seed": ("9", "seed", 9),
    "--input": ("a.csv", "input", "a.csv"),
    "--format": ("csv", "format", "csv"),
    "--time": ("at", "time", "at"),
    "--time-unit": ("ms", "time_unit", "ms"),
    "--encoding": ("latin-1", "encoding", "latin-1"),
    "--read": ("tz=UTC", "read", ("tz=UTC",)),
    "--key": ("id", "key", "id"),
    "--mqtt": ("mqtt://h", "mqtt", "mqtt://h"),
    "--topic": ("a/#", "topic", ("a/#",)),
    "--client-id": ("me", "client_id", "me"),
    "--ca-file": ("ca.crt", "ca_file", "ca.crt"),
    "--certificate": ("c.crt", "certificate", "c.crt"),
    "--private-key": ("c.key", "private_key", "c.key"),
    "--rate": ("1.5", "rate", 1.5),
    "--speed": ("2.5", "speed", 2.5),
    "--curve": ("fit", "curve", "fit"),
    "--out": ("o", "out", "o"),
    "--out-format": ("csv", "out_format", "csv"),
    "--overwrite": (None, "overwrite", True),
    "--restart": ("compatible", "restart", "compatible"),
    "--checkpoint": ("c", "checkpoint", "c"),
    "--form": ("plots", "form", "plots"),
    "--no-plot": (None, "plot", False),
    "--runner": ("local", "runner", "local"),
    "--cores": ("3", "cores", 3),
    "--batch-size": ("10", "batch_size", 10),
    "--buffering": ("latency", "buffering", "latency"),
    "--trigger": ("2 seconds", "trigger", "2 seconds"),
    "--target-duration": ("500ms", "target_duration", "500ms"),
    "--ticks": ("t.csv", "ticks", "t.csv"),
    "--spans": ("4", "spans", 4),
    "--start": ("5", "start", 5),
    "--table": ("memory", "table", "memory"),
    "--models": ("m", "models", "m"),
    "--broker": ("memory://b", "broker", "memory://b"),
    "--servers": (None, "servers", True),
    "--live": (None, "live", "http://127.0.0.1"),
    "--otel": (None, "otel", True),
    "--live-report": ("last.html", "live_report", Path("last.html")),
    "--log-json": ("log.jsonl", "log_json", "log.jsonl"),
    "--verbose": (None, "verbose", True),
}
#: Other options, with the test that fails if the option is ignored.
TESTED_ELSEWHERE = {
    "errors replay --out": "cli/test_replay.py::test_mended_dataflow_gives_what_the_records_would_have_given",
    "checkpoint show --json": "cli/test_checkpoint.py::test_show_and_check",
    "--install-completion": "cli/test_main.py::test_bash_completes_commands_and_options",
    "--show-completion": "cli/test_main.py::test_bash_completes_commands_and_options",
    "new --template": "cli/test_new.py::test_project_has_all_parts_and_no_marks",
    "doctor --port": "cli/test_doctor.py::test_port_that_is_taken_is_a_warning",
    "doctor --out": "cli/test_doctor.py::test_folders_that_cannot_be_written_fail",
    "doctor --json": "cli/test_doctor.py::test_this_environment_has_what_it_was_installed_with",
    "--version": "cli/test_main.py::test_version_is_printed",
    "run --set": "cli/test_application_job.py::test_file_parameter_and_seed_change_results",
    "run --list": "cli/test_run.py::test_list_names_every_application",
    "run --json": "cli/test_run.py::test_list_names_every_application",
    "tasks --json": "cli/test_main.py::test_tasks_lists_every_task_and_source",
    "show --stream": "cli/test_options.py::test_stream_option_reaches_show_and_plan",
    "show --format": "cli/test_main.py::test_show_and_plan_describe_applications",
    "plan --stream": "cli/test_options.py::test_stream_option_reaches_show_and_plan",
    **{
        f"plan --{option}": "cli/test_plan.py::test_command_prints_the_size"
        for option in ("rate", "keys", "head-room", "input", "messages", "json")
    },
    "plan --runner": "cli/test_plan.py::test_size_on_spark_is_measured_there",
    "plan --fuse": "cli/test_options.py::test_coarse_fusion_shares_a_stage",
    "streams --plot": "streams/test_catalog.py::test_command_draws_the_rates",
    "streams --speed": "cli/test_streams.py::test_speedup_reaches_plot_and_description",
    "streams --write": "cli/test_streams.py::test_written_file_equals_the_generators_messages",
    "streams --messages": "cli/test_streams.py::test_written_file_equals_the_generators_messages",
    "streams --sensors": "cli/test_streams.py::test_written_file_equals_the_generators_messages",
    "streams --seed": "cli/test_streams.py::test_written_file_equals_the_generators_messages",
    "streams --json": "cli/test_streams.py::test_streams_of_lines_are_described_and_written",
    "warm --processes": "cli/test_warm.py::test_number_of_processes_reaches_the_compilation",
    "warm --spark": "cli/test_warm.py::test_spark_option_archives_classes_instead",
    "reuse serve --dir": "cli/test_options.py::test_options_of_serve_reach_the_manager",
    "reuse serve --backend": "cli/test_options.py::test_options_of_serve_reach_the_manager",
    "reuse serve --policy": "cli/test_options.py::test_options_of_serve_reach_the_manager",
    "reuse serve --epoch": "cli/test_options.py::test_options_of_serve_reach_the_manager",
    "reuse serve --cores": "cli/test_options.py::test_options_of_serve_reach_the_manager",
    "reuse serve --live": "cli/test_live_page.py::test_manager_serves_its_page",
    "reuse serve --live-report": "cli/test_live_page.py::test_manager_serves_its_page",
    "reuse serve --otel": "cli/test_live_page.py::test_metrics_are_offered_to_opentelemetry",
    "reuse serve --allow-actions": "cli/test_live_page.py::test_manager_serves_its_page",
    "reuse submit --sink": "cli/test_options.py::test_options_of_submit_reach_the_request",
    "reuse submit --out": "cli/test_options.py::test_options_of_submit_reach_the_request",
    **{
        f"reuse submit --{option}": "cli/test_options.py::test_options_of_submit_reach_the_request"
        for option in (
            "dir",
            "name",
            "owner",
            "source",
            "on-slow",
            "on-failure",
            "fold",
            "flag-warm",
            "explain",
            "json",
        )
    },
    **{
        f"reuse {command} --dir": "cli/test_options.py::test_requests_go_to_the_folder_of_dir"
        for command in ("remove", "pause", "resume", "list", "show", "stats", "usage", "defragment", "stop")
    },
    **{
        f"reuse {command}": "cli/test_reuse.py::test_dataflow_life_cycle"
        for command in ("remove --json", "list --json", "show --format", "show --out", "stats --json", "usage --json")
    },
}


def options_of(command, path=()):
    """``"run --seed"`` for each option of a command and of those below it, with all its names."""
    for one in command.params:
        if one.param_type_name == "option" and "--help" not in one.opts:
            yield {" ".join((*path, name)) for name in (*one.opts, *one.secondary_opts)}
    for name, below in getattr(command, "commands", {}).items():
        yield from options_of(below, (*path, name))


def test_every_option_has_a_test():
    tested = {*TESTED_ELSEWHERE, *(f"run {name}" for name in RUN)}
    command = typer.main.get_command(cli.app)
    others = [entry.name for entry in entry_points(group=GROUP) if not entry.value.startswith("riot_ops.")]
    for name in [*KNOWN, *others]:
        command.commands.pop(name, None)  # the distribution that adds a command has its tests
    there = list(options_of(command))
    assert [sorted(names) for names in there if not names & tested] == []
    assert tested <= set().union(*there)
    for place in set(TESTED_ELSEWHERE.values()):
        file, name = place.split("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), place


@pytest.mark.long
def test_each_option_of_run_reaches_the_job(monkeypatch):
    for kind in (
        "application_job",
        "learning_job",
        "flow_job",
        "micro_job",
    ):  # subclasses of Job are defined before it is replaced
        importlib.import_module(f"riot_ops.cli.{kind}")
    kept = Recorder()
    monkeypatch.setattr("riot_ops.cli.job.Job", kept)
    usual = {field.name: field.default for field in fields(Job)}
    for option, (word, field, value) in RUN.items():
        result = invoke("run", "stats", option, *([] if word is None else [word]))
        assert result.exit_code == 0, result.exception
        changed = {name: one for name, one in kept.given.items() if one != usual[name] and name != "name"}
        assert changed == {field: value}, option


# -- targets of the options of a job -------------------------------------------------------------


def test_options_reach_a_run_in_process(tmp_path, monkeypatch):
    kept, run = Recorder(), ro.Dataflow.run

    def recorded(flow, source, **options):
        kept(flow, **options)
        return run(flow, source, **options)

    monkeypatch.setattr(ro.Dataflow, "run", recorded)
    args = ["--runner", "local", "--messages", 200, "--out", tmp_path / "out", "--no-plot"]
    assert "plot:" not in invoke("run", "stats", *args).output
    assert [kept.given[n] for n in ("batch_size", "cores", "buffering", "checkpoint", "overwrite")] == [
        *(None, None, None, None, False)
    ]
    more = [
        "--batch-size",
        77,
        "--cores",
        2,
        "--buffering",
        "latency",
        "--checkpoint",
        tmp_path / "kept",
        "--overwrite",
    ]
    result = invoke("run", "stats", *args, *more)
    assert result.exit_code == 0, result.exception
    assert [kept.given[n] for n in ("batch_size", "cores", "buffering", "checkpoint", "overwrite")] == [
        *(77, 2, "latency", str(tmp_path / "kept"), True),
    ]
    assert not (tmp_path / "out" / "stats.png").exists()


def test_options_reach_a_query_on_spark(tmp_path, monkeypatch):
    spark = SimpleNamespace(version="4", sparkContext=SimpleNamespace(master="local"), stop=lambda: None)
    kept_cores = []
    monkeypatch.setattr("riot_ops.spark.session", lambda cores: kept_cores.append(cores) or spark)
    kept = Recorder()

    class Flow:
        @staticmethod
        def start(*positional, **given):
            kept(*positional, **given)
            return SimpleNamespace(wait=lambda progress: None, summary="done", restart=None)

    for options, wanted in (
        ({}, (None, None, None, False, 100_000, None)),
        ({"target_duration": "2s"}, (None, None, None, False, 100_000, "2s")),
        (
            {
                "cores": 3,
                "trigger": "2 seconds",
                "buffering": "latency",
                "overwrite": True,
                "batch_size": 5,
                "target_duration": "500ms",
            },
            (3, "2 seconds", "latency", True, 5, "500ms"),
        ),
    ):
        job = Job("stats", out=tmp_path / f"{len(options)}", checkpoint=tmp_path / "kept", **options)
        job.folder.mkdir()
        job._run_spark(Flow, "source", None, Console(quiet=True))
        given = kept.given
        names = ("trigger", "buffering", "overwrite", "max_records", "target_duration")
        found = (kept_cores.pop(), *(given[n] for n in names))
        assert found == wanted
        assert (given["checkpoint"], given["sinks"].folder, given["source"]) == (
            str(tmp_path / "kept"),
            job.out,
            "source",
        )
        assert job.summary == "done"


def test_stores_and_brokers_of_the_options_are_used(tmp_path):
    for name in ("etl", "pred", "train"):
        given = {"table": "memory", "broker": "memory://b", **({} if name == "etl" else {"models": "memory://m"})}
        kind = TrainJob if name == "train" else Job
        services = kind(name, runner="local", out=tmp_path, **given).services
        assert (services.table, services.broker, services.models) == ("memory", "memory://b", given.get("models")), name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "stats", "--json"], "--json needs --list"),
        (["run", "stats", "--table", "memory"], "--table is not for stats, got 'memory'; leave it out"),
        (["run", "etl", "--models", "m"], "--models is not for etl"),
        (["run", "micro", "KAL", "--stream", "taxi"], "--stream is not for micro, got 'taxi'"),
        (["run", "micro", "KAL", "--seed", "3"], "--seed is not for micro, got 3"),
        (["run", "micro", "KAL", "--form", "x"], "--form is not for micro"),
        (["run", "micro", "KAL", "--servers"], "--servers is not for micro, got True"),
        (["run", "flow.json", "--broker", "memory://b"], "--broker is not for flow.json"),
        (["run", "wc", "--curve", "city"], "--curve is not for word_count"),
        (["run", "stats", "--runner", "local", "--trigger", "1 second"], "--trigger is for --runner spark"),
        (
            ["run", "stats", "--runner", "local", "--target-duration", "1s"],
            "--target-duration is for --runner spark, got '1s';",
        ),
        (
            ["run", "stats", "--target-duration", "0s"],
            "--target-duration must be > 0 and at most 1e+09 seconds, got 0.0",
        ),
        (["show", "KAL", "--format", "svg"], "--format is for applications, got 'svg' for KAL"),
        (["show", "KAL", "--stream", "fit"], "--stream is for applications, got 'fit' for KAL"),
        (["show", "KAL", "KAL"], "a second name is for applications, got 'KAL' for KAL"),
        (["show", "wc", "--stream", "fit"], "--stream is for etl, stats, pred, train, got 'fit' for wc"),
        (["plan", "micro", "KAL", "--stream", "fit"], "--stream is for etl, stats, pred, train, got 'fit' for micro"),
        (["plan", "stats", "--fuse", "all"], "fuse"),
        (["streams", "city", "--messages", "5"], "--messages needs --write"),
        (["streams", "city", "--sensors", "5"], "--sensors needs --write"),
        (["streams", "city", "--seed", "5"], "--seed needs --write"),
        (["streams", "city", "--write", "x", "--json"], "--json is not for --write"),
        (["streams", "city", "--write", "x", "--plot", "x"], "--plot is not for --write"),
        (["streams", "city", "--write", "x", "--speed", "2"], "--speed is not for --write"),
        (["warm", "--spark", "--processes", "2"], "--processes 2 is not for --spark"),
        (["reuse", "serve", "--dir", "d", "--allow-actions"], "--allow-actions needs --live"),
        (["reuse", "serve", "--dir", "d", "--cores", "2"], "--cores is for --backend spark, got 2 with local"),
        (["reuse", "serve", "--dir", "d", "--backend", "spark", "--epoch", "2s"], "--epoch is for --backend local"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_option_without_effect_is_refused(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("plain")
    Path("flow.json").write_text(flow.sink("out", flow.source("lines")).to_json())
    assert message in refused(*args)
    assert [path.name for path in tmp_path.iterdir()] == ["flow.json"]


def test_generator_options_with_a_file_give_a_warning(tmp_path):
    file = tmp_path / "readings.csv"
    file.write_text("time,device,temperature\n2024-05-01T00:00:00Z,a,1.5\n")
    given = ("--input", file, "--format", "csv", "--time", "time", "--key", "device", "--out", tmp_path / "out")
    text = invoke("run", "stats", "--runner", "local", *given, "--messages", "5", "--seed", "3").stderr
    assert f"warning: --messages is for generated messages; all messages of {file} are read" in text
    assert "warning: --seed" in text and "--sensors" not in text


# -- options of the other commands -----------------------------------------------------------------


def test_stream_option_reaches_show_and_plan():
    for command in ("show", "plan"):
        shown = {stream: invoke(command, "etl", "--stream", stream).output for stream in ("city", "fit")}
        assert shown["city"] == invoke(command, "etl").output
    for stream, column in (("city", "temperature"), ("fit", "acc_chest_x")):
        text = invoke("show", "etl", "--stream", stream, "--format", "json").output
        assert column in text


def test_coarse_fusion_shares_a_stage(tmp_path):
    """Two keyed steps with keys that overlap: two stages, coarsely one."""
    flow = ro.Dataflow("two")
    values = flow.source("v", schema={"a": "string", "b": "string", "value": "double"})
    first = values.to(ro.tasks.MovingAverage(by=("a", "b"), window=2), id="first")
    flow.sink("out", first.to(ro.tasks.MovingAverage(by=("a",), window=2), id="second"))
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json())
    stages = {fuse: len(re.findall(r"^stage \d", invoke("plan", path, "--fuse", fuse).output, re.MULTILINE))
              for fuse in ("exact", "coarse")}  # fmt: skip
    assert stages == {"exact": 3, "coarse": 2}


def test_options_of_serve_reach_the_manager(tmp_path, monkeypatch):
    from riot_ops.cli import reuse_server

    made = []
    monkeypatch.setattr(reuse_server, "LocalBackend", lambda **given: made.append(given) or 1 / 0)
    for more, epoch in (([], "10s"), (["--epoch", "500ms"], "500ms")):
        assert isinstance(invoke("reuse", "serve", "--dir", tmp_path / "d", *more).exception, ZeroDivisionError)
        assert made.pop()["epoch"] == epoch
    assert (tmp_path / "d" / "control").is_dir()
    monkeypatch.setattr("riot_ops.spark.session", lambda cores: f"session of {cores}")
    monkeypatch.setattr("riot_ops.reuse.spark.spark_backend.SparkBackend", lambda *given: made.append(given) or 1 / 0)
    for more, session in (([], "session of None"), (["--cores", 3], "session of 3")):
        invoke("reuse", "serve", "--dir", tmp_path / "d", "--backend", "spark", *more)
        assert made.pop()[0] == session
    monkeypatch.undo()
    monkeypatch.setattr(reuse_server, "ReuseManager", lambda backend, policy, **_: made.append(policy) or 1 / 0)
    for more in ([], ["--policy", "stateless"]):
        invoke("reuse", "serve", "--dir", tmp_path / "d", *more)
    assert made == ["always", "stateless"]
    assert "--backend must be local or spark, got 'flink'" in refused(
        "reuse", "serve", "--dir", tmp_path / "d", "--backend", "flink"
    )


@pytest.mark.long
def test_options_of_submit_reach_the_request(tmp_path, monkeypatch):
    asked = []

    def answer(folder, request):
        asked.append((folder, request))
        return {"text": "answered", "n": 1} if request["do"] == "explain" else [{"text": "answered", "n": 1}]

    monkeypatch.setattr(cli_reuse, "send_request", answer)
    monkeypatch.setattr(cli_reuse.getpass, "getuser", lambda: "me")
    flow = ro.Dataflow("plain")
    path = tmp_path / "flow.json"
    path.write_text(flow.sink("out", flow.source("lines")).to_json())

    def submitted(*more):
        result = invoke("reuse", "submit", path, "--dir", tmp_path, *more)
        assert result.exit_code == 0, result.exception
        folder, request = asked.pop()
        assert folder == tmp_path
        return request, result.output

    plain, text = submitted()
    (usual,) = plain["dataflows"]
    assert (plain["do"], text) == ("submit", "answered\n")
    rest = {"owner": "me", "on_slow": "detach", "on_failure": "detach", "fold": False, "flag_warm": False}
    assert usual == {"dataflow": json.loads(path.read_text()), "sources": {}, "sinks": {}, **rest}
    for words, changed in (
        (["--name", "n"], {"name": "n"}),
        (["--owner", "ada"], {"owner": "ada"}),
        (["--on-slow", "block"], {"on_slow": "block"}),
        (["--on-failure", "stop"], {"on_failure": "stop"}),
        (["--fold"], {"fold": True}),
        (["--flag-warm"], {"flag_warm": True}),
    ):
        assert submitted(*words)[0]["dataflows"] == [{**usual, **changed}], words
    assert "city" in str(submitted("--source", "lines=city")[0]["dataflows"][0]["sources"]["lines"])
    (to_folder,) = submitted("--out", tmp_path / "o")[0]["dataflows"]
    assert str(tmp_path / "o") in str(to_folder["sinks"]["out"])
    (both,) = submitted("--out", tmp_path / "o", "--sink", "out=discard")[0]["dataflows"]
    assert both["sinks"]["out"] == submitted("--sink", "out=discard")[0]["dataflows"][0]["sinks"]["out"]
    assert both["sinks"] != to_folder["sinks"]
    assert json.loads(submitted("--json")[1]) == {"n": 1}
    explained = submitted("--explain", "--fold", "--flag-warm")[0]
    assert {name: explained[name] for name in ("do", "fold", "flag_warm")} == {
        "do": "explain", "fold": True, "flag_warm": True
    }  # fmt: skip


@pytest.mark.parametrize(
    "command", ["remove", "pause", "resume", "list", "show", "stats", "usage", "defragment", "stop"]
)
def test_requests_go_to_the_folder_of_dir(command, tmp_path, monkeypatch):
    folders = []
    for name in ("send_request", "stop_manager"):
        monkeypatch.setattr(cli_reuse, name, lambda folder, what: folders.append(folder) or 1 / 0)
    invoke("reuse", command, *(["x"] if command in ("remove", "pause", "resume") else []), "--dir", tmp_path)
    assert folders == [tmp_path]
