"""Generated readings of motes: times, levels, spikes and dirt."""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import MotesSource
from tests.streams.generated_lines import lines

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})? \d+ \d+ \d+\.\d{4} \d+\.\d{4} \d+\.\d\d \d\.\d{5}"


def cells(n=20_000, **options):
    return [line.split(" ") for line in lines(MotesSource(**{"dirt": False, **options}), 0, n)]


@pytest.mark.long
def test_lines_have_the_format_of_the_data_set():
    assert all(re.fullmatch(LINE, " ".join(c)) for c in cells())
    first = cells()[0]
    assert (first[0], first[1][:8], first[2], first[3]) == ("2004-03-01", "00:00:31", "0", "1")


def test_every_mote_reports_in_every_epoch_within_a_second():
    found = cells(540, motes=9)
    assert [(int(c[2]), int(c[3])) for c in found] == [(e, m) for e in range(60) for m in range(1, 10)]
    times = np.array([datetime.fromisoformat(f"{c[0]} {c[1]}+00:00").timestamp() for c in found])
    within = times - 1_078_099_231 - 31 * (np.arange(540) // 9)
    assert within.min() >= 0
    assert within.max() < 1
    assert np.mean(np.diff(times) < 0) == pytest.approx(8 / 9 / 2, abs=0.05)
    assert MotesSource(motes=9).gap_ms * 9 == 31_000


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_spikes_leave_the_level_of_their_mote(share):
    found = cells(motes=10, spikes=share)
    values = np.array([[float(c[4]) for c in found[m::10]] for m in range(10)])
    levels = np.median(values, axis=1)
    assert 18 - 0.1 <= levels.min() < levels.max() <= 24.1
    off = values / levels[:, None] - 1
    spikes = np.abs(off) > 0.1
    assert spikes.mean() == pytest.approx(share, rel=0.2)
    assert np.abs(off[spikes]) == pytest.approx(0.2, abs=0.05)
    assert np.mean(off[spikes] > 0) == pytest.approx(0.5, abs=0.1)
    assert np.abs(off[~spikes]).max() < 0.035


@pytest.mark.long
def test_dirty_lines_have_their_share_and_form():
    found = [line.split(" ") for line in lines(MotesSource(), 0, 100_000)]
    short = [c for c in found if len(c) != 8]
    assert {len(c) for c in short} == {4}
    assert len(short) == pytest.approx(500, rel=0.15)
    assert sum(c[4] == "nil" for c in found if len(c) == 8) == pytest.approx(250, rel=0.2)
    assert sum(c[0] == "2004-02-30" for c in found) == pytest.approx(250, rel=0.2)
    assert sum("." not in c[1] for c in found) == pytest.approx(2000, rel=0.1)


def test_options_and_misuse():
    assert repr(generate("motes", messages=7, motes=9, spikes=0.5)) == (
        "MotesSource(messages=7, seed=0, dirt=True, motes=9, spikes=0.5)"
    )
    for options in ({"motes": 0}, {"motes": 2.5}, {"spikes": 1.5}, {"spikes": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            MotesSource(**options)
