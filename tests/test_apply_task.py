"""One task over one frame: the same as the method of the task, for each kind of frame, with each option."""

from __future__ import annotations

import inspect

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.task import Task

COLUMNS = {"device": ["a", "b", "a"], "value": [1.0, 5.0, 2.0]}
TASK = t.RunningCount(by="device")


@pytest.mark.parametrize(
    "make",
    [pd.DataFrame, pl.DataFrame, pa.table, pa.RecordBatch.from_pydict],
    ids=["pandas", "polars", "table", "batch"],
)
def test_result_is_of_the_kind_of_the_frame(make):
    result = ro.apply(TASK, make(COLUMNS), on_error="drop")
    assert isinstance(result, type(make(COLUMNS)))
    assert list(result["count"]) == [1, 1, 2] or result["count"].to_pylist() == [1, 1, 2]


def test_options_are_those_of_the_task(monkeypatch):
    def options(function):
        return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}

    assert options(ro.apply) == options(Task.transform) != {}
    got = []
    monkeypatch.setattr(Task, "transform", lambda self, frame, **given: got.append((self, frame, given)))
    frame, given = object(), {name: object() for name in options(ro.apply)}
    ro.apply(TASK, frame, **given)
    assert got == [(TASK, frame, given)]


def test_other_things_are_refused():
    with pytest.raises(ConfigError, match="apply takes a task and a frame, got"):
        ro.apply(pa.table(COLUMNS), TASK)
    with pytest.raises(ConfigError, match="transform takes a pandas or Polars frame, an Arrow table"):
        ro.apply(TASK, COLUMNS)


def test_frames_that_hold_no_columns_of_arrow_are_refused():
    for frame, message in (
        (
            pl.DataFrame({"word": ["a"]}).with_columns(pl.Series("o", [{}], dtype=pl.Object)),
            "the column 'o' .* objects",
        ),
        (pl.DataFrame({"word": ["a"]}).with_columns(n=pl.lit(1, pl.Int128)), "a type that Arrow does not have"),
        (pl.DataFrame({"word": ["a"]}).lazy(), r"transform takes .*; call its method collect\(\) before"),
        (pd.DataFrame({"word": ["a"], "c": [1j]}), "a type that Arrow lacks, in the column 'c'"),
    ):
        with pytest.raises(ConfigError, match=message):
            ro.apply(TASK, frame)
