"""STATS: statistical summaries of a sensor stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.riotbench.output_steps import (
    CHARTS_PER_ARCHIVE,
    PAPER_WINDOW,
    RESULTS_PER_CHART_SET,
    WINDOW,
    check_form,
    publish_results,
    store_charts,
)

__all__ = ["stats"]

KEY = ("sensor_id", "obs_type")
AHEAD = "predictions"


#: Values of the benchmark's property files; the file for CITY lacks keys, so the generic one is used instead.
REGRESSION, PRECISION = 10, 10
HORIZON = {"grid": 2}

T = TypeVar("T")


def stats(
    schema: str | StreamSchema = "city",
    *,
    form: Literal["paper", "plots"] = "paper",
    summary: Literal["average", "moment"] = "average",
    known_sensors: str | Path | Sequence[str] | None = None,
    average_window: Count | None = None,
    sliding: bool | None = None,
    regression_window: Count | None = None,
    horizon: int | None = None,
    precision: int | None = None,
    counted: Literal["value", "sensor_id"] = "value",
    meta: bool = True,
    plot_size: int | None = None,
    zip_size: int | None = None,
    charts: str | None = None,
    publish: dict[str, object] | None = None,
    secret: Secret | None = None,
) -> Dataflow:
    """Build STATS: averages, Kalman-filtered predictions and distinct counts of every observed value.

    The paper's form is parse → Bloom filter → {average, Kalman filter → regression, distinct count} →
    publish. The later form has no Bloom filter; it gathers the results and draws them.

    Parameters
    ----------
    schema : str or StreamSchema, default "city"
        Stream to read: city, taxi, fit or grid, or a custom one, without defaults of its own.
    form : "paper" or "plots", default "paper"
        Form of the application.
    summary : "average" or "moment", default "average"
        Task of the first branch: "moment" selects the second-order moment, as in an early version of
        the benchmark; only in the paper's form.
    known_sensors : path or sequence of str, optional
        Sensors that pass the Bloom filter of the paper's form: the file of a trained filter, or their ids.
        Without it, there is no filter.
    average_window : int, default in the paper's form 90 for city (else 10), in the other form 10
        Values per average; 90 values of CITY are about 15 minutes of a sensor.
    sliding : bool, default True in the paper's form, False in the other
        Average the last values at every value, instead of once per block.
    regression_window : int, default 10
        Values per regression.
    horizon : int, default 10 (grid: 2)
        Number of predictions.
    precision : int, default 10
        Precision p of the distinct count, which has 2^p registers.
    counted : "value" or "sensor_id", default "value"
        Field whose distinct values are counted per observation type.
    meta : bool, default True
        Whether each result has the meta fields of its message in a field ``meta``; without them it is faster.
    plot_size : int, default 20 (taxi: 10, grid: 8000)
        In the form with plots: results per set of plots. A set has a plot per sensor and observation
        type; drawing takes far longer than all other steps, so larger sets run faster.
    zip_size : int, default 100 (taxi and fit: 10, grid: 50)
        Charts per zip archive, with ``charts``.
    charts : str, optional
        In the form with plots: folder or blob container for zip archives of charts, see
        :class:`riot_ops.tasks.UploadBlob`. Without it charts go to the sink unpacked.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, including its ``topic``; results are
        published as JSON. Without it they only go to the sink.
    secret : Secret, optional
        Keys the hashes of the distinct count and of the Bloom filter, see :class:`riot_ops.tasks.DistinctCount`; a file
        of a trained filter must have been made with it.

    Examples
    --------
    >>> stats("taxi").diagram().count("-->")
    8
    """
    check_arguments(stats, locals())
    plots = {"plot_size": plot_size, "zip_size": zip_size, "charts": charts}
    check_form(form, paper={"known_sensors": known_sensors}, plots=plots)
    stream, paper = stream_schema(schema), form == "paper"
    flow = Dataflow("stats")
    obs = (
        flow.source(stream.name).shuffle().to(t.ParseSenML(schema=schema, fields=stream.numeric, meta=meta), id="parse")
    )
    if known_sensors is not None:
        obs = obs.to(_bloom(known_sensors, secret), id="bloom")
    line = t.SlidingRegression(
        by=KEY, window=_default(regression_window, REGRESSION), horizon=_default(horizon, HORIZON.get(stream.name, 10))
    )
    distinct = t.DistinctCount(by=("obs_type",), field=counted, precision=_default(precision, PRECISION), secret=secret)
    if summary == "average":
        window = _default(average_window, PAPER_WINDOW.get(stream.name, WINDOW) if paper else WINDOW)
        mode: Literal["sliding", "tumbling"] = "sliding" if _default(sliding, paper) else "tumbling"
        first = obs.partition_by(*KEY).to(t.MovingAverage(by=KEY, window=window, mode=mode), id="avg")
    else:
        _check_moment(form, average_window=average_window, sliding=sliding)
        first = obs.partition_by(*KEY).to(t.SecondOrderMoment(by=KEY), id="som")
    kalman = obs.partition_by(*KEY).to(t.KalmanFilter(by=KEY), id="kalman")
    slr = kalman.partition_by(*KEY).to(line, id="slr")
    dac = obs.partition_by("obs_type").to(distinct, id="dac")
    flow.sink("publish", *publish_results([first, slr, dac], publish))
    if not paper:
        size = _default(plot_size, RESULTS_PER_CHART_SET.get(stream.name, 20))
        drawn = merge(_readings(first, slr, stream, size), _counts(dac, size))
        flow.sink("plots", store_charts(drawn, charts, _default(zip_size, CHARTS_PER_ARCHIVE.get(stream.name, 100))))
    return flow


def _default(value: T | None, default: T) -> T:
    return default if value is None else value


def _check_moment(form: str, **average: object) -> None:
    if form != "paper":
        raise ConfigError(f"summary='moment' is for form='paper', got form={form!r}")
    for name, value in average.items():
        if value is not None:
            raise ConfigError(f"{name} is for summary='average', got {value!r} with summary='moment'")


def _bloom(known: str | Path | Sequence[str], secret: Secret | None) -> t.Task:
    model = str(known) if isinstance(known, (str, Path)) else tuple(known)
    return t.CheckBloomFilter(models={"sensor_id": model}, secret=secret)


def _readings(avg: Stream, slr: Stream, stream: StreamSchema, size: int) -> Stream:
    """Collect averages and predictions, and draw a chart per sensor and observation type."""
    averages = t.Project(fields=(*KEY, "value"), constants=(("analytic", "AVG"),), nulls={AHEAD: "list<item: double>"})
    predictions = t.Project(fields=(*KEY, AHEAD), constants=(("analytic", "SLR"),), nulls={"value": "double"})
    labelled = merge(avg.to(averages, id="label_avg"), slr.to(predictions, id="label_slr"))
    gathered = labelled.to(t.Collect(size=size, groups=KEY, partial=True), id="gather")
    units = dict(zip(stream.columns, stream.units, strict=True)) | dict(stream.true_units)
    table = {name: units[name] for name in stream.numeric}
    named = gathered.to(t.Lookup(table=table, on=("obs_type",), columns=("unit",), default=""), id="units")
    return named.to(t.PlotLines(groups=KEY, series="analytic", predictions=AHEAD, value_unit="unit"), id="chart")


def _counts(dac: Stream, size: int) -> Stream:
    """Collect the distinct counts, and draw a chart per observation type."""
    counts = dac.to(t.Project(fields=("obs_type", "value")), id="label_dac")
    gathered = counts.to(t.Collect(size=size, groups=("obs_type",), partial=True), id="gather_dac")
    named = t.Project(
        fields=("obs_type", "batch_id", "times", "value"),
        constants=(("sensor_id", "all sensors"), ("unit", "distinct values")),
    )
    return gathered.to(named, id="count").to(t.PlotLines(groups=KEY, series=None, value_unit="unit"), id="chart_dac")
