"""Rejection of late records, against a loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 5))), max_size=30), st.booleans())
def test_passed_records_have_rising_times(rows, by_key):
    session = t.DropLate(by=("key",) if by_key else ()).session()
    newest, wanted, bad = {}, [], []
    for key, at in rows:
        place = key if by_key else ""
        if at is None:
            bad.append("no_event_time")
        elif at < newest.get(place, 0):
            bad.append("late")
        else:
            newest[place] = at
            wanted.append((key, at))
    times = [None if at is None else NOON + timedelta(seconds=at) for _, at in rows]
    out = session.push_many(
        {"event_time": time, "key": key, "at": at} for time, (key, at) in zip(times, rows, strict=True)
    )
    assert [(row["key"], row["at"]) for row in out] == wanted
    assert [e["reason"] for e in session.errors] == bad
