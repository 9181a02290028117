"""The launcher: Spark's home, the archive of its classes, and the JVM's standard error."""

from __future__ import annotations

import os
import re
import socketserver
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.spark import launcher
from riot_ops.spark.launcher import (
    StderrFilter,
    archive_classes,
    class_archive_options,
    hide_closed_accumulators,
    linked_spark_home,
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Provide an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    launcher.link_spark_home.cache_clear()
    yield tmp_path / "riot_ops"
    launcher.link_spark_home.cache_clear()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_PYTHON", "/opt/python/bin/python")]
)
def test_user_home_and_python_are_kept(variable, value, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv(variable, value)
    with linked_spark_home():
        assert os.environ.get("SPARK_HOME") == (value if variable == "SPARK_HOME" else None)
    assert os.environ[variable] == value


@pytest.mark.spark
def test_linked_home_is_complete_and_shared(cache):
    with linked_spark_home():
        there = Path(os.environ["SPARK_HOME"])
        assert (there / "bin" / "spark-submit").is_file()
        assert list((there / "jars").glob("spark-core*.jar"))
        assert not (there / "python").exists()
    assert there.parent == cache
    launcher.link_spark_home.cache_clear()  # like another process
    with linked_spark_home():
        assert Path(os.environ["SPARK_HOME"]) == there, "class archives store the path"
    assert [path.name for path in cache.iterdir()] == [there.name]


@pytest.mark.spark
def test_unwritable_cache_uses_default_home(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    launcher.link_spark_home.cache_clear()
    with linked_spark_home():
        assert "SPARK_HOME" not in os.environ
    assert class_archive_options() == ""
    assert archive_classes() is None
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert (result.exit_code, "Spark is not from this environment" in result.output) == (1, True)
    launcher.link_spark_home.cache_clear()


def _write_archive(command, **options):
    archive = command[-1].split()[0].removeprefix("-XX:ArchiveClassesAtExit=")
    Path(archive).write_bytes(b"classes")
    return subprocess.CompletedProcess(command, 0, "", "")


@pytest.mark.spark
def test_archive_is_made_once_and_used(cache, monkeypatch):
    assert class_archive_options() == ""
    monkeypatch.setattr(subprocess, "run", _write_archive)
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert result.exit_code == 0, result.output
    archive = archive_classes()
    assert archive.read_bytes() == b"classes" and str(archive) in result.output.replace("\n", "")
    assert class_archive_options().split() == [f"-XX:SharedArchiveFile={archive}", launcher.SILENT]
    monkeypatch.setattr(subprocess, "run", None)
    assert archive_classes() == archive
    monkeypatch.setenv("JAVA_HOME", "/another/java")
    assert class_archive_options() == "", "the archive is for another Java"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("done", "text"),
    [
        (subprocess.CompletedProcess([], 1, "", "no\nmemory is left\n"), "memory is left"),
        (subprocess.CompletedProcess([], 0, "", ""), "no reason"),
        (subprocess.TimeoutExpired("python", 300), "did not end within 300 s"),
    ],
)
def test_failed_archive_leaves_no_file(cache, monkeypatch, done, text):
    def run(*args, **options):
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(subprocess, "run", run)
    result = CliRunner().invoke(app, ["warm", "--spark"])
    assert (result.exit_code, text in result.output) == (1, True), result.output
    assert class_archive_options() == "" and not list(cache.rglob("*.jsa"))


@pytest.mark.spark
@pytest.mark.slow
def test_jvm_loads_classes_from_archive(cache):
    archive_classes()
    code = """
import sys
from riot_ops.spark import session
from riot_ops.spark.launcher import class_archive_options
session(1, settings={"spark.driver.extraJavaOptions": f"{class_archive_options()} -Xlog:class+load:file={sys.argv[1]}"}).stop()
"""
    subprocess.run([sys.executable, "-c", code, str(cache / "loaded")], check=True)
    loaded = (cache / "loaded").read_text().splitlines()
    # the JVM spins the classes of lambdas when they are first called, and archives none that can be serialized, as
    # Scala's can; they have no file, so that there is nothing to read and to verify
    of_spark = [line for line in loaded if " org.apache.spark." in line and "$$Lambda" not in line]
    shared = [line for line in of_spark if "shared objects file" in line]
    assert len(shared) > 0.98 * len(of_spark) > 1500


# -- standard error of the JVM -------------------------------------------------------------------------


NAME = "Streaming TransformWithStateInPandas Python worker"
HELPER_LINES = [f"Starting {NAME}.\n\n", f"{NAME} Completed execution of UDF: <function f>.\n\n"]
OTHER = [
    "\n",
    "\n\n",
    "26/01/01 ERROR Executor: lost\n",
    "Starting Streaming\n",
    "Str",
    "\r[Stage 0:>",
    f"see {NAME}\n",
]

JOB = f"""
from riot_ops.spark import session
err = session(cores=1)._jvm.System.err
err.print({"".join(HELPER_LINES)!r})
err.println("WARN: before the end")
err.print("x" * 100_000 + " and after it")
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.spark
def test_helper_lines_are_hidden_and_warnings_shown():
    """The helper lines of a real query are checked in tests/recovery/test_restart.py."""
    done = run(JOB)
    assert done.returncode == 0, done.stderr
    assert NAME not in done.stdout + done.stderr
    assert "WARN: before the end\n" in done.stderr
    assert done.stderr.endswith("x" * 100_000 + " and after it"), "the end is missing"


@pytest.mark.long
def test_reason_of_failed_java_is_shown(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no java today >&2\nexit 1\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    done = run("from riot_ops.spark import session; session(cores=1)", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no java today" in done.stderr
    assert "JAVA_GATEWAY_EXITED" in done.stderr


@given(st.lists(st.sampled_from([*HELPER_LINES, *OTHER])), st.lists(st.integers(1, 60)))
def test_filter_is_independent_of_pieces(parts, cuts):
    text = "".join(parts)
    stderr, passed, at = StderrFilter(), b"", 0
    for size in [*cuts, len(text)]:
        passed += stderr(text[at : at + size].encode())
        at += size
    rest = re.sub(rf"(?m)^(Starting )?{NAME}.*\n\n", "", text + "|end")
    assert (passed + stderr(b"|end") + stderr.held).decode() == rest


def test_other_output_is_forwarded_at_once():
    stderr = StderrFilter()
    assert stderr(b"[Stage 0:>") == b"[Stage 0:>"
    assert stderr(b"=> (1 + 1)\rStarting " + NAME.encode()) == b"=> (1 + 1)\rStarting " + NAME.encode()
    assert stderr(b"\nSt") == b"\n"
    assert stderr(b"op\n") == b"Stop\n"


def test_spark_starts_without_standard_error(monkeypatch):
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: pytest.fail("started"))
    monkeypatch.setattr(launcher.os, "dup", mock.Mock(side_effect=OSError))
    launcher.start_jvm(None)


@pytest.mark.parametrize(("error", "shown"), [(EOFError(), False), (ValueError("wrong token"), True)])
def test_connection_that_the_jvm_closes_is_no_error(error, shown, capfd):
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    hide_closed_accumulators(SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server)))
    try:
        raise error
    except type(error):
        server.handle_error(None, ("127.0.0.1", 1))
    server.server_close()
    assert ("Traceback" in capfd.readouterr().err) == shown
