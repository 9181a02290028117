"""PyArrow does not import pandas before the program does, and treats its objects as ever afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A session over values of Python's own types, and a dataflow.
FEED = """
import sys
from datetime import UTC, datetime
import pyarrow as pa
import riot_ops as ro
row = {"sensor_id": "a", "value": 1.5, "n": 3, "ok": True, "event_time": datetime(2024, 1, 1, tzinfo=UTC), "no": None}
ro.tasks.KalmanFilter().session().push(row)
flow = ro.Dataflow("f")
flow.sink("out", flow.source("in", schema={"value": "double"}).to(ro.tasks.KalmanFilter(), id="k"))
flow.run([{"value": 1.0}])
assert "pandas" not in sys.modules
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_records_do_not_import_pandas():
    run(FEED)


@pytest.mark.long
def test_objects_of_pandas_convert_as_ever():
    pytest.importorskip("pandas")
    objects = """
import numpy as np
import pandas as pd
print(pa.array(pd.Series([1.0, np.nan])).null_count, pa.array([pd.NA, 1], from_pandas=True).null_count, pa.array(pd.Categorical(["a"])).type)
print(pa.array(pd.Series(["a", None])), pa.array([pd.NaT, pd.Timestamp(2024, 1, 1)], from_pandas=True).type)
print(ro.tasks.KalmanFilter().session().push_batch(pd.DataFrame({"value": [1.0]})).num_rows)
print(pd.__spec__.loader.exec_module.__name__)
"""
    plain = "import pyarrow as pa, riot_ops as ro\n"
    assert run(FEED + objects) == run("import pandas\n" + plain + objects)
    assert run(FEED + "print(pa.table({'a': [1, None]}).to_pandas().a.tolist())") == "[1.0, nan]"
    assert run(plain + objects) == run("import pandas\n" + plain + objects)


def test_pandas_may_be_missing():
    run('import sys\nsys.modules["pandas"] = None\n' + FEED.replace('assert "pandas" not in sys.modules', ""))
