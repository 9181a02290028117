"""DataFrames with any column names, and keys of Spark's types, give the results of a session."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

pytestmark = pytest.mark.spark

DDL = "seq long, `a.b` string, `c``d` string, day date, mac binary, dec decimal(10,2), zero double, flag boolean"
KEYS = ("a.b", "c`d", "day", "mac", "dec", "zero", "flag")
DAY = dt.date(2024, 5, 1)
EVEN = ("x", "a text of more than fifteen bytes", DAY, b"\xff\x00\x12\x34\x56\x78", Decimal("1.00"), 0.0, True)
ODD = ("y", None, DAY + dt.timedelta(days=1), b"\xff\x00\x12\x34\x56\x79", Decimal("0.10"), float("nan"), False)
ROWS = [(i, *(ODD if i % 2 else EVEN)) for i in range(6)]
ROWS[2] = (2, *EVEN[:5], -0.0, True)


def test_keys_of_each_type_count_on_spark(spark):
    flow = ro.Dataflow("keys")
    fields = [("a.b", str), ("c`d", str), ("day", dt.date), ("mac", bytes), ("dec", pa.decimal128(10, 2))]
    rows = flow.source("in", schema={"seq": int, **dict(fields), "zero": float, "flag": bool})
    for i, key in enumerate(KEYS):
        flow.sink(f"out_{i}", rows.to(t.RunningCount(by=key, output="times"), id=f"n{i}"))
    frames = flow.frames(spark.createDataFrame(ROWS, DDL), partitions=2)
    for i in range(len(KEYS)):
        found = sorted(frames[f"n{i}"].collect())
        assert [r["times"] for r in found] == [1, 1, 2, 2, 3, 3], KEYS[i]
        assert [tuple(r)[:5] for r in found] == [row[:5] for row in ROWS]


def test_columns_with_dots_travel(spark):
    df = spark.createDataFrame(ROWS, DDL)
    kept = t.SampleByHash(share=1.0).transform(df)  # without state, in one pass
    chained = t.RunningCount(by="flag", output="n.m").transform(kept)
    again = t.RunningCount(by="n.m", output="last").transform(chained)
    found = sorted(again.collect())
    assert [(r["a.b"], r["c`d"], r["n.m"], r["last"]) for r in found] == [
        (row[1], row[2], i // 2 + 1, i % 2 + 1) for i, row in enumerate(ROWS)
    ]


@pytest.mark.parametrize("expression", ["array(seq)", "struct(seq)", "map(seq, seq)"])
def test_nested_key_is_refused_before_the_query(spark, expression):
    df = spark.createDataFrame(ROWS, DDL).selectExpr("seq", f"{expression} as k")
    with pytest.raises(ConfigError, match=r"needs a key .* in the field 'k'"):
        t.RunningCount(by="k").transform(df)
