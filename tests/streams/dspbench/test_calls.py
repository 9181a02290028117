"""Generated call records: contacts, telemarketers, order and dirt."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import CallsSource
from tests.streams.generated_lines import lines

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
LINE = rf"(1\d{{10}}),(1\d{{10}}),({TIME}),\1;\2;\3;(\d+);(true|false)"


def calls(n=20_000, **options):
    """Caller, callee, seconds since the first line, length, whether the call was answered."""
    found = []
    for line in lines(CallsSource(**{"dirt": False, **options}), 0, n):
        match = re.fullmatch(LINE, line)
        assert match, line
        time = datetime.fromisoformat(match[3] + "+00:00").timestamp() - CallsSource.start_ms / 1000
        found.append((match[1], match[2], time, int(match[4]), match[5] == "true"))
    return found


def test_people_call_contacts_and_telemarketers_call_anyone():
    found = calls(population=100, telemarketers=5, share=0.3)
    by_caller = defaultdict(list)
    for call in found:
        by_caller[call[0]].append(call)
    assert len(by_caller) == 100
    callers = {caller: (len({c[1] for c in made}), len(made)) for caller, made in by_caller.items()}
    selling = {caller for caller, (callees, made) in callers.items() if callees == made}
    assert len(selling) == 5
    people = [c for c in found if c[0] not in selling]
    assert 1 - len(people) / len(found) == pytest.approx(0.3, abs=0.01)
    assert {callers[c[0]][0] for c in people} <= {4, 5}  # of five contacts two may be one
    assert not any(c[0] == c[1] for c in found)
    assert {c[1] for c in people} <= set(by_caller)
    assert not {c[1] for c in found if c[0] in selling} & set(by_caller)
    for some, (least, most) in ((people, (20, 300)), ([c for c in found if c[0] in selling], (3, 25))):
        lengths = np.array([c[3] for c in some])
        assert (lengths.min(), lengths.max()) == (least, most)
        assert lengths.mean() == pytest.approx((least + most) / 2, rel=0.03)


@pytest.mark.parametrize("failed", [0.05, 0.4])
def test_some_calls_are_not_answered(failed):
    assert np.mean([not c[4] for c in calls(failed=failed)]) == pytest.approx(failed, rel=0.1)


def test_times_do_not_ascend():
    times = np.array([c[2] for c in calls()])
    wait = times - np.arange(times.size) / 10
    assert wait.min() > -1
    assert wait.max() < 60
    assert wait.mean() == pytest.approx(29.5, abs=0.5)
    assert np.mean(np.diff(times) < 0) == pytest.approx(0.5, abs=0.02)
    ordered = [c[2] for c in calls(1000, max_delay="0s", rate=4.0)]
    assert ordered == [i // 4 for i in range(1000)]


def test_dirty_lines_have_their_share_and_form():
    found = lines(CallsSource(), 0, 100_000)
    bad = [line for line in found if not re.fullmatch(LINE, line) or "02-30" in line]
    kinds = Counter(
        "short" if ";" not in b else next((word for word in ("soon", "maybe", "02-30") if word in b), b) for b in bad
    )
    assert set(kinds) == {"short", "soon", "maybe", "02-30"}
    for kind, count in kinds.items():
        assert count == pytest.approx(125, rel=0.3), kind


def test_options_and_misuse():
    assert repr(generate("calls", messages=7, population=9, telemarketers=2)) == (
        "CallsSource(messages=7, seed=0, dirt=True, population=9, telemarketers=2, share=0.2, failed=0.05, rate=10.0, "
        "max_delay='1min')"
    )
    assert len({c[0] for c in calls(500, population=2, telemarketers=0)}) == 2
    assert CallsSource(rate=4.0).gap_ms == 250
    for options in (
        {"population": 1}, {"population": 2.5}, {"telemarketers": -1}, {"telemarketers": 1000}, {"share": 1.5},
        {"failed": -0.1}, {"rate": 0.0}, {"rate": float("inf")}, {"max_delay": 60.0},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=next(iter(options))):
            CallsSource(**options)
