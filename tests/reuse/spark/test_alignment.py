"""Where readers of several topics start, and where their reads end."""

from __future__ import annotations

from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from riot_ops.reuse.spark.alignment import aligned_ends, common_start, start_batches
from riot_ops.reuse.spark.fragment import retained_batches
from riot_ops.reuse.topic import Head, Topic, UpstreamProgress


def places(root, *numbers):
    return [UpstreamProgress({root: n}) for n in numbers]


def test_reader_of_one_topic_takes_all_batches():
    assert aligned_ends({"a": UpstreamProgress({"r": 0})}, {"a": places("r", 1, 2, 3, 4)}) == {"a": 4}
    assert aligned_ends({"a": UpstreamProgress()}, {"a": [UpstreamProgress()] * 3}) == {"a": 3}, "without roots"
    assert aligned_ends({"a": UpstreamProgress({"r": 0})}, {"a": []}) == {"a": 0}


def test_lagging_reader_stops_at_round_numbers():
    assert aligned_ends({"a": UpstreamProgress({"r": 3})}, {"a": places("r", 4, 5, 6, 7)}) == {"a": 1}
    assert aligned_ends({"a": UpstreamProgress({"r": 4})}, {"a": places("r", 5, 6, 7, 8, 9)}) == {"a": 4}
    assert aligned_ends({"a": UpstreamProgress({"r": 3})}, {"a": places("r", 3, 3)}) == {"a": 2}, (
        "a change of control alone"
    )


def test_topics_are_cut_at_the_same_micro_batches():
    before = {"a": UpstreamProgress({"r": 0}), "b": UpstreamProgress({"r": 0})}
    assert aligned_ends(before, {"a": places("r", 1, 2, 3), "b": places("r", 2)}) == {"a": 2, "b": 1}
    assert aligned_ends(before, {"a": places("r", 1, 3), "b": places("r", 2)}) == {"a": 0, "b": 0}
    assert aligned_ends(before, {"a": places("r", 1, 3), "b": []}) == {"a": 0, "b": 0}


def test_topics_of_different_sources_are_independent():
    before = {"a": UpstreamProgress({"r": 0}), "b": UpstreamProgress({"s": 0})}
    assert aligned_ends(before, {"a": places("r", 1, 2), "b": []}) == {"a": 2, "b": 0}


def test_batch_in_which_a_source_ends_is_read_alone():
    a = [*places("r", 1, 2), UpstreamProgress({"r": 3}, ended=["city"])]
    assert aligned_ends({"a": UpstreamProgress({"r": 0})}, {"a": a}) == {"a": 2}
    assert aligned_ends({"a": UpstreamProgress({"r": 2})}, {"a": a[2:]}) == {"a": 1}
    other = {"a": UpstreamProgress({"r": 2}), "b": UpstreamProgress({"s": 0})}
    assert aligned_ends(other, {"a": a[2:], "b": places("s", 1)}) == {"a": 1, "b": 0}
    same = {"a": UpstreamProgress({"r": 2}), "b": UpstreamProgress({"r": 2})}
    assert aligned_ends(same, {"a": a[2:], "b": places("r", 2)}) == {"a": 0, "b": 1}, (
        "the other topic has not reached the end"
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40))
def test_readers_of_several_topics_progress(moves):
    """Two queries read a root at their own pace; a third reads both, always to the same point, and in the end all."""
    root, at, topics = 0, [0, 0], [[], []]
    joint, read = [0, 0], [UpstreamProgress({"r": 0}), UpstreamProgress({"r": 0})]
    for reader, n in [*moves, *[(0, 1), (1, 1)] * 20]:
        if reader == 2:
            root += n
            continue
        found = aligned_ends(
            {"r": UpstreamProgress({"r": at[reader]})}, {"r": places("r", *range(at[reader] + 1, root + 1))}
        )["r"]
        if found:
            at[reader] += found
            topics[reader].append(UpstreamProgress({"r": at[reader]}))
        took = aligned_ends({"0": read[0], "1": read[1]}, {str(i): topics[i][joint[i] :] for i in (0, 1)})
        for i in (0, 1):
            if took[str(i)]:
                joint[i] += took[str(i)]
                read[i] = topics[i][joint[i] - 1]
        assert read[0] == read[1]
    assert read[0].roots == {"r": root}


def test_new_reader_starts_where_all_topics_are():
    a, b = (
        [(n, UpstreamProgress({"r": n})) for n in (4, 5, 6)],
        [(9, UpstreamProgress({"r": 5, "s": 2})), (10, UpstreamProgress({"r": 7}))],
    )
    assert common_start({"a": a, "b": b}) == {"a": 5, "b": 9}
    assert common_start({"a": a, "b": b[1:]}) is None, "too early"
    assert common_start({"a": []}) is None
    assert common_start({}) == {}


@pytest.mark.parametrize("trimmed", [False, True])
def test_new_reader_starts_after_a_batch_missing_in_the_head(tmp_path, trimmed):
    topic = Topic(tmp_path)
    topic.join("dispatcher", 0)
    for n in (0, 1):
        topic.publish(n, [], before=UpstreamProgress({"r": n}), after=UpstreamProgress({"r": n + 1}))
    topic.write_head(Head(0, 0, UpstreamProgress({"r": 1})))  # the head does not count batch 1 yet
    if trimmed:
        topic.join("dispatcher", 2)
        topic.trim()
    with retained_batches(["f"], {"f": SimpleNamespace(topic=topic)}) as since:
        assert since == {"f": 2}
        assert start_batches({"f": topic}, since, {"f": 0}) is None, (
            "a reader that has read batch 1 would lose it, or read it twice"
        )
        topic.write_head(Head(1, 0, UpstreamProgress({"r": 2})))
        assert start_batches({"f": topic}, since, {"f": 0}) == {"f": (2, UpstreamProgress({"r": 2}))}
