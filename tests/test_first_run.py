"""``make run``: STATS on both runners, whether their records are the same, and the picture."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.cli.commands import stats
from tests.drawn_images import decode

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("first_run", ROOT / "tools" / "first_run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_make_run_is_this_program():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^run: .*\n\t@\$\(PY\) tools/first_run\.py$", makefile, re.MULTILINE)


@pytest.mark.long
def test_run_in_process_shows_rate_picture_and_what_comes_next(program, tmp_path, capsys, monkeypatch):
    given = ["--messages", "1500", "--sensors", "10", "--out", str(tmp_path), "--without-spark"]
    assert program.main(given) == 0
    text = capsys.readouterr().out
    assert re.search(r"^in this process +[\d,]+ messages/s +1,500 messages in", text, re.MULTILINE)
    assert "on local Spark" not in text and "differ" not in text
    assert f"picture: {tmp_path}/local/stats.png" in text and decode(tmp_path / "local" / "stats.png").size
    assert "riot-ops new my-project" in text and "make docs-serve" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    monkeypatch.setattr(program, "_command", lambda: ".venv/bin/riot-ops")
    assert program.main(given) == 0, "again"
    lines = capsys.readouterr().out.splitlines()
    assert "  .venv/bin/riot-ops run --list          the other applications" in lines
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80


@pytest.mark.long
def test_records_that_differ_are_noticed(program, tmp_path):
    options = ("--messages", "300", "--sensors", "3", "--no-plot")
    stats(tmp_path / "one", *options)
    stats(tmp_path / "same", *options)
    stats(tmp_path / "other", *options, "--seed", "1")
    n, differing = program.compare(tmp_path / "one", tmp_path / "same")
    assert n >= 1500 and differing == []
    assert program.compare(tmp_path / "one", tmp_path / "other")[1] == ["avg", "dac", "slr"]
    for file in (tmp_path / "same" / "dac").glob("*.parquet"):
        file.unlink()
    assert program.compare(tmp_path / "one", tmp_path / "same")[1] == ["dac"]


@pytest.mark.spark
@pytest.mark.slow  # a session of its own
def test_both_runners_give_the_same(program, tmp_path, capsys):
    assert program.main(["--messages", "2000", "--sensors", "20", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^both gave the same [\d,]+ records$", text, re.MULTILINE)
    assert re.search(r"^on local Spark +[\d,]+ messages/s", text, re.MULTILINE)
