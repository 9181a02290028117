"""What differs between versions of Spark."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.spark import features

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
#: Names that Spark 4.0 lacks, and the modules that it lacks.
LATER_NAMES = {
    "DataSourceArrowWriter", "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxFiles",
    "ReadMaxRows", "ReadMinRows", "SupportsTriggerAvailableNow", "TwsTester", "arrow_udf", "arrow_udtf",
}  # fmt: skip
LATER_MODULES = ("pyspark.sql.streaming.datasource", "pyspark.pipelines", "pyspark.sql.streaming.tws_tester")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4.0.0.dbr17", (4, 0)),
        ("4.1.0-SNAPSHOT", (4, 1)),
        ("4.0.1-amzn-0", (4, 0)),
        ("4.2.0.1.2.3", (4, 2)),
        ("4.10.2", (4, 10)),
        ("5", (5, 0)),
    ],
)
def test_version_of_any_vendor(text, wanted):
    assert features.parse_version(text) == wanted


def test_version_without_numbers_is_refused():
    with pytest.raises(ConfigError, match="the version of Spark cannot be read: 'client'"):
        features.parse_version("client")


def test_missing_feature_names_its_version_and_the_session(monkeypatch):
    old = SimpleNamespace(version="4.0.0.dbr17")
    with pytest.raises(
        ConfigError, match=r"^real-time mode needs Spark 4\.1 or later: this session has 4\.0\.0\.dbr17$"
    ):
        features.require("real-time mode", old)
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(ConfigError, match=r"checkpoint needs Spark 4\.2 or later: the installed PySpark is 4\.1\.4$"):
        features.require("repartition of a checkpoint", SimpleNamespace(version="4.2.0"))
    monkeypatch.setattr(pyspark, "__version__", "4.2.0.dbr19")
    features.require("repartition of a checkpoint", SimpleNamespace(version="4.2.0.dbr19"))


def test_features_are_found_by_name_in_their_versions():
    """A name may come earlier in a vendor's build; in Spark's own releases it comes with the version."""
    for feature, (since, _) in features.SINCE.items():
        assert features.has(feature) == (features.installed_version() >= since), feature
    assert (features.installed_version() >= (4, 1)) == features.ARROW_STREAM_WRITERS
    assert features.has("limits of streaming sources") == features.READ_LIMITS


def test_limits_have_one_form_in_all_versions():
    assert isinstance(features.ReadMaxRows(3), features.ReadLimit) and features.ReadMaxRows(3).max_rows == 3
    assert isinstance(features.ReadAllAvailable(), features.ReadLimit)


def test_names_of_later_versions_are_imported_by_one_module():
    found = []
    for folder in ("src", "benchmarks/src"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "pyspark" in text else ():
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pyspark":
                    names = {alias.name for alias in node.names}
                    if names & LATER_NAMES or node.module.startswith(LATER_MODULES):
                        found.append(path.relative_to(ROOT).as_posix())
    assert set(found) == {"src/riot_ops/spark/features.py"}
