"""Pacing with a simulated clock."""

import pickle

import pyarrow as pa
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import Source
from riot_ops.ingest import rates
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams import PacedSource, city, replay, taxi
from riot_ops.streams.riotbench.city import BASE_MS, CitySource
from riot_ops.streams.riotbench.taxi import TaxiSource


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def drain(source, clock, seconds, step=0.1, limit=None):
    """Poll for some time; return the number of records at each poll, and all (event time, due) of the splits."""
    at, found, splits = source.initial(), [], []
    for _ in range(round(seconds / step) + 1):
        end = source.latest(at, limit)
        found.append(source.count(at, end))
        splits += source.splits(at, end, 3)
        at = end
        clock.now += step
    return found, splits, at


@pytest.mark.parametrize("step", [0.01, 0.25, 1.0])
def test_rate_does_not_depend_on_polling(clock, step):
    source = PacedSource(city(sensors=50, messages=100_000), rate=700, clock=clock)
    found, splits, _ = drain(source, clock, 5, step)
    assert sum(found) == pytest.approx(5 * 700 + 1, abs=1)
    due = [d for s in splits for d in s["due"]]
    assert due == sorted(due)
    assert due[0] == 1_000_000 * 10**6
    assert due[-1] == pytest.approx(1_000_005 * 1e6, abs=2 / 700 * 1e6)


def test_due_is_position_over_rate(clock):
    source = PacedSource(CitySource(sensors=50, messages=1000), rate=10, clock=clock)
    source.latest(source.initial())
    clock.now += 99
    splits = source.splits({"message": 0}, {"message": 991}, 4)
    assert [(s["start"], s["end"]) for s in splits] == [(0, 247), (247, 495), (495, 743), (743, 991)]
    for s in splits:
        assert s["due"] == [1_000_000_000_000 + s["start"] * 100_000, 1_000_000_000_000 + (s["end"] - 1) * 100_000]


@pytest.mark.parametrize(("records", "n", "wanted"), [(1, 1, [1]), (1, 3, [1]), (2, 3, [1, 1]), (4, 3, [1, 1, 2])])
def test_few_records_are_all_due(clock, records, n, wanted):
    source = PacedSource(CitySource(sensors=50, messages=1000), rate=10, clock=clock)
    source.latest(source.initial())
    splits = source.splits({"message": 5}, {"message": 5 + records}, n)
    assert [s["end"] - s["start"] for s in splits] == wanted
    assert [i for s in splits for i in range(s["start"], s["end"])] == list(range(5, 5 + records))


def test_slow_consumer_finds_a_backlog_within_its_limit(clock):
    source = PacedSource(city(sensors=50), rate=1000, clock=clock)
    at = source.latest(source.initial())
    clock.now += 60
    end = source.latest(at, 500)
    assert source.count(at, end) == 500
    assert source.latest(end) == {"message": 60_001}


def test_restart_continues_at_the_pace(clock):
    source = PacedSource(city(sensors=50), rate=1000, clock=clock)
    assert source.splits({"message": 0}, {"message": 10}, 1) == [{"start": 0, "end": 10}]  # planned before the crash
    assert source.latest({"message": 5000}) == {"message": 5001}
    clock.now += 1
    assert source.latest({"message": 5001}) == {"message": 6001}


@pytest.mark.parametrize("inner", [CitySource(sensors=30, messages=20_000), TaxiSource(taxis=2000, messages=50_000)])
def test_speed_follows_event_time(clock, inner):
    source = PacedSource(inner, speed=1000, clock=clock)
    at = source.initial()
    first = inner.time_at(at)
    total = 0
    for _ in range(20):
        end = source.latest(at)
        for split in source.splits(at, end, 2):
            times = [t for b in source.read(split) for t in b.column("event_time").cast("int64").to_pylist()]
            assert max(times) <= first + (clock.now - 1_000_000) * 1e9 + 1
            total += len(times)
            due = [1_000_000 * 10**6 + (t - first) / 1000 for t in (times[0], times[-1])]
            assert split["due"] == pytest.approx(due, abs=1)
        following = inner.time_at(end)
        if following is not None:
            assert following > first + (clock.now - 1_000_000) * 1e9 - 1
        at = end
        clock.now += 0.3
    assert total == source.count(source.initial(), at) > 100


def test_speed_works_on_any_source_with_event_time(clock):
    rows = [{"event_time": t, "value": 1.0} for t in (None, 0, 500_000, None, 400_000, 1_000_000, 9_000_000)]
    memory = MemorySource(rows, schema=pa.schema([("event_time", TIMESTAMP), ("value", pa.float64())]))
    source = PacedSource(memory, speed=2, clock=clock)
    at = source.latest({"row": 0})
    assert at == {"row": 1}  # a record without a time is available immediately
    at = source.latest(at)
    assert at == {"row": 2}
    clock.now += 0.25  # half a second of event time
    assert source.latest(at) == {"row": 5}
    assert source.latest(at, 2) == {"row": 4}
    clock.now += 0.25
    assert source.latest({"row": 5}) == {"row": 6}
    clock.now += 100
    assert source.latest({"row": 6}) == {"row": 7}
    assert source.finished({"row": 7})


def test_wait_time_is_the_time_until_the_next_record(clock):
    source = PacedSource(MemorySource([{"value": 1.0}] * 10), rate=4, clock=clock)
    assert source.latest({"row": 0}) == {"row": 1}
    assert source.wait_time({"row": 1}, lambda: None) == pytest.approx(0.25)
    clock.now += 0.2
    assert source.latest({"row": 1}) == {"row": 1}
    assert source.wait_time({"row": 1}, lambda: None) == pytest.approx(0.05)
    clock.now += 0.4
    assert source.latest({"row": 1}, 1) == {"row": 2}
    assert source.wait_time({"row": 2}, lambda: None) is None  # it is due already


def test_wait_time_follows_event_time(clock):
    rows = [{"event_time": t, "value": 1.0} for t in (0, 500_000, 4_000_000, None)]
    memory = MemorySource(rows, schema=pa.schema([("event_time", TIMESTAMP), ("value", pa.float64())]))
    source = PacedSource(memory, speed=2, clock=clock)
    assert source.wait_time({"row": 0}, lambda: None) is None  # the clock has not started
    assert source.latest({"row": 0}) == {"row": 1}
    assert source.wait_time({"row": 1}, lambda: None) == pytest.approx(0.25)
    clock.now += 1
    assert source.latest({"row": 1}) == {"row": 2}
    assert source.wait_time({"row": 2}, lambda: None) == pytest.approx(1)
    assert source.wait_time({"row": 3}, lambda: None) is None  # it has no time, and is available at once


def test_curve_sets_the_rate(clock):
    curve = rates.burst(10, 1000, period="10s", duration="1s")
    source = PacedSource(city(sensors=90), curve=curve, clock=clock)
    at = source.latest(source.initial())
    clock.now += 1
    end = source.latest(at)
    assert end["message"] == 1001
    clock.now += 9
    assert source.latest(end)["message"] == 1091
    [split] = source.splits(at, end, 1)
    assert split["due"] == [1_000_000_001_000, 1_000_001_000_000]


def test_clock_set_back_releases_no_record(clock):
    source = PacedSource(city(sensors=90), rate=10, clock=clock)
    at = source.latest(source.initial())
    clock.now -= 5
    assert source.latest(at) == at


def test_replayed_file_is_paced_by_its_times(tmp_path, clock):
    file = tmp_path / "log.csv"
    file.write_text("".join(f"{1000 * t},m{t}\n" for t in (0, 0, 1, 2, 2, 5)))
    source = PacedSource(replay(file), speed=1, clock=clock)
    at, found = source.initial(), []
    for _ in range(7):
        end = source.latest(at)
        found.append(source.count(at, end))
        at = end
        clock.now += 1
    assert found == [2, 1, 2, 0, 0, 1, 0]
    assert source.finished(at)


def test_paced_source_reads_and_pickles_like_its_source():
    source = city(sensors=20, messages=100, rate=1e9)
    assert isinstance(source, PacedSource)
    copy = pickle.loads(pickle.dumps(source))
    split = {"start": 3, "end": 9, "due": [0, 1]}
    assert next(copy.read(split)).equals(next(source.source.read(split)))
    assert source.finished({"message": 100})
    assert not source.finished({"message": 99})
    assert isinstance(taxi(messages=1, speed=1000), PacedSource)
    assert source.schema == source.source.schema
    source.commit({"message": 4})
    source.close()
    source.close()
    assert source.source.time_at({"message": 0}) // 1000 >= BASE_MS


def test_invalid_arguments_are_refused():
    class Unnumbered(CitySource):
        def count(self, start, end):
            return None

    with pytest.raises(ConfigError, match="exactly one"):
        PacedSource(city())
    with pytest.raises(ConfigError, match="exactly one"):
        city(rate=1, speed=1)
    with pytest.raises(ConfigError, match="rate must be a finite number > 0, got 0"):
        city(rate=0)
    with pytest.raises(ConfigError, match="speed must be"):
        city(speed=float("inf"))
    with pytest.raises(ConfigError, match="event_time"):
        PacedSource(MemorySource([{"value": 1.0}]), speed=1)
    with pytest.raises(ConfigError, match="number its records"):
        PacedSource(Unnumbered(), rate=1)
    assert issubclass(PacedSource, Source)


def test_no_record_is_released_early_after_a_pause_of_the_curve():
    now = [50.0]
    curve = rates.burst(0, 10, period="18s", duration="6s")  # 60 messages, then a pause of 12 s
    source = PacedSource(MemorySource([{"value": 1.0}] * 200), curve=curve, clock=lambda: now[0])
    offset = source.latest(source.initial())
    for seconds, expected in ((5.95, 60), (6.0, 60), (17.9, 60), (18.0, 61), (19.0, 71)):
        now[0] = 50 + seconds
        following = source.latest(offset)
        assert source.count({"row": 0}, following) == expected
        for split in source.splits(offset, following, 2):
            assert all(due <= now[0] * 1e6 for due in split["due"])
        offset = following
