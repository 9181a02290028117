"""The examples of the public names that need Spark, run in the session of all tests."""

from __future__ import annotations

import doctest
import sys

import pytest

import riot_ops.reuse
import riot_ops.spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [*riot_ops.spark.__all__, "SparkBackend"])
def test_examples(spark, name):
    one = getattr(riot_ops.reuse if name == "SparkBackend" else riot_ops.spark, name)
    names = {**vars(sys.modules[one.__module__]), "spark": spark}
    [test] = doctest.DocTestFinder(recurse=False).find(one, name, globs=names)
    output: list[str] = []
    done = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        test, out=output.append
    )
    assert done.attempted and not done.failed, "".join(output)
