"""Where Spark is started from, and the archive of its classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.spark import launcher as home
from riot_ops.spark.launcher import archive_classes, class_options, started_from

pytestmark = pytest.mark.spark


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    home._linked.cache_clear()
    yield tmp_path / "riot_ops"
    home._linked.cache_clear()


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_PYTHON", "/opt/python/bin/python")]
)
def test_a_home_or_python_of_ones_own_is_left_alone(variable, value, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv(variable, value)
    with started_from():
        assert os.environ.get("SPARK_HOME") == (value if variable == "SPARK_HOME" else None)
    assert os.environ[variable] == value


def test_the_home_has_what_spark_needs(cache):
    with started_from():
        there = Path(os.environ["SPARK_HOME"])
        assert (there / "bin" / "spark-submit").is_file()
        assert list((there / "jars").glob("spark-core*.jar"))
        assert not (there / "python").exists()
    assert there.parent == cache
    home._linked.cache_clear()  # as another process
    with started_from():
        assert Path(os.environ["SPARK_HOME"]) == there, "classes know the path that they come from"
    assert [path.name for path in cache.iterdir()] == [there.name]


def test_where_nothing_can_be_kept_spark_starts_from_its_own_home(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home._linked.cache_clear()
    with started_from():
        assert "SPARK_HOME" not in os.environ
    assert class_options() == ""
    assert archive_classes() is None
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert (result.exit_code, "Spark is not of this environment" in result.output) == (1, True)
    home._linked.cache_clear()


def _writes_an_archive(command, **options):
    archive = command[-1].split()[0].removeprefix("-XX:ArchiveClassesAtExit=")
    Path(archive).write_bytes(b"classes")
    return subprocess.CompletedProcess(command, 0, "", "")


def test_the_archive_is_made_once_and_taken_when_it_is_there(cache, monkeypatch):
    assert class_options() == ""
    monkeypatch.setattr(subprocess, "run", _writes_an_archive)
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert result.exit_code == 0, result.output
    archive = archive_classes()
    assert archive.read_bytes() == b"classes" and str(archive) in result.output.replace("\n", "")
    assert class_options().split() == [f"-XX:SharedArchiveFile={archive}", home.SILENT]
    monkeypatch.setattr(subprocess, "run", None)
    assert archive_classes() == archive
    monkeypatch.setenv("JAVA_HOME", "/another/java")
    assert class_options() == "", "classes of another Java"


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (subprocess.CompletedProcess([], 1, "", "no\nmemory is left\n"), "memory is left"),
        (subprocess.CompletedProcess([], 0, "", ""), "no reason"),
        (subprocess.TimeoutExpired("python", 300), "did not end within 300 s"),
    ],
)
def test_an_archive_that_is_not_made_leaves_nothing(cache, monkeypatch, done, told):
    def run(*args, **options):
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(subprocess, "run", run)
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert (result.exit_code, told in result.output) == (1, True), result.output
    assert class_options() == "" and not list(cache.rglob("*.jsa"))


@pytest.mark.slow
def test_the_jvm_reads_its_classes_from_the_archive(cache):
    archive_classes()
    code = """
import sys
from riot_ops.spark import session
from riot_ops.spark.launcher import class_options
session(1, settings={"spark.driver.extraJavaOptions": f"{class_options()} -Xlog:class+load:file={sys.argv[1]}"}).stop()
"""
    subprocess.run([sys.executable, "-c", code, str(cache / "loaded")], check=True)
    loaded = (cache / "loaded").read_text().splitlines()
    of_spark = [line for line in loaded if " org.apache.spark." in line]
    shared = [line for line in of_spark if "shared objects file" in line]
    assert len(shared) > 0.8 * len(of_spark) > 800
