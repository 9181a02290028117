"""Generated bars: dates, how prices move, volumes and dirt."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import BarsSource
from tests.streams.generated_lines import lines

LINE = r"[A-Z]{3},\d{4}-\d\d-\d\d(,\d+\.\d{6}){5},\d+00,"


def cells(n=20_000, **options):
    return [line.split(",") for line in lines(BarsSource(dirt=False, **options), 0, n)]


@pytest.mark.long
def test_lines_have_the_format_of_the_data_set():
    found = cells()
    assert all(re.fullmatch(LINE, ",".join(c)) for c in found)
    assert [c[0] for c in found[:101:25]] == ["AAA", "AAZ", "ABY", "ACX", "AAA"]
    assert len({c[0] for c in cells(20_000, stocks=18_000)}) == 18_000


def test_every_stock_has_a_line_on_every_weekday():
    days = [date.fromisoformat(c[1]) for c in cells(2100, stocks=7)]
    assert days[0] == date(2018, 1, 1)
    assert all(days[i] == days[i // 7 * 7] for i in range(2100))
    gaps = [(b - a).days for a, b in zip(days[::7], days[7::7], strict=False)]
    assert gaps[:5] == [1, 1, 1, 1, 3]
    assert sum(gaps) == 1 + 7 * 59 + 5 - 1 - 1
    assert BarsSource(stocks=7).gap_ms * 7 * 5 == pytest.approx(7 * 86_400_000)


@pytest.mark.long
def test_prices_are_random_walks_and_consistent():
    values = np.array([[float(v) for v in c[2:8]] for c in cells(50_000, stocks=50)]).reshape(1000, 50, 6)
    opened, high, low, closed, adjusted, volume = np.moveaxis(values, 2, 0)
    assert (closed == adjusted).all()
    assert (opened[1:] == closed[:-1]).all()
    assert (high >= np.maximum(opened, closed)).all()
    assert (low <= np.minimum(opened, closed)).all()
    assert low.min() > 0
    steps = np.diff(np.log(closed), axis=0)
    assert steps.std() == pytest.approx(0.02, rel=0.1)
    assert abs(np.corrcoef(steps[1:, 0], steps[:-1, 0])[0, 1]) < 0.1
    assert abs(np.corrcoef(steps[:, 0], steps[:, 1])[0, 1]) < 0.1
    assert np.median(closed) == pytest.approx(10, rel=0.3)
    assert np.log(volume / 100).mean() == pytest.approx(6, abs=0.05)
    assert np.log(volume / 100).std() == pytest.approx(1.2, abs=0.05)


def test_dirty_lines_have_their_share_and_form():
    found = lines(BarsSource(), 0, 50_000)
    assert found[0].startswith("Symbol,Date,")
    empty = [line for line in found if line.endswith(",null,null,null,null,null,null,")]
    assert len(empty) == pytest.approx(150, rel=0.25)
    assert sum(line.count(",") == 2 for line in found) == pytest.approx(50, rel=0.4)


def test_options_and_misuse():
    assert repr(generate("bars", messages=7, stocks=9)) == "BarsSource(messages=7, seed=0, dirt=True, stocks=9)"
    for stocks in (0, 2.5):
        with pytest.raises(ConfigError, match="stocks must be"):
            BarsSource(stocks=stocks)
