"""The generators make the same records in each release: results over a stream are compared with earlier ones.

Hashes of messages as comma-separated text, whose few decimals hide a last bit that another processor rounds otherwise.
A generator that is meant to make others gets new hashes here, and a line in the changelog.
"""

import hashlib

import numpy as np
import pytest

from riot_ops import streams
from riot_ops.ingest import rates
from tests.streams.records import table

KEPT = {
    ("city(sensors=90)", 0, 6000): "f12e9b42099e1c40",
    ("city(sensors=90)", 1_000_000, 6000): "c3ae7de20250bdca",
    ("city(sensors=250, seed=3, drop=0.6)", 40_000_000, 3000): "2809ec2c1195e406",
    ("city(sensors=7, drop=0, dirt=False)", 10**9, 1000): "da4316346de1237a",
    ("taxi()", 0, 6000): "4c0d71317490e63f",
    ("taxi(taxis=500, seed=3)", 30_000_000, 6000): "0318e73445757471",
    # the fewest whose turns are shuffled by 64
    ("taxi(taxis=700)", 0, 1000): "74cca1d6f26b286c",
    ("taxi(taxis=90, dirt=False)", 10**9, 1000): "dc254037c5e4cba5",
    ("fit()", 0, 6000): "932ca944f567a0b3",
    ("fit(subjects=37, seed=3)", 30_000_000, 6000): "e8100dd69666b0af",
    ("fit(subjects=3, dirt=False)", 10**9, 1000): "ded1d446663f9ad9",
    ("grid()", 0, 6000): "101df3b5380f347e",
    ("grid(meters=300, seed=3)", 30_000_000, 9000): "8ec41fe836e8efd9",
    ("grid(meters=90, burst='30min', dirt=False)", 10**9, 1000): "2d7541624fcd375f",
}


@pytest.mark.parametrize(("call", "start", "n"), KEPT, ids=str)
def test_messages_have_pinned_hashes(call, start, n):
    maker, _, rest = call.partition("(")
    source = eval(f"{maker}(format='csv', {rest}", {name: getattr(streams, name) for name in streams.__all__})
    rows = table(source, start, start + n)
    state = hashlib.sha256()
    for at, text in zip(rows["event_time"].cast("int64").to_pylist(), rows["payload"].to_pylist(), strict=True):
        state.update(b"%d %s\n" % (at, text))
    assert state.hexdigest()[:16] == KEPT[call, start, n]


CURVES = {"city": "d70b938aade0a401", "taxi": "f55d3ec20a925ce0", "fit": "85ba5cfac34021b1", "grid": "5278cb7f924c054d"}


@pytest.mark.parametrize("name", CURVES)
def test_rates_have_pinned_hashes(name):
    state = hashlib.sha256()
    for options in ({}, {"speed": 60.0}) if name == "fit" else ({}, {"speed": 60.0}, {"speed": 1000.0}):
        curve = getattr(rates, name)(**options)
        state.update(repr((np.round(curve.rates, 6).tolist(), round(curve.total, 3))).encode())
    assert state.hexdigest()[:16] == CURVES[name]
