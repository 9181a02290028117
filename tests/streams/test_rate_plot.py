"""The picture of a stream's message rate."""

import sys

import pytest

from riot_ops.core.errors import ConnectorError, MissingExtraError
from riot_ops.streams import CATALOG
from riot_ops.streams.rate_plot import draw_rates


def test_unknown_picture_format_is_refused(tmp_path):
    with pytest.raises(ConnectorError, match=r"cannot be written.*supported"):
        draw_rates(CATALOG["fit"], tmp_path / "x.senml")


@pytest.mark.parametrize(("name", "speed", "rounds"), [("fit", None, 10), ("grid", 500.0, 3), ("grid", 100.0, 1)])
def test_picture_has_shares_of_time_and_the_rate_over_time(name, speed, rounds, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    kept = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, path, **options: kept.append((self, path, options)))
    draw_rates(CATALOG[name], "x.png", speed)
    ((picture, path, options),) = kept
    assert path == "x.png" and options == {"dpi": 110}
    assert picture.get_size_inches().tolist() == [11, 4.2]
    description = CATALOG[name].describe(speed)
    at = description["rate"]["speed"]
    curve = CATALOG[name].curve(at)
    top = 1.1 * curve.rates.max()
    left, right = picture.axes
    assert left.get_xlabel() == f"messages per second (at {at:g}×)"
    assert (left.get_ylabel(), right.get_xlabel()) == ("share of time (%)", "seconds")
    assert right.get_ylabel() == "messages per second"
    assert picture.get_suptitle().startswith(f"{name.upper()}: {description['distribution']} · gaps")
    # bars: 60 of one width from 0 to the top, whose heights are the shares of the time
    assert len(left.patches) == 60
    for i, bar in enumerate(left.patches):
        low, high = top * i / 60, top * (i + 1) / 60
        assert (bar.get_x(), bar.get_width()) == pytest.approx((low, top / 60))
        inside = (curve.rates >= low) & (curve.rates < high)
        assert bar.get_height() == pytest.approx(100 * inside.mean())
    (mean,) = left.lines
    assert mean.get_xdata()[0] == pytest.approx(curve.mean)
    assert left.get_legend().get_texts()[0].get_text() == f"mean {curve.mean:,.0f}/s"
    assert left.get_xlim() == pytest.approx((0, top))
    (steps,) = right.patches
    values, edges, _ = steps.get_data()
    assert list(values) == list(curve.rates) * rounds
    assert edges.tolist() == pytest.approx([curve.step * i for i in range(len(values) + 1)])
    assert right.get_xlim() == pytest.approx((0, edges[-1])) and right.get_ylim() == pytest.approx((0, top))


def test_missing_matplotlib_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plot"):
        draw_rates(CATALOG["fit"], "x.png")
