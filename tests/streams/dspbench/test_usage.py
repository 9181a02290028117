"""Generated loads of machines: times, swings, incidents, late and bad lines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import UsageSource
from tests.streams.generated_lines import lines

LINE = r"m_\d+,\d+,\d+\.\d,\d+\.\d,,,\d+\.\d\d,\d+\.\d\d,\d"


def cells(n, **options):
    return [line.split(",") for line in lines(UsageSource(dirt=False, **options), 0, n)]


def test_lines_have_the_format_and_times_of_the_data_set():
    found = cells(20_000, late=0)
    assert all(re.fullmatch(LINE, ",".join(c)) for c in found)
    assert [c[0] for c in found[:51]] == [*(f"m_{i}" for i in range(50)), "m_0"]
    assert [int(c[1]) for c in found] == [386_640 + 60 * (i // 50) for i in range(20_000)]
    assert UsageSource(machines=3).gap_ms * 3 == 60_000


def test_one_machine_is_overloaded_for_twenty_minutes_of_forty():
    found = cells(1440 * 10, machines=10)
    cpu, memory = (np.array([float(c[i]) for c in found]).reshape(36, 40, 10) for i in (2, 3))
    assert 0 <= cpu.min() < cpu.max() <= 100
    high = (cpu > 85) & (memory > 85)
    assert (high.sum(axis=2)[:, 10:30] == 1).all()
    assert not high[:, :10].any()
    assert not high[:, 30:].any()
    which = high[:, 15].argmax(axis=1)
    assert (high[:, 10:30].argmax(axis=2) == which[:, None]).all()
    assert len(set(which.tolist())) > 5
    usual = np.median(cpu, axis=2).ravel()
    swing = 35 + 10 * np.sin(2 * np.pi * np.arange(1440) / 1440)
    assert np.corrcoef(usual, swing)[0, 1] > 0.9
    assert np.abs(usual - swing).mean() < 4
    assert np.median(memory) == pytest.approx(60, abs=3)
    assert 0.5 < np.std((cpu[..., 0] - cpu[..., 1])[~(high[..., 0] | high[..., 1])]) < 3


def test_late_lines():
    times = np.array([int(c[1]) for c in cells(50_000, late=0.1)])
    back = 386_640 + 60 * (np.arange(50_000) // 50) - times
    assert set(back.tolist()) == {0, 60}
    assert np.mean(back == 60) == pytest.approx(0.1, abs=0.01)


@pytest.mark.long
def test_dirty_lines_have_their_share_and_form():
    found = [line.split(",") for line in lines(UsageSource(), 0, 60_000)]
    assert sum(len(c) == 2 for c in found) == pytest.approx(90, rel=0.3)
    assert sum(c[2] == "NaN%" for c in found if len(c) == 9) == pytest.approx(90, rel=0.3)


def test_options_and_misuse():
    assert repr(generate("usage", messages=7, machines=9, late=0.5)) == (
        "UsageSource(messages=7, seed=0, dirt=True, machines=9, late=0.5)"
    )
    for options in ({"machines": 1}, {"machines": 2.5}, {"late": 1.5}, {"late": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            UsageSource(**options)
