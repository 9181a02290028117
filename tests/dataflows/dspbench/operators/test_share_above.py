"""Shares of members above a reference, against dicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import ShareAbove
from tests.search import depth

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
VALUES = st.sampled_from([1.0, 2.0, 3.0])
TIMES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["p", "q"]), st.sampled_from("xyz"), VALUES, st.integers(0, 1)), max_size=4),
        st.none() | VALUES,
    ),
    max_size=8,
)


@pytest.mark.long
@given(TIMES, st.integers(1, 9), st.integers(1, 3))
@settings(max_examples=depth(60), deadline=None)
def test_shares_equal_dicts(times, batch_size, parallelism):
    rows, members, last, wanted = [], {}, {}, []
    for k, (updates, reference) in enumerate(times):
        at = {"event_time": NOON + timedelta(seconds=k)}
        for group, member, value, count in updates:
            rows.append({**at, "scope": "one", "of": group, "name": member, "v": value, "n": count})
            members[group, member] = value if count else None
        rows.append({**at, "scope": "every", "of": None, "name": None, "v": reference, "n": 1})
        for group in ("p", "q") if reference is not None else ():
            mine = [v for (of, _), v in members.items() if of == group and v is not None]
            share = 100 * sum(v > reference for v in mine) / len(mine) if mine else last.get(group)
            if share != last.get(group):
                last[group] = share
                wanted.append((k, group, share))
    kinds = {
        "event_time": "timestamp[us, tz=UTC]",
        "scope": "string",
        "of": "string",
        "name": "string",
        "v": "double",
        "n": "int64",
    }
    flow = ro.Dataflow("shares")
    source = flow.source("in", schema=kinds)
    task = ShareAbove(
        group="of", member=("name",), value="v", count="n", reference="every", window="1min", output="share"
    )
    ones = source.to(t.Filter("scope == 'one'"), id="ones")
    every = source.to(t.Filter("scope == 'every'"), id="every")
    flow.sink(
        "out",
        flow.add(task, ones.partition_by("of", parallelism=parallelism), every.broadcast(parallelism), id="shares"),
    )
    result = flow.run(rows or pa.table({name: [] for name in kinds}), batch_size=batch_size)["shares"].to_pylist()
    found = sorted(((r["window_end"] - NOON) // timedelta(seconds=1), r["of"], r["share"]) for r in result)
    assert found == wanted
    assert all(r["window_end"] - r["window_start"] == timedelta(minutes=1) for r in result)


def test_early_values_wait_for_their_reference():
    session = ShareAbove().session()
    rows = [("one", 2, 9.0), ("one", 0, 1.0), ("all", 1, 5.0), ("all", 2, 5.0)]
    out = [
        session.push({"event_time": NOON + timedelta(seconds=s), "scope": scope, "group": 1, "member": 1, "median": v, "count": 1})
        for scope, s, v in rows
    ]  # fmt: skip
    assert [[row["percentage"] for row in rows] for rows in out] == [[], [], [0.0], [100.0]]


def test_records_without_time_or_scope_are_errors():
    session = ShareAbove().session()
    for time, scope in ((None, "one"), (NOON, None), (None, None)):
        session.push({"event_time": time, "scope": scope, "group": 1, "member": 1, "median": 1.0, "count": 1})
    assert [e["reason"] for e in session.errors] == ["no_event_time", "no_scope", "no_event_time"]


def test_misuse_is_refused():
    for wrong, message in (
        ({"by": ("x",)}, "supports neither by nor ttl"), ({"ttl": "1h"}, "supports neither by nor ttl"), ({"window": "0s"}, "window must be"),
        ({"member": ()}, "member must name"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            ShareAbove(**wrong)
