"""Streams that repeat their seed set."""

import pytest

from riot_ops import streams
from riot_ops.core.errors import ConfigError
from tests.streams.records import table


@pytest.mark.parametrize("name", ["flows", "packets", "searches"])
def test_lines_repeat_after_the_seed_set(name):
    source = streams.generate(name, messages=25, records=10)
    lines = table(source)["payload"].to_pylist()
    assert lines[10:20] == lines[:10] and lines[20:] == lines[:5]
    assert [text.encode() for text in source.seed_lines().to_pylist()] == lines[:10]
    assert table(source, 8, 12)["payload"].to_pylist() == [*lines[8:10], *lines[:2]]


def test_empty_seed_set_is_refused():
    with pytest.raises(ConfigError, match="records must be a whole number >= 1, got 0"):
        streams.generate("flows", records=0)
