"""Values given to sketches: one text is refused, any container of values is accepted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.sketches import BloomFilter, HyperLogLog

GIVERS = {
    "HyperLogLog.add": lambda values: HyperLogLog().add(values),
    "BloomFilter.add": lambda values: BloomFilter(10).add(values),
    "BloomFilter.contains": lambda values: BloomFilter(10).contains(values),
    "BloomFilter.of": BloomFilter.of,
}


@pytest.mark.parametrize("owner", GIVERS)
@pytest.mark.parametrize("value", ["text", b"text", {"a": 1}, 5, None, 1.5])
def test_single_value_is_not_split(owner, value):
    with pytest.raises(ConfigError, match=rf"{owner} takes values, such as a list of them, got .*give \[value\]"):
        GIVERS[owner](value)


@pytest.mark.parametrize("owner", GIVERS)
def test_values_without_equality_are_refused(owner):
    with pytest.raises(ConfigError, match=f"{owner} takes text, bytes, numbers or times, got values of type list"):
        GIVERS[owner]([[1], [2]])
    with pytest.raises(ConfigError, match=f"{owner} takes values of one type"):
        GIVERS[owner](["a", 1])


@pytest.mark.parametrize(
    "values",
    [["a", "b"], ("a", "b"), {"a", "b"}, np.array(["a", "b"]), pa.array(["a", "b"]), pa.chunked_array([["a"], ["b"]]),
     pa.array(["a", "b"]).dictionary_encode(), pa.array([b"a", b"b"], pa.binary(1)), pa.array(["a", "b"], pa.string_view())],
)  # fmt: skip
def test_two_values_are_two_in_each_container(values):
    bloom, count = BloomFilter.of(values), HyperLogLog()
    count.add(values)
    count.add(v for v in ["a", "b"])
    assert round(count.estimate()) == bloom.count == 2
    assert bloom.contains(["a", "b", "c"]).tolist() == [True, True, False]
    assert "b" in bloom and "d" not in bloom


def test_invalid_utf8_bytes_are_found():
    macs = pa.array([b"\xff\x00\x12\x34\x56\x78", None], pa.binary(6))
    assert BloomFilter.of(macs).contains(macs).tolist() == [True, False]
