"""A source that repeats a table."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.streams.repeating import RepeatingSource

TIMES = [1_000_000, 2_000_000, None, 4_000_000]
TABLE = pa.table(
    {
        "seq": [0, 0, 1, 2],
        "event_time": pa.array(TIMES, TIMESTAMP),
        "value": [1.0, 2.0, 3.0, 4.0],
    }
)


def read(source: RepeatingSource, *edges: int) -> list[dict[str, object]]:
    batches = [b for a, z in itertools.pairwise(edges) for b in source.read({"start": a, "end": z})]
    assert all(b.num_rows and b.schema.equals(source.schema) for b in batches)
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def test_rounds_continue_numbers_and_times() -> None:
    rows = read(RepeatingSource(TABLE), 0, 7)
    assert [r["seq"] for r in rows] == [0, 0, 1, 2, 3, 3, 4, 5, 6, 6]
    assert [r["value"] for r in rows] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    times = [None if r["event_time"] is None else r["event_time"].timestamp() for r in rows]  # type: ignore[attr-defined]
    assert times == [1, 2, None, 4, 5.5, 6.5, None, 8.5, 10, 11]


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6))
def test_any_split_gives_the_same_records(edges: list[int]) -> None:
    edges = sorted(edges)
    source = RepeatingSource(TABLE)
    assert read(source, *edges) == read(source, edges[0], edges[-1])


def test_messages_limit_the_length() -> None:
    source = RepeatingSource(TABLE, messages=4)
    end = source.latest(source.initial())
    assert end == {"message": 4}
    assert source.finished(end)
    assert not source.waits()
    assert source.count(source.initial(), end) == 4
    assert sum(s["end"] - s["start"] for s in source.splits(source.initial(), end, 3)) == 4
    endless = RepeatingSource(TABLE)
    assert endless.waits()
    assert not endless.finished({"message": 10**9})
    assert endless.latest({"message": 5}, 10) == {"message": 15}


def test_pickled_source_gives_the_same_records() -> None:
    assert read(pickle.loads(pickle.dumps(RepeatingSource(TABLE))), 0, 5) == read(RepeatingSource(TABLE), 0, 5)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"value": [1.0]}),
        TABLE.slice(0, 0),
        TABLE.slice(2),
        pa.table({"seq": [0, 2]}),
        pa.table({"seq": [0, 1, 0]}),
    ],
)
def test_table_without_message_numbers_is_refused(table: pa.Table) -> None:
    with pytest.raises(ConfigError, match="seq"):
        RepeatingSource(table)
    with pytest.raises(ConfigError, match="messages must be a whole number >= 0, got -1"):
        RepeatingSource(TABLE, messages=-1)


def test_table_without_event_time() -> None:
    rows = read(RepeatingSource(pa.table({"seq": np.arange(2), "text": ["a", "ü"]})), 0, 5)
    assert [r["text"] for r in rows] == ["a", "ü", "a", "ü", "a"]
