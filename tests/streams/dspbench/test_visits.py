"""Generated clicks: format, frequencies, first visits and dirt."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import VisitsSource
from riot_ops.streams.dspbench.weblog import addresses
from tests.streams.generated_lines import lines


def clicks(n=30_000, **options):
    return [json.loads(line) for line in lines(VisitsSource(dirt=False, **options), 0, n)]


def test_clients_have_one_address_each():
    found = clicks(clients=50, seed=3)
    assert all(set(click) == {"ip", "url", "clientKey"} for click in found)
    by_client = {click["clientKey"]: click["ip"] for click in found}
    assert by_client == {f"c{i}": address for i, address in enumerate(addresses(50, 3).to_pylist())}
    assert all(by_client[click["clientKey"]] == click["ip"] for click in found)


@pytest.mark.long
@pytest.mark.parametrize(("field", "option"), [("clientKey", "clients"), ("url", "pages")])
def test_frequencies_follow_the_law_of_zipf(field, option):
    counts = Counter(click[field] for click in clicks(**{option: 40}))
    law = 1 / np.arange(1, 41)
    assert [counts[f"{'c' if field == 'clientKey' else '/page/'}{i}"] / 30_000 for i in range(10)] == pytest.approx(
        (law / law.sum())[:10], rel=0.1
    )
    assert len(counts) == 40


def test_first_visits_become_fewer():
    pairs = [(click["url"], click["clientKey"]) for click in clicks()]
    assert 0.4 < len(set(pairs[:3000])) / 3000 < 0.95
    assert len(set(pairs)) / 30_000 < len(set(pairs[:3000])) / 3000 - 0.05


def test_dirty_lines_have_their_share_and_form():
    found = lines(VisitsSource(), 0, 100_000)
    assert sum(line[0] == "[" for line in found) == pytest.approx(100, rel=0.3)
    assert sum(line[-1] not in "}]" for line in found) == pytest.approx(100, rel=0.3)
    assert sum(line[-1] == "}" and "clientKey" not in line for line in found) == pytest.approx(100, rel=0.3)


def test_options_and_misuse():
    assert repr(generate("visits", messages=7, clients=9, pages=3)) == (
        "VisitsSource(messages=7, seed=0, dirt=True, clients=9, pages=3)"
    )
    for options in ({"clients": 0}, {"clients": 2.5}, {"pages": 0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            VisitsSource(**options)
