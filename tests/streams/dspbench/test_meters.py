"""Generated readings of plugs: their order, loads by spells, work that adds up, late and bad lines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import MetersSource
from riot_ops.streams.dspbench.meters import PEAKS, SPELLS, appliances, plugs
from tests.streams.generated_lines import lines

LINE = r"\d+,\d+,\d+\.\d{3},[01],\d+,\d+,\d+"


def cells(start, end, **options):
    options = {"dirt": False, "late": 0, **options}
    return [line.split(",") for line in lines(MetersSource(**options), start, end)]


def test_lines_have_the_format_of_the_data_set():
    everything = plugs(0, 10)
    n = len(everything)
    found = cells(0, 4 * n, every=5)
    assert all(re.fullmatch(LINE, ",".join(c)) for c in found)
    assert [int(c[0]) for c in found] == [*range(4 * n)]
    assert [int(c[1]) for c in found] == [1_377_986_400] * 2 * n + [1_377_986_405] * 2 * n
    assert [int(c[3]) for c in found[: 2 * n]] == [1, 0] * n
    assert [[int(c[6]), int(c[5]), int(c[4])] for c in found[: 2 * n : 2]] == everything.tolist()
    assert MetersSource(every=5).gap_ms * 2 * n == pytest.approx(5000)


def test_houses_have_households_and_these_plugs():
    everything = plugs(1, 200)
    households = [len(np.unique(everything[everything[:, 0] == house, 1])) for house in range(200)]
    assert (min(households), max(households)) == (2, 10)
    _, counts = np.unique(everything[:, :2], axis=0, return_counts=True)
    assert (counts.min(), counts.max()) == (5, 20)
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.long
def test_loads_have_spells_and_add_up_to_work():
    n = len(plugs(0, 1))
    every, steps = 300, 500
    found = np.array([float(c[2]) for c in cells(0, 2 * n * steps, houses=1, every=every)]).reshape(steps, n, 2)
    loads, work = found[:, :, 0], found[:, :, 1]
    spell, peak = appliances(0, n)
    assert set(spell.tolist()) <= set(SPELLS.tolist())
    assert set(peak.tolist()) <= set(PEAKS.tolist())
    times = every * np.arange(steps)
    for plug in range(n):
        on = loads[:, plug] > 0
        assert np.abs(loads[on, plug] - peak[plug]).max(initial=0) <= 10.0005
        turns = times // spell[plug]
        for turn in np.unique(turns):
            assert len(set(on[turns == turn])) == 1
        spent = np.append(0, np.cumsum(np.where(on, peak[plug] * every / 3_600_000, 0.0)))[:-1]
        assert work[:, plug] == pytest.approx(spent, abs=2e-3)
    assert (loads > 0).mean() == pytest.approx(0.5, abs=0.1)


def test_any_range_gives_the_same_lines():
    assert cells(0, 3000)[1234:2345] == cells(1234, 2345)


@pytest.mark.long
def test_late_lines_and_dirt():
    n = 2 * len(plugs(0, 10))
    found = cells(n, 20 * n, late=0.01, every=1)
    back = np.array([1_377_986_400 + int(c[0]) // n - int(c[1]) for c in found])
    assert set(back.tolist()) == {0, 1}
    assert back.mean() == pytest.approx(0.01, rel=0.2)
    dirty = [line.split(",") for line in lines(MetersSource(), 0, 100_000)]
    assert sum(len(c) == 2 for c in dirty) == pytest.approx(100, rel=0.35)
    assert sum(c[2] == "n/a" for c in dirty if len(c) == 7) == pytest.approx(100, rel=0.35)


def test_options_and_misuse():
    assert repr(generate("meters", messages=7, houses=2, every=30)) == (
        "MetersSource(messages=7, seed=0, dirt=True, houses=2, every=30, late=0.0005)"
    )
    for options in ({"houses": 0}, {"houses": 1.5}, {"every": 0}, {"late": 2}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            MetersSource(**options)
