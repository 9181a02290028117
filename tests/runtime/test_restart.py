"""Restarts of changed dataflows in process: unchanged steps go on as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.graph.lowering import lower
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.runtime.restart import AddedSinks
from tests.random_flows import assert_same, everything, random_flow, random_input, random_task
from tests.search import depth

FIELDS = {"device": "string", "value": "double"}
ROWS = [{"device": "ab"[i % 2], "value": float(i * i % 7)} for i in range(40)]


class Cut(MemorySource):
    """Fails once its first records are read; ``cut=None`` reads all."""

    def __init__(self, rows, cut=None):
        super().__init__(rows)
        self.cut = cut

    def latest(self, start, limit=None):
        end = super().latest(start, limit)
        if self.cut is None:
            return end
        if start["row"] >= self.cut:
            raise ConnectorError("cut off")
        return {"row": min(end["row"], self.cut)}


def table(rows=40):
    return pa.Table.from_pylist(ROWS[:rows], pa.schema([("device", pa.string()), ("value", pa.float64())]))


def average(**changed):
    return t.MovingAverage(**{"by": "device", "window": 3} | changed)


def flow_of(**branches):
    """Return a dataflow with these tasks on one source, each in a sink of its own."""
    flow = ro.Dataflow("changing")
    readings = flow.source("readings", schema=FIELDS)
    for name, task in branches.items():
        flow.sink(f"{name}_out", readings.to(task, id=name))
    return flow


def run_until(flow, cut, folder, **options):
    """Run a dataflow until its source fails after ``cut`` records; returns its sink."""
    sink = ro.MemorySink()
    with pytest.raises(ConnectorError, match="cut off"):
        flow.run(Cut(table(), cut), sinks=sink, checkpoint=folder, epoch_rows=1, batch_size=5, **options)
    return sink


def values(result, stream):
    return result[stream].select(["device", "value"]).to_pylist()


def test_added_branch_sees_records_from_the_restart_on(tmp_path):
    before = run_until(flow_of(mean=average()), 17, tmp_path)
    changed = flow_of(smooth=t.KalmanFilter(by="device"), mean=average())
    result = changed.run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    report = result.restart
    assert report.kept == ("mean",) and report.empty == {"smooth": "it is new"} and report.dropped == ()
    assert report.added_sinks == ("smooth_out",) and report.removed_sinks == ()
    whole = flow_of(mean=average()).run(table())
    got = before.table("mean").select(["device", "value"]).to_pylist() + values(result, "mean")
    assert got == values(whole, "mean")
    new = flow_of(smooth=t.KalmanFilter(by="device")).run(table().slice(17))
    assert values(result, "smooth") == values(new, "smooth")
    # the changed dataflow now owns the checkpoint
    with pytest.raises(StateError, match=r"another dataflow.*restart=\"compatible\" keeps the state"):
        flow_of(mean=average()).run(Cut(table()), checkpoint=tmp_path)


def test_removed_branch_drops_its_state(tmp_path):
    run_until(flow_of(mean=average(), smooth=t.KalmanFilter(by="device")), 17, tmp_path)
    result = flow_of(mean=average()).run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert result.restart.dropped == ("smooth",) and result.restart.removed_sinks == ("smooth_out",)
    assert result.restart.lost == {"smooth": 2} and "drops the state of 'smooth' (2 keys)" in str(result.restart)
    assert [*Checkpoint(tmp_path).read(Checkpoint(tmp_path).latest_path()).state] == ["mean"]
    assert values(result, "mean") == values(flow_of(mean=average()).run(table()), "mean")[5:]


def test_renamed_step_starts_empty_and_renamed_sink_does_not(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path / "step")
    result = flow_of(other=average()).run(Cut(table()), checkpoint=tmp_path / "step", restart="compatible")
    assert result.restart.empty == {"other": "it is new"} and result.restart.dropped == ("mean",)
    assert values(result, "other") == values(flow_of(other=average()).run(table().slice(17)), "other")

    run_until(flow_of(mean=average()), 17, tmp_path / "sink")
    renamed = ro.Dataflow("renamed")
    renamed.sink("archive", renamed.source("readings", schema=FIELDS).to(average(), id="mean"))
    result = renamed.run(Cut(table()), checkpoint=tmp_path / "sink", restart="compatible")
    assert result.restart.kept == ("mean",)
    assert (result.restart.added_sinks, result.restart.removed_sinks) == (("archive",), ("mean_out",))
    assert values(result, "mean") == values(flow_of(mean=average()).run(table()), "mean")[5:]


def test_changed_parameter_starts_its_step_empty(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path)
    changed = flow_of(mean=average(window=4))
    result = changed.run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert result.restart.empty == {"mean": "window was 3 and is 4"}
    assert str(result.restart) == "starts 'mean' empty: window was 3 and is 4 (drops its state of 2 keys)"
    assert values(result, "mean") == values(changed.run(table().slice(17)), "mean")


def test_what_is_lost_is_said_before_anything_is_changed(tmp_path, caplog, monkeypatch):
    run_until(flow_of(mean=average(), smooth=t.KalmanFilter(by="device")), 17, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    changed = flow_of(mean=average(), new=average())
    said = r"keeps the state of 'mean'; starts 'new' empty: it is new; drops the state of 'smooth' \(2 keys\)"
    with pytest.raises(StateError, match=said):
        changed.run(Cut(table()), checkpoint=tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}

    def begin(*_):
        assert "drops the state of 'smooth' (2 keys)" in caplog.text
        raise ConnectorError("not empty")

    monkeypatch.setattr(AddedSinks, "begin", begin)
    with pytest.raises(ConnectorError, match="not empty"):
        changed.run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert caplog.records[-1].levelname == "WARNING"
    with pytest.raises(StateError, match=r"compatible\" would be refused as well.*now of task"):
        flow_of(mean=t.KalmanFilter(by="device")).run(Cut(table()), checkpoint=tmp_path)


def test_parameter_that_shapes_no_state_keeps_it(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path)
    changed = flow_of(mean=average(output="mean"))
    result = changed.run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert result.restart.kept == ("mean",)
    assert result["mean"]["mean"].to_pylist() == changed.run(table())["mean"]["mean"].to_pylist()[5:]
    assert flow_of(mean=average(output="mean")).run(Cut(table()), checkpoint=tmp_path).restart is None


@pytest.mark.parametrize(
    ("task", "refused"),
    [
        (t.KalmanFilter(by="device"), "'mean' was written by task 'moving_average', and is now of task"),
        (average(by=()), r"written by key \['device'\], and is now of key \[\]"),
    ],
)
def test_state_that_would_be_misread_is_refused(tmp_path, task, refused):
    run_until(flow_of(mean=average()), 17, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".msgpack"}
    with pytest.raises(StateError, match=refused):
        flow_of(mean=task).run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".msgpack"}


def test_other_source_under_the_same_name_is_refused(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path)
    with pytest.raises(StateError, match="'readings' was a Cut and is a MemorySource"):
        flow_of(mean=average()).run(table(), checkpoint=tmp_path, restart="compatible")


def test_added_source_begins_with_its_first_record_and_a_removed_one_is_forgotten(tmp_path):
    def flow(*names):
        made = ro.Dataflow("sources")
        for name in names:
            made.sink(f"{name}_out", made.source(name, schema=FIELDS).to(average(), id=f"mean_{name}"))
        return made

    run_until(flow("old"), 17, tmp_path)
    both = {"old": Cut(table()), "new": Cut(table(10))}
    result = flow("old", "new").run(both, checkpoint=tmp_path, restart="compatible")
    assert result.restart.added_sources == ("new",) and result.restart.kept == ("mean_old",)
    assert result["mean_new"].num_rows == 2 and result["mean_old"].num_rows == 7
    result = flow("new").run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert result.restart.removed_sources == ("old",) and result["mean_new"].num_rows == 10


def test_sinks_that_stay_are_kept_and_an_added_one_begins(tmp_path):
    run_options = {"checkpoint": tmp_path / "checkpoint", "epoch_rows": 1, "batch_size": 5}
    with pytest.raises(ConnectorError):
        flow_of(mean=average()).run(Cut(table(), 17), out=tmp_path / "out", **run_options)
    other = ro.ParquetSink(tmp_path / "other")
    flow_of(smooth=average()).run(table(), sinks=other)
    changed = flow_of(smooth=t.KalmanFilter(by="device"), mean=average())
    sinks = {"smooth_out": other, "mean_out": ro.ParquetSink(tmp_path / "out")}
    with pytest.raises(ConnectorError, match="output of an earlier run"):
        changed.run(Cut(table()), sinks=sinks, restart="compatible", **run_options)
    result = changed.run(Cut(table()), sinks=sinks, restart="compatible", overwrite=True, **run_options)
    assert result["mean"].num_rows == flow_of(mean=average()).run(table())["mean"].num_rows
    assert result["smooth"].num_rows == 23


def test_an_unchanged_dataflow_keeps_everything(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path)
    result = flow_of(mean=average()).run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    assert result.restart.kept == ("mean",) and not result.restart.empty
    assert str(result.restart) == "keeps the state of 'mean'"


def test_crash_before_the_first_commit_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    run_until(flow_of(mean=average()), 17, tmp_path)
    changed = flow_of(mean=average(), smooth=t.KalmanFilter(by="device"))

    def fail(self, saved):
        raise ConnectorError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", fail)
        with pytest.raises(ConnectorError, match="disk full"):
            changed.run(Cut(table()), checkpoint=tmp_path, restart="compatible")
    result = flow_of(mean=average()).run(Cut(table()), checkpoint=tmp_path)
    assert values(result, "mean") == values(flow_of(mean=average()).run(table()), "mean")[5:]


#: A changed dataflow whose process is killed once its own first checkpoint is written, before it reads a record.
KILLED = """
import os, signal, sys
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.runtime.restart import AddedSinks
from tests.runtime.test_restart import Cut, changed_flow, table

write = Checkpoint.write

def killed(self, saved):
    write(self, saved)
    os.kill(os.getpid(), signal.SIGKILL)

Checkpoint.write = killed
changed_flow().run(Cut(table()), checkpoint=sys.argv[1], restart="compatible")
"""


def changed_flow():
    return flow_of(mean=average(), smooth=t.KalmanFilter(by="device"))


@pytest.mark.long
def test_process_killed_after_the_new_checkpoint_goes_on(tmp_path):
    run_until(flow_of(mean=average()), 17, tmp_path)
    newest = Checkpoint(tmp_path).latest_path()
    before = newest.read_bytes()
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert Checkpoint(tmp_path).latest_path() != newest and newest.read_bytes() == before
    result = changed_flow().run(Cut(table()), checkpoint=tmp_path)
    whole, new = changed_flow().run(table()), changed_flow().run(table().slice(17))
    assert values(result, "mean") == values(whole, "mean")[5:] and values(result, "smooth") == values(new, "smooth")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"restart": "any"}, "restart must be 'same' or 'compatible'"), ({"restart": "compatible"}, "give checkpoint=")],
)
def test_misuse_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        flow_of(mean=average()).run(table(), **options)


# -- random edits of random dataflows -------------------------------------------------------------------


def edit(choose, flow):
    """Return a copy of a dataflow with random changes, and the steps that are untouched by them."""
    plain = flow.to_dict()
    nodes = {node["id"]: node for node in plain["nodes"]}
    tasks = [id for id, node in nodes.items() if node["kind"] == "task"]
    touched = set()
    for id in tasks:
        parameters, kind = nodes[id]["task"], choose.random()
        readers = [e for e in plain["edges"] if e["from"] == id and nodes[e["to"]]["kind"] == "task"]
        if kind < 0.2 and not readers and len(nodes) > 3:
            ends = {e["to"] for e in plain["edges"] if e["from"] == id}
            if all(sum(e["to"] == end for e in plain["edges"]) > 1 for end in ends):
                plain["nodes"].remove(nodes.pop(id))
                plain["edges"] = [e for e in plain["edges"] if id not in (e["from"], e["to"])]
                read = {e["from"] for e in plain["edges"]}
                plain["edges"] += [{"from": one, "to": "out"} for one in nodes if one not in {*read, "out"}]
                touched.add(id)
        elif kind < 0.4 and parameters["task"] == "moving_average":
            parameters["window"] += 1
            touched.add(id)
        elif kind < 0.4 and parameters["task"] == "kalman_filter":
            parameters["process_noise"] *= 2
            touched.add(id)
    changed = ro.Dataflow.from_dict(plain)
    if choose.random() < 0.7:
        above = choose.choice([id for id, node in nodes.items() if node["kind"] != "sink"])
        changed.sink("added_out", changed.stream(above).to(random_task(choose), id="added"))
        touched.add("added")
    # where times may be too far ahead, the finest clock of the dataflow decides which agree, also without a restart
    clocks, now = ({s.id: s.clock for s in lower(one)} for one in (flow, changed))
    touched |= {id for id, c in now.items() if c and clocks.get(id) != c and c.max_ahead is not None}
    for node in changed.topological_order():
        if touched & {edge.source for edge in changed.inputs(node.id)}:
            touched.add(node.id)
    same = {node.id for node in changed.nodes_of_kind("task")} - touched
    return changed, same


@given(st.integers(0, 2**32).map(random.Random), st.integers(1, 29))
@settings(max_examples=depth(60))
def test_unchanged_steps_of_random_dataflows_go_on(tmp_path_factory, choose, cut):
    folder = tmp_path_factory.mktemp("checkpoint")
    flow = random_flow(choose, functions=False)
    records = random_input(choose, 30)
    changed, same = edit(choose, flow)
    sink = ro.MemorySink()
    with pytest.raises(ConnectorError):
        flow.run(Cut(records, cut), sinks=sink, checkpoint=folder, epoch_rows=1, batch_size=choose.randint(1, 30))
    result = changed.run(Cut(records), checkpoint=folder, restart="compatible", cores=choose.choice([1, 2]))
    report = result.restart
    kept = {node.id for node in changed.nodes_of_kind("task") if node.task.stateful}
    assert {*report.kept} | {*report.empty} == kept and not {*report.empty} & same
    ends = {e.source for n in changed.nodes_of_kind("sink") for e in changed.inputs(n.id)} & same
    ends &= {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)}
    before = {name: sink.table(name).to_pylist() for name in [*ends, "errors"]}
    whole = everything(flow.run(records), flow, ends)
    got = everything({name: _joined(before[name], result[name]) for name in before}, changed, ends)
    assert_same(got, {name: rows for name, rows in whole.items() if name in ends or name == "errors"}, flow)


def _joined(before, after):
    return pa.Table.from_pylist([*before, *after.to_pylist()]) if before else after
