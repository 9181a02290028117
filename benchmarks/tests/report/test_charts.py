"""The pictures of a report, and how sure their figures are, from made-up measures."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from riot_bench.harness.experiment import Figure
from riot_bench.harness.measure import Measure
from riot_bench.report import charts, files
from riot_bench.report.intervals import interval_of
from riot_bench.report.store import ResultStore
from riot_bench.report.tables import COLUMNS, format_interval
from scipy import stats

from benchmarks.tests.report.test_page import Page
from benchmarks.tests.report.test_store import RELAY, SUITE
from tests.drawn_images import decode


def measure(name: str, value: float, *values: float, published: float | None = None) -> Measure:
    return Measure(name, value, "s", values=values, published=published)


def texts(picture: charts.Chart | None) -> list[str]:
    assert picture is not None
    return ["".join(node.itertext()).strip() for node in ET.fromstring(picture.svg).iter("text")]


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_chart_shows_its_points(kind: str) -> None:
    figure = Figure("f/ü 1", "T", r"s/(?P<series>\w+)/(?P<x>\w+)", "size in bytes", "rate in 1/s", kind)
    points = [
        measure("s/a/2K", 5.0, published=4.0),
        measure("s/a/100B", 3.0),
        measure("s/b/100B", 1.0),
        measure("t", 1.0),
    ]
    picture = charts.draw_chart(figure, points)
    shown = texts(picture)
    assert picture is not None
    assert {"size in bytes", "rate in 1/s", "a", "b"} <= set(shown)
    assert any("published" in text for text in shown)
    assert shown.index("100B") < shown.index("2K")
    assert decode(io.BytesIO(picture.png)).size
    assert "currentColor" in picture.svg
    assert charts.INK not in picture.svg
    assert "Too few repetitions" in picture.note
    without = charts.draw_chart(figure, points[1:])
    assert not any("published" in text for text in texts(without))
    assert charts.draw_chart(figure, points[3:]) is None
    assert charts.draw_chart(figure, [measure("s/a/1", math.nan)]) is None


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_intervals_are_drawn_where_there_are_enough_values(kind: str) -> None:
    figure = Figure("f", "T", r"s/(?P<x>\w+)", "x", "y", kind)
    assert format_interval(measure("s/a", 2.0, 1.0, 3.0)) == "too few: 2"
    assert format_interval(measure("s/a", 2.0, 1.0, 3.0, math.nan)) == "too few: 2"
    assert format_interval(measure("s/a", 2.0, 2.0, 2.0, 2.0)) == "2 (2–2)"
    few, many = measure("s/a", 2.0, 1.0, 3.0), measure("s/b", 2.0, 1.0, 2.0, 3.0, 2.5)
    pictures = [charts.draw_chart(figure, [few, one]) for one in (measure("s/b", 2.0), many)]
    assert [p.note for p in pictures if p] == [
        "Too few repetitions for a confidence interval: 2 instead of at least 3.",
        "Whiskers: mean and 95 % confidence interval of 4 repetitions. "
        "1 of 2 points have too few repetitions for an interval.",
    ]
    drawn = [p.svg.count("LineCollection") for p in pictures if p]
    assert drawn[1] > drawn[0]


def test_interval_of_ratios_is_geometric() -> None:
    """Student's t on logarithms: 2, 4 and 8 are as far apart as 1, 2 and 3."""
    half = 4.302653 / math.sqrt(3)
    ratios = Measure("x", 4.0, "ratio", values=(2.0, 4.0, 8.0))
    assert interval_of(ratios)[:2] == pytest.approx((2 ** (2 - half), 2 ** (2 + half)), rel=1e-6)
    upside_down = replace(ratios, values=(1 / 2, 1 / 4, 1 / 8))
    assert interval_of(upside_down)[:2] == pytest.approx([1 / v for v in interval_of(ratios)[1::-1]])
    assert interval_of(replace(ratios, values=(), sample=ratios.values)) == interval_of(ratios)._replace(within=True)
    plain = [interval_of(replace(ratios, unit="s")), interval_of(replace(ratios, values=(0.0, 4.0, 8.0)))]
    for found, values in zip(plain, ((2.0, 4.0, 8.0), (0.0, 4.0, 8.0)), strict=True):
        low, high = stats.t.interval(0.95, 2, sum(values) / 3, stats.sem(values))
        assert found[:2] == pytest.approx((max(low, 0) if values[0] else low, high))


@pytest.mark.parametrize("unit", ["ratio", "s", "ms", "lines/s", "%/min", "messages"])
def test_interval_surrounds_the_mean_not_the_median(unit: str) -> None:
    """The value is the median, which may lie outside of it."""
    values = (1.0, *[100.0] * 9)
    one = Measure("x", 100.0, unit, values=values)
    found = interval_of(one)
    mean = stats.gmean(values) if unit == "ratio" else sum(values) / 10
    assert found.low < found.mean < found.high
    assert found.mean == pytest.approx(mean)
    assert format_interval(one).startswith(f"{mean:.3g} (")
    parts = interval_of(replace(one, values=(), sample=values))
    assert parts == found._replace(within=True)


@pytest.mark.parametrize(("unit", "cut"), [("lines/s", True), ("ms", True), ("µs/record", True), ("%/min", False)])
def test_intervals_of_rates_and_times_are_cut_at_0(unit: str, cut: bool) -> None:
    values = (1.0, 2.0, 30.0)
    low, high = stats.t.interval(0.95, 2, 11, stats.sem(values))
    assert low < 0
    found = interval_of(Measure("x", 2.0, unit, values=values))
    assert (found.low, found.high, found.mean) == (0 if cut else pytest.approx(low), pytest.approx(high), 11)
    signed = interval_of(Measure("x", 2.0, unit, values=(-1.0, *values)))
    assert signed.low < -1


def test_runs_without_a_value_are_not_counted(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    writer = store.begin(RELAY, quick=True)
    some = measure("sample/relay/local/7B", 2.0, 1.0, 2.0, math.nan, 3.0, math.inf)
    writer.measure(some.to_json())
    writer.end("done")
    page = Page(files.write_report(store, [RELAY]).read_text(encoding="utf-8"))
    (row,) = (row for row in page.rows if row[0] == some.measure)
    assert row[1:4] == ["2", "2 (0–4.48)", "3"]
    assert "1 of 1 measures have no value in some run; those runs are not counted." in page.text
    (row,) = csv.DictReader(io.StringIO((tmp_path / f"{SUITE}.csv").read_text(encoding="utf-8")))
    assert [row[name] for name in ("mean", "low", "high", "runs", "values")] == [
        "2",
        "0",
        "4.484",
        "3",
        "1 2 nan 3 nan",
    ]


def test_whiskers_stand_around_the_mean() -> None:
    drawn: list[tuple[float, float, float]] = []

    class Axes:
        def errorbar(self, _: object, y: float, *, yerr: list[list[float]], **__: object) -> None:
            drawn.append((y - yerr[0][0], y, y + yerr[1][0]))

    found = interval_of(Measure("x", 4.0, "ratio", values=(2.0, 4.0, 64.0)))
    charts._whisker(Axes(), 1.0, found, False)
    assert drawn == [pytest.approx((found.low, 8.0, found.high))]


def test_micro_batches_have_an_interval_within_their_run() -> None:
    values = [1.0, 9.0] * 30  # by threes they hardly differ
    one = Measure("x", 5.0, "s", sample=tuple(values))
    low, high, of, within, mean = interval_of(one)
    means = [11 / 3, 19 / 3] * 10
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 19, 5, stats.sem(means)))
    assert (of, within, mean) == (60, True, pytest.approx(5))
    assert interval_of(replace(one, values=(4.0, 5.0, 6.0)))[2:4] == (3, False)
    assert interval_of(replace(one, sample=(1.0, 2.0)))[2:4] == (1, False)
    assert interval_of(replace(one, sample=(1.0, math.nan, 2.0, 3.0)))[2:4] == (3, True)
    assert interval_of(Measure.of_runs([one, one]))[2:4] == (2, False), "parts of one run say nothing of several"
    repeated = Measure("x", 2.0, "s", values=(1.0, 2.0, 3.0))
    twice = interval_of(Measure.of_runs([repeated, repeated]))
    assert twice.is_known and twice[2:4] == (6, True), "but the repetitions of two are more than those of one"
    assert interval_of(Measure.of_runs([repeated] * 3))[2:4] == (3, False)
    assert interval_of(Measure.of_runs([one])) == interval_of(one)


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_intervals_within_a_run_and_lower_bounds_are_marked(kind: str, tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    writer = store.begin(RELAY, quick=True)
    bound = Measure("sample/relay/local/7B", 5.0, "messages/s", reach=9.0, lower_bound=True)
    parts = Measure("sample/relay/local/50B", 4.0, "messages/s", sample=(3.0, 4.0, 5.0, 4.0))
    for one in (bound, parts):
        assert Measure.from_json(one.to_json()) == one
        writer.measure(one.to_json())
    writer.end("done")
    page = Page(files.write_report(store, [RELAY]).read_text(encoding="utf-8"))
    cells = {row[0]: row for row in page.rows if len(row) == len(COLUMNS)}
    assert cells[bound.measure][1:4] == ["≥ 5", "too few: 1", "1"]
    assert cells[bound.measure][7] == ""
    assert cells[parts.measure][1:4] == ["4", "4 (2.7–5.3) within the run", "1"]
    assert "1 of 2 measures have an interval within one run" in page.text
    assert "1 of 2 measures are lower bounds" in page.text
    rows = list(csv.DictReader(io.StringIO((tmp_path / f"{SUITE}.csv").read_text(encoding="utf-8"))))
    assert [(row["within_run"], row["sample"], row["lower_bound"]) for row in rows] == [
        ("False", "", "True"),
        ("True", "3 4 5 4", "False"),
    ]
    figure = Figure("f", "T", r"sample/relay/local/(?P<x>\w+)", "x", "y", kind)
    picture = charts.draw_chart(figure, [bound, parts])
    assert picture is not None
    assert picture.note == (
        "Thin whiskers: mean and 95 % confidence interval within one run, of 4 parts. 1 of 2 points have "
        "too few repetitions for an interval. 1 of 2 points are lower bounds, marked by an arrow."
    )
    plain = charts.draw_chart(figure, [replace(bound, lower_bound=False), parts])
    assert plain is not None
    assert len(plain.svg) < len(picture.svg)


@pytest.mark.parametrize(
    ("value", "at_most", "met"), [(5.0, False, None), (9.0, False, True), (9.0, True, None), (12.0, True, False)]
)
def test_lower_bound_may_leave_a_target_undecided(value: float, at_most: bool, met: bool | None) -> None:
    one = Measure("x", value, "s", reach=9.0, at_most=at_most, lower_bound=True)
    assert one.met is met
    assert Measure.of_runs([one, replace(one, lower_bound=False)]).lower_bound


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_logarithmic_axes(kind: str) -> None:
    points = [measure(f"s/{x}", v) for x, v in ((1, 1e2), (10, 1e4), (1000, 1e6))]
    made = {
        log: set(texts(charts.draw_chart(Figure("f", "T", r"s/(?P<x>\d+)", "x", "y", kind, log), points)))
        for log in ("", "x", "y", "xy")
    }
    assert "10,000" in made["y"]
    assert "10,000" not in made[""]
    assert "10,000" in made["xy"]
    if kind == "line":
        figure = Figure("f", "T", r"s/(?P<x>\d+)", "x", "y", "line")
        places = [
            charts.draw_chart(figure, points),
            charts.draw_chart(Figure("f", "T", figure.pattern, "x", "y", "line", "x"), points),
        ]
        assert places[0] is not None
        assert places[1] is not None
        assert places[0].svg != places[1].svg
    zero = [*points, measure("s/5", 0.0)]
    assert charts.draw_chart(Figure("f", "T", r"s/(?P<x>\d+)", "x", "y", kind, "xy"), zero) is not None


def test_line_of_one_position_shows_its_value() -> None:
    figure = Figure("f", "T", r"s/(?P<series>\w+)/(?P<x>\d+)x", "scale", "y", "line", "xy")
    shown = texts(charts.draw_chart(figure, [measure("s/a/3x", 2.0), measure("s/b/3x", 4.0)]))
    assert {"a", "b", "scale: 3"} <= set(shown)
    assert "scale" in texts(charts.draw_chart(figure, [measure("s/a/3x", 2.0), measure("s/a/4x", 4.0)]))


def test_axis_of_many_positions_labels_some() -> None:
    figure = Figure("f", "T", r"s/(?P<x>\d+)", "actions", "y", "line")
    few, many = (texts(charts.draw_chart(figure, [measure(f"s/{i}", 2.0) for i in range(n)])) for n in (12, 40))
    assert {str(i) for i in range(12)} <= set(few)
    assert "40" in many or "30" in many
    assert not {"11", "13", "17"} & set(many)


def test_many_bars_are_horizontal() -> None:
    figure = Figure("f", "T", r"s/(?P<x>\w+)", "x", "y")
    boxes = []
    for n in (3, 40):
        picture = charts.draw_chart(figure, [measure(f"s/word{i}", i + 1.0) for i in range(n)])
        assert picture is not None
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture.svg)
        assert found
        boxes.append(float(found[2]) / float(found[1]))
    assert boxes[0] < 1 < boxes[1]
