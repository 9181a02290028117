"""Helpers for tests of generated streams: records of a source as a table, and common properties."""

from __future__ import annotations

import hashlib
import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops import streams
from tests.search import depth


def table(source: Any, start: int = 0, end: int | None = None) -> pa.Table:
    """The messages from start to end, by default all."""
    return pa.Table.from_batches(list(source.read({"start": start, "end": source.messages if end is None else end})))


def micros(times: Any) -> np.ndarray:
    """Event times of a pandas column as microseconds since the epoch."""
    return pa.array(times).cast(pa.timestamp("us", tz="UTC")).cast("int64").to_numpy()


def any_split(test: Any) -> Any:
    """Give a test any sensors, start, number of messages, parts, format and seed."""
    values = (
        st.integers(1, 3000),
        st.integers(0, 10**9),
        st.integers(1, 60),
        st.integers(1, 6),
        st.sampled_from(["senml", "csv", "observations", "wide"]),
        st.integers(-1, 3),
    )
    return settings(max_examples=depth(25), deadline=None)(given(*values)(test))


def check_any_split(source: Any, start: int, n: int, parts: int) -> None:
    """Read n messages at once and, from a copy of the source, in parts: the same records."""
    whole = table(source, start, start + n)
    fresh = pickle.loads(pickle.dumps(source))
    splits = fresh.splits({"message": start}, {"message": start + n}, parts)
    assert json.loads(json.dumps(splits)) == splits
    assert pa.Table.from_batches([b for s in splits for b in fresh.read(s)]).equals(whole)
    assert list(dict.fromkeys(whole["seq"].to_pylist())) == list(range(start, start + n))


def digest(call: str, start: int, end: int) -> str:
    """A hash of messages of a source such as ``city(sensors=40)``, to the last bit."""
    source = eval(call, {name: getattr(streams, name) for name in streams.__all__})
    return hashlib.sha256(repr(table(source, start, end).to_pylist()).encode()).hexdigest()
