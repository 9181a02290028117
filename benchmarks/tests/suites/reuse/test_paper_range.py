"""As many dataflows as the paper has."""

from __future__ import annotations

import pytest
from riot_bench.suites.reuse import local, paper_range
from riot_bench.suites.reuse.traces import Action, count_steps
from riot_bench.suites.reuse.workloads import pi_series

from riot_ops.reuse import signatures


@pytest.fixture(scope="module")
def flows():
    return paper_range.paper_dataflows(pi_series)


def test_as_many_dataflows_as_the_paper(flows):
    assert len(flows) == 86 and sum(name.startswith("opmw") for name in flows) == 65


def test_quick_form_counts_tasks(flows):
    some = {name: flows[name] for name in ("grid-kalman", "grid-short", "opmw-0")}
    actions = local.make_trace("seq", some)
    saved = count_steps(actions, {name: signatures(flow).values() for name, flow in some.items()})
    found = {one.measure: one for one in paper_range.range_measures("x", some, actions, run=False)}
    assert set(found) == {"x/tasks-peak-reduction", "x/tasks-sum-reduction"}
    assert (found["x/tasks-peak-reduction"].value, found["x/tasks-sum-reduction"].value) == (saved.peak, saved.total)
    assert found["x/tasks-peak-reduction"].published == 0.45


def test_streams_have_their_rates(flows, monkeypatch):
    read = {}
    whole = paper_range.Side

    class Counting(whole):
        def close(self):
            for name, (messages, _) in self.progress().items():
                read[self.shared, self._batch_size, name] = messages
            super().close()

    monkeypatch.setattr(paper_range, "Side", Counting)
    small = min((name for name in flows if name.startswith("opmw")), key=lambda name: len(flows[name].nodes))
    actions = [Action(0, "submit", "grid-kalman"), Action(1, "submit", small)]
    found = {one.measure: one for one in paper_range.range_measures("x", flows, actions, seconds=3)}
    # ten messages per second over two actions of 3 s, and one over the last
    assert read == {
        (True, 10, ""): 60,
        (True, 1, ""): 3,
        (False, 10, "grid-kalman"): 60,
        (False, 1, small): 3,
    }
    assert (
        found["x/cpu-reduction"].published == 0.63
        and "3 s of the streams per action" in found["x/cpu-reduction"].against
    )
    assert found["x/actions-cpu-reduction"].value < 1
