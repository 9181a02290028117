"""Flags of new dataflows: a warm record does not depend on records from before the submission."""

from __future__ import annotations

import random
import re
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.core.lookback import Lookback
from riot_ops.dataflows.dspbench.operators import SlidingTotals
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.task import registered_tasks
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.search import depth

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = {"device": "string", "value": "double", "event_time": "timestamp[us, tz=UTC]"}
TIMED = {"event_time": "timestamp[us, tz=UTC]"}
BY = ("device",)
MINUTE = timedelta(minutes=1)


def rows(values):
    return [
        {"device": "ab"[i % 2], "value": float(v), "event_time": NOON + i * timedelta(seconds=10)}
        for i, v in enumerate(values)
    ]


def chain(name, *tasks, schema=SCHEMA):
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema=schema)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def late(tasks, values, first, policy="always", **options):
    """The output of a dataflow submitted after ``first`` records, while another runs the same steps."""
    return joined(tasks, ro.MemorySource(rows(values)), first, policy, **options)


def joined(tasks, source, first, policy="always", schema=SCHEMA, **options):
    backend = LocalBackend(batch_size=first)
    manager = ReuseManager(backend, policy=policy)
    manager.submit(chain("ada", *tasks, schema=schema), source, ro.MemorySink())
    backend.turn()
    sink = ro.MemorySink()
    report = manager.submit(chain("bob", *tasks, schema=schema), source, sink, flag_warm=True, **options)
    assert report.first == {"in": first}
    backend.run()
    return report, sink.table(f"t{len(tasks) - 1}.warm").to_pylist()


def test_count_window_warms_up_per_key():
    report, got = late([t.SlidingSum(by=BY, window=3)], range(20), 5)
    assert set(report.reused) == {"in", "t0"} and set(report.new) == {"t0.warm", "out"}
    assert [row["seq"] for row in got] == list(range(5, 20))
    assert [row["seq"] for row in got if row["warm"]] == list(range(9, 20))  # b: 5, 7, 9; a: 6, 8, 10
    assert got[4]["value"] == 5 + 7 + 9


def test_time_window_warms_up_for_all_keys_together():
    _, got = late([t.Window(frame=MINUTE, by=BY, allowed_lateness="20s")], range(60), 9)  # begins at 12:01:30
    warm = {row["window_start"]: row["warm"] for row in got}
    starts = sorted(warm)
    assert [warm[s] for s in starts] == [False, False, *[True] * (len(starts) - 2)]
    assert starts[0] == NOON + MINUTE, "this window was open already"


def test_lookbacks_add_up_along_the_way():
    average = t.MovingAverage(by=BY, value="count", output="mean", window=2, mode="sliding")
    _, got = late([t.Window(frame=MINUTE, by=BY), average], range(120), 9)
    # windows from 12:02 on are complete, and so is the average of 12:02 and 12:03
    assert [row["warm"] for row in got if row["device"] == "a"][:3] == [False, False, True]
    _, got = late([t.SlidingSum(by=BY, window=3), t.SlidingSum(by=BY, window=2)], range(20), 6)
    assert [row["seq"] for row in got if row["warm"]][:2] == [12, 13]


BOUNDED = [
    lambda: t.SlidingSum(by=BY, window=3),
    lambda: t.MovingAverage(by=BY, window=3, mode="sliding"),
    lambda: t.MovingAverage(by=BY, window=3, mode="growing"),
    lambda: t.SlidingRegression(by=BY, window=3, horizon=2),
]
SUM = {"sum": ("value", "sum")}
TIMED_WINDOWS = [
    lambda: [t.Window(frame=MINUTE, by=BY, aggregates=SUM)],
    lambda: [t.Window(frame=w.Hopping(2 * MINUTE, MINUTE), allowed_lateness=MINUTE, aggregates=SUM)],
    lambda: [t.Window(frame=MINUTE, by=BY, aggregates=SUM), t.SlidingSum(by=BY, value="sum", window=2)],
]
#: Each of these can be flagged: a time window downstream of a count window cannot, see REFUSED.
PIPELINES = st.lists(st.sampled_from(BOUNDED), max_size=2).map(
    lambda steps: [make() for make in steps] or [t.NoOp()]
) | st.sampled_from(TIMED_WINDOWS).map(lambda make: make())
VALUES = st.lists(st.integers(-50, 50), min_size=30, max_size=30)


@pytest.mark.long
@given(PIPELINES, st.integers(2, 20), st.integers(0, 20), VALUES, VALUES, VALUES)
@settings(max_examples=depth(60))
def test_warm_records_do_not_depend_on_earlier_ones(tasks, first, missing, past, other, then):
    """A run with another past, whose beginning may be missing, contains the same warm records."""
    found = []
    for history, begin in ((past, 0), (other, min(missing, first - 1))):
        source = ro.MemorySource(rows([*history[:first], *then, *then])[begin:])
        found.append([as_text(row, begin) for row in joined(tasks, source, first - begin)[1]])
    for one, another in (found, found[::-1]):
        warm = {row for row, is_warm in one if is_warm}
        assert warm <= {row for row, _ in another}
        assert len(warm) >= 3, "nothing has become warm"


def as_text(row, begin):
    """A row as text, numbered from the first record of all, with floats to 12 digits; and whether it is warm."""
    row = {**row, "seq": row["seq"] + begin}
    is_warm = row.pop("warm", None)
    return re.sub(r"-?\d+\.\d[\d.e+-]*", lambda number: f"{float(number[0]):.12g}", str(row)), is_warm


REACHING = [
    pytest.param(case.task, case.batch, id=f"{task.name()} {case.name}")
    for task in registered_tasks()
    for case in task.cases()
    if case.task.lookback() not in (None, Lookback())
]


@pytest.mark.long
@pytest.mark.parametrize(("task", "batch"), REACHING)
def test_warm_records_are_independent_of_the_start_of_the_run(task, batch):
    batch = batch.select([name for name in batch.schema.names if name not in ("seq", "ordinal")])
    once = batch.to_pylist()
    step = max(timedelta(seconds=61), task.lookback().span)
    again = [
        {**row, "event_time": at and at + k * step} if (at := row.get("event_time")) else row
        for k in range(5)
        for row in once
    ]
    table = pa.Table.from_pylist(again, schema=batch.schema)
    alone = []
    for begin in range(len(once) + 1):
        result = chain("cyd", task, schema=table.schema).run(table.slice(begin))
        alone.append({as_text(row, begin)[0] for row in result["t0"].to_pylist()})
    for first in range(2, len(once) + 1):
        source = ro.MemorySource(table)
        got = [as_text(row, 0) for row in joined([task], source, first, schema=table.schema)[1]]
        warm = {row for row, is_warm in got if is_warm}
        assert warm
        assert all(warm <= rows for rows in alone[: first + 1])


def test_bounded_tasks_are_known():
    assert {type(param.values[0]) for param in REACHING} == {
        t.SlidingSum,
        t.MovingAverage,
        t.SlidingRegression,
        t.Window,
    }


@pytest.mark.parametrize(
    "task",
    [
        SlidingTotals(by=BY, totals={"n": None}, every="1s"),
        t.MovingAverage(by=BY, window=2),
        t.Window(frame=2, by=BY),
        *(task(by=BY, window=2, ttl="1s") for task in (t.SlidingSum, t.SlidingRegression)),
        t.MovingAverage(by=BY, window=2, mode="sliding", ttl="1s"),
    ],
    ids=lambda task: task.name(),
)
def test_unbounded_task_is_never_warm(task):
    def run(past, then):
        session = task.session()
        for row in past:
            session.push(row)
        found = [session.push(row) for row in then]
        return [[as_text({"seq": 0, **row}, 0)[0] for row in one] for one in found]

    # one more record, half a second earlier, or with a clock that is far ahead
    then = rows(range(0, 40, 2))
    before = {**then[0], "event_time": NOON - timedelta(seconds=0.5)}
    ahead = {**before, "device": "other", "event_time": NOON + 100 * MINUTE}
    bare = run([], then)
    assert any(run([row], then)[-2:] != bare[-2:] for row in (before, ahead)), "the last results differ"
    assert task.lookback() is None
    with pytest.raises(ConfigError, match="would ever be warm"):
        late([task], range(20), 5)


def test_blocks_and_windows_of_one_record_have_no_history():
    for task in (t.MovingAverage(by=BY, window=1), t.Window(by=BY, frame=1)):
        assert all(row["warm"] for row in late([task], range(20), 5)[1]) and task.lookback() == Lookback()


class Held(Gated):
    """Gives ``limit`` messages until its gate opens."""

    limit = 0

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        return end if self.gate.exists() else {"row": min(end["row"], self.limit)}


@pytest.mark.long
@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize(
    "tasks",
    [
        [t.SlidingSum(by=BY, window=9)],
        [t.MovingAverage(by=BY, window=4, mode="sliding"), t.SlidingSum(by=BY, window=2)],
        [
            t.Window(
                frame=w.Hopping(2 * MINUTE, MINUTE),
                by=BY,
                allowed_lateness=MINUTE,
                aggregates={"sum": ("value", "sum")},
            )
        ],
    ],
    ids=["one", "two", "time"],
)
def test_flags_on_spark_equal_those_in_process(tasks, join, tmp_path):
    """Also through defragmentation, removals and kills."""
    values, first, choose = [(7 * i) % 23 for i in range(240)], 31, random.Random(f"{len(tasks)} {join}")
    source = Held(ro.MemorySource(rows(values)), tmp_path / "gate")
    source.limit = first
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob", "cyd")}

    def opened():
        backend = FakeSpark(tmp_path / "back", max_records=5, join=join)
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks[name]))

    manager = opened()
    manager.submit(chain("ada", *tasks), source, sinks["ada"])
    while manager.stats()["records"].get("in.0") != first:
        time.sleep(0.005)
    report = manager.submit(chain("bob", *tasks), source, sinks["bob"], flag_warm=True)
    assert report.first == {"in": first} and "t0" in report.reused
    (tmp_path / "gate").touch()
    manager.submit(chain("cyd", t.NoOp(), *tasks), source, sinks["cyd"])
    for do in choose.sample(["defragment", "kill", "kill", "remove"], 4):
        time.sleep(choose.random() * 0.1)
        if do == "kill":
            manager.backend.kill()
            manager.journal.close()
            manager = opened()
        elif do == "remove":
            manager.remove("ada")
        else:
            manager.defragment()
    assert manager.backend.wait("20s")
    got = sinks["bob"].table(f"t{len(tasks) - 1}.warm").to_pylist()
    manager.close()
    assert sorted(map(str, got)) == sorted(map(str, late(tasks, values, first)[1]))
    assert {row["warm"] for row in got} == {False, True}


def test_shared_unbounded_step_is_refused_unless_policy_separates_it():
    average = t.MovingAverage(by=BY, window=2, mode="sliding")
    session = t.Window(frame=w.Session(timedelta(seconds=15)), aggregates=SUM)
    kalman, last = t.KalmanFilter(by=BY), t.KalmanFilter(by=())
    for tasks in ([kalman], [session], [kalman, average], [average, last]):
        with pytest.raises(ConfigError, match=r"would ever be warm|gives no result for each"):
            late(tasks, range(20), 5)
    report, got = late([t.KalmanFilter(by=BY)], range(20), 5, policy="bounded_warm")
    assert set(report.reused) == {"in"} and all(row["warm"] for row in got)
    report, got = late([t.SlidingSum(by=BY, window=2)], range(20), 5, policy="bounded_warm")
    assert set(report.reused) == {"in", "t0"} and [row["warm"] for row in got[:3]] == [False, False, True]
    report, got = late([t.SlidingSum(by=BY, window=2)], range(20), 5, policy="stateless")
    assert set(report.reused) == {"in"} and [row["warm"] for row in got[:3]] == [False, False, True]


REFUSED = pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([t.SlidingSum(by=BY, window=2), t.SlidingSum(window=2)], r"its key \(\) is coarser"),
        ([t.SlidingSum(by=BY, window=2), t.Window(frame=MINUTE)], "window reads count windows"),
        ([t.SlidingSum(by=BY, window=2), t.Project(fields=("value",))], "may change|is not among its fields"),
        ([t.Window(frame=MINUTE), ro.map(lambda row: row, schema=TIMED)], "map_function may change event_time"),
    ],
    ids=["coarser", "time", "project", "function"],
)


@REFUSED
def test_undetermined_warm_up_is_refused(tasks, why):
    manager = ReuseManager()
    with pytest.raises(ConfigError, match=why):
        manager.submit(chain("ada", *tasks), flag_warm=True)
    assert not manager.names


def test_flagged_stream_needs_an_unused_name():
    flow = ro.Dataflow("own")
    stream = flow.source("in", schema=SCHEMA).to(t.NoOp(), id="end")
    flow.sink("out", stream, stream.to(t.NoOp(), id="end.warm"))
    with pytest.raises(ConfigError, match=r"'end' .*'end\.warm'.*another name"):
        ReuseManager().submit(flow, flag_warm=True)


def test_merged_and_distributed_streams_are_refused():
    flow = ro.Dataflow("two")
    a = flow.source("a", schema=SCHEMA).to(t.SlidingSum(by=BY, window=2), id="sum")
    flow.sink("out", ro.merge(a, flow.source("b", schema=SCHEMA)).to(t.NoOp(), id="both"))
    with pytest.raises(ConfigError, match=r"both: .*it merges streams"):
        ReuseManager().submit(flow, flag_warm=True)
    flow = ro.Dataflow("spread")
    flow.sink("out", flow.source("a", schema=SCHEMA).shuffle(2).to(t.SlidingSum(by=BY, window=2), id="sum"))
    with pytest.raises(ConfigError, match=r"sum: .*spread \(shuffle\)"):
        ReuseManager().submit(flow, flag_warm=True)


def test_flags_are_not_shared_and_explain_shows_them():
    manager = ReuseManager()
    manager.submit(chain("ada", t.SlidingSum(by=BY)), flag_warm=True)
    assert set(manager.explain(chain("bob", t.SlidingSum(by=BY)), flag_warm=True).new) == {"t0.warm", "out"}
    assert set(manager.explain(chain("bob", t.SlidingSum(by=BY))).new) == {"out"}
    again = ReuseManager()
    again.restore(manager.state())
    assert again.canonical() == manager.canonical()
