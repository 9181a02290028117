"""Neptune's staircase: what it tells is right by hand, and the source follows the last stage."""

from __future__ import annotations

import numpy as np
import pytest

from riot_ops.bench import neptune_pressure
from riot_ops.bench.neptune_messages import SAMPLES, Received
from riot_ops.bench.neptune_pressure import STEPS, Stairs, exponent


def test_rates_of_stairs_by_hand():
    stairs = Stairs(10.0, began=0.0)
    for level, sleep in enumerate(STEPS):
        spacing = sleep / 1e3 + 0.001  # a message costs 1 ms besides
        for i in range(int(10 / spacing)):
            when = 10 * level + i * spacing
            stairs.served.append((when, sleep / 1e3))
            stairs.sent.append((when, 1))
    for (sleep, rate, wanted), step in zip(stairs.rates(), STEPS[:-1], strict=True):
        assert sleep == step
        assert wanted == pytest.approx(1 / (step / 1e3 + 0.001), rel=0.01)
        assert rate == pytest.approx(wanted, rel=0.01)
    assert stairs.recovered_s() == pytest.approx(1.0)


def test_the_power_that_the_rate_goes_with():
    steps = [(s, 1000 / (s + 1), 1000 / (s + 1)) for s in (1.0, 2.0, 3.0)]
    assert exponent(steps) == pytest.approx(-1)
    assert exponent([(s, rate**0.5, rate) for s, rate, _ in steps]) == pytest.approx(-0.5)
    assert exponent([(s, 40.0, rate) for s, rate, _ in steps]) == pytest.approx(0)  # a source that does not follow
    assert np.isnan(exponent([(1.0, 0.0, 500.0), *steps[1:]]))
    assert np.isnan(exponent([(1.0, 400.0, 500.0), (2.0, 300.0, 500.0)]))


def test_the_source_follows_the_last_stage():
    stairs, sink, waited = neptune_pressure.staircase(0.2)
    assert sum(n for _, n in stairs.sent) == sink.relayed().messages == len(stairs.served)
    assert waited <= neptune_pressure.STAIRS.room + neptune_pressure.STAIRS.capacity


def test_figures_of_the_staircase(monkeypatch):
    def made_up(hold_s):
        stairs, sink = Stairs(hold_s, began=0.0), Received()
        for level in range(len(STEPS)):
            for i in range(10):
                stairs.served.append((hold_s * (level + i / 10), 0.0))
                stairs.sent.append((hold_s * (level + i / 10), 2 if level == 1 else 1))
        n = sum(rows for _, rows in stairs.sent)
        sink.notes = [[float(i), float(i), 1.0, 0.0, *[1e6] * SAMPLES] for i in range(n - 1)]
        return stairs, sink, 1700

    monkeypatch.setattr(neptune_pressure, "staircase", made_up)
    found = {m.measure.removeprefix("neptune/backpressure/"): m for m in neptune_pressure.backpressure(True)}
    assert (found["lost"].value, found["lost"].met) == (3, False)
    assert found["rate-error"].values == pytest.approx((1.0,) * 3)
    assert found["rate-error"].met is False
    assert (found["memory"].value, found["memory"].met) == (1700, True)
    assert found["recovered"].met is True
    assert len(found["step-1/1ms"].values) == 3
    assert found["exponent"].published == -1
