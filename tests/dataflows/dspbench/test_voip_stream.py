"""VoIP stream, against a call at a time and the figures of the specification."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import voip_stream
from riot_ops.streams import replay
from tests.reference.dspbench.voip_stream import voip_stream as reference
from tests.samples import MADE, expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SHARED = "dspbench/synthetic/voip-cdr.csv"
TELEMARKETERS = {"10901236402": 368, "19899816633": 428, "19415983923": 355}
MADE_TELEMARKETERS = {"10312261652": 19, "12809967870": 18}
NINE = datetime(2020, 1, 1, 9, tzinfo=UTC)
FIELDS = ("caller", "timestamp", "score", "fofir", "url", "acd")

numbers = st.sampled_from(["17", "18", "19", "20"])
seconds = st.one_of(st.integers(0, 40), st.sampled_from([600, 5000]))


def call(caller, callee, at, length, established):
    time = f"{NINE + timedelta(seconds=at):%Y-%m-%dT%H:%M:%S}"
    return f"{caller},{callee},{time},{caller};{callee};{time};{length};{established}"


lengths = st.sampled_from([0, 3, 60, 250.5])
calls = st.builds(call, numbers, numbers, seconds, lengths, st.sampled_from(["true", "true", "true", "false"]))
dirt = st.sampled_from(
    [
        "",
        "17,18,2020-01-01T09:00:00",
        call("17", "18", 0, "x", "true"),
        call("17", "18", 0, -1, "true"),
        call("17", "18", 0, 5, "maybe"),
        call("", "18", 0, 5, "true"),
        call("17", "18", 0, 5, "true").replace(";", ","),
        call("17", "18", 0, 5, "true").replace(",", ";"),
        call("17", "18", 0, 5, "true").replace("01-01", "13-01"),
    ]
)
files = st.lists(st.one_of(calls, calls, calls, dirt), max_size=16)


def table(lines):
    return pa.table(
        {"event_time": pa.nulls(len(lines), pa.timestamp("us", "UTC")), "payload": [line.encode() for line in lines]}
    )


def found(scores):
    return [(row["seq"], *(row[name] for name in FIELDS)) for row in scores.sort_by("seq").to_pylist()]


def same(rows, wanted):
    assert [row[:3] for row in rows] == [row[:3] for row in wanted]
    for row, other in zip(rows, wanted, strict=True):
        assert row[3:] == pytest.approx(other[3:], rel=1e-9, abs=1e-12)


def lively(many, seed=3):
    """Generate calls among a few numbers, mostly in order."""
    draw = random.Random(seed)
    ends = [draw.sample(["17", "18", "19", "20", "21"], 2) for _ in range(many)]
    at = [max(0, 4 * i + draw.choice([0, 0, 0, -30])) for i in range(many)]
    return [
        call(*ends[i], at[i], draw.choice([2, 30, 400]), "true" if draw.random() < 0.9 else "false")
        for i in range(many)
    ]


@pytest.mark.long
@settings(max_examples=depth(30))
@given(files, st.booleans(), st.integers(1, 9))
def test_results_equal_the_reference(lines, exact, batch_size):
    result = voip_stream(exact=exact, capacity=5000).run(table(lines), batch_size=batch_size)
    wanted, bad, _ = reference(lines)
    same(found(result["scores"]), wanted)
    assert sorted(result.errors["seq"].to_pylist()) == bad


@pytest.mark.long
@settings(max_examples=depth(15))
@given(files.filter(any), st.booleans(), st.integers(0, 1 << 32))
def test_staged_results_are_equal(lines, exact, seed):
    choose = random.Random(seed)
    flow = voip_stream(exact=exact, capacity=5000)
    staged = SimulatedQuery(
        flow, ro.MemorySource(table(lines)), choose, max_records=5, partitions=choose.choice([1, 3])
    )
    same(found(staged["scores"]), reference(lines)[0])


OPTIONS = [
    {"decay": 0.5},
    {"acd_ramp": (0.0, 2.0), "decay24": 0.5},
    {"fofir_ramp": (0.5, 1.5)},
    {"fofir_weight": 5.0},
    {"url_ramp": (0.0, 0.9)},
    {"url_weight": 5.0},
    {"acd_ramp": (0.0, 2.0)},
    {"acd_ramp": (0.0, 2.0), "acd_weight": 5.0},
    {"acd_ramp": (0.0, 2.0), "acd_span": 3.0},
    {"acd_mode": "short"},
    {"ramp": "ratio"},
    {"threshold": 3.5},
]


@pytest.mark.parametrize("option", OPTIONS, ids=",".join)
def test_options_reach_the_dataflow(option):
    lines = lively(40)
    wanted, _, _ = reference(lines, **option)
    base = {"acd_ramp": option["acd_ramp"]} if len(option) > 1 else {}
    assert wanted != reference(lines, **base)[0], "the option makes no difference here"
    same(found(voip_stream(**option).run(table(lines))["scores"]), wanted)


def test_sizes_of_the_filters():
    sizes = {"capacity": 7, "per_element": 5, "per_word": 4}
    flow = voip_stream(exact=False, variation_capacity=11, variation_error=0.2, **sizes)
    variation = flow.nodes["variation"].task
    assert (variation.capacity, variation.error, variation.fields) == (11, 0.2, ("caller", "callee"))
    for name in ("ecr", "rcr", "encr", "ecr24", "ct24"):
        task = flow.nodes[name].task
        assert (task.capacity, task.per_element, task.per_word) == (7, 5, 4), name
    lines = lively(60)
    narrow = found(flow.run(table(lines))["scores"])
    assert [row[:3] for row in narrow] == [row[:3] for row in reference(lines)[0]]
    assert narrow != found(voip_stream(exact=False).run(table(lines))["scores"])


def test_dataflow_has_twelve_operators():
    flow = voip_stream(exact=False, timeout="5min")
    feeds = defaultdict(set)
    for edge in flow.edges:
        feeds[edge.source].add(edge.target)
    assert {"established", "global_acd"} == feeds["variation"]
    assert feeds["established"] == {"ecr", "rcr", "encr", "ecr24", "ct24"}
    assert feeds["ecr_of_call"] == {"fofir_parts", "url_parts"}
    assert feeds["global_acd_of_call"] == feeds["ct24_of_call"] == feeds["ecr24_of_call"] == {"acd_parts"}
    joins = [node.task for node in flow.nodes_of_kind("task") if isinstance(node.task, t.AssembleMessage)]
    assert [join.timeout for join in joins] == [timedelta(minutes=5)] * 4


@pytest.mark.parametrize(
    "line",
    [
        "17,18,{0},17;18;{0};5,true",
        "17,18,{0};17;18;{0};5;true",
        "17;18,{0},17;18;{0};5;true",
        "17,18,{0},17,18,{0},5,true",
        "17;18;{0};17;18;{0};5;true",
        "1;7,18,{0},17;18;{0};5;true",
        "17,18,{0},17;18;{0};5;true;",
    ],
)
def test_misplaced_delimiter_is_an_error(line):
    time = "2020-01-01T09:00:00"
    lines = [line.format(time), f"17,18,{time},17;18;{time};5;true"]
    result = voip_stream().run(table(lines))
    assert result["scores"]["seq"].to_pylist() == [1]
    assert [(row["seq"], row["reason"]) for row in result["errors"].to_pylist()] == [(0, "wrong_cells")]


def test_restarted_run_continues(tmp_path):
    lines = lively(50)
    parts = []
    for stop in (23, 50):
        source = ro.MemorySource(table(lines[:stop]))
        parts += found(voip_stream().run(source, checkpoint=tmp_path, batch_size=7)["scores"])
    same(parts, reference(lines)[0])


@pytest.mark.long
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("mode", ["long", "short"])
def test_figures_of_the_specification(sample_data, exact, mode):
    result = voip_stream(exact=exact, acd_mode=mode).run(replay(sample_data / SHARED))
    rows = result["scores"].to_pylist()
    assert (len(rows), result.errors.num_rows) == (expected(sample_data, made=194, papers=5708), 0)
    by_caller = defaultdict(list)
    for row in rows:
        by_caller[row["caller"]].append(row["score"])
    assert len(by_caller) == expected(sample_data, made=38, papers=300)
    means = {caller: sum(scores) / len(scores) for caller, scores in by_caller.items()}
    telemarketers = expected(sample_data, made=MADE_TELEMARKETERS, papers=TELEMARKETERS)
    assert {caller: len(by_caller[caller]) for caller in telemarketers} == telemarketers
    if mode == "short":
        wanted_means = expected(sample_data, made=[7.52, 6.81], papers=[7.70, 7.68, 7.69])
        assert [round(means[caller], 2) for caller in telemarketers] == wanted_means
    elif sample_data == MADE:
        assert [round(means[caller], 2) for caller in telemarketers] == [5.0, 4.32]
    else:
        assert all(set(by_caller[caller]) == {5.0} for caller in telemarketers)
    others = [row["score"] for row in rows if row["caller"] not in telemarketers]
    usual = [mean for caller, mean in means.items() if caller not in telemarketers]
    figures = (sum(usual) / len(usual), sum(others) / len(others), max(usual))
    wanted = expected(
        sample_data,
        made={"long": (3.3960, 3.2624, 5.0), "short": (3.8705, 3.7910, 5.5080)},
        papers={"long": (2.6618, 2.6064, 4.1424), "short": (4.7852, 4.7694, 5.5371)},
    )
    assert figures == pytest.approx(wanted[mode], abs=5e-5)


@pytest.mark.long
def test_shared_file_gives_equal_results_in_stages(sample_data):
    lines = (sample_data / SHARED).read_text().splitlines()
    wanted, bad, mean = reference(lines)
    assert not bad
    assert mean == pytest.approx(expected(sample_data, made=82.388856, papers=137.935375), abs=5e-7)
    staged = SimulatedQuery(voip_stream(), replay(sample_data / SHARED), random.Random(2), max_records=2500)
    same(found(staged["scores"]), wanted)


def test_misuse_is_refused():
    for wrong in ({"acd_mode": "both"}, {"ramp": "steep"}, {"decay": 1.0}, {"timeout": "soon"}, {"capacity": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            voip_stream(exact="capacity" not in wrong, **wrong)
