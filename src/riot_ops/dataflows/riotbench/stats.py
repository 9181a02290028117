"""STATS: statistical summaries of a sensor stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from riot_ops import tasks as t
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.errors import ConfigError
from riot_ops.schema import stream_schema

__all__ = ["stats"]

KEY = ("sensor_id", "obs_type")
RESULT = (*KEY, "value")
#: Predictions ahead, where a stream departs from the usual ten.
HORIZON = {"grid": 2}


def stats(
    schema: str = "city",
    *,
    form: Literal["paper", "plots"] = "paper",
    known_sensors: str | Path | Sequence[str] | None = None,
    window: int = 10,
    sliding: bool = False,
    horizon: int | None = None,
    precision: int = 10,
    counted: Literal["value", "sensor_id"] = "value",
    plot_size: int = 1000,
) -> Dataflow:
    """Build STATS: averages, Kalman-filtered predictions and distinct counts of every observed value.

    The paper's form is parse → Bloom filter → {average, Kalman filter → regression, distinct count} →
    publish. The later form has no Bloom filter; it gathers the results and draws them.

    Parameters
    ----------
    schema : str, default "city"
        Stream to read: city, taxi, fit or grid.
    form : "paper" or "plots", default "paper"
        Which of the two forms.
    known_sensors : path or sequence of str, optional
        Sensors that pass the Bloom filter: a trained filter's file, or their ids. Without it every
        sensor passes and the filter is left out.
    window : int, default 10
        Values per average, and per regression.
    sliding : bool, default False
        Average over the last values at every value, instead of one average per block.
    horizon : int, default 10 (grid: 2)
        Predictions ahead.
    precision : int, default 10
        Bits p of the distinct count's 2^p registers.
    counted : "value" or "sensor_id", default "value"
        What is counted per observation type: distinct readings, or sensors.
    plot_size : int, default 1000
        Results per set of plots, in the form with plots.

    Examples
    --------
    >>> stats("taxi").diagram().count("-->")
    8
    """
    if form not in ("paper", "plots"):
        raise ConfigError(f"form must be 'paper' or 'plots', got {form!r}")
    stream = stream_schema(schema)
    flow = Dataflow("stats")
    obs = flow.source(schema).shuffle().to(t.SenMLParse(schema=schema, fields=stream.numeric), id="parse")
    if form == "paper" and known_sensors is not None:
        obs = obs.to(_bloom(known_sensors), id="bloom")
    avg = obs.hash(*KEY).to(t.BlockAverage(by=KEY, window=window, mode="sliding" if sliding else "tumbling"), id="avg")
    kalman = obs.hash(*KEY).to(t.KalmanFilter(by=KEY), id="kalman")
    slr = kalman.hash(*KEY).to(
        t.SlidingRegression(by=KEY, window=window, horizon=horizon or HORIZON.get(schema, 10)), id="slr"
    )
    dac = obs.hash("obs_type").to(t.DistinctCount(by=("obs_type",), field=counted, precision=precision), id="dac")
    flow.sink("publish", avg, slr, dac)
    if form == "plots":
        flow.sink("plots", _plots(avg, slr, dac, plot_size))
    return flow


def _bloom(known: str | Path | Sequence[str]) -> t.Task:
    if isinstance(known, (str, Path)):
        return t.BloomFilterCheck(field="sensor_id", model=str(known))
    return t.BloomFilterCheck(field="sensor_id", members=tuple(known))


def _plots(avg: Stream, slr: Stream, dac: Stream, size: int) -> Stream:
    """Gather the results of all three and draw a chart for each sensor and observation type."""
    labelled = [
        result.to(t.Project(fields=RESULT, constants=(("analytic", name),)), id=f"label_{name.lower()}")
        for result, name in ((avg, "AVG"), (slr, "SLR"), (dac, "DAC"))
    ]
    gathered = merge(*labelled).to(t.Accumulator(size=size, groups=KEY), id="gather")
    return gathered.to(t.MultiLinePlot(groups=KEY, line="analytic"), id="chart")
