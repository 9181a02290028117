"""Generated statistics of packets: the shape of their lines, and what belongs together in them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from riot_ops.streams.streambench import PacketsSource
from riot_ops.streams.streambench.packets import FIELDS
from tests.streams.generated_lines import lines


@pytest.mark.parametrize("seed", range(4))
def test_line_has_two_hundred_bytes(seed):
    mean = np.mean([len(line) + 1 for line in lines(PacketsSource(seed=seed), 0, 11_942)])
    assert mean == pytest.approx(200, abs=4)


def test_cells_are_consistent():
    found = [line.split(",") for line in lines(PacketsSource(), 0, 11_942)]
    assert {len(line) for line in found} == {17} == {len(FIELDS)}
    x = {name: np.array([int(line[i]) for line in found]) for i, name in enumerate(FIELDS[:13])}
    months = Counter(x["month_id"].tolist())
    assert list(months.values()) == [1327] * 8 + [1326]
    sizes = x["packet_size"]
    assert (sizes.min() >= 20, sizes.max() <= 1500) == (True, True)
    assert len(set(zip(x["month_id"].tolist(), sizes.tolist(), strict=True))) == 11_942
    for kind in ("v4", "v6", "tcp", "udp"):
        assert (x[f"{kind}_bytes"] == x[f"{kind}_pkts"] * sizes).all()
    assert (x["v4_pkts"] == x["tcp_pkts"] + x["udp_pkts"] + x["icmp_pkts"] + x["other_pkts"]).all()
    assert 10**11 < x["v4_pkts"].max() < 10**12
    near = {at: np.median(x["v4_pkts"][abs(sizes - at) <= 3]) for at in (40, 576, 1498, 1000)}
    assert all(near[at] > 3 * near[1000] for at in (40, 576, 1498))
    first = np.arange(1327)
    packets = (x["v4_pkts"] + x["v6_pkts"])[first].astype(float)
    for i, amount in ((13, packets), (14, packets * sizes[first])):
        shares, sums = (np.array([float(line[j]) for line in found[:1327]]) for j in (i, i + 2))
        assert shares == pytest.approx(amount / amount.sum(), abs=1e-10)
        assert sums == pytest.approx(np.cumsum(amount) / amount.sum(), abs=1e-10)
    assert {len(line[13]) for line in found} == {12}


def test_lines_repeat_after_the_seed_set():
    source = PacketsSource(records=5)
    assert lines(source, 3, 17) == [lines(source, 0, 5)[k % 5] for k in range(3, 17)]
    assert lines(PacketsSource(records=12_000), 11_943, 11_944)[0].startswith("201309,")


def test_dirty_lines_have_their_share_and_form():
    kinds = Counter(len(line.split(",")) for line in lines(PacketsSource(dirt=True), 0, 11_942))
    assert all(5 < kinds[n] < 45 for n in (1, 2))
    odd = sum(line.split(",")[2:3] == ["n/a"] for line in lines(PacketsSource(dirt=True), 0, 11_942))
    assert 5 < odd < 45
