"""Errors of Spark, in the words of their cause."""

from __future__ import annotations

import subprocess
import sys

import pytest

from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.spark.exceptions import find_cause


@pytest.mark.parametrize(
    ("text", "kind", "cause_text"),
    [
        ("x\n  riot_ops.core.errors.ConnectorError: no folder /a\n    at b", ConnectorError, "no folder /a"),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error\nat c", StateError, "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED"),
        (
            "[X_MISSING_STATE_DIRECTORY] Cannot restart.",
            StateError,
            "cannot be read: X_MISSING_STATE_DIRECTORY: Cannot",
        ),
        ("Traceback\nValueError: 7\nat d", RiotError, "ValueError: 7"),
        ("first\nsecond", RiotError, "first"),
    ],
)
def test_cause_of_spark_error(text, kind, cause_text):
    found, cause = find_cause(text)
    assert found is kind
    assert cause_text in cause


#: Where the distribution pyspark-client is installed, these parts of PySpark are missing.
CLIENT = """
import sys
sys.modules["py4j"] = sys.modules["pyspark.core"] = None
import riot_ops as ro
import riot_ops.spark
flow = ro.Dataflow("any")
flow.sink("out", flow.source("in", schema={"value": "double"}))
session = type("Session", (), {"is_stopped": False, "conf": type("Conf", (), {"get": lambda *_: None})()})()
for call in (lambda: flow.start(session, [{"value": 1.0}]), lambda: riot_ops.spark.session()):
    try:
        call()
    except ro.ConfigError as error:
        print(error)
for name in riot_ops.spark.__all__:
    getattr(riot_ops.spark, name)
"""


def test_spark_connect_client_refuses_jvm_features():
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    start, session = done.stdout.splitlines()
    assert start.startswith("over Spark Connect, flow.start needs checkpoint")
    assert session.startswith("riot_ops.spark.session needs Spark's JVM")
