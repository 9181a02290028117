"""Bargain index, against exact sums and the figures of the specification."""

from __future__ import annotations

import math
import random
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import bargain_index
from riot_ops.streams import replay
from tests.reference.dspbench.bargain_index import bargain_index as reference
from tests.samples import MADE
from tests.simulated_query import SimulatedQuery

SHARED = "dspbench/stocks.csv"
MADE_BARGAINS = {
    (15, "trade"): 85,
    (15, "quote"): 86,
    ("day", "trade"): 0,
    ("day", "quote"): 80,
    ("month", "trade"): 81,
    ("month", "quote"): 84,
}
WINDOWS = [1, 2, 15, "minute", "hour", "day", "week", "month"]

days = st.sampled_from(
    ["2018-12-30", "2018-12-31", "2019-01-01T10:00:30", "2019-01-01T10:59", "2019-01-07", "2018-12-03"]
)
bars = st.builds(
    "{},{},1,2,3,{},4,{}{}".format,
    st.sampled_from(["A", "B", "Ü"]),
    days,
    st.sampled_from(["10", "11.5", "9.25", "0", "-700", "800"]),
    st.sampled_from(["100", "0", "2.5", "7"]),
    st.sampled_from(["", ","]),
)
dirt = st.sampled_from(
    [
        "",
        "A,2019-01-01,1,2,3,4,5",
        "A,2019-01-01,1,2,3,x,5,6",
        "A,2019-13-01,1,2,3,4,5,6",
        "A,2019-01-01,1,2,3,4,5,-6",
        ",2019-01-01,1,2,3,4,5,6",
    ]
)
header = st.just("Symbol,DATE,Open,High,Low,Close,Adj,Close,Volume")
files = st.lists(st.one_of(bars, bars, bars, dirt, header), max_size=14)


def table(lines):
    return pa.table(
        {"event_time": pa.nulls(len(lines), pa.timestamp("us", "UTC")), "payload": [line.encode() for line in lines]}
    )


def found(bargains):
    names = ("seq", "stock", "price", "volume", "vwap", "bargain_index")
    rows = [tuple(row[name] for name in names) for row in bargains.to_pylist()]
    return [(seq // 2, *rest) for seq, *rest in sorted(rows)]


def same(rows, wanted):
    assert [row[:4] for row in rows] == [row[:4] for row in wanted]
    for row, other in zip(rows, wanted, strict=True):
        assert row[4:] == pytest.approx(other[4:], rel=1e-12)


def span(window):
    """Return the option for a number of trades, or for a unit of the calendar."""
    return {"window" if isinstance(window, int) else "calendar": window}


@given(files, files, st.sampled_from(WINDOWS), st.sampled_from(["trade", "quote"]), st.integers(1, 9))
def test_bargains_equal_exact_sums(trades, quotes, window, first, batch_size):
    flow = bargain_index(**span(window), first=first, threshold=0.5)
    result = flow.run({"trades": table(trades), "quotes": table(quotes)}, batch_size=batch_size)
    wanted, _ = reference(trades, quotes, window=window, threshold=0.5, first=first)
    same(found(result["bargains"]), wanted)


@pytest.mark.long
@given(files.filter(any), st.sampled_from(WINDOWS), st.integers(0, 1 << 32))
def test_staged_results_are_equal(lines, window, seed):
    choose = random.Random(seed)
    sources = {name: ro.MemorySource(table(lines)) for name in ("trades", "quotes")}
    staged = SimulatedQuery(
        bargain_index(**span(window)), sources, choose, max_records=4, partitions=choose.choice([1, 3])
    )
    same(found(staged["bargains"]), reference(lines, lines, window=window)[0])


@pytest.mark.parametrize(
    ("window", "first", "count", "total"),
    [
        (15, "trade", 151, 13780926.331253),
        (15, "quote", 146, 14513746.540260),
        ("day", "trade", 0, 0.0),
        ("day", "quote", 172, 16587097.184009),
        ("month", "trade", 155, 14910859.326074),
        ("month", "quote", 164, 16965573.665185),
    ],
)
def test_figures_of_the_specification(sample_data, window, first, count, total):
    sources = {name: replay(sample_data / SHARED) for name in ("trades", "quotes")}
    result = bargain_index(**span(window), first=first).run(sources)
    assert not result.errors.num_rows
    rows = found(result["bargains"])
    lines = (sample_data / SHARED).read_text().splitlines()
    wanted = reference(lines, lines, window=window, first=first)[0]
    # of a period's first bar, price and average differ by rounding only
    differing = [[row for row in side if row[4] - row[2] > 1e-9] for side in (rows, wanted)]
    same(*differing)
    if sample_data == MADE:
        assert len(differing[0]) == MADE_BARGAINS[window, first]
        return
    assert len(rows) == count
    assert sum(row[5] for row in rows) == pytest.approx(total, abs=1e-6)
    if window == 15 and first == "trade":
        best = result["bargains"].sort_by("seq").to_pylist()[0]
        assert f"{best['event_time']:%Y-%m-%d}" == "2018-09-04"
        assert rows[0][2:] == pytest.approx((11.92000008, 6000, 11.95047135, 6185.641645), rel=1e-9)


@pytest.mark.long
def test_shared_file_gives_equal_results_in_stages(sample_data):
    rows = found(bargain_index().run({name: replay(sample_data / SHARED) for name in ("trades", "quotes")})["bargains"])
    sources = {name: replay(sample_data / SHARED) for name in ("trades", "quotes")}
    assert found(SimulatedQuery(bargain_index(), sources, random.Random(5), max_records=100)["bargains"]) == rows
    lines = (sample_data / SHARED).read_text().splitlines()
    same(rows, reference(lines, lines)[0])


def test_malformed_lines_are_named():
    lines = ["Symbol,Date,x", "A,2019-01-01,1,2,3,4,5", "A,2019-01-01,1,2,3,x,5,6", "A,2019-13-01,1,2,3,4,5,6"]
    lines += ["A,2019-02-01,1,2,3,4,5,-6", "A,2019-01-01,1,2,3,4,5,6"]
    result = bargain_index(calendar="month").run({"trades": table(lines), "quotes": table([])})
    reasons = [(row["seq"] // 2, row["reason"]) for row in result.errors.sort_by("seq").to_pylist()]
    assert reasons == [(1, "wrong_cells"), (2, "bad_number"), (3, "bad_time"), (4, "out_of_range")]


def test_negative_volume_is_rejected():
    lines = ["A,2024-05-01,9,9,9,10,9,100", "A,2024-05-02,9,9,9,90,9,-50", "A,2024-05-03,9,9,9,9,9,-5"]
    offer = "A,2024-05-04,9,9,9,9,9,10"
    result = bargain_index(first="quote").run({"trades": table([*lines, offer]), "quotes": table([*lines, offer])})
    # the average is that of the first trade alone: 10, so the offer of 10 shares at 9 has the index exp(1) * 10
    same(found(result["bargains"]), [(3, "A", 9.0, 10.0, 10.0, math.e * 10)])
    assert result["errors"].num_rows == 4


def test_restarted_run_continues(tmp_path):
    lines = [f"A,2019-01-{1 + i // 4:02},1,2,3,{10 + i * 7 % 5},4,{i}" for i in range(40)]
    whole = found(bargain_index().run({name: table(lines) for name in ("trades", "quotes")})["bargains"])
    parts = []
    for stop in (17, 40):
        sources = {name: ro.MemorySource(table(lines[:stop])) for name in ("trades", "quotes")}
        parts += found(bargain_index().run(sources, checkpoint=tmp_path)["bargains"])
    assert parts == whole


def test_misuse_is_refused():
    for wrong in (
        {"window": 0},
        {"window": "month"},
        {"calendar": "fortnight"},
        {"threshold": -1.0},
        {"first": "both"},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            bargain_index(**wrong)


def test_index_of_an_offer_by_hand():
    quotes = [
        "A,2019-01-02,0,0,0,9,0,1",
        "A,2019-01-02,0,0,0,9,0,0.7",
        "A,2019-01-02,0,0,0,10,0,9",
        "A,2019-01-02,0,0,0,11,0,1e9",
    ]
    sources = {"trades": table(["A,2019-01-01,0,0,0,10,0,5"]), "quotes": table(quotes)}
    rows = bargain_index(threshold=2.0).run(sources)["bargains"].to_pylist()
    assert [(row["price"], row["volume"]) for row in rows] == [(9.0, 1.0)]
    assert rows[0]["bargain_index"] == pytest.approx(math.e)
    far = {"trades": table(["A,2019-01-01,0,0,0,900,0,5"]), "quotes": table(["A,2019-01-02,0,0,0,1,0,1e5"])}
    assert bargain_index().run(far)["bargains"]["bargain_index"].to_pylist() == [sys.float_info.max]
