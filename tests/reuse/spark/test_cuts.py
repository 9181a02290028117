"""Where topics are cut, and what queries are told: without queries."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

import riot_ops as ro
import riot_ops.tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.graph.lowering import lower
from riot_ops.reuse.spark.control import Control, Controls, awake
from riot_ops.reuse.spark.cuts import ends, starts
from riot_ops.reuse.spark.meeting import meeting, untrimmed
from riot_ops.reuse.topic import Head, Place, Topic


def places(root, *numbers):
    return [Place({root: n}) for n in numbers]


def test_a_reader_of_one_topic_takes_all_that_there_is():
    assert ends({"a": Place({"r": 0})}, {"a": places("r", 1, 2, 3, 4)}) == {"a": 4}
    assert ends({"a": Place()}, {"a": [Place()] * 3}) == {"a": 3}, "of no root at all"
    assert ends({"a": Place({"r": 0})}, {"a": []}) == {"a": 0}


def test_who_is_behind_stops_at_round_numbers():
    assert ends({"a": Place({"r": 3})}, {"a": places("r", 4, 5, 6, 7)}) == {"a": 1}
    assert ends({"a": Place({"r": 4})}, {"a": places("r", 5, 6, 7, 8, 9)}) == {"a": 4}
    assert ends({"a": Place({"r": 3})}, {"a": places("r", 3, 3)}) == {"a": 2}, "a change of control alone"


def test_topics_are_cut_at_the_same_micro_batches():
    before = {"a": Place({"r": 0}), "b": Place({"r": 0})}
    assert ends(before, {"a": places("r", 1, 2, 3), "b": places("r", 2)}) == {"a": 2, "b": 1}
    assert ends(before, {"a": places("r", 1, 3), "b": places("r", 2)}) == {"a": 0, "b": 0}
    assert ends(before, {"a": places("r", 1, 3), "b": []}) == {"a": 0, "b": 0}


def test_topics_of_different_sources_do_not_wait_for_each_other():
    before = {"a": Place({"r": 0}), "b": Place({"s": 0})}
    assert ends(before, {"a": places("r", 1, 2), "b": []}) == {"a": 2, "b": 0}


def test_a_batch_in_which_a_source_ends_is_read_alone():
    a = [*places("r", 1, 2), Place({"r": 3}, ended=["city"])]
    assert ends({"a": Place({"r": 0})}, {"a": a}) == {"a": 2}
    assert ends({"a": Place({"r": 2})}, {"a": a[2:]}) == {"a": 1}
    other = {"a": Place({"r": 2}), "b": Place({"s": 0})}
    assert ends(other, {"a": a[2:], "b": places("s", 1)}) == {"a": 1, "b": 0}
    same = {"a": Place({"r": 2}), "b": Place({"r": 2})}
    assert ends(same, {"a": a[2:], "b": places("r", 2)}) == {"a": 0, "b": 1}, "the other has not come so far"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40))
def test_readers_of_several_topics_come_along(moves):
    """Two queries read a root at their own pace, and a third reads both: at the end it has all, and always equally far."""
    root, at, topics = 0, [0, 0], [[], []]
    joint, read = [0, 0], [Place({"r": 0}), Place({"r": 0})]
    for who, n in [*moves, *[(0, 1), (1, 1)] * 20]:
        if who == 2:
            root += n
            continue
        found = ends({"r": Place({"r": at[who]})}, {"r": places("r", *range(at[who] + 1, root + 1))})["r"]
        if found:
            at[who] += found
            topics[who].append(Place({"r": at[who]}))
        took = ends({"0": read[0], "1": read[1]}, {str(i): topics[i][joint[i] :] for i in (0, 1)})
        for i in (0, 1):
            if took[str(i)]:
                joint[i] += took[str(i)]
                read[i] = topics[i][joint[i] - 1]
        assert read[0] == read[1]
    assert read[0].roots == {"r": root}


def test_a_newcomer_begins_where_all_topics_are():
    a, b = [(n, Place({"r": n})) for n in (4, 5, 6)], [(9, Place({"r": 5, "s": 2})), (10, Place({"r": 7}))]
    assert starts({"a": a, "b": b}) == {"a": 5, "b": 9}
    assert starts({"a": a, "b": b[1:]}) is None, "not yet"
    assert starts({"a": []}) is None
    assert starts({}) == {}


def test_versions_are_numbered_and_never_change(tmp_path):
    controls = Controls(tmp_path / "control")
    assert controls.newest() == -1
    one, two = Control(("a",), ()), Control(("a", "b"), ("c",))
    assert [controls.write(c) for c in (one, one, two, one)] == [0, 0, 1, 2]
    assert [controls.read(n) for n in range(3)] == [one, two, one] and controls.newest() == 2
    (tmp_path / "control" / "000001.json").write_text("{")
    with pytest.raises(ConnectorError, match=r"000001\.json is damaged"):
        controls.read(1)


def test_what_nobody_wants_rests():
    flow = ro.Dataflow("flow")
    source = flow.source("in", schema={"value": "double", "event_time": "timestamp[us, tz=UTC]"})
    kept = source.to(t.RangeFilter(bounds={"value": (0, 1)}, by=None), id="kept")
    smooth = kept.to(t.KalmanFilter(), id="smooth")
    other = source.to(t.MovingAverage(window=2), id="other")
    flow.sink("out", smooth, other)
    steps = lower(flow)
    assert awake(steps, {"smooth"}) == {"in", "kept", "smooth"}
    assert awake(steps, {"other"}) == {"in", "other"}
    assert awake(steps, {"in@beats"}) == {"in"}
    assert awake(steps, set()) == set()
    everything = {step.id for step in steps}
    for some in itertools.combinations(("smooth", "kept", "other"), 2):
        assert awake(steps, set(some)) <= everything


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_batch_that_is_there_and_not_told_of_yet_is_for_nobody_new(tmp_path, trimmed):
    topic = Topic(tmp_path)
    topic.join("carrier", 0)
    for n in (0, 1):
        topic.mark(n, [], before=Place({"r": n}), after=Place({"r": n + 1}))
    topic.stand(Head(0, 0, Place({"r": 1})))  # of batch 1 it is not told yet where that ends
    if trimmed:
        topic.join("carrier", 2)
        topic.trim()
    with untrimmed(["f"], {"f": SimpleNamespace(topic=topic)}) as since:
        assert since == {"f": 2}
        assert meeting({"f": topic}, since, {"f": 0}) is None, "who has read it would lose it, or have it again"
        topic.stand(Head(1, 0, Place({"r": 2})))
        assert meeting({"f": topic}, since, {"f": 0}) == {"f": (2, Place({"r": 2}))}
