"""Generated purchases: shares of their parts, stolen cards, skew and dirt."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.models.markov import PURCHASE_SHARES
from riot_ops.streams import generate
from riot_ops.streams.dspbench import CardsSource
from tests.streams.generated_lines import lines

FRAUD = {"HHS", "MHS", "LHS", "HHN", "HHL"}


def cells(**options):
    return [line.split(",") for line in lines(CardsSource(dirt=False, **options), 0, 40_000)]


def test_shares_of_the_specification():
    found = cells(fraud=0.0)
    for i, shares in enumerate(PURCHASE_SHARES):
        counts = Counter(state[i] for _, _, state in found)
        for letter, share in shares.items():
            assert counts[letter] / len(found) == pytest.approx(share, abs=0.01)
    assert len({state for _, _, state in found}) == 18


def test_lines_have_the_format_of_the_data_set():
    for number, (customer, transaction, _) in enumerate(cells()[:100]):
        assert re.fullmatch("[A-Z0-9]{10}", customer)
        assert transaction == f"T{number:011}"


@pytest.mark.long
def test_only_stolen_cards_have_rare_states():
    states = {}
    for customer, _, state in cells(customers=200):
        states.setdefault(customer, Counter())[state] += 1
    assert len(states) == 200
    stolen = [seen for seen in states.values() if set(seen) <= FRAUD]
    assert 2 <= len(stolen) <= 12
    assert set().union(*stolen) == FRAUD
    everybody = cells(customers=20, fraud=1.0)
    assert {state for _, _, state in everybody} == FRAUD


def test_quarter_of_the_customers_makes_half_of_the_purchases():
    counts = sorted(Counter(customer for customer, _, _ in cells(customers=100)).values())
    assert sum(counts[-25:]) == pytest.approx(20_000, rel=0.02)
    assert len(counts) == 100


def test_dirty_lines_have_their_share_and_form():
    found = [line.split(",") for line in lines(CardsSource(), 0, 100_000)]
    kinds = Counter("short" if len(c) == 1 else "empty" if not c[2] else c[2] for c in found)
    for kind in ("short", "empty", "XYZ"):
        assert kinds[kind] == pytest.approx(200, rel=0.25)


def test_options_and_misuse():
    assert repr(generate("cards", messages=7, customers=9, fraud=0.5)) == (
        "CardsSource(messages=7, seed=0, dirt=True, customers=9, fraud=0.5)"
    )
    assert len({customer for customer, _, _ in cells(customers=1)}) == 1
    for options in ({"customers": 0}, {"customers": 2.5}, {"fraud": 1.5}, {"fraud": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            CardsSource(**options)
