"""Sorting by event time, against a sorted list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
streams = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.integers(0, 3)), max_size=25)


def rows(stream):
    return [{"event_time": NOON + timedelta(seconds=s), "key": k, "n": n, "s": s} for s, k, n in stream]


def wanted(stream, allowed_lateness, by_n):
    newest, ordered, late = -1, [], 0
    for place, (s, k, n) in enumerate(stream):
        newest = max(newest, s)
        if s + allowed_lateness < newest:
            late += 1
        else:
            ordered.append((s, n if by_n else 0, place, k, n))
    return [(s, k, n) for s, _, _, k, n in sorted(ordered)], late


@pytest.mark.long
@given(streams, st.integers(0, 6), st.booleans(), st.integers(1, 7))
def test_records_are_in_order(stream, allowed_lateness, by_n, batch_size):
    flow = ro.Dataflow("order")
    source = flow.source(
        "in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string", "n": "int64", "s": "int64"}
    )
    task = t.SortByEventTime(allowed_lateness=timedelta(seconds=allowed_lateness), order_by="n" if by_n else None)
    count = t.RunningCount(output="place")
    flow.sink("out", source.to(task, id="ordered").to(count, id="counted"))
    result = flow.run(rows(stream), batch_size=batch_size)
    found = sorted(result["counted"].to_pylist(), key=lambda row: row["place"])
    ordered, late = wanted(stream, allowed_lateness, by_n)
    assert [(row["s"], row["key"], row["n"]) for row in found] == ordered
    assert [row["event_time"] for row in found] == [NOON + timedelta(seconds=s) for s, _, _ in ordered]
    assert result["errors"]["reason"].to_pylist() == ["late"] * late


@given(streams, st.integers(0, 6), st.integers(1, 7))
def test_each_key_is_sorted_on_its_own(stream, allowed_lateness, batch_size):
    session = t.SortByEventTime(allowed_lateness=timedelta(seconds=allowed_lateness), by="key").session()
    found = []
    for start in range(0, len(stream), batch_size):
        found += session.push_many(rows(stream[start : start + batch_size]))
    found += session.flush()
    for key in "ab":
        ordered = [one for one in wanted(stream, allowed_lateness, False)[0] if one[1] == key]
        assert [(row["s"], row["key"], row["n"]) for row in found if row["key"] == key] == ordered


@pytest.mark.long
@given(streams, st.integers(0, 6), st.booleans(), st.integers(1, 7))
def test_key_time_releases_each_key(stream, allowed_lateness, by_n, batch_size):
    flow = ro.Dataflow("order")
    source = flow.source(
        "in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string", "n": "int64", "s": "int64"}
    )
    task = t.SortByEventTime(
        allowed_lateness=timedelta(seconds=allowed_lateness), scope="key", by="key", order_by="n" if by_n else None
    )
    flow.sink("out", source.to(task, id="ordered").to(t.RunningCount(by="key", output="place"), id="counted"))
    result = flow.run(rows(stream), batch_size=batch_size)
    found = sorted(result["counted"].to_pylist(), key=lambda row: row["place"])
    late = 0
    for key in "ab":
        ordered, late_of_key = wanted([one for one in stream if one[1] == key], allowed_lateness, by_n)
        late += late_of_key
        assert [(row["s"], row["key"], row["n"]) for row in found if row["key"] == key] == ordered
    assert result["errors"]["reason"].to_pylist() == ["late"] * late


def test_one_key_releases_no_other():
    session = t.SortByEventTime(allowed_lateness="1s", scope="key", by="key", max_ahead="1min").session()
    stream = [(0, "a", 0), (50, "b", 0), (1, "a", 1), (2, "a", 2), (80, "a", 3)]
    assert [row["n"] for row in session.push_many(rows(stream))] == [0]
    assert [row["n"] for row in session.flush()] == [1, 2, 0]
    assert [e["reason"] for e in session.errors] == ["from_the_future"]


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([0, 0, 0, 1000]), st.sampled_from("ab")).map(
            lambda row: (row[0] + row[1], row[2], 0)
        ),
        max_size=40,
    ),
    st.integers(0, 30),
    st.integers(1, 7),
    st.sampled_from(["stream", "key"]),
)
def test_time_recovers_from_wrong_clocks(stream, lateness, batch_size, time):
    """Against the definition: held records are released, in order, before time is set back."""
    parameters = {"allowed_lateness": f"{lateness}s", "max_ahead": "25s", "scope": time}
    by = {"by": "key"} if time == "key" else {}
    session, found = t.SortByEventTime(**parameters, **by).session(), []
    for start in range(0, len(stream), batch_size):
        found += session.push_many(rows(stream[start : start + batch_size]))
        data, errors, session = session.snapshot(), session.errors, t.SortByEventTime(**parameters, **by).session()
        session.restore(data)
        session.errors.extend(errors)
    found += session.flush()
    bad = []
    for key in "ab" if time == "key" else [None]:
        now, support, votes, held, out = None, 0, [], [], []
        for second, _, _ in (row for row in stream if key in (None, row[1])):
            before = now
            if now is None:
                now, support = second, 1
            elif -max(25, lateness) <= second - now <= 25:
                now, support, votes = max(now, second), min(support + 1, 3), []
            else:
                near = votes and -max(25, lateness) <= second - max(votes) <= 25
                votes = [*votes, second] if near else [second]
                if len(votes) >= support:
                    now, support, votes = max(votes), len(votes), []
            if before is not None and now < before:
                out, held = [*out, *sorted(held)], []
            if second + lateness < now:
                bad.append("late")
            elif second > now + 25:
                bad.append("from_the_future")
            else:
                held.append(second)
            out += sorted(one for one in held if one + lateness < now)
            held = [one for one in held if one + lateness >= now]
        assert [row["s"] for row in found if key in (None, row["key"])] == [*out, *sorted(held)]
    assert sorted(e["reason"] for e in session.errors) == sorted(bad)


def test_rejected_times_do_not_advance_time():
    session = t.SortByEventTime(allowed_lateness="1s", max_ahead="1min").session()
    stream = [{"event_time": NOON + timedelta(seconds=s), "s": s} for s in (0, 30, 91, 29)]
    assert [row["s"] for row in session.push_many([*stream, {"event_time": None, "s": 7}])] == [0]
    assert [row["s"] for row in session.flush()] == [29, 30]
    assert sorted(e["reason"] for e in session.errors) == ["from_the_future", "no_event_time"]


def test_stream_time_alone_releases_records():
    session = t.SortByEventTime(allowed_lateness="2s").session()
    assert session.push({"event_time": NOON, "s": 0}) == []
    assert session.advance(NOON + timedelta(seconds=2)) == []
    assert [row["s"] for row in session.advance(NOON + timedelta(seconds=2, microseconds=1))] == [0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"allowed_lateness": "-1s"}, "allowed_lateness: '-1s' is not a duration"),
        ({"allowed_lateness": timedelta(-1)}, "allowed_lateness must not be negative"),
        ({"allowed_lateness": "1s", "max_ahead": timedelta(0)}, "max_ahead must be longer than 0"),
        ({"allowed_lateness": "1s", "ttl": "1s"}, "supports ttl only with scope='key'"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        t.SortByEventTime(**parameters)
