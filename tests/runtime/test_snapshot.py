"""Snapshots as bytes: round trips, and damage that is detected."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from riot_ops.core.errors import StateError
from riot_ops.runtime.snapshot import (
    FIELDS_METADATA,
    IDENTITY_METADATA,
    TIME_METADATA,
    from_ipc,
    pack_snapshot,
    to_ipc,
    unpack_snapshot,
)


def batch(key, value, **columns):
    rows = pa.RecordBatch.from_pydict(columns)
    return rows.replace_schema_metadata(None if key is None else {key: json.dumps(value)})


ROWS = batch(IDENTITY_METADATA, {"task": "average", "version": 2}, sum=[1.5, 2.5])
KEYS = batch(FIELDS_METADATA, ["sensor", "mean"], sensor=["a", "ü"])
KEYS = KEYS.replace_schema_metadata({**KEYS.schema.metadata, TIME_METADATA: "[60, 7, 5]"})


def packed(new=7, rows=ROWS, keys=KEYS):
    return pack_snapshot(new, to_ipc(rows), to_ipc(keys))


def test_round_trip():
    identity, names, time, new, rows, keys = unpack_snapshot(packed())
    assert (identity, names, time, new) == ({"task": "average", "version": 2}, ["sensor", "mean"], [60, 7, 5], 7)
    assert rows.equals(ROWS) and keys.equals(KEYS)
    assert from_ipc(to_ipc(ROWS)).schema.equals(ROWS.schema, check_metadata=True)


def test_changed_bit_is_detected():
    good = packed()
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 1 << place % 8
        with pytest.raises(StateError, match="the state of step 'avg' is damaged or not riot_ops state: "):
            unpack_snapshot(bytes(data), " of step 'avg'")
    for data in (b"", good[:-1], good + b"x"):
        with pytest.raises(StateError, match="damaged"):
            unpack_snapshot(data)


@pytest.mark.parametrize(
    "data",
    [
        packed(rows=batch(None, None, sum=[1.0])),
        packed(keys=batch(None, None, sensor=["a"])),
        packed(keys=batch(FIELDS_METADATA, ["sensor"], sensor=["a"])),
        packed(rows=batch(b"other", {}, sum=[1.0])),
        pack_snapshot(0, b"", to_ipc(KEYS)),
        pack_snapshot(0, to_ipc(ROWS), b"no Arrow"),
    ],
    ids=["no_metadata", "no_names", "no_time", "other_metadata", "no_rows", "no_keys"],
)
def test_other_content_is_refused(data):
    with pytest.raises(StateError, match="damaged or not riot_ops state"):
        unpack_snapshot(data)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": [1, 2], "s": ["x", None]}).replace_schema_metadata({b"k": b"v"}),
        pa.record_batch({"a": pa.array([], pa.int64())}),
        pa.record_batch({"a": list(range(100)), "l": [[1.0]] * 100}).slice(3, 7),
    ],
)
def test_small_batches_are_encoded_like_large_ones(batch, monkeypatch):
    small = bytes(to_ipc(batch))
    monkeypatch.setattr("riot_ops.runtime.snapshot.SMALL_BYTES", 0)
    assert small == bytes(to_ipc(batch)) and from_ipc(small).equals(batch, check_metadata=True)
