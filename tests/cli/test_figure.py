"""Figures: the range of an axis, and the PNG file."""

from __future__ import annotations

import numpy as np
import pytest

from riot_ops.cli.figure import new_figure, robust_range, save_figure
from tests.drawn_images import decode, pixel_at

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (0.0, 1.0)),
        ([np.nan, np.inf], (0.0, 1.0)),
        ([7.0], (7.0, 7.0)),
        ([1.0] * 9 + [50.0], (1.0, 50.0)),
        (list(range(101)), (0.0, 100.0)),
        ([*range(101), 1000.0, -1000.0], (-128.5, 228.5)),
    ],
)
def test_robust_range_ignores_outliers(values, expected):
    low, high = robust_range(np.array(values, np.float64))
    assert (low, high) == pytest.approx(expected)


def test_characters_without_a_glyph_give_no_warning(tmp_path, recwarn):
    figure = new_figure()
    axes = figure.subplots()
    axes.barh(["漢字", "\x0e"], [1, 2])
    save_figure(figure, axes, tmp_path / "words.png")
    assert not recwarn and (tmp_path / "words.png").stat().st_size


def test_saved_file_has_the_data_at_its_place(tmp_path):
    figure = new_figure()
    left, right = figure.subplots(1, 2)
    left.plot([0.0, 10.0], [0.0, 1.0], color="#ff0000", linewidth=6, label="rising")
    right.plot([0.0, 10.0], [1.0, 0.0], color="#0000ff", linewidth=6, label="falling $x$")
    save_figure(figure, [left, right], tmp_path / "two.png")
    pixels = decode(tmp_path / "two.png")
    assert pixels.shape[:2] == (550, 1210)
    for x in (2.0, 5.0, 8.0):
        assert pixel_at(pixels, left, x, x / 10).tolist() == [1, 0, 0]
        assert pixel_at(pixels, right, x, 1 - x / 10).tolist() == [0, 0, 1]
    assert pixel_at(pixels, left, 2.5, 0.9).tolist() == [1, 1, 1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["rising", "falling $x$"]
    for text in legend.get_texts():
        assert not text.get_parse_math()


def test_figure_without_labels_has_no_legend(tmp_path):
    figure = new_figure()
    axes = figure.subplots()
    axes.plot([0, 1], [1_000_000, 1_000_001])
    save_figure(figure, axes, tmp_path / "one.png")
    assert figure.legends == []
    assert not axes.yaxis.get_major_formatter().get_useOffset(), "labels are whole numbers"
