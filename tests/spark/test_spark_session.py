"""The session that riot_ops makes: what it sets, what it leaves alone, and where its workers find PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.runtime.spark import session
from riot_ops.runtime.spark.session import _home

pytestmark = pytest.mark.spark


def test_workers_import_pyspark_with_its_bytecode(spark):
    def where(_):
        import pyspark

        return pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ, "it is set only while Spark starts"


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_PYTHON", "/opt/python/bin/python")]
)
def test_a_home_or_python_of_ones_own_is_left_alone(variable, value, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv(variable, value)
    with _home():
        assert os.environ.get("SPARK_HOME") == (value if variable == "SPARK_HOME" else None)
    assert os.environ[variable] == value


def test_the_home_has_what_spark_needs(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with _home():
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").is_file()
        assert list((home / "jars").glob("spark-core*.jar"))
        assert not (home / "python").exists()
    with _home():
        assert Path(os.environ["SPARK_HOME"]) == home, "one per process"


@pytest.mark.parametrize(("module", "told"), [("transform_with_state_driver_worker", ""), ("another", "steps\n")])
def test_the_helper_that_tells_of_its_steps_is_silent(module, told):
    code = f"""
import sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.sql.streaming.{module}")
import riot_ops.runtime.spark.stage
print("steps")
print("errors", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (told, "errors\n")


def test_misuse():
    with pytest.raises(ConfigError, match="cores must be >= 1, got -1"):
        session(cores=-1)
