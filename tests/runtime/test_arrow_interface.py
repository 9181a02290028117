"""Results in other libraries: what each reads by Arrow's PyCapsule interface."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import riot_ops as ro

FIELDS = {"room": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double", "n": "int64"}
TIMES = [datetime(2024, 5, 1, 12, m, tzinfo=UTC) for m in (0, 1)]
ROWS = [("hall", TIMES[0], 20.5, 1), (None, TIMES[1], None, 2**62)]


def _flow():
    flow = ro.Dataflow("rooms")
    flow.source("readings", FIELDS).to("out")
    return flow


def _records():
    return [dict(zip(FIELDS, row, strict=True)) for row in ROWS]


def _tables(tmp_path):
    """The same records as a result in memory and in files, of a run in the background, and as its newest ones."""
    run = _flow().launch(_records())
    run.wait()
    batch = _flow().run(_records())["readings"].combine_chunks().to_batches()[0]
    return [
        _flow().run(_records())["readings"],
        _flow().run(_records(), out=tmp_path)["readings"],
        run["readings"],
        batch,
    ]


def test_each_library_reads_the_same_records(tmp_path):
    for found in _tables(tmp_path):
        assert hasattr(found, "__arrow_c_stream__")
        assert pl.DataFrame(found).select([*FIELDS]).rows() == ROWS
        assert duckdb.sql("select room, epoch_us(event_time), value, n from found order by seq").fetchall() == [
            (room, int(time.timestamp() * 1e6), value, n) for room, time, value, n in ROWS
        ]
        assert pa.table(found).select([*FIELDS]).to_pylist() == _records()
        frame = found.to_pandas()
        assert frame["n"].tolist() == [1, 2**62]
        assert frame["event_time"].tolist() == [pd.Timestamp(time) for time in TIMES]


@pytest.mark.skipif(not hasattr(pd.DataFrame, "from_arrow"), reason="pandas before 3")
def test_pandas_reads_it_by_the_interface():
    frame = pd.DataFrame.from_arrow(_flow().run(_records())["readings"])
    assert frame["n"].tolist() == [1, 2**62]


def test_newest_records_of_a_run_are_batches_that_libraries_read():
    class Open(ro.MemorySource):
        def latest(self, start, limit=None):
            return super().latest(start, limit) if sampled else start

        def finished(self, offset):
            return bool(sampled) and super().finished(offset)

    sampled = []
    run = _flow().launch(
        Open(
            _records(),
            pa.schema(
                [("room", "string"), ("event_time", pa.timestamp("us", "UTC")), ("value", "float64"), ("n", "int64")]
            ),
        )
    )
    run.newest()  # from now on the run keeps samples
    sampled.append(True)
    run.wait()
    newest = run.newest()["readings"]
    assert isinstance(newest, pa.RecordBatch)
    assert pl.DataFrame(newest)["n"].to_list() == [1, 2**62]
    assert duckdb.sql("select n from newest order by seq").fetchall() == [(1,), (2**62,)]


def test_errors_and_streams_without_records_are_tables(tmp_path):
    result = _flow().run([{**_records()[0], "value": "n/a"}], out=tmp_path)
    assert pl.DataFrame(result.errors)["reason"].to_list() == ["wrong_type"]
    assert pl.DataFrame(result["readings"]).shape == (0, 5)
