"""The how-to page about Spark and the README's part about it, run in the session of all tests."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from riot_ops.spark import features

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "howto"


@pytest.mark.parametrize("name", ["spark.md", pytest.param("from_pyspark.md", marks=pytest.mark.slow)])
def test_page(spark, monkeypatch, name):
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # the page sets it
    page = PAGES / name
    test = doctest.DocTestParser().get_doctest(page.read_text(encoding="utf-8"), {}, name, str(page), 0)
    if not features.has("Arrow UDFs"):
        test.examples = [example for example in test.examples if "warm" not in example.source]
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    done = runner.run(test, out=output.append)
    assert done.attempted > 20
    assert not done.failed, "".join(output)


def test_readme_has_the_same_table_on_spark(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    example = doctest.DocTestParser().get_doctest(blocks[0], {}, "README.md", None, 0)
    assert not doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False).failed
    names = example.globs
    exec(blocks[1].replace("session()", "spark"), names | {"spark": spark}, names)
    key = [("window_start", "ascending"), ("device", "ascending")]
    tables = [result["minutes"].sort_by(key) for result in (names["query"], names["result"])]
    assert tables[0].num_rows == 4
    assert tables[0].to_pylist() == tables[1].to_pylist()
