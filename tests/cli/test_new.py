"""``riot-ops new``: the projects of all templates pass their own tests, and what they deploy is well-formed."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import types
from pathlib import Path

import paho.mqtt.client as paho
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

import riot_ops as ro
from riot_ops.cli import new
from riot_ops.cli.new import TEMPLATES, names_of
from riot_ops.core.errors import ConfigError
from riot_ops.testing import exact
from tests.cli.commands import call, invoke
from tests.deployments import (
    PROJECT,
    check_bundle,
    check_script,
    check_spark_application,
    check_submission,
    check_versions,
    check_yaml,
    load,
)

#: Those with files of their own are tested always; the others have the files of one of them, and another manifest.
SLOW = ("databricks", "k8s")


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def made(folder, template):
    call("new", folder, "--template", template)
    return folder


def parser_of(project):
    """How the job of a project of Spark reads its options; its operator is not registered in this process."""
    (path,) = project.glob("src/*/job.py")
    dataflow = types.ModuleType(f"{path.parent.name}.dataflow")
    dataflow.build = None
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_job", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, path.parent.name, types.ModuleType(path.parent.name))
        patch.setitem(sys.modules, dataflow.__name__, dataflow)
        spec.loader.exec_module(module)
    return module.parse


def in_project(project, *command):
    """Run Python in a project, with this environment."""
    paths = [*sys.path, os.environ.get("PYTHONPATH", "")]
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable}
    for name in [name for name in there if name.startswith("PYTEST_")]:
        del there[name]
    return subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=there,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "template",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TEMPLATES],
)
def test_project_passes_its_own_tests(tmp_path, template):
    project = made(tmp_path / f"Größe von {template}", template)
    done = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "warning" not in done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_project_has_all_parts_and_no_marks(tmp_path, template):
    project = made(tmp_path / "my-project", template)
    found = files(project)
    assert found >= {
        *("README.md", "pyproject.toml", ".gitignore", "data/readings.jsonl", "tests/test_my_project.py"),
        *(f"src/my_project/{name}.py" for name in ("__init__", "__main__", "operators", "dataflow")),
    }
    for name in found:
        text = (project / name).read_text(encoding="utf-8")
        assert "@@" not in text and "__package__" not in name and ".tmpl" not in name, name
        assert text.endswith("\n"), name
        if name.endswith(".py"):
            compile(text, name, "exec")
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert table["project"]["name"] == "my-project"
    (needed,) = map(Requirement, table["project"]["dependencies"])
    assert needed.name == PROJECT["name"] and needed.specifier.contains(ro.__version__)
    assert needed.extras <= PROJECT["optional-dependencies"].keys()
    readme = (project / "README.md").read_text(encoding="utf-8")
    for name in found:
        if name.startswith(("deploy/", "databricks")) and not name.endswith(".sh"):
            assert name in readme or name.startswith("deploy/Dockerfile"), f"{name} is not explained"


def test_readings_of_the_project_are_read_by_its_program(tmp_path):
    project = made(tmp_path / "cellar", "service")
    done = in_project(project / "src", "-m", "cellar", "../data/readings.jsonl", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("120 messages")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"damp", "minutes"}


# -- what they deploy ------------------------------------------------------------------------------


def test_systemd_unit(tmp_path):
    project = made(tmp_path / "cellar 2", "service")
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read(project / "deploy" / "cellar-2.service", encoding="utf-8")
    assert unit["Service"]["ExecStart"] == "/opt/cellar-2/.venv/bin/python -m cellar_2.service"
    assert unit["Service"]["EnvironmentFile"] == "/etc/cellar-2.env"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    given = dict(word.split("=", 1) for word in unit["Service"]["Environment"].split())
    assert all(path.startswith("/var/lib/cellar-2/") for name, path in given.items() if name in ("STATE", "OUT"))
    settings = (project / "deploy" / "cellar-2.env").read_text(encoding="utf-8")
    program = (project / "src" / "cellar_2" / "service.py").read_text(encoding="utf-8")
    for line in settings.splitlines():
        name = line.lstrip("#").partition("=")[0]
        assert line.startswith("# ") or name in program, name
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--recursive-errors=no", str(project / "deploy" / "cellar-2.service")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Unknown" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["my-project", "2fast"])
def test_kubernetes_files(tmp_path, name):
    project = made(tmp_path / name, "k8s")
    for path in project.rglob("*.yaml"):
        check_yaml(path)
    application, volume = (
        load(project / "deploy" / f"{one}.yaml") for one in ("spark-application", "checkpoint-volume")
    )
    check_spark_application(application, volume, project / "deploy" / "Dockerfile", parser_of(project))
    check_versions((project / "deploy" / "Dockerfile").read_text(encoding="utf-8"))
    assert "pandas>" in (project / "deploy" / "Dockerfile").read_text() or "pandas<" in (project / "deploy" / "Dockerfile").read_text()  # fmt: skip


def test_databricks_files(tmp_path):
    project = made(tmp_path / "my-project", "databricks")
    check_yaml(project / "databricks.yml")
    bundle = load(project / "databricks.yml")
    assert (project / check_bundle(bundle, "my-project", parser_of(project))).is_file()
    assert bundle["artifacts"]["package"]["type"] == "whl"
    assert f"bundle run {bundle['bundle']['name']}" in (project / "README.md").read_text()


def test_scripts_of_spark(tmp_path):
    project = made(tmp_path / "my-project", "spark")
    for path in project.rglob("*.sh"):
        check_script(path)
    submit, settings, program = check_submission(project / "deploy" / "submit.sh", parser_of(project))
    assert (project / program).is_file()
    assert submit["--name"] == "my-project" and "spark.pyspark.driver.python" in settings
    pack = (project / "deploy" / "pack.sh").read_text(encoding="utf-8")
    assert "--output environment.tar.gz" in pack
    check_versions(pack)


def test_notebook_is_valid_and_has_no_outputs(tmp_path):
    import nbformat

    project = made(tmp_path / 'a "quoted" name', "notebook")
    (path,) = project.glob("*.ipynb")
    nbformat.validate(nbformat.read(path, as_version=4))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["source"][0] == "# a 'quoted' name\n"
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.spark
@pytest.mark.slow  # a JVM
def test_job_on_spark_gives_what_a_run_in_process_gives(tmp_path):
    project = made(tmp_path / "cellar", "spark")
    options = ["--files", "../data", "--checkpoint", tmp_path / "state", "--out", tmp_path / "spark"]
    done = in_project(
        project / "src", "-m", "cellar.job", *map(str, options), "--trigger", "available now", "--partitions", "2"
    )
    assert done.returncode == 0, done.stderr
    done = in_project(project / "src", "-m", "cellar", "../data/readings.jsonl", "--out", str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    for stream in ("damp", "minutes"):
        one, other = (
            pa.concat_tables([pq.read_table(file) for file in sorted((tmp_path / run / stream).rglob("*.parquet"))])
            for run in ("spark", "here")
        )
        names = [name for name in other.column_names if name not in ("seq", "batch")]
        times = pa.schema([f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in other.select(names).schema])  # fmt: skip
        found, wanted = (
            sorted(map(exact, table.select(names).cast(times).to_pylist()), key=repr) for table in (one, other)
        )
        if stream == "minutes":  # files that may go on do not end the last minute
            wanted = [row for row in wanted if "datetime.datetime(2026, 5, 1, 12, 10)" not in row]
        assert found == wanted and wanted


@pytest.mark.integration
@pytest.mark.slow  # an epoch takes ten seconds
def test_service_reads_a_broker_until_it_is_terminated(tmp_path):
    from riot_ops.testing.services import Mosquitto

    project = made(tmp_path / "cellar", "service")
    reading = '{"time": "2026-05-01T12:00:00Z", "sensor": "cellar", "temperature": 12.0, "humidity": 99.0}'
    with Mosquitto() as broker:
        settings = {"MQTT_URL": broker.url, "STATE": str(tmp_path / "state"), "OUT": str(tmp_path / "out")}
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", int(broker.url.rpartition(":")[2]))
        client.loop_start()
        client.publish("readings/cellar", reading, qos=1, retain=True).wait_for_publish(60)
        client.loop_stop()
        there = {
            **os.environ,
            **settings,
            "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(project / "src")])),
        }
        service = subprocess.Popen(
            [sys.executable, "-m", "cellar.service"], cwd=tmp_path, env=there, stdout=subprocess.PIPE, text=True
        )
        until = time.monotonic() + 60
        while not list(tmp_path.glob("out/damp/*.parquet")) and time.monotonic() < until:
            assert service.poll() is None
            time.sleep(0.1)
        service.terminate()
        text, _ = service.communicate(timeout=60)
    assert service.returncode == 0 and text.startswith("1 messages"), text
    (file,) = tmp_path.glob("out/damp/*.parquet")
    assert pq.read_table(file)["temperature"].to_pylist() == [12.0]


# -- names and folders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "package"),
    [
        ("cellar", "cellar"),
        ("My Project", "my_project"),
        ("a.b-c", "a_b_c"),
        ("2fast", "project_2fast"),
        ("class", "class_project"),
        ("json", "json_project"),
        ("numpy", "numpy_project"),
        ("riot_ops", "riot_ops_project"),
        ("tests", "tests_project"),
        ("Größe", "groe"),
        ("数据", "project"),
        ("---", "project"),
        ("x" * 200, "x" * new.MAX_NAME),
    ],
)
def test_names(title, package):
    assert names_of(title) == (package, package.replace("_", "-"))
    assert package.isidentifier()


def test_title_is_kept_as_it_was_given(tmp_path):
    project = made(tmp_path / "Größe 数据", "service")
    assert (project / "README.md").read_text(encoding="utf-8").startswith("# Größe 数据\n")
    assert (project / "src" / "groe" / "__init__.py").read_text(encoding="utf-8").startswith('"""Größe 数据: ')


def test_empty_folder_is_filled_and_the_next_steps_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my project").mkdir()
    text = call("new", "my project")
    assert "wrote 13 files to my project: the package my_project, template service" in text
    assert "  cd 'my project'\n" in text and "python -m my_project data/readings.jsonl" in text
    assert {line.strip() for line in text.splitlines() if line.startswith("  ")} >= files(tmp_path / "my project")


def refusal(*args):
    error = invoke("new", *args).exception
    assert isinstance(error, ConfigError), error
    return str(error)


def test_folder_with_files_is_refused_by_name_and_kept(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    assert refusal(tmp_path / "kept") == f"{tmp_path}/kept is not empty: name a new folder"
    assert files(tmp_path) == {"kept/mine.txt"}
    assert "is a file" in refusal(tmp_path / "kept" / "mine.txt")


def test_wrong_template_and_name_are_refused(tmp_path):
    assert "--template must be one of service, notebook, spark, databricks, k8s, got 'kubernetes'" in refusal(tmp_path / "a", "--template", "kubernetes")  # fmt: skip
    assert "did you mean" in refusal(tmp_path / "a", "--template", "servce")
    assert "printable" in refusal(tmp_path / "a\nb")
    assert not files(tmp_path)


def test_folder_that_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    assert "cannot be written" in refusal("/proc/project")
    write = Path.write_text

    def full(path, *args, **options):
        if path.name == "pyproject.toml":
            raise OSError(28, "No space left on device")
        return write(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    assert refusal(tmp_path / "a" / "b") == f"{tmp_path}/a/b cannot be written: No space left on device"
    assert not files(tmp_path) and not (tmp_path / "a" / "b").exists()
