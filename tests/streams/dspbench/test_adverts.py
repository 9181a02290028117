"""Generated events around advertisements: the figures of the benchmark, dirt, and that each is a function of its number."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import AdvertsSource
from tests.search import depth


def lines(source, start=0, end=3000):
    batches = source.read({"start": start, "end": end})
    return [bytes(line).decode() for batch in batches for line in batch["payload"].to_pylist()]


@settings(max_examples=depth(10))
@given(st.integers(0, 50_000), st.integers(0, 60), st.integers(0, 9))
def test_line_depends_on_its_number_alone(start, n, seed):
    source = AdvertsSource(seed=seed, late=0.3, dirt=True)
    assert lines(source, start, start + n) == [lines(source, i, i + 1)[0] for i in range(start, start + n)]


def test_kinds_and_advertisements_alternate():
    events = [json.loads(line) for line in lines(AdvertsSource(campaigns=3, rate=10.0))]
    assert [*events[0]] == ["user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"]
    assert [i for i, e in enumerate(events, 1) if e["event_type"] == "view"] == list(range(3, 3001, 3))
    assert Counter(e["ad_id"] for e in events) == {str(ad): 100 for ad in range(30)}
    assert len(Counter(e["ad_type"] for e in events)) == 5
    times = [int(e["event_time"]) for e in events]
    assert [b - a for a, b in itertools.pairwise(times)] == [100] * 2999


def test_late_and_dirty_lines():
    late = [int(json.loads(line)["event_time"]) for line in lines(AdvertsSource(late=0.2, max_delay="2s"), 0, 5000)]
    behind = [AdvertsSource.start_ms + i - time for i, time in enumerate(late)]
    assert sum(b > 0 for b in behind) / 5000 == pytest.approx(0.2, abs=0.02)
    assert 1900 < max(behind) < 2000
    clean, dirty = (lines(AdvertsSource(dirt=dirt), 0, 30_000) for dirt in (False, True))
    wrong = [d for c, d in zip(clean, dirty, strict=True) if c != d]
    assert len(wrong) == pytest.approx(30, abs=18)
    assert len(set(wrong)) == 4


def test_options_and_misuse():
    assert lines(AdvertsSource(seed=1)) != lines(AdvertsSource(seed=2))
    assert generate("adverts", messages=7).finished({"message": 7})
    for options in (
        {"campaigns": 0},
        {"rate": 0.0},
        {"late": 1.5},
        {"max_delay": timedelta(-1)},
        {"max_delay": 5.0},
        {"dirt": 1},
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            AdvertsSource(**options)
