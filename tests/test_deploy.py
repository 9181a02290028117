"""The templates in ``examples/deploy``: their syntax, what they name, and the job that they submit."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import riot_ops as ro
from riot_ops.connectors.mqtt.client import PASSWORD, USERNAME
from riot_ops.spark.session import REQUIRED_SETTINGS
from riot_ops.testing import exact

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "examples" / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
MANIFESTS = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
SPARK = Requirement(
    next(one for one in PROJECT["optional-dependencies"]["spark"] if one.startswith("pyspark"))
).specifier


@pytest.fixture(scope="module")
def job():
    spec = importlib.util.spec_from_file_location("deployed_job", DEPLOY / "job.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def manifest(name):
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def words(script):
    """The words of the command that submits the job, without what the shell replaces."""
    text = re.sub(r"\\\n", " ", (DEPLOY / script).read_text(encoding="utf-8")).replace('"$base/', '"base/')
    text = re.sub(r"(?m)^#.*$", "", text)
    found = shlex.split(text)
    return found[found.index("spark-submit") : found.index("--trigger") + 2]


def test_templates_are_all_checked_here():
    names = {path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()}
    assert {name for name in names if "__pycache__" not in name} == {
        *("job.py", "pack.sh", "databricks.yml", "yarn/submit.sh", "emr/submit.sh"),
        *("systemd/greenhouse.py", "systemd/greenhouse.service"),  # by test_service.py
        *("kubernetes/Dockerfile", "kubernetes/checkpoint-volume.yaml", "kubernetes/spark-application.yaml"),
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_scripts_parse_and_run_nothing_without_arguments(path):
    assert subprocess.run(["bash", "-n", path], capture_output=True, check=False).returncode == 0
    assert path.stat().st_mode & 0o111
    if path.name == "submit.sh":
        done = subprocess.run([path], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode != 0 and "usage: submit.sh" in done.stderr


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_yaml_without_tabs_or_double_keys(path):
    text = path.read_text(encoding="utf-8")
    assert "\t" not in text and yaml.safe_load(text)
    for node in yaml.compose_all(text):
        stack = [node]
        while stack:
            one = stack.pop()
            if isinstance(one, yaml.MappingNode):
                keys = [key.value for key, _ in one.value]
                assert len(keys) == len(set(keys)), keys
                stack += [value for _, value in one.value]
            elif isinstance(one, yaml.SequenceNode):
                stack += one.value


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
    wanted = {
        one.name: one for one in map(Requirement, PROJECT["optional-dependencies"]["spark"]) if one.name != "pyspark"
    }
    for one in named:
        if one.name in wanted:
            assert one.specifier == wanted[one.name].specifier


def test_kubernetes_application(job):
    application, volume = manifest("kubernetes/spark-application.yaml"), manifest("kubernetes/checkpoint-volume.yaml")
    docker = (DEPLOY / "kubernetes" / "Dockerfile").read_text(encoding="utf-8")
    assert (application["apiVersion"], application["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    spec = application["spec"]
    assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Always"})
    assert f"docker build -t {spec['image']} " in docker
    assert f"COPY job.py {spec['mainApplicationFile'].removeprefix('local://')}" in docker
    assert f"FROM apache/spark:{spec['sparkVersion']}-python3" in docker
    assert SPARK.contains(Version(spec["sparkVersion"]))
    claim = spec["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert volume["kind"] == "PersistentVolumeClaim" and volume["metadata"]["name"] == claim
    assert volume["metadata"]["namespace"] == application["metadata"]["namespace"]
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"], "driver and executors write to it"
    mounts = spec["driver"]["volumeMounts"]
    assert mounts == spec["executor"]["volumeMounts"] == [{"name": "checkpoint", "mountPath": "/checkpoint"}]
    assert spec["volumes"][0]["name"] == "checkpoint"
    options = job.parse(spec["arguments"])
    for path in (options.checkpoint, options.spool, options.out):
        assert path.startswith("/checkpoint/")
    cores = spec["executor"]["cores"] * spec["executor"]["instances"]
    assert int(spec["sparkConf"]["spark.sql.shuffle.partitions"]) == cores
    assert all(name.startswith("spark.") and isinstance(value, str) for name, value in spec["sparkConf"].items())


def test_databricks_bundle(job):
    bundle = manifest("databricks.yml")
    assert set(bundle) == {"bundle", "variables", "resources", "targets"}
    one = bundle["resources"]["jobs"]["stats"]
    (task,), (cluster,) = one["tasks"], one["job_clusters"]
    assert task["job_cluster_key"] == cluster["job_cluster_key"]
    program = task["spark_python_task"]
    assert (DEPLOY / program["python_file"]).resolve() == DEPLOY / "job.py"
    volume = bundle["variables"]["volume"]["default"]
    options = job.parse([text.replace("${var.volume}", volume) for text in program["parameters"]])
    assert all(path.startswith("/Volumes/") for path in (options.files, options.checkpoint, options.out))
    settings = cluster["new_cluster"]["spark_conf"]
    provider = "spark.sql.streaming.stateStore.providerClass"
    assert settings[provider] == REQUIRED_SETTINGS[provider]
    assert int(cluster["new_cluster"]["spark_version"].split(".")[0]) >= 17, "the first runtime with Spark 4.0"
    assert cluster["new_cluster"]["data_security_mode"] == "SINGLE_USER", "flow.start needs the JVM"
    assert [target for target in bundle["targets"].values() if target.get("default")]


@pytest.mark.parametrize("script", ["yarn/submit.sh", "emr/submit.sh"])
def test_submit_lines(job, script):
    line = words(script)
    program = next(i for i, word in enumerate(line) if word.endswith("job.py"))
    options = job.parse(line[program + 1 :])
    assert options.files.endswith("/lines") and options.checkpoint.endswith("/checkpoint")
    submit = dict(itertools.pairwise(line[:program]))
    settings = dict(line[i + 1].split("=", 1) for i, word in enumerate(line[:program]) if word == "--conf")
    assert all(name.startswith("spark.") for name in settings)
    archive, _, folder = submit["--archives"].partition("#")
    assert archive.endswith("environment.tar.gz") and "--output environment.tar.gz" in (DEPLOY / "pack.sh").read_text()
    for name in ("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON"):
        assert settings[name] == f"./{folder}/bin/python"
    cores = int(submit["--num-executors"]) * int(submit["--executor-cores"])
    assert int(settings["spark.sql.shuffle.partitions"]) == cores
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
