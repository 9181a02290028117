"""Records of a dataflow during its lifetime, against a run alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from riot_bench.suites.reuse import local
from riot_bench.suites.reuse.lifetimes import Lifetime, Lifetimes, outputs_equal
from riot_bench.suites.reuse.traces import Action

from riot_ops import Dataflow, MemorySource, tasks
from riot_ops.reuse.reports import Submitted

NUMBERS = [{"value": float(n)} for n in range(40)]


def opened(stream):
    return MemorySource(NUMBERS)


def smooth(name="smooth"):
    flow = Dataflow(name)
    averages = flow.source("city", schema={"value": "double"}).to(tasks.MovingAverage(window=3), id="average")
    return flow.sink("out", averages)


def stay(first, last, messages=None, warm=()):
    """Of means of three that begin with message ``first``, those up to ``last``, as worked out by hand."""
    found = Lifetime(smooth(), Submitted("smooth", {}, {}, {}, (), [*warm], 0, {"city": first}), messages)
    alone = smooth().run({"city": MemorySource(NUMBERS[first:])})["average"].to_pylist()
    ends = [n for n in range(first + 2, last + 1, 3)]
    rows = [{**row, "seq": end} for row, end in zip(alone, ends, strict=False)]
    found.sink().function(
        "average", pa.RecordBatch.from_pylist(rows, smooth().run({"city": opened("")})["average"].schema)
    )
    return found


@pytest.mark.parametrize("first", [0, 5])
def test_lifetime_equals_a_run_from_its_first_message(first):
    found = outputs_equal("x", [stay(first, 20, 21 - first)], opened, " here")
    assert found.value == 1 and found.reach == 1
    assert found.against.startswith(f"{(21 - first) // 3} records in 1 lifetimes here, each against")
    assert outputs_equal("x", [stay(first, 20)], opened).value == 1, "up to the last one with a result"
    assert outputs_equal("x", [stay(first, 20, 24 - first)], opened).value == 0, "one more should have come"
    moved = stay(first, 20, 21 - first)
    moved.submitted = Submitted("smooth", {}, {}, {}, (), [], 0, {"city": first + 1})
    assert outputs_equal("x", [moved], opened).value == 0


def test_lifetimes_with_earlier_state_are_not_compared():
    found = outputs_equal("x", [stay(0, 20), stay(3, 9, warm=["average"])], opened)
    assert found.value == 1 and found.against.endswith("; 1 more share state with earlier messages")
    assert outputs_equal("x", [stay(3, 9, warm=["average"])], opened).value == 0, "nothing was compared"
    assert outputs_equal("x", [Lifetime(smooth())], opened).value == 0


def test_silence_at_actions_is_measured_against_usual_gaps():
    def at(*times):
        return Lifetime(smooth(), times=[*times])

    stays = Lifetimes([at(0.0, 1.0, 2.0, 5.0, 6.0), at(0.0, 1.2, 2.0)])
    assert stays.longest_silence_ms([(3.0, 3.5)]) == pytest.approx(1800)
    assert stays.longest_silence_ms([(0.2, 0.4)]) == 0.0, "it is longer at other times"
    assert stays.longest_silence_ms([]) == 0.0
    assert Lifetimes([at(0.0, 1.0), at(9.0, 10.0)]).longest_silence_ms([(4.0, 5.0)]) == 0.0, "it was away"


def test_each_lifetime_of_a_trace_is_compared(monkeypatch):
    flows = {name: smooth(name) for name in "ab"}
    actions = [Action(n, op, name) for n, (op, name) in enumerate([("submit", "a"), ("submit", "b"), ("remove", "a")])]
    actions += [Action(3, "submit", "a"), Action(4, "remove", "a"), Action(5, "remove", "b")]
    monkeypatch.setattr(local, "open_source", opened)
    # a: messages 0 to 5, and 9 to 11 again; b: 3 to 14
    found = local.check_lifetimes("x", actions, flows, 3)
    assert found.value == 1 and found.against.startswith("7 records in 3 lifetimes, each")
