"""Applications that read lines accept each form of a good line and reject damaged ones, beside good lines too."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.dataflows import BUILDERS
from tests.simulated_query import SimulatedQuery

#: By application and source: options, a good line, the delimiter, and for damaged cells their place, text and reason.
LINES = {
    ("fd", "cards"): (
        {}, "8MFRVKTSJC,T00000000000,LNN", ",",
        [(0, "", "missing"), (2, "", "missing"), (2, "XXX", "unknown_state"), (2, "lnn", "unknown_state")],
    ),
    ("mo", "usage"): (
        {}, "m_1932,386640,41,92,,,43.04,33.08,5", ",",
        [(0, "", "missing"), (1, "x", "bad_time"), (1, "", "missing"), (2, "nan", "bad_number"), (2, "-1", "out_of_range"),
         (3, "-0.5", "out_of_range"), (3, "inf", "bad_number"), (3, "", "missing"), (4, "x", "bad_number"),
         (2, "100.5", "out_of_range"), (3, "101", "out_of_range"), (6, "NaN", "bad_number"), (8, "5%", "bad_number")],
    ),
    ("mo", "usage of google"): (
        {"format": "google"}, "600000000,900000000,3418309,0,m_1,0.05,0.06,,,,,,,,,,,,", ",",
        [(0, "x", "bad_time"), (1, "x", "bad_number"), (5, "-0.1", "out_of_range"), (5, "1.01", "out_of_range"), (6, "5", "out_of_range"), (6, "nan", "bad_number"), (18, "x", "bad_number")],
    ),
    ("rl", "events"): (
        {}, "s1,5", ",",
        [(0, "", "missing"), (1, "0", "out_of_range"), (1, "-3", "out_of_range"), (1, "1.5", "bad_number"), (1, "", "missing")],
    ),
    ("rl", "rewards"): (
        {}, "page1,5", ",",
        [(0, "page9", "unknown_action"), (0, "", "missing"), (1, "1.5", "bad_number"), (1, "x", "bad_number")],
    ),
    ("sm", "readings"): (
        {}, "17,1377986400,38.728,1,0,0,0", ",",
        [(0, "x", "bad_number"), (0, "", "missing"), (0, "-1", "out_of_range"), (1, "x", "bad_time"), (2, "nan", "bad_number"),
         (2, "", "missing"), (2, "-0.5", "out_of_range"), (3, "2", "out_of_range"), (3, "-1", "out_of_range"), (3, "true", "bad_number"),
         *((cell, "-1", "out_of_range") for cell in (4, 5, 6)), *((cell, "1.5", "bad_number") for cell in (4, 5, 6))],
    ),
    ("tm", "traces"): (
        {}, "4186590,33556,2009-01-06T05:20:07,40.0427,116.606,18.41,291", ",",
        [(0, "x", "bad_number"), (0, "", "missing"), (1, "", "missing"), (2, "2009", "bad_time"), (3, "90.1", "out_of_range"),
         (3, "nan", "bad_number"), (4, "-180.5", "out_of_range"), (4, "", "missing"), (5, "inf", "bad_number"), (6, "x", "bad_number"), (6, "-1", "out_of_range"), (6, "361", "out_of_range"), (6, "90.5", "bad_number")],
    ),
    **{
        ("ad", source): (
            {}, "0\t3\t14340390157469404125\t100\t501\t2\t1\t0\t1012\t2100\t3100\t0", "\t",
            [(0, "-1", "out_of_range"), (1, "2147483648", "out_of_range"), (2, "18446744073709560000", "out_of_range"),
             *((cell, "x", "bad_number") for cell in range(12)), *((cell, "", "missing") for cell in range(12)),
             *((cell, "-1", "out_of_range") for cell in range(2, 12))],
        )
        for source in ("clicks", "impressions")
    },
    ("sd", "sensors"): (
        {}, "2004-03-01 00:00:31.390913 0 1 19.2864 39.3684 166.36 2.69643", " ",
        [(0, "2004-02-30", "bad_time"), (2, "x", "bad_number"), (4, "nan", "bad_number"), (5, "x", "bad_number"),
         (6, "inf", "bad_number"), (7, "2,6", "bad_number")],
    ),
    ("bi", "trades"): (
        {}, "AAPL,2018-08-15,11.84,11.85,11.73,11.74,11.72,27300", ",",
        [(0, "", "missing"), (1, "15/08/2018", "bad_time"), *((cell, "null", "bad_number") for cell in (2, 3, 4, 5, 6)),
         *((cell, "", "missing") for cell in (2, 3, 4, 5, 6, 7)), (5, "-1", "out_of_range"), (7, "-1", "out_of_range"), (7, "nan", "bad_number")],
    ),
    ("vs", "calls"): (
        {}, "17,41,2024-05-01T12:00:00,17;41;2024-05-01T12:00:00;9;true", ",",
        [(0, "", "missing"), (1, "", "missing"), (2, "noon", "bad_time"), (3, "17;41;2024-05-01T12:00:00;-9;true", "out_of_range"),
         (3, "17;41;2024-05-01T12:00:00;9;maybe", "bad_bool"), (3, "17;41;noon;9;true", "bad_time"), (3, "17;41;;9;true", "missing")],
    ),
    ("threat", "packets"): (
        {"from_packets": True}, "1600000000000000,10.0.0.1,10.0.0.2,40000,443,6,1500,16,64,0", ",",
        [(0, "soon", "bad_time"), (1, "", "missing"), (2, "", "missing"), (3, "65536", "out_of_range"), (4, "-1", "out_of_range"),
         (5, "256", "out_of_range"), (6, "long", "bad_number"), (6, "-40", "out_of_range"), (7, "256", "out_of_range"),
         (8, "1.5", "bad_number"), (8, "999", "out_of_range"), (9, "x", "bad_number")],
    ),
    ("statistics", "lines"): (
        {}, "201309,40,7,1,1,1,1,1,1,1,1,1,1,1,1,1,1", ",", [(2, "x", "bad_number"), (2, "nan", "bad_number"), (2, "", "missing")],
    ),
}  # fmt: skip


def rejected(code, source, lines, options):
    """The reason for each rejected line, in one batch, one line at a time, and in stages."""
    flow = BUILDERS[code](**options)
    names = [node.id for node in flow.nodes_of_kind("source")]
    found = []
    for read in (
        flow.run,
        lambda given: flow.run(given, batch_size=1),
        lambda given: SimulatedQuery(flow, {n: ro.MemorySource(one) for n, one in given.items()}, random.Random(1)),
    ):
        given = {name: table(lines if name == source else []) for name in names}
        errors = read(given)["errors"]
        rows = [] if errors is None else errors.to_pylist()
        # sources that are read in turn, or one after the other, number their lines in common
        found.append({row["seq"] // len(names) % (1 << 44): row["reason"] for row in rows})
    assert found[0] == found[1] == found[2]
    return found[0]


def table(lines):
    return pa.table(
        {
            "event_time": pa.nulls(len(lines), pa.timestamp("us", "UTC")),
            "payload": pa.array([line.encode() for line in lines], pa.binary()),
        }
    )


@pytest.mark.long
@pytest.mark.parametrize(("code", "source"), LINES)
def test_damaged_lines_are_rejected(code, source):
    options, good, delimiter, damaged = LINES[code, source]
    cells = good.split(delimiter)
    lines, wanted = [], {}
    for place, text, reason in damaged:
        wanted[len(lines)] = reason
        lines += [delimiter.join([*cells[:place], text, *cells[place + 1 :]]), good]
    for line in ["", delimiter.join(cells[:-1]), f"{good}{delimiter}x", f"{good}{delimiter}7"]:
        wanted[len(lines)] = "wrong_cells"
        lines += [line, good]
    assert rejected(code, source.split()[0], lines, options) == wanted


@pytest.mark.parametrize(("code", "source"), LINES)
def test_good_lines_of_any_form_are_accepted(code, source):
    options, good, *_ = LINES[code, source]
    lines = [f"\ufeff{good}", good, f"{good}\n", f"{good}\r\n"]
    assert rejected(code, source.split()[0], lines, options) == {}


JSON = {
    ("ysb", "events"): (
        ['{"ad_id":"1","event_type":"view","event_time":1000}', '{"ad_id":1,"event_type":"view","event_time":"1000"}'],
        {'{"ad_id":"1","event_type":5,"event_time":1000}': "wrong_type", '{"ad_id":[],"event_type":"view","event_time":1000}': "wrong_type",
         '{"ad_id":"1","event_type":"view","event_time":true}': "bad_time", '{"ad_id":"1","event_type":"view"}': "missing", "[]": "not_json"},
    ),
    ("sf", "analysis"): (
        ['{"id":"1","message":"a b"}'],
        {'{"id":"1","message":5}': "wrong_type", '{"id":"1","message":true}': "wrong_type", '{"id":"1","message":null}': "missing",
         '{"message":"a"}': "missing", '{"id":{},"message":"a"}': "wrong_type", "a b": "not_json"},
    ),
    ("sf", "training"): (
        ['{"id":"1","message":"a b","spam":true}', '{"id":"1","message":"a b","spam":false}'],
        {'{"id":"1","message":5,"spam":true}': "wrong_type", '{"id":"1","message":"a","spam":"yes"}': "bad_bool",
         '{"id":"1","message":"a","spam":null}': "missing", '{"id":"1","message":"a"}': "missing"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "source"), JSON)
def test_damaged_objects_are_rejected(code, source):
    good, damaged = JSON[code, source]
    lines = [line for bad in damaged for line in (bad, *good)]
    wanted = {i * (1 + len(good)): reason for i, reason in enumerate(damaged.values())}
    assert rejected(code, source, lines, {}) == wanted


#: By application and source: options, and good lines at the limits of the format.
LIMITS = {
    ("fd", "cards"): ({"column": 0}, ["c,MNN", "c,MNN,t", "c,MNN,t,x"]),
    ("mo", "usage"): ({}, ["m_1,1,0,100,,,-1,101,101", "m_1,1,100,0,1,2,3,4,5"]),
    ("mo", "usage of more processors"): ({"cpu_scale": 1600, "memory_scale": 1}, ["m_1,1,1600,100,,,1,1,1"]),
    ("mo", "usage of google"): ({"format": "google"}, ["1,1,1,0,m_1,1,0" + "," * 12, "1,1,1,0,m_1,0,1.0" + "," * 12]),
    ("sm", "readings"): ({}, ["0,1377986400,0,1,0,0,0", "0,1377986400,0.0,0,0,0,0"]),
    ("tm", "traces"): ({}, [f"1,7,2009-01-06T05:20:07,0,0,0,{bearing}" for bearing in (0, 360)]),
}


@pytest.mark.parametrize(("code", "source"), LIMITS)
def test_lines_at_the_limits_of_a_format_are_accepted(code, source):
    options, lines = LIMITS[code, source]
    assert rejected(code, source.split()[0], lines, options) == {}


def test_loads_over_a_larger_divisor_are_rejected():
    lines = ["m_1,1,1601,50,,,1,1,1", "m_1,1,1,200,,,1,1,1"]
    assert rejected("mo", "usage", lines, {"cpu_scale": 1600}) == {0: "out_of_range", 1: "out_of_range"}
