"""Checks of files that deploy a job: those of ``examples/deploy``, and those that ``riot-ops new`` writes."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from riot_ops.spark.session import REQUIRED_SETTINGS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SPARK_EXTRA = {one.name: one for one in map(Requirement, PROJECT["optional-dependencies"]["spark"])}


def load(path):
    """The one document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def check_yaml(path):
    """No tabs, and no key twice in a mapping, of which YAML's reader keeps the last."""
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


def check_script(path):
    """A script of bash that may be run, and that shows its usage without arguments if it has one."""
    assert subprocess.run(["bash", "-n", path], capture_output=True, check=False).returncode == 0
    assert path.stat().st_mode & 0o111
    if path.name == "submit.sh":
        done = subprocess.run([path], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode != 0 and "usage: submit.sh" in done.stderr


def check_versions(text):
    """Packages that a file installs have the versions that riot_ops allows."""
    names = "|".join(name for name in SPARK_EXTRA if name != "pyspark")
    for one in map(Requirement, re.findall(rf"\b(?:{names})(?:[<>=][\w.<>=,]*)?", text)):
        assert one.specifier == SPARK_EXTRA[one.name].specifier, one


def check_spark_application(application, volume, dockerfile, parse):
    """A SparkApplication with its image and its volume; ``parse`` reads the job's arguments."""
    docker = dockerfile.read_text(encoding="utf-8")
    assert (application["apiVersion"], application["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    spec = application["spec"]
    assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Always"})
    assert f"docker build -t {spec['image']} " in docker
    assert f"job.py {spec['mainApplicationFile'].removeprefix('local://')}\n" in docker
    assert f"FROM apache/spark:{spec['sparkVersion']}-python3" in docker
    assert SPARK_EXTRA["pyspark"].specifier.contains(Version(spec["sparkVersion"]))
    # the images of Apache Spark 4 have Python 3.10
    version, place = re.search(r"uv venv --python (\S+) (\S+) ", docker).groups()
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)
    assert f"uv pip install --no-cache --python {place} " in docker
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        assert f"ENV {name}={place}/bin/python\n" in docker
    claim = spec["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert volume["kind"] == "PersistentVolumeClaim" and volume["metadata"]["name"] == claim
    assert volume["metadata"]["namespace"] == application["metadata"]["namespace"]
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"], "driver and executors write to it"
    mounts = spec["driver"]["volumeMounts"]
    assert mounts == spec["executor"]["volumeMounts"] == [{"name": "checkpoint", "mountPath": "/checkpoint"}]
    assert spec["volumes"][0]["name"] == "checkpoint"
    options = vars(parse(spec["arguments"]))
    for name in ("checkpoint", "spool", "out", "files"):
        # a spool of files that are read has no use
        assert options.get(name) in (None, "spool") or options[name].startswith("/checkpoint/"), name
    cores = spec["executor"]["cores"] * spec["executor"]["instances"]
    assert int(spec["sparkConf"]["spark.sql.shuffle.partitions"]) == cores
    assert all(name.startswith("spark.") and isinstance(value, str) for name, value in spec["sparkConf"].items())


def check_bundle(bundle, name, parse):
    """A Databricks bundle of one job; returns the file that it runs."""
    assert set(bundle) - {"artifacts"} == {"bundle", "variables", "resources", "targets"}
    one = bundle["resources"]["jobs"][name]
    (task,), (cluster,) = one["tasks"], one["job_clusters"]
    assert one["continuous"] == {"pause_status": "UNPAUSED"}
    assert not {"max_retries", "retry_on_timeout", "depends_on"} & task.keys(), "a continuous job takes none of them"
    assert task["job_cluster_key"] == cluster["job_cluster_key"]
    program = task["spark_python_task"]
    volume = bundle["variables"]["volume"]["default"]
    options = parse([text.replace("${var.volume}", volume) for text in program["parameters"]])
    assert all(path.startswith("/Volumes/") for path in (options.files, options.checkpoint, options.out))
    settings = cluster["new_cluster"]["spark_conf"]
    provider = "spark.sql.streaming.stateStore.providerClass"
    assert settings[provider] == REQUIRED_SETTINGS[provider]
    assert int(cluster["new_cluster"]["spark_version"].split(".")[0]) >= 17, "the first runtime with Spark 4.0"
    assert cluster["new_cluster"]["data_security_mode"] == "SINGLE_USER", "flow.start needs the JVM"
    assert [target for target in bundle["targets"].values() if target.get("default")]
    return program["python_file"]


def submitted(script):
    """The words of the command that submits a job, without what the shell replaces."""
    text = re.sub(r"\\\n", " ", script.read_text(encoding="utf-8")).replace('"$base/', '"base/')
    text = re.sub(r"(?m)^#.*$", "", text)
    found = shlex.split(text)
    return found[found.index("spark-submit") : found.index("--trigger") + 2]


def check_submission(script, parse):
    """A script that submits a job with an environment; returns the settings of Spark, and the job's file."""
    line = submitted(script)
    program = next(i for i, word in enumerate(line) if word.endswith("job.py"))
    options = parse(line[program + 1 :])
    assert options.files.endswith("/lines") and options.checkpoint.endswith("/checkpoint")
    submit = dict(itertools.pairwise(line[:program]))
    settings = dict(line[i + 1].split("=", 1) for i, word in enumerate(line[:program]) if word == "--conf")
    assert all(name.startswith("spark.") for name in settings)
    archive, _, folder = submit["--archives"].partition("#")
    assert (archive.rpartition("/")[2], folder) == ("environment.tar.gz", "environment")
    cores = int(submit["--num-executors"]) * int(submit["--executor-cores"])
    assert int(settings["spark.sql.shuffle.partitions"]) == cores
    return submit, settings, line[program]
