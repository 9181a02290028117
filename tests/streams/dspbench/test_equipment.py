"""Generated readings of equipment: changes, delays, disorder and dirt."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams.dspbench import EquipmentSource
from tests.streams.generated_lines import lines

SENSORS, VALVES = slice(12, 15), slice(15, 18)


def cells(n=20_000, **options):
    found = lines(EquipmentSource(**{"dirt": False, "disorder": 0.0, **options}), 0, n)
    return [line.split("\t") for line in found]


def flips(rows, place):
    """``(tick, value)`` of each change of a cell."""
    values = [row[place] for row in rows]
    return [(i, values[i]) for i in range(1, len(values)) if values[i] != values[i - 1]]


def test_lines_have_the_format_of_the_data_set():
    rows = cells(1500)
    assert all(len(row) == 66 and all(re.fullmatch(r"\d+", cell) for cell in row) for row in rows)
    assert [int(row[0]) for row in rows] == [1_577_836_800_000_000_000 + 10_000_000 * i for i in range(1500)]
    assert [int(row[1]) for row in rows] == [*range(1500)]
    assert {cell for row in rows for cell in row[12:18]} == {"0", "1"}
    assert 250 < np.mean([len("\t".join(row)) for row in rows]) < 350


@pytest.mark.long
def test_valves_follow_their_sensors():
    rows = cells(60_000, holding="2s")
    delays, gaps = [], []
    for pair in range(3):
        sensor, valve = flips(rows, 12 + pair), flips(rows, 15 + pair)
        gaps += np.diff([tick for tick, _ in sensor]).tolist()
        for tick, value in valve:
            cause = [t for t, v in sensor if v == value and 0 < tick - t < 40]
            delays += [tick - t for t in cause[-1:]]
    assert np.mean(gaps) == pytest.approx(200, rel=0.12)
    assert np.std(gaps) == pytest.approx(200, rel=0.2)
    assert np.mean(delays) == pytest.approx(20, abs=0.6)
    assert np.std(delays) < 3
    assert rows[0][SENSORS] == rows[0][VALVES] == ["0", "0", "0"]


def test_delays_grow_and_valves_may_not_follow():
    source = EquipmentSource(growth=0.5)
    times, valve, follows = source.changes(0, 40 * 3_600_000_000_000)
    hours = times / 3.6e12
    assert np.polyfit(hours, (valve - times) / 1e6, 1) == pytest.approx([100, 200], rel=0.02)
    assert 0 < np.mean(~follows) < 0.004


def test_line_depends_on_its_number_alone():
    source = EquipmentSource(holding="1s")
    late = lines(source, 7000, 7100)
    assert late == lines(EquipmentSource(holding="1s"), 0, 7100)[7000:]
    assert late == lines(pickle.loads(pickle.dumps(source)), 7000, 7100)
    assert late != lines(EquipmentSource(holding="1s", seed=1), 7000, 7100)


@pytest.mark.long
def test_noise_disorder_and_dirt():
    assert len({row[2] for row in cells(2000)}) == 2
    assert len({row[2] for row in cells(2000, noise=True)}) > 500
    order = [int(row[1]) for row in cells(20_000, disorder=0.1)]
    assert np.mean(np.diff(order) < 0) == pytest.approx(0.05, rel=0.2)
    assert sorted(order) == [*range(20_000)]
    assert sorted(int(row[1]) for row in cells(9, disorder=1.0, messages=9)) == [*range(9)]
    dirty = lines(EquipmentSource(), 0, 40_000)
    short = [line for line in dirty if line.count("\t") != 65]
    odd = [line for line in dirty if "x" in line]
    assert len(short) + len(odd) == pytest.approx(40, abs=20)
    assert short
    assert odd


@pytest.mark.parametrize("name", ["holding", "growth", "disorder"])
def test_misuse_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        EquipmentSource(**{name: -1})
