"""STATS: statistical summaries of a sensor stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from riot_ops import tasks as t
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.riotbench.results import published
from riot_ops.errors import ConfigError
from riot_ops.schema import StreamSchema, stream_schema

__all__ = ["stats"]

KEY = ("sensor_id", "obs_type")
RESULT = (*KEY, "value")


class Defaults(NamedTuple):
    """What the benchmark's property files set for a stream."""

    average: int = 10
    regression: int = 10
    horizon: int = 10
    gathered: int = 20
    precision: int = 10


#: CITY's own file cannot run (it lacks keys); as for its valid ranges, the generic file stands in.
DEFAULTS = {
    "city": Defaults(),
    "taxi": Defaults(gathered=10),
    "fit": Defaults(),
    "grid": Defaults(horizon=2, gathered=8000),
}


def stats(
    schema: str | StreamSchema = "city",
    *,
    form: Literal["paper", "plots"] = "paper",
    known_sensors: str | Path | Sequence[str] | None = None,
    window: int | None = None,
    sliding: bool = False,
    horizon: int | None = None,
    precision: int | None = None,
    counted: Literal["value", "sensor_id"] = "value",
    plot_size: int | None = None,
    charts: str | None = None,
    publish: dict[str, object] | None = None,
) -> Dataflow:
    """Build STATS: averages, Kalman-filtered predictions and distinct counts of every observed value.

    The paper's form is parse → Bloom filter → {average, Kalman filter → regression, distinct count} →
    publish. The later form has no Bloom filter; it gathers the results and draws them.

    Parameters
    ----------
    schema : str or StreamSchema, default "city"
        Stream to read: city, taxi, fit or grid, or one of your own with CITY's defaults.
    form : "paper" or "plots", default "paper"
        Which of the two forms.
    known_sensors : path or sequence of str, optional
        Sensors that pass the Bloom filter: a trained filter's file, or their ids. Without it every
        sensor passes and the filter is left out.
    window : int, default 10
        Values per average, and per regression. (The paper's average is sliding, over 90 values of CITY
        and 10 of TAXI.)
    sliding : bool, default False
        Average over the last values at every value, instead of one average per block.
    horizon : int, default 10 (grid: 2)
        Predictions ahead.
    precision : int, default 10
        Bits p of the distinct count's 2^p registers.
    counted : "value" or "sensor_id", default "value"
        What is counted per observation type: distinct readings, or sensors.
    plot_size : int, default 20 (taxi: 10, grid: 8000)
        Results per set of plots, in the form with plots. A set has a plot for each of its sensors and
        observation types; drawing takes far longer than all the rest, so larger sets run faster.
    charts : str, optional
        Folder or blob container for zip archives of 100 charts, see :class:`riot_ops.tasks.BlobUpload`.
        Without it charts end in the sink as they are.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.MqttPublish`, its ``topic`` included; results are
        published as JSON. Without it they end in the sink alone.

    Examples
    --------
    >>> stats("taxi").diagram().count("-->")
    8
    """
    if form not in ("paper", "plots"):
        raise ConfigError(f"form must be 'paper' or 'plots', got {form!r}")
    stream = stream_schema(schema)
    usual = DEFAULTS.get(stream.name, Defaults())
    flow = Dataflow("stats")
    obs = flow.source(stream.name).shuffle().to(t.SenMLParse(schema=schema, fields=stream.numeric), id="parse")
    if form == "paper" and known_sensors is not None:
        obs = obs.to(_bloom(known_sensors), id="bloom")
    mean = t.BlockAverage(by=KEY, window=_or(window, usual.average), mode="sliding" if sliding else "tumbling")
    line = t.SlidingRegression(by=KEY, window=_or(window, usual.regression), horizon=_or(horizon, usual.horizon))
    distinct = t.DistinctCount(by=("obs_type",), field=counted, precision=_or(precision, usual.precision))
    avg = obs.hash(*KEY).to(mean, id="avg")
    kalman = obs.hash(*KEY).to(t.KalmanFilter(by=KEY), id="kalman")
    slr = kalman.hash(*KEY).to(line, id="slr")
    dac = obs.hash("obs_type").to(distinct, id="dac")
    flow.sink("publish", *published([avg, slr, dac], publish))
    if form == "plots":
        drawn = _plots(avg, slr, dac, _or(plot_size, usual.gathered))
        if charts is not None:
            drawn = drawn.one().to(t.RemoteZip(prefix="charts"), id="zip").to(t.BlobUpload(store=charts), id="upload")
        flow.sink("plots", drawn)
    return flow


def _or(given: int | None, usual: int) -> int:
    return usual if given is None else given


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
