"""Losses of messages: exact counts, outages, and positions found without counting."""

import numpy as np
import pytest

from riot_ops.streams.loss_model import LossModel


def delivered_slots(outages=0.1, shares=(0.7, 0.9), ticks=1000, sensors=20, key=5):
    return LossModel(outages, np.array(shares), ticks, np.uint64(key), np.arange(sensors))


def test_number_of_delivered_messages_before_a_slot_is_counted_exactly():
    stream = delivered_slots()
    slots = stream.slots(0, 30_000)
    assert (np.diff(slots) > 0).all() and slots.size == 30_000
    for slot in (0, 1, 4095, 4096, 4097, 12_345, int(slots[-1])):
        assert stream.delivered(slot) == np.count_nonzero(slots < slot)


def test_share_of_delivered_slots_follows_the_steps():
    slots = delivered_slots().slots(0, 32_000)  # two steps of 20,000 slots, repeated
    for step, share in enumerate((0.7, 0.9)):
        inside = (slots >= 20_000 * step) & (slots < 20_000 * (step + 1))
        assert inside.mean() * slots.size / 20_000 == pytest.approx(share, abs=0.02)  # blocks of 4,096 span two steps


def test_any_range_has_the_slots_of_the_whole():
    stream = delivered_slots()
    whole = stream.slots(0, 9000)
    for start, end in ((0, 1), (4000, 5000), (8999, 9000)):
        assert delivered_slots().slots(start, end).tolist() == whole[start:end].tolist()


def test_empty_range_has_no_slots():
    stream = delivered_slots()
    for message in (0, 1, 4096, 30_000):
        assert stream.slots(message, message).tolist() == []


def test_losses_of_outages_are_adjacent():
    def runs(outages):
        slots = delivered_slots(outages, shares=(0.7,), sensors=1).slots(0, 20_000)
        gaps = np.diff(slots) - 1
        return gaps[gaps > 0].mean()

    assert runs(0.25) > 3 * runs(0.0)
    assert runs(0.0) == pytest.approx(1 / 0.7, rel=0.1)  # geometric
