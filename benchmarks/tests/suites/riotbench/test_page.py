"""The files of results."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from riot_bench.suites.riotbench.page import ResultFiles
from riot_bench.suites.riotbench.plots import TITLES

from benchmarks.tests.outcomes import Page, outcome


@pytest.mark.parametrize("suite", ["micro", "app"])
def test_page_has_every_figure_and_is_self_contained(tmp_path: Path, suite: str) -> None:
    with ResultFiles(suite, "local", quick=True, folder=tmp_path / "ü") as results:
        results.where = "in process, <one> core"
        for one in (outcome("KAL"), outcome("BLT", silent=True), outcome("stats/city", stable=False)):
            results.add(one)
    text = (tmp_path / "ü" / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert all(r.startswith("data:") for r in page.references)
    assert not re.search(r"https?:|@import|url\(", text)
    names = [n for n in TITLES if suite == "app" or n != "over-time"]
    pictures = [(tmp_path / "ü" / f"{n}.png").read_bytes() for n in names]
    assert [base64.b64decode(i.partition(",")[2]) for i in page.images] == pictures
    assert all(p.startswith(b"\x89PNG") for p in pictures)
    for words in (
        *(TITLES[n] for n in names),
        "KAL",
        "BLT",
        "other machines",
        "<one> core",
        "not for quoting",
        "σ",
        "load",
    ):
        assert words in page.text
    assert "The final run did not keep up: stats/city" in page.text
    assert "No records in s of BLT (in 10 s)" in page.text
    data = json.loads((tmp_path / "ü" / "results.json").read_text(encoding="utf-8"))
    assert [o["name"] for o in data["outcomes"]] == ["KAL", "BLT", "stats/city"]
    assert data["quick"] is True
    assert [v >= 0 for v in data["load"]] == [True, True]


def test_measures_before_a_failure_are_written(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ResultFiles("micro", "local", quick=True, folder=tmp_path) as results:
            results.add(outcome())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "index.html").exists()
    with ResultFiles("micro", "local", quick=True, folder=tmp_path / "none"):
        pass
    assert not any((tmp_path / "none").iterdir())
