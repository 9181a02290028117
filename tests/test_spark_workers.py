"""Which tests share a worker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from conftest import pytest_xdist_make_scheduler
from tests.spark_workers import SparkWorkers, group

PACKAGE, USERS = "spark: the package", "spark: its users"


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        ("tests/spark/test_frames.py::test_stream_is_read_once_and_continued", PACKAGE),
        ("tests/cli/test_job.py::test_both_runners_give_the_same_records", USERS),
        ("tests/contract/test_spark_parity.py::test_spark_gives_the_output_of_the_local_run[BFN-0]", USERS),
        ("benchmarks/tests/suites/streambench/test_recipients.py::test_recipients_on_spark", USERS),
        ("tests/cli/test_main.py::test_version", "tests/cli/test_main.py"),
        ("tests/test_spark_workers.py::test_x[spark]", "tests/test_spark_workers.py"),
        ("src/riot_ops/spark/frames.py::riot_ops.spark.frames", "src/riot_ops/spark/frames.py"),
        ("README.md::README.md", "README.md"),
    ],
)
def test_tests_with_the_session_are_grouped_and_others_go_by_file(test, wanted):
    """A fixture of the file or of a conftest.py may take it, as in the tests of parity and of recipients."""
    assert group(test) == wanted


@pytest.mark.parametrize(
    ("dist", "marks", "ours"),
    [("loadfile", "not slow", True), ("loadfile", "", False), ("load", "not slow", False)],
)
def test_long_runs_and_other_ways_to_share_keep_the_scheduler_of_xdist(dist, marks, ours):
    config = SimpleNamespace(getvalue={"dist": dist, "markexpr": marks, "tx": ["popen"] * 2}.get)
    found = pytest_xdist_make_scheduler(config, None)
    assert (found is not None) is ours
    assert not ours or isinstance(found, SparkWorkers)
