"""PRED: classification and prediction on live sensor readings, with models that are replaced while it runs."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.core.schema import RAW, stream_schema
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS, feature_rows
from riot_ops.dataflows.riotbench.output_steps import (
    CHARTS_PER_ARCHIVE,
    PAPER_WINDOW,
    RESULTS_PER_CHART_SET,
    WINDOW,
    check_form,
    publish_results,
    store_charts,
)

__all__ = ["MODELS", "pred"]

#: Name of the source of model updates, and the schema that an MQTT subscription delivers.
MODELS = "models"
UPDATES_SCHEMA = pa.schema([*RAW, pa.field("topic", pa.string())])
UPDATE = "payload"


def pred(
    schema: str = "city",
    *,
    form: Literal["publish", "paper"] = "publish",
    store: str = "models",
    classifier: str | None = None,
    regression: str | None = None,
    average_window: Count | None = None,
    sliding: bool | None = None,
    parallelism: int = 1,
    publish: dict[str, object] | None = None,
    plot_size: int | None = None,
    zip_size: int | None = None,
    charts: str | None = None,
) -> Dataflow:
    """Build PRED: parse → {decision tree, regression → error ← average} → publish.

    It has two sources: the stream, and ``models``, whose payloads are the names of new models in the
    store. All instances of a predicting task switch to a new model at the same position of the
    stream; each result names its model. The paper's form also collects the results, draws them and
    stores the charts.

    Parameters
    ----------
    schema : str, default "city"
        Stream to read: city, taxi, fit or grid.
    form : "publish" or "paper", default "publish"
        Form of the application.
    store : str, default "models"
        Folder or blob container with the models, see :meth:`riot_ops.models.ModelStore.open`.
    classifier, regression : str, optional
        Names of the initial models; without them records are rejected as ``no_model`` until the first
        model of each kind arrives.
    average_window : int, default in the paper's form 90 for city (else 10), in the other form 10
        Observations of a sensor per average, to which errors are relative.
    sliding : bool, default True in the paper's form, False in the other
        Average the last observations at every observation, instead of once per block.
    parallelism : int, default 1
        Instances of the predicting tasks.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, including its ``topic``; results are
        published as JSON. Without it they only go to the sink.
    plot_size : int, default 20 (taxi: 10, grid: 8000)
        In the paper's form: classes, or errors, per set of charts. A set has a chart per sensor.
    zip_size : int, default 100 (taxi and fit: 10, grid: 50)
        Charts per zip archive, with ``charts``.
    charts : str, optional
        In the paper's form: folder or blob container for zip archives of charts, see
        :class:`riot_ops.tasks.UploadBlob`. Without it charts go to the sink unpacked.

    Examples
    --------
    >>> import tempfile
    >>> pred("taxi", store=tempfile.mkdtemp()).diagram().count("-->")
    15
    """
    check_arguments(pred, locals())
    check_form(form, publish={}, paper={"plot_size": plot_size, "zip_size": zip_size, "charts": charts})
    paper = form == "paper"
    if average_window is None:
        average_window = PAPER_WINDOW.get(schema, WINDOW) if paper else WINDOW
    learning = FEATURE_SETS[stream_schema(schema).name]
    flow = Dataflow("pred")
    observed = feature_rows(flow.source(schema), schema)
    columns = pa.schema([("sensor_id", pa.string()), *((name, pa.float64()) for name in learning.features)])
    updates = flow.source(MODELS, schema=UPDATES_SCHEMA)
    live = observed.to(t.Project(fields=tuple(columns.names), nulls={UPDATE: "binary"}), id="readings")
    news = updates.to(t.Project(fields=(UPDATE,), nulls=columns), id="updates")
    spread = (live.shuffle(parallelism), news.broadcast(parallelism))
    tree = t.Classify(inputs=learning.features, store=store, model=classifier, updates=UPDATE, model_field="model")
    dtc = flow.add(tree, *spread, id="dtc")
    line = t.PredictLinearRegression(
        inputs=learning.inputs, store=store, model=regression, updates=UPDATE, model_field="model"
    )
    mlr = flow.add(line, *spread, id="mlr")
    average = observed.partition_by("sensor_id").to(
        t.MovingAverage(
            by=("sensor_id",),
            value=learning.target,
            window=average_window,
            mode="sliding" if (paper if sliding is None else sliding) else "tumbling",
            output="average",
        ),
        id="avg",
    )
    classes = dtc.to(t.Project(fields=("sensor_id", "class", "class_index", "model")), id="classes")
    error = _error(mlr, average, learning.target)
    flow.sink("publish", *publish_results([classes, error], publish))
    if paper:
        size = RESULTS_PER_CHART_SET[schema] if plot_size is None else plot_size
        drawn = merge(
            _charts(classes, "DTC", "class_index", "class index", size),
            _charts(error, "MLR", "error", "relative error", size),
        )
        flow.sink("plots", store_charts(drawn, charts, CHARTS_PER_ARCHIVE[schema] if zip_size is None else zip_size))
    return flow


def _error(mlr: Stream, average: Stream, target: str) -> Stream:
    """Merge predictions and averages, and estimate the error."""
    both = merge(
        mlr.to(
            t.Project(fields=("sensor_id", target, "prediction", "model"), nulls={"average": "double"}),
            id="predictions",
        ),
        average.to(
            t.Project(
                fields=("sensor_id", "average"), nulls={target: "double", "prediction": "double", "model": "string"}
            ),
            id="averages",
        ),
    )
    return both.partition_by("sensor_id").to(t.EstimateError(observed=target), id="error")


def _charts(results: Stream, analytic: str, value: str, unit: str, size: int) -> Stream:
    """Collect the results of an analytic, and draw a chart for each sensor."""
    groups, name = ("sensor_id", "analytic"), analytic.lower()
    labels = t.Project(fields=("sensor_id", value), constants=(("analytic", analytic), ("unit", unit)))
    labelled = results.to(labels, id=f"label_{name}")
    gathered = labelled.to(t.Collect(size=size, groups=(*groups, "unit"), partial=True), id=f"gather_{name}")
    return gathered.to(t.PlotLines(groups=groups, series=None, value=value, value_unit="unit"), id=f"chart_{name}")
