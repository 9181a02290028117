"""The tool that runs tests with other versions of Spark, without making environments."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tool(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("spark_versions", ROOT / "tools" / "spark_versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "home", lambda name: tmp_path / f"spark-{name}")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "spark-4.0").mkdir()
    return module


def test_environment_has_the_packages_of_this_one_and_another_spark(tool):
    found = tool.requirements("4.0")
    assert found[0] == "pyspark==4.0.*" and f"pyarrow=={version('pyarrow')}" in found
    assert not [one for one in found[1:] if re.match(r"pyspark|riot|py4j", one)]


def test_spark_that_cannot_be_had_fails_by_name(tool, monkeypatch, tmp_path, capsys):
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\n[ "$1" = venv ] && exit 0\necho "no such registry" >&2\nexit 2\n')
    uv.chmod(0o755)
    monkeypatch.setattr(tool.shutil, "which", lambda *_, **__: str(uv))
    assert tool.main(["test", "--short", "4.0"]) == 1
    assert "Spark 4.0: pip cannot get pyspark 4.0: no such registry" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        tool.main(["test", "3.5"])
    assert "unknown version '3.5'; known are 4.0, 4.1, 4.2, 4.3" in capsys.readouterr().err


def test_short_form_names_tests_that_exist(tool):
    for one in tool.SHORT:
        file, _, name = one.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {name}(" in text if name else "\ndef test_" in text, one


def test_versions_are_those_that_the_extra_takes(tool):
    """From the first to the last version, and those of the workflow."""
    extra = re.search(r'"pyspark>=(\d\.\d),<(\d)\.(\d)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert (tool.VERSIONS[0], tool.VERSIONS[-1]) == (extra[1], f"{extra[2]}.{int(extra[3]) - 1}")
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert f"spark: [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in tool.VERSIONS)}]" in workflow
