"""Generated lines of a web server's log: format, frequencies, places, times and dirt."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import WeblogSource
from riot_ops.streams.dspbench.weblog import addresses
from riot_ops.tables.sample_networks import networks
from tests.streams.generated_lines import lines

LINE = re.compile(
    r'([\d.]+) - - \[(\d\d/[A-Z][a-z]{2}/\d{4}:[\d:]{8}) \+0000\] "([A-Z]+) (/\S*) HTTP/1.0" (\d{3}) (-|\d+)'
)


def cells(n=40_000, **options):
    return [LINE.fullmatch(line).groups() for line in lines(WeblogSource(dirt=False, **options), 0, n)]


def test_shares_of_the_specification():
    found = cells()
    statuses = Counter(c[4] for c in found)
    for status, wanted in {"200": 2420, "206": 53, "304": 348, "404": 158, "500": 21}.items():
        assert statuses[status] / len(found) == pytest.approx(wanted / 3000, abs=0.005)
    assert {c[4] for c in found if c[5] == "-"} == {"304"}
    sizes = np.log([int(c[5]) for c in found if c[5] != "-"])
    assert (sizes.mean(), sizes.std()) == (pytest.approx(8.5, abs=0.05), pytest.approx(1.2, abs=0.05))
    assert Counter(c[2] for c in found)["GET"] / len(found) == pytest.approx(0.97, abs=0.005)


@pytest.mark.long
def test_few_addresses_have_no_location():
    every = [ipaddress.ip_address(address) for address in addresses(20_000, 3).to_pylist()]
    known = {(net.network_address, net.prefixlen) for net in (ipaddress.ip_network(row[0]) for row in networks())}

    def located(address):
        nets = (ipaddress.ip_network((address, prefix), strict=False) for prefix in (24, 29))
        return any((net.network_address, net.prefixlen) in known for net in nets)

    assert np.mean([located(address) for address in every]) == pytest.approx(0.99 * 15 / 16, abs=0.005)
    assert np.mean([str(address).startswith("10.0.0.") for address in every]) == pytest.approx(0.01, abs=0.003)
    seen = Counter(c[0] for c in cells(visitors=9, seed=3))
    assert set(seen) == set(addresses(9, 3).to_pylist())


def test_frequencies_follow_the_law_of_zipf():
    counts = Counter(c[0] for c in cells(visitors=50))
    law = 1 / np.arange(1, 51)
    most = [n / 40_000 for _, n in counts.most_common(10)]
    assert most == pytest.approx((law / law.sum())[:10], rel=0.15)
    pages = Counter(c[3] for c in cells()).most_common(3)
    assert [page for page, _ in pages] == ["/", "/images/1.gif", "/french/teams/2.html"]
    assert pages[0][1] / pages[1][1] == pytest.approx(2, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("late", [0.01, 0.5])
def test_times_are_nearly_ascending(late):
    found = cells(40_000, rate=1.0, late=late)
    times = np.array([datetime.strptime(c[1] + " +0000", "%d/%b/%Y:%H:%M:%S %z").timestamp() for c in found])
    back = 897_480_000 + np.arange(times.size) - times
    assert np.mean(back > 0) == pytest.approx(late * 29 / 30, rel=0.15)
    assert (back.min(), back.max()) == (0, 29)
    assert WeblogSource(rate=50).gap_ms == 20


def test_dirty_lines_have_their_share_and_form():
    found = lines(WeblogSource(), 0, 100_000)
    bad = [line for line in found if not LINE.fullmatch(line) or "31/Feb" in line]
    kinds = [line for line in bad if not line], [line for line in bad if line.endswith("[10/Jun")]
    kinds += [line for line in bad if "31/Feb" in line], [line for line in bad if '" OK ' in line]
    assert [len(kind) for kind in kinds] == pytest.approx([50] * 4, rel=0.45)
    assert sum(map(len, kinds)) == len(bad)


def test_options_and_misuse():
    assert repr(generate("weblog", messages=7, visitors=9, rate=2.0, late=0.5)) == (
        "WeblogSource(messages=7, seed=0, dirt=True, visitors=9, rate=2.0, late=0.5)"
    )
    for options in ({"visitors": 0}, {"visitors": 2.5}, {"rate": 0}, {"late": 1.5}, {"late": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            WeblogSource(**options)
