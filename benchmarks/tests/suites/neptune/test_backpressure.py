"""Neptune's staircase: its measures by hand, and the source that follows the last stage."""

from __future__ import annotations

import math
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune import backpressure as neptune_pressure
from riot_bench.suites.neptune import backpressure_spark
from riot_bench.suites.neptune.backpressure import STEPS, Staircase, rate_exponent
from riot_bench.suites.neptune.backpressure_spark import (
    LEVELS,
    SettledStep,
    SleepingStage,
    StaircaseRun,
    batch_seconds,
    settled_steps,
    step_rates,
)
from riot_bench.suites.neptune.messages import SAMPLES, ReceivingSink, RelayResult

from riot_ops.core.errors import RiotError


def test_step_rates_by_hand():
    stairs = Staircase(10.0, began=0.0)
    for level, sleep in enumerate(STEPS):
        spacing = sleep / 1e3 + 0.001  # a message costs 1 ms besides
        for i in range(int(10 / spacing)):
            when = 10 * level + i * spacing
            stairs.served.append((when, sleep / 1e3))
            stairs.sent.append((when, 1))
    for (sleep, rate, wanted), step in zip(stairs.step_rates(), STEPS[:-1], strict=True):
        assert sleep == step
        assert wanted == pytest.approx(1 / (step / 1e3 + 0.001), rel=0.01)
        assert rate == pytest.approx(wanted, rel=0.01)
    assert stairs.recovery_s() == pytest.approx(1.0)


def test_rate_exponent_by_hand():
    steps = [(s, 1000 / (s + 1), 1000 / (s + 1)) for s in (1.0, 2.0, 3.0)]
    assert rate_exponent(steps) == pytest.approx(-1)
    assert rate_exponent([(s, rate**0.5, rate) for s, rate, _ in steps]) == pytest.approx(-0.5)
    assert rate_exponent([(s, 40.0, rate) for s, rate, _ in steps]) == pytest.approx(0)  # a source that does not follow
    assert np.isnan(rate_exponent([(1.0, 0.0, 500.0), *steps[1:]]))
    assert np.isnan(rate_exponent([(1.0, 400.0, 500.0), (2.0, 300.0, 500.0)]))


def test_source_rate_follows_the_last_stage():
    stairs, sink, waited = neptune_pressure.run_staircase(0.2)
    given = sum(n for _, n in stairs.sent)
    assert given == sink.result(given).messages == len(stairs.served)
    assert waited <= neptune_pressure.STAGE_BUFFERING.room + neptune_pressure.STAGE_BUFFERING.capacity


def climbed(hold_s, at_the_end):
    """Steps of ten readings each; by default of one message, in the second step of two, in the last of the given number."""
    stairs = Staircase(hold_s, began=0.0)
    for level in range(len(STEPS)):
        for i in range(10):
            when = hold_s * (level + (i + 0.5) / 10)
            stairs.served.append((when, 0.0))
            rows = at_the_end[i] if level == len(STEPS) - 1 else 2 if level == 1 else 1
            stairs.sent.append((when, rows))
    return stairs


@pytest.mark.parametrize(
    ("at_the_end", "recovered"),
    [
        ([8] * 10, 1.0),
        ([0, 0, 1, *[8] * 7], 4.0),  # half of eight is four
        ([0, 0, 1, *[2] * 7], 4.0),  # half of two is one, which it had before
        ([1] * 10, math.inf),  # it continues as while the last stage slept
        ([0] * 10, math.inf),
    ],
)
def test_recovery_starts_at_a_higher_rate(at_the_end, recovered):
    stairs = climbed(10.0, at_the_end)
    assert stairs.rate_within(*stairs.settled_span(1)) == pytest.approx(2)
    assert stairs.recovery_s() == recovered


def test_silent_source_has_not_recovered():
    stairs = climbed(10.0, [0] * 10)
    stairs.sent = [(when, 0) for when, _ in stairs.sent]
    assert stairs.recovery_s() == math.inf


@pytest.mark.parametrize(("at_the_end", "met"), [(8, True), (1, False), (0, False)])
def test_missing_recovery_is_reported(monkeypatch, at_the_end, met):
    def made_up(hold_s):
        stairs, sink = climbed(hold_s, [at_the_end] * 10), ReceivingSink()
        sink.notes = [[float(i), float(i), 1.0, 0.0, *[1e6] * SAMPLES] for i in range(9)]
        return stairs, sink, 1700

    monkeypatch.setattr(neptune_pressure, "run_staircase", made_up)
    found = {m.measure.removeprefix("neptune/backpressure/"): m for m in neptune_pressure.backpressure(True)}
    assert found["recovered"].met is met
    assert Measure.from_json(found["recovered"].to_json()).met is met


def test_measures_of_the_staircase(monkeypatch):
    kept = iter([1.0, 0.0, 1.0])

    def made_up(hold_s):
        stairs, sink, doubled = climbed(hold_s, [8] * 10), ReceivingSink(), next(kept)
        n = sum(rows for _, rows in stairs.sent)
        sink.notes = [[float(i), float(i), 1.0 + doubled * (i == n - 2), 0.0, *[1e6] * SAMPLES] for i in range(n - 1)]
        sink.notes += [[float(n), float(n - 2), 1.0, 0.0, *[1e6] * SAMPLES]] * int(doubled)
        return stairs, sink, 1700

    monkeypatch.setattr(neptune_pressure, "run_staircase", made_up)
    found = {m.measure.removeprefix("neptune/backpressure/"): m for m in neptune_pressure.backpressure(True)}
    # in the first and the third run one is duplicated, in the second the last one is lost
    assert (found["lost"].value, found["lost"].met) == (5, False)
    assert found["rate-error"].values == pytest.approx((1.0,) * 3)
    assert found["rate-error"].met is False
    assert (found["memory"].value, found["memory"].met) == (1700, True)
    assert found["recovered"].met is True
    assert len(found["step-1/1ms"].values) == 3
    assert found["exponent"].published == -1


def micro_batches(services):
    """Two of ten messages at each step, one after the other; each takes its sleeps and some more time."""
    spans, now = [], 100.0
    for level, service in zip(LEVELS, services, strict=True):
        for _ in range(2):
            spent = 10 * level / 1e3 + service
            spans.append((now, spent))
            now += spent
    return spans


def test_rates_on_spark_by_hand():
    found = step_rates([*micro_batches([5.0, *[0.01] * 6]), (999.0, 1.0)], 10, 2)  # what starts workers does not count
    assert [sleep for sleep, _, _ in found] == list(STEPS[:-1])
    for sleep, rate, wanted in found:
        assert rate == pytest.approx(wanted) == pytest.approx(1000 / (sleep + 1))
    slow = step_rates(micro_batches([5.0, 0.02, *[0.01] * 5]), 10, 2)
    assert slow[0][1:] == pytest.approx((1000 / 3, 1000 / 2))
    with pytest.raises(RiotError, match="14 micro-batches were expected, but Spark reports 13"):
        step_rates(micro_batches([1.0] * 7)[:-1], 10, 2)


def test_durations_of_micro_batches_by_hand():
    spans = [(0.0, float(k)) for k in range(3 * len(LEVELS))]  # 0, 1, 2 are of the first step, which does not count
    assert batch_seconds(spans, 3) == [4, 7, 10, 13, 16]  # and the last one sleeps no more


def test_stage_sleeps_by_message_numbers(monkeypatch):
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(round(1e3 * seconds, 6))
        now[0] += seconds + (0.0005 if len(slept) == 1 else 0.0)  # the first one takes too long

    monkeypatch.setattr(backpressure_spark, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    batch = pa.record_batch({"seq": [0, 1, 2, 3, 4, 6, 12, 99]})
    assert SleepingStage((2, 4, 6, 8, 10, 12, 14)).serve(batch) is batch
    assert slept == [1, 0.5, 2, 3]  # numbers 2, 3, 4 and 6; none where the steps are over


def test_losses_of_the_staircase_on_spark_are_reported(monkeypatch):
    @contextmanager
    def session():
        yield None

    lost = iter([0, 3, -3, 3])  # the first one does not count

    def made_up(session, batch, batches):
        steps = [(s, 500 / s, 1000 / s) for s in STEPS[:-1]]
        return StaircaseRun(steps, [2 * s for s in STEPS[:-1]], RelayResult(9, 1.0, 1.0, 0.0, 1.0, next(lost), 1))

    monkeypatch.setattr(backpressure_spark, "spark_session", session)
    twice = iter([2, 0, -1])
    adapted = [
        [
            SettledStep(300, 0.9),
            SettledStep(150, 1.0),
            SettledStep(90, 1.1),
            SettledStep(150, 0.9),
            SettledStep(300, 0.9),
        ],
        [
            SettledStep(300, 0.9),
            SettledStep(150, 1.0),
            SettledStep(180, 1.3),
            SettledStep(150, 0.9),
            SettledStep(300, 0.9),
        ],
        [
            SettledStep(300, 0.7),
            SettledStep(150, 1.0),
            SettledStep(180, 1.0),
            SettledStep(150, 0.9),
            SettledStep(100, 0.9),
        ],
    ]
    runs = iter(adapted)
    monkeypatch.setattr(backpressure_spark, "run_staircase", made_up)
    monkeypatch.setattr(
        backpressure_spark,
        "run_adaptive_staircase",
        lambda session, most, target_s, hold_s: (next(runs), RelayResult(9, 1.0, 1.0, 0.0, 1.0, next(twice), 0)),
    )
    made = backpressure_spark.backpressure_on_spark(False)
    found = {m.measure.removeprefix("neptune/backpressure/spark/"): m for m in made}
    assert (found["lost"].value, found["lost"].met) == (12, False)
    assert (found["rate-error"].values, found["rate-error"].met) == ((0.5,) * 3, False)
    assert found["exponent"].value == pytest.approx(-1)
    assert found["step-3/3ms"].value == pytest.approx(500 / 3)
    assert [found[f"step-{k + 1}/batch-seconds"].values for k in range(5)] == [(2 * s,) * 3 for s in STEPS[:-1]]
    assert (found["adaptive/lost"].value, found["adaptive/lost"].met) == (3, False)
    assert found["adaptive/step-3/batch-seconds"].values == (1.1, 1.3, 1.0)
    assert found["adaptive/step-5/batch-messages"].values == (300, 300, 100)
    error, fall = found["adaptive/duration-error"], found["adaptive/fall"]
    assert (error.values, error.met) == (pytest.approx((0.1, 0.3, 0.3)), False)  # the target is a second
    assert (fall.values, fall.met) == (pytest.approx((0.3, 0.6, 0.6)), False)


def test_settled_micro_batches_by_hand():
    """At each step ten messages, where three may pass before the limit has settled."""
    step = [(2, 9.0), (1, 9.0), (3, 1.0), (4, 2.0)]  # the last two begin after three and six messages
    taken = step * len(LEVELS)
    assert settled_steps(taken, [10] * len(LEVELS)) == [SettledStep(3.5, 1.5)] * 5
    early = [(2, 9.0), (0, 9.0), (8, 1.0)]  # the last one begins before
    with pytest.raises(RiotError, match="no micro-batch is within step 3: the step is too short for the target"):
        settled_steps([*step * 3, *early, *step * 3], [10] * len(LEVELS))
    across = [*step[:2], (5, 1.0), (4, 8.0)]  # and here the last one ends with two messages of the next step
    beyond = [(1, 9.0), (3, 2.0), (4, 2.0)]
    assert settled_steps([*step, *across, *beyond, *step * 4], [10] * len(LEVELS))[:2] == [
        SettledStep(5, 1.0),
        SettledStep(3.5, 2.0),
    ]
