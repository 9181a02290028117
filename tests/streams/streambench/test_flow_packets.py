"""Packets of flows: classes, counts and order."""

import numpy as np
import pytest

from riot_ops.streams.streambench.flow_packets import classes_of, drawn, sizes_of

FLOWS = np.arange(4000)


def test_classes_have_their_shares():
    shares = np.bincount(classes_of(1, FLOWS), minlength=3) / FLOWS.size
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.025)  # four standard deviations


def test_flows_have_their_packets_in_order_of_time():
    sizes = sizes_of(1, FLOWS, 0.2)
    packets = drawn(1, FLOWS, sizes, 0.2)
    assert np.bincount(packets.flow).tolist() == sizes.tolist()
    assert (np.diff(packets.flow) >= 0).all()
    assert (np.diff(packets.time)[np.diff(packets.flow) == 0] >= 0).all()
    assert packets.time.min() >= 0 and packets.time.max() < 2_000_000


def test_overlap_gives_attacks_the_sizes_of_ordinary_flows():
    kind = classes_of(1, FLOWS)
    apart, alike = ([np.median(sizes_of(1, FLOWS, overlap)[kind == k]) for k in range(3)] for overlap in (0, 1))
    assert apart == pytest.approx([12, 45, 18], rel=0.1)
    assert alike == pytest.approx([12, 12, 12], rel=0.15)
