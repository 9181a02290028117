"""The project's own sample files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import MADE, PAPERS_VARIABLE, sample_folders

TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_samples.py"


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    """The folder that the tool writes now."""
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([sys.executable, str(TOOL), str(folder)], check=True)
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.skipif(not TOOL.exists(), reason="the source distribution has no tools")
def test_tool_rewrites_the_same_bytes(rewritten):
    again, stored = contents(rewritten), contents(MADE)
    assert list(sorted(again)) == list(sorted(stored))
    assert [name for name in stored if again[name] != stored[name]] == []


def test_samples_are_small():
    sizes = [len(content) for content in contents(MADE).values()]
    assert max(sizes) <= 60_000
    assert sum(sizes) <= 300_000


def test_own_samples_are_always_read(monkeypatch):
    monkeypatch.delenv(PAPERS_VARIABLE, raising=False)
    assert next(iter(sample_folders().items())) == ("made", MADE)


def test_named_folder_is_read_in_addition(monkeypatch, tmp_path):
    monkeypatch.setenv(PAPERS_VARIABLE, os.fspath(tmp_path))
    assert sample_folders() == {"made": MADE, "papers": tmp_path}


def test_named_folder_must_exist(monkeypatch, tmp_path):
    monkeypatch.setenv(PAPERS_VARIABLE, os.fspath(tmp_path / "none"))
    with pytest.raises(pytest.UsageError, match="is not a folder"):
        sample_folders()
