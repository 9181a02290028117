"""A newcomer can have told which of its records rest on nothing from before it came."""

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
from riot_ops.core.errors import ConfigError
from riot_ops.core.lookback import Lookback
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.task import tasks as every_task
from tests.reuse.queries import FakeSpark, Gated
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
    """What one gets who comes after so many records, while another runs the same."""
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


def test_by_count_each_key_waits_for_its_own():
    report, got = late([t.SlidingSum(by=BY, window=3)], range(20), 5)
    assert set(report.reused) == {"in", "t0"} and set(report.new) == {"t0.warm", "out"}
    assert [row["seq"] for row in got] == list(range(5, 20))
    assert [row["seq"] for row in got if row["warm"]] == list(range(9, 20))  # b: 5, 7, 9; a: 6, 8, 10
    assert got[4]["value"] == 5 + 7 + 9


def test_by_time_all_wait_as_long():
    _, got = late([t.Window(size=MINUTE, by=BY, allowed_lateness="20s")], range(60), 9)  # the first is of 12:01:30
    warm = {row["window_start"]: row["warm"] for row in got}
    starts = sorted(warm)
    assert [warm[s] for s in starts] == [False, False, *[True] * (len(starts) - 2)]
    assert starts[0] == NOON + MINUTE, "it was open already"


def test_reaches_add_up():
    average = t.MovingAverage(by=BY, value="count", window=2, mode="sliding")
    _, got = late([t.Window(size=MINUTE, by=BY), average], range(120), 9)
    # windows from 12:02 on are whole, and so is the average of 12:02 and 12:03
    assert [row["warm"] for row in got if row["device"] == "a"][:3] == [False, False, True]
    _, got = late([t.SlidingSum(by=BY, window=3), t.SlidingSum(by=BY, window=2)], range(20), 6)
    assert [row["seq"] for row in got if row["warm"]][:2] == [12, 13]


BOUNDED = [
    lambda: t.SlidingSum(by=BY, window=3),
    lambda: t.MovingAverage(by=BY, window=3, mode="sliding"),
    lambda: t.MovingAverage(by=BY, window=3, mode="growing"),
    lambda: t.SlidingRegression(by=BY, window=3, horizon=2),
]
LAST = [
    lambda: t.Window(size=MINUTE, by=BY, aggregates={"sum": ("sum", "value")}),
    lambda: t.Window(size=2 * MINUTE, every=MINUTE, allowed_lateness=MINUTE, aggregates={"sum": ("sum", "value")}),
    lambda: t.Window(gap=timedelta(seconds=15), aggregates={"sum": ("sum", "value")}),
]
VALUES = st.lists(st.integers(-50, 50), min_size=30, max_size=30)


@given(
    st.lists(st.sampled_from(BOUNDED), max_size=2),
    st.none() | st.sampled_from(LAST),
    st.integers(2, 20),
    st.integers(0, 20),
    VALUES,
    VALUES,
    VALUES,
)
@settings(max_examples=depth(60))
def test_what_is_warm_rests_on_nothing_from_before(steps, last, first, gone, past, other, then):
    """After another past, of which the beginning may be missing, there is the same."""
    tasks = [make() for make in (*steps, *([] if last is None else [last]))] or [t.NoOp()]
    try:
        found = []
        for history, begin in ((past, 0), (other, min(gone, first - 1))):
            source = ro.MemorySource(rows([*history[:first], *then, *then])[begin:])
            found.append([told(row, begin) for row in joined(tasks, source, first - begin)[1]])
    except ConfigError as error:
        assert "flag_warm" in str(error)
        return
    for one, another in (found, found[::-1]):
        warm = {row for row, is_warm in one if is_warm}
        assert warm <= {row for row, _ in another}
        assert len(warm) >= 3 or len(tasks) > 1, "nothing has become warm"


def told(row, begin):
    """A row as text, numbered from the first record of all; floats to 12 digits; and whether it is warm."""
    row = {**row, "seq": row["seq"] + begin}
    is_warm = row.pop("warm", None)
    return re.sub(r"-?\d+\.\d[\d.e+-]*", lambda number: f"{float(number[0]):.12g}", str(row)), is_warm


REACHING = [
    pytest.param(case.task, case.batch, id=f"{kind.name()} {case.name}")
    for kind in every_task()
    for case in kind.cases()
    if case.task.lookback() not in (None, Lookback())
]


@pytest.mark.parametrize(("task", "batch"), REACHING)
def test_what_is_warm_of_a_task_is_what_a_run_gives_that_began_elsewhere(task, batch):
    batch = batch.select([name for name in batch.schema.names if name not in ("seq", "ordinal")])
    once = batch.to_pylist()
    again = [
        {**row, "event_time": at and at + k * timedelta(seconds=61)} if (at := row.get("event_time")) else row
        for k in range(5)
        for row in once
    ]
    table = pa.Table.from_pylist(again, schema=batch.schema)
    for first in range(2, len(once) + 1):
        source = ro.MemorySource(table)
        got = [told(row, 0) for row in joined([task], source, first, schema=table.schema)[1]]
        warm = {row for row, is_warm in got if is_warm}
        assert warm
        for begin in range(first + 1):
            alone = chain("cyd", task, schema=table.schema).run(table.slice(begin))
            assert warm <= {told(row, begin)[0] for row in alone["t0"].to_pylist()}


def test_tasks_that_reach_back_are_those_that_were_looked_at():
    kinds = {type(param.values[0]) for param in REACHING}
    assert kinds == {t.SlidingSum, t.MovingAverage, t.SlidingRegression, t.Window}


@pytest.mark.parametrize(
    "task",
    [
        t.SlidingTotals(by=BY, totals={"n": None}, every="1s"),
        t.MovingAverage(by=BY, window=2),
        t.Window(count=2, by=BY),
        *(kind(by=BY, window=2, ttl="1s") for kind in (t.SlidingSum, t.SlidingRegression)),
        t.MovingAverage(by=BY, window=2, mode="sliding", ttl="1s"),
    ],
    ids=lambda task: task.name(),
)
def test_where_results_rest_on_all_that_came_before_nothing_is_ever_warm(task):
    def run(past, then):
        session = task.session()
        for row in past:
            session.push(row)
        found = [session.push(row) for row in then]
        return [[told({"seq": 0, **row}, 0)[0] for row in one] for one in found]

    # one record more, of half a second before, or of a clock that is far ahead
    then = rows(range(0, 40, 2))
    before = {**then[0], "event_time": NOON - timedelta(seconds=0.5)}
    ahead = {**before, "device": "other", "event_time": NOON + 100 * MINUTE}
    bare = run([], then)
    assert any(run([row], then)[-2:] != bare[-2:] for row in (before, ahead)), "the last results differ"
    assert task.lookback() is None
    with pytest.raises(ConfigError, match="is ever warm"):
        late([task], range(20), 5)


def test_blocks_and_windows_of_one_have_no_history():
    for task in (t.MovingAverage(by=BY, window=1), t.Window(by=BY, count=1)):
        assert all(row["warm"] for row in late([task], range(20), 5)[1]) and task.lookback() == Lookback()


class Held(Gated):
    """Gives so many messages until a file is there."""

    most = 0

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        return end if self.gate.exists() else {"row": min(end["row"], self.most)}


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize(
    "tasks",
    [
        [t.SlidingSum(by=BY, window=9)],
        [t.MovingAverage(by=BY, window=4, mode="sliding"), t.SlidingSum(by=BY, window=2)],
        [t.Window(size=2 * MINUTE, every=MINUTE, by=BY, allowed_lateness=MINUTE, aggregates={"sum": ("sum", "value")})],
    ],
    ids=["one", "two", "time"],
)
def test_queries_flag_what_one_engine_flags(tasks, join, tmp_path):
    """Through merges, defragmentation and the end of the process."""
    values, first, choose = [(7 * i) % 23 for i in range(240)], 31, random.Random(f"{len(tasks)} {join}")
    source = Held(ro.MemorySource(rows(values)), tmp_path / "gate")
    source.most = first
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
            manager._journal.close()
            manager = opened()
        elif do == "remove":
            manager.remove("ada")
        else:
            manager.defragment()
    assert manager.backend.wait(20)
    got = sinks["bob"].table(f"t{len(tasks) - 1}.warm").to_pylist()
    manager.close()
    assert sorted(map(str, got)) == sorted(map(str, late(tasks, values, first)[1]))
    assert {row["warm"] for row in got} == {False, True}


def test_who_remembers_all_is_never_warm():
    average = t.MovingAverage(by=BY, window=2, mode="sliding")
    for tasks in ([t.KalmanFilter(by=BY)], [t.KalmanFilter(by=BY), average], [average, t.KalmanFilter(by=())]):
        with pytest.raises(ConfigError, match=r"is ever warm|does not give one by one"):
            late(tasks, range(20), 5)
    report, got = late([t.KalmanFilter(by=BY)], range(20), 5, policy="bounded_warm")
    assert set(report.reused) == {"in"} and all(row["warm"] for row in got)
    report, got = late([t.SlidingSum(by=BY, window=2)], range(20), 5, policy="bounded_warm")
    assert set(report.reused) == {"in", "t0"} and [row["warm"] for row in got[:3]] == [False, False, True]
    report, got = late([t.SlidingSum(by=BY, window=2)], range(20), 5, policy="stateless")
    assert set(report.reused) == {"in"} and [row["warm"] for row in got[:3]] == [False, False, True]


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([t.SlidingSum(by=BY, window=2), t.SlidingSum(window=2)], r"its key \(\) is not as fine"),
        ([t.SlidingSum(by=BY, window=2), t.Window(size=MINUTE)], "window is behind windows by count"),
        ([t.SlidingSum(by=BY, window=2), t.Project(fields=("value",))], "may change|is not among its fields"),
        ([t.Window(size=MINUTE), ro.map(lambda row: row, schema=TIMED)], "map_function may change event_time"),
    ],
    ids=["coarser", "time", "project", "function"],
)
def test_what_cannot_be_told_is_refused(tasks, why):
    manager = ReuseManager()
    with pytest.raises(ConfigError, match=why):
        manager.submit(chain("ada", *tasks), flag_warm=True)
    assert not manager.names


def test_a_node_that_has_the_name_of_the_flagged_stream_is_no_flag():
    flow = ro.Dataflow("own")
    stream = flow.source("in", schema=SCHEMA).to(t.NoOp(), id="end")
    flow.sink("out", stream, stream.to(t.NoOp(), id="end.warm"))
    with pytest.raises(ConfigError, match=r"'end' .*'end\.warm'.*another name"):
        ReuseManager().submit(flow, flag_warm=True)


def test_streams_that_meet_and_those_that_are_spread():
    flow = ro.Dataflow("two")
    a = flow.source("a", schema=SCHEMA).to(t.SlidingSum(by=BY, window=2), id="sum")
    flow.sink("out", ro.merge(a, flow.source("b", schema=SCHEMA)).to(t.NoOp(), id="both"))
    with pytest.raises(ConfigError, match=r"both: .*it merges streams"):
        ReuseManager().submit(flow, flag_warm=True)
    flow = ro.Dataflow("spread")
    flow.sink("out", flow.source("a", schema=SCHEMA).shuffle(2).to(t.SlidingSum(by=BY, window=2), id="sum"))
    with pytest.raises(ConfigError, match=r"sum: .*spread \(shuffle\)"):
        ReuseManager().submit(flow, flag_warm=True)


def test_newcomers_do_not_share_their_flag_and_explain_tells_of_it():
    manager = ReuseManager()
    manager.submit(chain("ada", t.SlidingSum(by=BY)), flag_warm=True)
    assert set(manager.explain(chain("bob", t.SlidingSum(by=BY)), flag_warm=True).new) == {"t0.warm", "out"}
    assert set(manager.explain(chain("bob", t.SlidingSum(by=BY))).new) == {"out"}
    again = ReuseManager()
    again.restore(manager.state())
    assert again.canonical() == manager.canonical()
