"""PRED: classify and predict from live sensor readings, with models that are replaced while it runs."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, check_arguments
from riot_ops.core.schema import RAW, stream_schema
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.riotbench.learning import LEARNING, rows
from riot_ops.dataflows.riotbench.results import (
    GATHERED,
    PAPER_WINDOW,
    WINDOW,
    ZIPPED,
    check_form,
    published,
    stored,
)

__all__ = ["MODELS", "pred"]

#: The source of the names of new models; what an MQTT subscription delivers.
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
    store. Every instance of a predicting task goes over to a new model at the same place of the
    stream; each result names the model it was made with. The paper's form also gathers the results, draws
    them and stores the charts.

    Parameters
    ----------
    schema : str, default "city"
        Stream to read: city, taxi, fit or grid.
    form : "publish" or "paper", default "publish"
        Which of the two forms.
    store : str, default "models"
        Folder or blob container with the models, see :meth:`riot_ops.models.ModelStore.open`.
    classifier, regression : str, optional
        Names of the models to begin with; without them records are rejected as ``no_model`` until
        the first of each kind comes.
    average_window : int, default in the paper's form 90 for city (else 10), in the other 10
        Observations of a sensor per average, to which errors are relative.
    sliding : bool, default True in the paper's form, False in the other
        Average over the last observations at every one, instead of one average per block.
    parallelism : int, default 1
        Instances of the predicting tasks.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, its ``topic`` included; results are
        published as JSON. Without it they end in the sink alone.
    plot_size : int, default 20 (taxi: 10, grid: 8000)
        Results of a kind, classes or errors, per set of charts, in the paper's form. A set has a chart for each
        of its sensors.
    zip_size : int, default 100 (taxi and fit: 10, grid: 50)
        Charts per zip archive, with ``charts``.
    charts : str, optional
        In the paper's form: folder or blob container for zip archives of charts, see
        :class:`riot_ops.tasks.UploadBlob`. Without it charts end in the sink as they are.

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
    learning = LEARNING[stream_schema(schema).name]
    flow = Dataflow("pred")
    observed = rows(flow.source(schema), schema)
    columns = pa.schema([("sensor_id", pa.string()), *((name, pa.float64()) for name in learning.features)])
    updates = flow.source(MODELS, schema=UPDATES_SCHEMA)
    live = observed.to(t.Project(fields=tuple(columns.names), nulls={UPDATE: "binary"}), id="readings")
    news = updates.to(t.Project(fields=(UPDATE,), nulls=columns), id="updates")
    spread = (live.shuffle(parallelism), news.broadcast(parallelism))
    tree = t.ClassifyDecisionTree(
        inputs=learning.features, store=store, model=classifier, updates=UPDATE, model_field="model"
    )
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
    flow.sink("publish", *published([classes, error], publish))
    if paper:
        size = GATHERED[schema] if plot_size is None else plot_size
        drawn = merge(
            _charts(classes, "DTC", "class_index", "class index", size),
            _charts(error, "MLR", "error", "relative error", size),
        )
        flow.sink("plots", stored(drawn, charts, ZIPPED[schema] if zip_size is None else zip_size))
    return flow


def _error(mlr: Stream, average: Stream, target: str) -> Stream:
    """Predictions and averages together, as the error estimate reads them."""
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
    """Gather the results of an analytic and draw a chart for each sensor."""
    groups, name = ("sensor_id", "analytic"), analytic.lower()
    labels = t.Project(fields=("sensor_id", value), constants=(("analytic", analytic), ("unit", unit)))
    labelled = results.to(labels, id=f"label_{name}")
    gathered = labelled.to(t.Collect(size=size, groups=(*groups, "unit"), partial=True), id=f"gather_{name}")
    return gathered.to(t.PlotLines(groups=groups, line=None, value=value, unit="unit"), id=f"chart_{name}")
