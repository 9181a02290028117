"""Every application with results has a plot: a PNG file that shows them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.cli import result_plots
from riot_ops.dataflows import APPLICATIONS
from tests.cli.result_plots.sample_results import RESULTS, draw
from tests.drawn_images import decode, shows

pytest.importorskip("matplotlib")

#: Applications that only forward lines.
FORWARDING = {"identity", "sample", "projection", "grep"}


def test_every_other_application_has_a_plot():
    assert {name for name, one in APPLICATIONS.items() if one.suite != "riotbench"} - FORWARDING <= {
        *result_plots.PLOTS
    }
    assert set(RESULTS) == set(result_plots.PLOTS)


def colours(axes):
    """The colours of the data of an axes: lines, bars, points and areas."""
    for line in axes.get_lines():
        if len(line.get_xdata()) > 1 or line.get_marker() != "None":  # one point without a marker is invisible
            yield line.get_color()
    for patch in axes.patches:
        if patch.get_width() and patch.get_height():
            yield patch.get_facecolor()
    for collection in axes.collections:
        mapped = collection.get_array()
        yield collection.get_facecolor()[0] if mapped is None else collection.to_rgba(mapped)[0]


@pytest.mark.long
@pytest.mark.parametrize("name", RESULTS)
def test_plot_file_shows_the_colours_of_its_data(name, results, tmp_path):
    found = results(name)
    assert result_plots.draw(name, found, tmp_path / "plot.png")
    pixels = decode(tmp_path / "plot.png")
    if name != "traffic_monitoring":  # a map has the form of its area
        assert pixels.shape[:2] == (550, 1210)
    drawn = [colour for axes in draw(name, found) for colour in colours(axes)]
    assert drawn
    assert all(shows(pixels, colour) for colour in drawn)


@pytest.mark.parametrize("name", RESULTS)
def test_no_plot_is_drawn_without_results(name, tmp_path):
    nothing = {source: pa.table({f: pa.nulls(0) for f in columns}) for source, columns in RESULTS[name][1].items()}
    assert not result_plots.draw(name, result_plots.Results(tmp_path, nothing.__getitem__), tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize("name", sorted(FORWARDING))
def test_forwarding_applications_have_no_plot(name, results, tmp_path):
    assert not result_plots.draw(name, results("word_count"), tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
