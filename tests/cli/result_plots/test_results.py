"""The data of plots: records of a stream in order, frequent values, evenly chosen rows, times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from riot_ops.cli.result_plots.results import datetimes, downsample, most_frequent


def test_stream_is_read_in_order_over_its_files(results):
    counts = results("word_count").stream("counts", "word")
    assert counts.to_pydict() == {"seq": [0, 1, 2], "word": ["a", "b", "a"]}


def test_missing_stream_is_empty_with_its_fields(results):
    missing = results("word_count").stream("nothing", "word")
    assert (missing.num_rows, missing.column_names) == (0, ["seq", "word"])


def test_most_frequent_values_come_first_and_ties_in_order():
    assert most_frequent(pa.array(["b", "a", "c", "c"]), 2) == ["c", "a"]


def test_downsampled_rows_are_even_and_keep_both_ends():
    table = pa.table({"x": range(10)})
    assert downsample(table, 4)["x"].to_pylist() == [0, 3, 6, 9]
    assert downsample(table, 10) is table


def test_times_are_in_utc_without_a_zone():
    times = pa.chunked_array([pa.array([3_600_000], pa.timestamp("ms", "Europe/Rome"))])
    assert datetimes(times).tolist() == [np.datetime64("1970-01-01T01:00:00", "us").item()]
