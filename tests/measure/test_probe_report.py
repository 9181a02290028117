"""Reports of probes, computed from given batches and arrivals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from riot_ops.measure.probe_report import SENT, Report
from riot_ops.measure.processes import Usage


def sent(*batches: tuple[int, int, int, float, float, float], source: int = 0, each: int = 1) -> Any:
    return np.array([(source, *b, each * b[2], math.nan) for b in batches], SENT)


def arrived(*samples: tuple[int, int, float, float]) -> Any:
    from riot_ops.measure.probe_report import ARRIVED

    return np.array(list(samples), ARRIVED)


def report_of(sent_: Any, arrived_: Any, sources: tuple[str, ...] = ("a",), **options: Any) -> Report:
    streams = ("a", "b", "both")
    upstream = {"a": frozenset("a"), "b": frozenset("b"), "both": frozenset("ab")}
    return Report(sent_, arrived_, sources, streams, upstream, **options)


def test_due_times_are_interpolated_within_a_batch() -> None:
    batches = sent((0, 10, 11, 100.0, 101.0, 101.5), (11, 11, 1, 102.0, 102.0, 102.1))
    samples = arrived((0, 0, 1, 105.0), (0, 5, 1, 105.0), (0, 10, 1, 105.0), (0, 11, 1, 105.0), (0, 12, 1, 105.0))
    latencies, _ = report_of(batches, samples).latencies()
    np.testing.assert_allclose(latencies, [5.0, 4.5, 4.0, 3.0])  # 12 was never sent


def test_batch_read_twice_counts_once() -> None:
    batches = sent((0, 9, 10, 1.0, 2.0, 2.5), (0, 9, 10, 1.0, 2.0, 7.0), (10, 19, 10, 2.1, 3.0, 3.5))
    assert report_of(batches, arrived()).inputs == 20


def test_source_of_the_message_number_counts() -> None:
    batches = np.concatenate([sent((0, 4, 3, 1.0, 1.0, 1.0)), sent((1, 5, 3, 5.0, 5.0, 5.0), source=1)])
    samples = arrived((2, 1, 1, 6.0), (2, 2, 1, 4.0), (0, 2, 1, 6.0), (1, 3, 1, 6.0))
    latencies, _ = report_of(batches, samples, ("a", "b"), turns=[(0, 2), (1, 2)]).latencies(-10)
    assert latencies.tolist() == [1.0, 3.0, 5.0, 1.0]


def test_last_due_message_of_unjoined_sources_counts() -> None:
    batches = np.concatenate([sent((0, 0, 1, 1.0, 1.0, 1.0)), sent((0, 0, 1, 5.0, 5.0, 5.0), source=1)])
    samples = arrived((2, 0, 1, 6.0), (2, 0, 1, 4.0), (0, 0, 1, 6.0), (1, 0, 1, 6.0))
    latencies, _ = report_of(batches, samples, ("a", "b")).latencies(-10)
    assert latencies.tolist() == [1.0, 3.0, 5.0, 1.0]


def test_queue_is_messages_due_and_not_read() -> None:
    # ten messages a second, all read at the end of the fourth second
    batches = sent((0, 39, 40, 0.0, 4.0, 4.0))
    run = report_of(batches, arrived()).series(1.0)
    np.testing.assert_allclose(run.input_rate, 10)
    np.testing.assert_allclose(run.queue[:3], [10, 20, 30])


def test_latency_of_interval_is_median_of_its_arrivals() -> None:
    # message i is due at i / 10 s; 35 was never sent, and arrivals at 0.1, 2.9 and 9 s are outside of the intervals
    batches = sent(*((i, i, 1, i / 10, i / 10, i / 10) for i in range(31)))
    samples = arrived(
        *((0, 26, 1, 2.9), (0, 0, 1, 0.1), (0, 11, 2, 1.5), (0, 10, 1, 1.1)),
        *((0, 35, 9, 1.2), (0, 12, 1, 1.9), (0, 30, 1, 9.0)),
    )
    report = report_of(batches, samples)
    np.testing.assert_allclose(report.series(1.0, 0.5).latency, [0.1, 0.4])  # of 0.1; of 0.4 twice and 0.7
    np.testing.assert_allclose(report.series(1.0).latency, [0.1, 0.4, 0.3])
    np.testing.assert_allclose(report_of(batches, samples[1:2]).series(1.0).latency, [0.1, math.nan, math.nan])


def test_rates_and_usage_of_part_of_the_run() -> None:
    # ten messages a second are read as they come, in the third and the fourth second twenty
    numbers = [(0, 9), (10, 19), (20, 39), (40, 59)]
    batches = sent(*((a, b, b - a + 1, float(i), i + 1.0, i + 1.0) for i, (a, b) in enumerate(numbers)))
    times = np.arange(1.0, 5.0)
    usage = Usage(times, np.array([1.0, 2.0, 3.0, 4.0]), 10 * times)
    report = report_of(batches, arrived((0, 9, 1, 1.0)), usage=usage)
    assert report.read_rate(until_s=2.0) == pytest.approx(10)
    assert report.read_rate(2.0) == pytest.approx(20)
    assert report.read_rate(1.0, 3.0) == pytest.approx(15)
    assert (report.cpu(), report.cpu(until_s=2.0), report.cpu(3.0), report.cpu(2.0, 3.0)) == (2.5, 1.5, 3.5, 2.5)
    assert (report.memory(), report.memory(until_s=2.0), report.memory(2.5)) == (25.0, 15.0, 35.0)


def test_stability_is_computed_from_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(sent((0, 39, 40, 0.0, 4.0, 4.0)), arrived())
    lengths: list[float] = []
    series = report.series
    monkeypatch.setattr(report, "series", lambda length, *time: (lengths.append(length), series(length, *time))[1])
    report.stability()
    report.stability(intervals=5)
    report.stability(1.0, 3.0, intervals=5)
    assert lengths == pytest.approx([0.2, 0.8, 0.4])


def test_each_source_has_its_own_selectivity() -> None:
    batches = np.concatenate([sent((0, 9, 10, 0.0, 1.0, 1.0), each=5), sent((0, 29, 30, 0.0, 1.0, 1.0), source=1)])
    expected = {"a": 2.0, "b": 1.0}
    assert report_of(batches, arrived(), ("a", "b"), expected=expected).expected == (10 * 5 * 2 + 30) / 40
    alone = report_of(batches[:1], arrived(), ("a", "b"), expected={"a": 2.0, "b": math.nan})
    assert alone.expected == 10.0  # no record from b


def test_settled_selectivity_excludes_beginning_and_end() -> None:
    # 100 messages; from the 20th on two records each, the last ten not delivered, and 500 records at the end
    samples = [(0, i, 2.0, 5.0) for i in range(20, 90)] + [(0, np.iinfo(np.int64).min, 500.0, 9.0)]
    batches = sent((0, 39, 40, 0.0, 1.0, 1.0), (40, 99, 60, 1.0, 2.0, 2.0))
    assert report_of(batches, arrived(*samples)).settled_selectivity == pytest.approx(2.0)
    assert math.isnan(report_of(batches, arrived()).settled_selectivity)
