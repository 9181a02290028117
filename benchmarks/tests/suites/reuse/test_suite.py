"""The suite that measures what sharing saves."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from riot_bench.suites import registry as bench
from riot_bench.suites.reuse import local as reuse_local
from riot_bench.suites.reuse import many_dataflows
from riot_bench.suites.reuse import suite as reuse
from riot_bench.suites.reuse.traces import Action
from riot_bench.suites.reuse.workloads import opmw_like, pi_series, riot21

from riot_ops import Dataflow, tasks
from riot_ops.core.errors import ConfigError
from riot_ops.reuse import ReuseManager, signatures


def test_null_back_end_gives_the_measures_of_the_ledger():
    found = {m.measure: m for m in reuse.measures(trace=("seq",), workload=("riot",), backend="null")}
    books = (
        "tasks-peak-reduction",
        "tasks-sum-reduction",
        "tasks-shared",
        "manager-p95-ms",
        "fragmentation",
        "idle-share",
    )
    used = {name for name in found if "/used-by/" in name}
    assert set(found) - used == {"reuse/submit/p95-ms", *(f"reuse/riot/seq/{n}" for n in books)}
    assert sum(found[name].value for name in used) == pytest.approx(1)
    peak = found["reuse/riot/seq/tasks-peak-reduction"]
    assert round(peak.value, 3) == 0.453 and peak.reach is None
    assert peak.against == "saved steps, of 192 separate ones; the workload was made to have it"
    shared = found["reuse/riot/seq/tasks-shared"]
    assert (shared.value, shared.reach) == (1, 1)


def test_avoidable_steps_by_hand():
    def flow(name, window):
        made = Dataflow(name)
        source = made.source("city", schema={"value": "double"})
        return made.sink("out", source.to(tasks.MovingAverage(window=window), id=name))

    flows = {"a": flow("a", 2), "b": flow("b", 2), "c": flow("c", 3)}
    actions = [Action(0, "submit", "a"), Action(1, "submit", "b"), Action(2, "submit", "c"), Action(3, "remove", "a")]
    # the source and the average of b; the source of c as well; then only the source
    assert reuse_local.avoidable_steps(actions, flows) == 2 + 3 + 1


def test_manager_without_sharing_misses_its_target(monkeypatch):
    monkeypatch.setattr(ReuseManager, "stats", lambda manager: {"steps": 9, "fragments": 1, "groups": 1, "idle": 0})
    flows = {flow.name: flow for flow in riot21()[:2]}
    found = {m.measure: m for m in reuse_local.step_measures("x", "riot", "seq", flows)}
    assert found["x/tasks-shared"].met is False


def test_objects_held_by_the_manager_are_counted(monkeypatch):
    flows = {flow.name: flow for flow in riot21() if flow.name in ("grid-kalman", "grid-short")}
    actions = reuse_local.make_trace("seq", flows)
    rests = [m for m in reuse_local.cpu_measures("x", "riot", actions, flows) if m.measure == "x/after-drain"]
    assert [(one.value, one.met) for one in rests] == [(0, True)]
    held, opened = [], reuse_local.open_source
    monkeypatch.setattr(reuse_local, "open_source", lambda name: held.append(opened(name)) or held[-1])
    rests = [m for m in reuse_local.cpu_measures("x", "riot", actions, flows) if m.measure == "x/after-drain"]
    assert [(one.value, one.met) for one in rests] == [(2, False)]


@pytest.mark.slow  # whole walks for each seed; those of one seed are tested below
def test_seeds_of_walks_and_workloads(monkeypatch):
    some = [flow for flow in riot21() if flow.name in ("grid-kalman", "grid-short", "grid-cleaned-stats")]
    flows = {flow.name: flow for flow in some}
    monkeypatch.setattr(reuse, "opmw_like", lambda seed, work: opmw_like(seed, 3, max_steps=4, work=work))
    assert len(reuse.SEEDS) == 5
    found = {m.measure: m for m in reuse._seed_measures("riot", flows, True)}
    assert set(found) == {f"reuse/riot/walks/{what}" for what in ("tasks-sum-reduction", "cpu-reduction")}
    values = found["reuse/riot/walks/tasks-sum-reduction"].values
    assert len(values) == len(set(values)) == len(reuse.QUICK_SEEDS)
    few = {flow.name: flow for flow in opmw_like(0, 3, max_steps=4, work=reuse._hundredth_of_work)}
    found = {m.measure: m for m in reuse._seed_measures("opmw", few, True)}
    assert len(found["reuse/opmw/workloads/cpu-reduction"].values) == len(reuse.QUICK_SEEDS)


@pytest.mark.slow  # eight whole traces
def test_traces_and_workloads_differ():
    def total(**options):
        return [m.value for m in reuse.measures(backend="null", **options) if m.measure.endswith("sum-reduction")]

    assert len(total()) == 3 and len(set(total())) == 3
    assert total(trace=("rw1",)) != total(trace=("rw2",))
    [opmw] = total(trace=("seq",), workload=("opmw",))
    assert [opmw] != total(trace=("seq",)) and 0.25 < opmw < 0.4


def test_sides_in_process_have_equal_outputs_and_cpu_times(monkeypatch):
    some = [flow for flow in riot21() if flow.name in ("grid-kalman", "grid-short", "grid-cleaned-stats")]
    monkeypatch.setattr(reuse, "riot21", lambda: some)
    found = {m.measure: m for m in reuse.measures(quick=True, trace=("rw1",))}
    assert found["reuse/riot/outputs-equal"].value == found["reuse/riot/rw1/outputs-equal"].value == 1
    assert found["reuse/riot/rw1/after-drain"].value == 0
    assert -1 < found["reuse/riot/rw1/cpu-reduction"].value < 1
    assert found["reuse/riot/rw1/disruption-ms"].value > 0


def test_cpu_is_measured_after_every_nth_action():
    flows = {flow.name: flow for flow in riot21() if flow.name in ("grid-kalman", "grid-short")}

    def points(**every):
        found = reuse_local.cpu_measures("x", "riot", reuse_local.make_trace("seq", flows), flows, **every)
        return [m.measure for m in found if "/cpu/together/" in m.measure]

    assert points() == [f"x/cpu/together/{n}" for n in (1, 2, 3, 4)]
    assert points(every=3) == [f"x/cpu/together/{n}" for n in (1, 4)]


def test_quick_form_does_a_tenth_of_the_work():
    assert reuse._tenth_of_work({}) == pi_series({}, 300) != pi_series({})


def test_differing_records_are_reported(monkeypatch):
    flows = {f.name: f for f in riot21() if f.name in ("grid-kalman", "grid-stats")}
    assert reuse_local.check_outputs("x", flows, 400).value == 1
    whole = reuse_local.open_source
    lengths = iter([400, 400, 399, 400])
    monkeypatch.setattr(reuse_local, "open_source", lambda name, messages=None: whole(name, next(lengths)))
    assert reuse_local.check_outputs("x", flows, 400).value == 0


def test_fragments_are_counted_by_hand():
    """Two dataflows with a common source are submitted and removed: 1, 2, 1 and no fragments, one idle at the end."""

    def flow(name, window):
        made = Dataflow(name)
        source = made.source("city", schema={"value": "double"})
        return made.sink("out", source.to(tasks.MovingAverage(window=window), id=name))

    flows = {"a": flow("a", 2), "b": flow("b", 3)}
    found = {m.measure: m for m in reuse_local.step_measures("x", "opmw", "seq", flows)}
    # if the first is removed last, the other's two steps end; else the source stays with two idle steps
    first, *_, last = reuse_local.make_trace("seq", flows)
    assert found["x/fragmentation"].value == pytest.approx(4 / 3 if first.name == last.name else 5 / 3)
    assert found["x/idle-share"].value == pytest.approx(0 if first.name == last.name else 2 / 5 / 3)


def test_unknown_names_are_refused():
    for wrong in ({"trace": ("sex",)}, {"workload": ("riott",)}, {"backend": "spork"}):
        with pytest.raises(ConfigError, match="is not one of"):
            list(reuse.measures(**wrong))
    assert "reuse" in bench.describe_suites()


def test_many_dataflows_over_one_stream(monkeypatch):
    monkeypatch.setitem(many_dataflows.WARM_UP_S, "local", (10.0, 0.5))
    monkeypatch.setattr(many_dataflows, "MEASURED_S", (30.0, 1.5))
    found = {m.measure: m for m in reuse.measures(quick=True, many=4)}
    assert set(found) == {f"reuse/many/4/{n}" for n in ("p95-ms", "records-per-s", "bytes-per-dataflow", "submit-ms")}
    late, pace = found["reuse/many/4/p95-ms"], found["reuse/many/4/records-per-s"]
    assert 0 < late.value < 30_000 and late.reach == 1000 and late.at_most
    assert pace.value > 0 and pace.reach == 0.95 * 500 * 4
    size = found["reuse/many/4/bytes-per-dataflow"]
    assert size.reach == 1 << 20 and size.at_most and found["reuse/many/4/submit-ms"].value > 0
    with pytest.raises(ConfigError, match="--backend local or spark, got 'null'"):
        list(reuse.measures(many=4, backend="null"))


def test_latency_counts_from_the_due_time():
    latencies = many_dataflows.Latencies()
    latencies.begin = time.time() - 10
    latencies.sink().function("out", pa.record_batch({"seq": pa.array([0, 4500])}))
    early, late = latencies.since(0)
    assert 10_000 <= early < 12_000 and early - late == pytest.approx(9000)
    assert latencies.since(time.time() + 1).size == 0


def test_many_dataflows_share_their_parser():
    manager = ReuseManager()
    for i in range(5):
        manager.submit(many_dataflows.make_flow(i, 5))
    assert manager.stats()["steps"] == 2 + 3 * 5 and manager.stats()["sources"] == 1


def test_figures_show_each_trace_by_step(monkeypatch):
    some = [flow for flow in riot21() if flow.name in ("grid-kalman", "grid-short", "grid-cleaned-stats")]
    monkeypatch.setattr(reuse, "riot21", lambda: some)
    found = list(reuse.measures(quick=True, trace=("seq",), steps=True))
    one, other = reuse.EXPERIMENTS[:2]
    assert [one.key, other.key] == ["reuse/riot", "reuse/opmw"]
    shown = {figure.key: figure.points(found) for figure in one.figures}
    assert set(shown) == {
        *(f"{walk}-{what}" for walk in ("seq", "rw1", "rw2") for what in ("tasks", "cpu")),
        "used-by",
    }
    alone = [m.value for series, _, m in shown["seq-tasks"] if series == "apart"]
    together = [m.value for series, _, m in shown["seq-tasks"] if series == "together"]
    sizes = sorted(len(flow.nodes) for flow in some)
    assert len(alone) == 6 and max(alone) == sum(sizes) and alone[0] in sizes and alone[-1] == 0
    distinct = len(set().union(*(signatures(flow).values() for flow in some)))
    assert max(together) == distinct and all(a >= b for a, b in zip(alone, together, strict=True))
    assert [x for series, x, _ in shown["seq-cpu"] if series == "together"] == list("123456")
    assert sum(m.value for _, _, m in shown["used-by"]) == pytest.approx(1)
    assert all(points == [] for key, points in shown.items() if "rw" in key)
    assert not any(figure.points(found) for figure in other.figures)
    assert {m.measure: m.published for m in found if m.published} == {
        "reuse/riot/seq/tasks-peak-reduction": 0.46,
        "reuse/riot/seq/cpu-reduction": 0.51,
    }


def test_long_line_is_downsampled():
    line = list(reuse_local._line_points("reuse/x", list(range(100)), "steps", ""))
    assert [m.measure for m in line[:2]] == ["reuse/x/1", "reuse/x/4"] and len(line) == 34
    assert [m.value for m in line[:2]] == [0, 3]


def test_experiments_run_their_own_workload(monkeypatch):
    asked = []
    monkeypatch.setattr(reuse, "measures", lambda quick, **options: asked.append((quick, options)) or iter(()))
    for one in reuse.EXPERIMENTS[:2]:
        assert list(one.measures(True)) == []
    assert asked == [(True, {"workload": (load,), "steps": True}) for load in ("riot", "opmw")]


def test_quick_forms_of_further_experiments_are_small(monkeypatch):
    asked = {}
    monkeypatch.setattr(
        reuse.ends,
        "end_measures",
        lambda name, flows, actions: asked.update({(name, len(flows)): len(actions)}) or iter(()),
    )
    monkeypatch.setattr(
        reuse.near_peak,
        "peak_measures",
        lambda name, flows, quick, opened: asked.update({(name, quick): len(flows)}) or iter(()),
    )
    monkeypatch.setattr(
        reuse.paper_range,
        "range_measures",
        lambda name, flows, actions, run: asked.update({(name, not run): (len(flows), len(actions))}) or iter(()),
    )
    for one in reuse.EXPERIMENTS[-3:]:
        for quick in (True, False):
            assert list(one.measures(quick)) == []
    assert asked == {
        ("reuse/ends", 7): 14,
        ("reuse/ends", 21): 42,
        ("reuse/near-peak", True): 7,
        ("reuse/near-peak", False): 21,
        ("reuse/range", True): (86, 172),
        ("reuse/range", False): (86, 172),
    }
