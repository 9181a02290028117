"""The templates in ``examples/deploy``: their syntax, what they name, and the job that they submit."""

from __future__ import annotations

import importlib.util
import re

import pytest
from packaging.requirements import Requirement

import riot_ops as ro
from riot_ops.connectors.mqtt.client import PASSWORD, USERNAME
from riot_ops.testing import exact
from tests.deployments import (
    PROJECT,
    ROOT,
    check_bundle,
    check_script,
    check_spark_application,
    check_submission,
    check_versions,
    check_yaml,
    load,
)

DEPLOY = ROOT / "examples" / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
MANIFESTS = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])


@pytest.fixture(scope="module")
def job():
    spec = importlib.util.spec_from_file_location("deployed_job", DEPLOY / "job.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_templates_are_all_checked_here():
    names = {path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()}
    assert {name for name in names if "__pycache__" not in name} == {
        *("job.py", "pack.sh", "databricks.yml", "yarn/submit.sh", "emr/submit.sh"),
        *("systemd/greenhouse.py", "systemd/greenhouse.service"),  # by test_service.py
        # by test_docker.py
        *(f"docker/{name}" for name in ("Dockerfile", "Dockerfile.dockerignore", "compose.yaml")),
        *(f"docker/{name}" for name in ("health.py", "sensors.py", "mosquitto.conf")),
        "grafana/riot_ops.json",  # tests/monitoring/test_metrics.py
        *("kubernetes/Dockerfile", "kubernetes/checkpoint-volume.yaml", "kubernetes/spark-application.yaml"),
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_scripts_parse_and_run_nothing_without_arguments(path):
    check_script(path)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_yaml_without_tabs_or_double_keys(path):
    check_yaml(path)


@pytest.mark.parametrize("path", [DEPLOY / "kubernetes" / "Dockerfile", DEPLOY / "pack.sh", DEPLOY / "databricks.yml"])
def test_packages_are_those_of_the_project(path):
    """The distribution without the extra that would bring another pyspark, and what Spark needs for state."""
    text = re.sub(r"\[\$extras\]", "[mqtt]", path.read_text(encoding="utf-8"))
    named = [
        Requirement(one)
        for one in re.findall(r"\b(?:riot-ops|pandas|protobuf|pyarrow)(?:\[\w+\])?(?:[<>=][\w.<>=,]*)?", text)
    ]
    ours = next(one for one in named if one.name == PROJECT["name"])
    assert ours.extras <= PROJECT["optional-dependencies"].keys() and "spark" not in ours.extras
    check_versions(text)


def test_kubernetes_application(job):
    folder = DEPLOY / "kubernetes"
    application, volume = load(folder / "spark-application.yaml"), load(folder / "checkpoint-volume.yaml")
    check_spark_application(application, volume, folder / "Dockerfile", job.parse)


def test_databricks_bundle(job):
    program = check_bundle(load(DEPLOY / "databricks.yml"), "stats", job.parse)
    assert (DEPLOY / program).resolve() == DEPLOY / "job.py"


@pytest.mark.parametrize("script", ["yarn/submit.sh", "emr/submit.sh"])
def test_submit_lines(job, script):
    submit, settings, _ = check_submission(DEPLOY / script, job.parse)
    assert "--output environment.tar.gz" in (DEPLOY / "pack.sh").read_text()
    for name in ("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON"):
        assert settings[name] == "./environment/bin/python"
    assert submit["--deploy-mode"] == "cluster"


def test_job_explains_its_login(job, capsys):
    with pytest.raises(SystemExit):
        job.parse(["--help"])
    text = capsys.readouterr().out
    assert USERNAME in text and PASSWORD in text
    for wrong in (
        [],
        ["--files", "a", "--mqtt", "b", "--checkpoint", "c", "--out", "d"],
        ["--files", "a", "--out", "d"],
    ):
        with pytest.raises(SystemExit):
            job.parse(wrong)


@pytest.mark.spark
@pytest.mark.slow
def test_job_over_files_equals_a_run_in_process(job, spark, tmp_path):
    lines = ro.streams.city(sensors=5, messages=60).lines(0, 60)
    (tmp_path / "lines").mkdir()
    text = b"\n".join(lines.column("payload").to_pylist())
    (tmp_path / "lines" / "a.txt").write_bytes(text + b"\n")
    arguments = ["--files", tmp_path / "lines", "--checkpoint", tmp_path / "state", "--out", tmp_path / "results"]
    job.run(spark, job.parse([*map(str, arguments), "--trigger", "available now"]))
    wanted = ro.dataflows.stats("city").run(lines)
    streams = [path.name for path in (tmp_path / "results").iterdir()]
    assert set(streams) <= {*wanted}
    for stream in ("avg", "slr"):
        rows = spark.read.parquet(f"{tmp_path}/results/{stream}").drop("batch", "seq", "event_time").toArrow()
        expected = wanted[stream].drop([n for n in ("seq", "event_time") if n in wanted[stream].column_names])
        assert sorted(map(exact, rows.to_pylist()), key=repr) == sorted(map(exact, expected.to_pylist()), key=repr)
