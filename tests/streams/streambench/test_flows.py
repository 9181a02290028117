"""Flows as vectors of features, computed from their packets by a naive reference."""

from __future__ import annotations

import numpy as np
import pytest

from riot_ops.streams.streambench import FlowsSource
from riot_ops.streams.streambench.flow_packets import drawn
from riot_ops.streams.streambench.flows import FEATURES, features_of
from tests.reference.streambench import flows as reference
from tests.streams.generated_lines import lines


def test_vectors_equal_features_of_their_packets():
    flows = np.arange(400)
    sizes = np.array([1, 2, 3, 40] * 100)
    packets = drawn(5, flows, sizes, 0.3)
    rows = features_of(packets)
    for flow in range(0, 400, 7):
        mine = packets.flow == flow
        columns = [column[mine].tolist() for column in packets[1:]]
        wanted = reference.features(list(zip(*columns, [0] * int(mine.sum()), strict=True)))
        assert rows[flow].tolist() == pytest.approx([wanted[name] for name in FEATURES], rel=1e-9, abs=1e-12)


def test_lines_hold_window_hosts_features_and_class():
    source = FlowsSource(records=300, seed=2)
    found = [line.split(",") for line in lines(source, 0, 700)]
    assert {len(cells) for cells in found} == {28} and found[300:600] == found[:300]
    x, label = source.vectors()
    assert [[float(cell) for cell in cells[3:-1]] for cells in found[:300]] == x.tolist()
    assert [int(cells[-1]) for cells in found[:300]] == label.tolist()
    assert np.isfinite(x).all() and len({tuple(cells[1:3]) for cells in found[:300]}) == 300
    assert lines(FlowsSource(records=300, seed=2), 0, 300) != lines(
        FlowsSource(records=300, seed=2, overlap=0.9), 0, 300
    )
