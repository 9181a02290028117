"""Positions, splits and parameters of streams whose records are functions of their number."""

import pytest

from riot_ops import streams
from riot_ops.core.errors import ConfigError


def test_positions_of_a_bounded_stream_end_with_it():
    source = streams.fit(2, messages=10)
    assert source.initial() == {"message": 0}
    assert source.latest({"message": 0}) == {"message": 10}
    assert source.latest({"message": 0}, 3) == {"message": 3}
    assert source.latest({"message": 12}) == {"message": 12}
    assert source.finished({"message": 10}) and not source.finished({"message": 9})
    assert source.time_at({"message": 10}) is None


def test_splits_cover_a_range_without_gaps():
    source = streams.fit(2, messages=10)
    edges = [(s["start"], s["end"]) for s in source.splits({"message": 1}, {"message": 8}, 3)]
    assert edges == [(1, 3), (3, 5), (5, 8)]
    assert source.splits({"message": 4}, {"message": 4}, 3) == []
    assert len(source.splits({"message": 4}, {"message": 6}, 5)) == 2


def test_position_of_a_time_is_after_the_messages_up_to_it():
    source = streams.fit(2, messages=10)  # two messages every 20 ms
    first = source.time_at({"message": 0})
    assert [source.time_at({"message": n}) - first for n in (1, 2, 3, 4)] == [0, 20_000, 20_000, 40_000]
    assert source.until({"message": 0}, first + 20_000) == {"message": 4}
    assert source.until({"message": 0}, first + 19_000) == {"message": 2}
    assert source.until({"message": 0}, first + 20_000, 3) == {"message": 3}
    assert source.until({"message": 6}, first) == {"message": 6}


@pytest.mark.parametrize("seed", [1.5, True, "1", None])
def test_non_integer_seed_is_refused(seed):
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        streams.fit(2, messages=1, seed=seed)
