"""Synthetic event times, against Python's integers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import SyntheticEventTime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@given(
    st.lists(st.integers(0, 2**40), max_size=9).map(sorted),
    st.integers(0, 10**7),
    st.integers(1, 10**6),
    st.integers(1, 3),
)
def test_times_follow_the_message_numbers(numbers, every, messages, sources):
    task = SyntheticEventTime(every=timedelta(microseconds=every), messages=messages, stride=sources)
    session = task.session()
    made = session.push_batch(pa.RecordBatch.from_pydict({"seq": pa.array(numbers, pa.int64())}))
    wanted = [n // sources * every // messages for n in numbers]
    most = (LAST - EPOCH) // timedelta(microseconds=1)
    assert [(time - EPOCH) // timedelta(microseconds=1) for time in made["event_time"].to_pylist()] == [
        time for time in wanted if time <= most
    ]
    assert [e["reason"] for e in session.errors] == ["out_of_range"] * sum(time > most for time in wanted)


def test_misuse_is_refused():
    for options, error_text in (
        ({"every": "-1s"}, "every"), ({"every": "1s", "messages": 0}, "messages"), ({"every": "1s", "stride": 0}, "stride"),
        ({"every": timedelta(days=10**6), "messages": 10**9}, "every times messages"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error_text):
            SyntheticEventTime(**options)
