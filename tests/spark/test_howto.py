"""The how-to page about Spark, run in the session of all tests."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from riot_ops.spark import features

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "spark.md"


def test_page(spark, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # the page sets it
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, PAGE.name, str(PAGE), 0)
    if not features.has("Arrow UDFs"):
        test.examples = [example for example in test.examples if "warm" not in example.source]
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    done = runner.run(test, out=output.append)
    assert done.attempted > 20
    assert not done.failed, "".join(output)
