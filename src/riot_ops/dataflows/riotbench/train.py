"""TRAIN: train models on stored readings, span by span, and publish their names."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.core.schema import stream_schema
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.riotbench import operators
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS, MODELS_TOPIC
from riot_ops.dataflows.riotbench.output_steps import publish_task
from riot_ops.dataflows.riotbench.train_timer import TICKS

__all__ = ["train"]


def train(
    schema: str = "city",
    *,
    store: str = "models",
    table_store: str = "sqlite:///store.db",
    table: str = "readings",
    credential: Secret | None = None,
    reverse: bool | None = None,
    max_depth: int = 8,
    selection: Literal["none", "m5"] = "none",
    publish: dict[str, object] | None = None,
) -> Dataflow:
    """Build TRAIN: ticks → table range → {regression, label → decision tree} → blob → publish.

    Its source ``ticks`` has time spans, such as those of :func:`riot_ops.dataflows.ticks`. The rows of a span
    are read from the table that ETL fills; each span yields two models, which are stored and then
    announced.

    Parameters
    ----------
    schema : str, default "city"
        Stream that the rows come from: city, taxi, fit or grid.
    store : str, default "models"
        Folder or blob container for the models.
    table_store, table : str, default "sqlite:///store.db" and "readings"
        Address of the table's store, and the table.
    credential : Secret, optional
        Credential of both stores, see :class:`riot_ops.tasks.ReadTableRange`.
    reverse : bool, optional
        Whether high values are bad; by default true for city, where the target is air pollution.
    max_depth : int, default 8
        Maximum depth of the decision tree.
    selection : "none" or "m5", default "none"
        Which inputs the regression keeps, see :class:`riot_ops.tasks.TrainLinearRegression`; the benchmark uses
        "m5".
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, such as its ``url``: the name of each model
        is published, retained, on ``models/<stream>/<kind>``. Without it the names only go to the sink.

    Examples
    --------
    >>> train("taxi", store="memory://models", table_store="memory").diagram().count("-->")
    8
    """
    check_arguments(train, locals())
    learning = FEATURE_SETS[stream_schema(schema).name]
    flow = Dataflow("train")
    span = flow.source("ticks", schema=TICKS).to(
        t.ReadTableRange(
            store=table_store,
            table=table,
            partition=schema,
            start="{start}",
            end="{end}",
            schema=dict.fromkeys(learning.features, "double"),
            credential=credential,
        ),
        id="range",
    )
    common = {"size": None, "dataset": schema.upper(), "start_field": "start", "end_field": "end"}
    line = t.TrainLinearRegression(inputs=learning.inputs, target=learning.target, selection=selection, **common)  # type: ignore[arg-type]
    label = operators.LabelQuartile(value=learning.target, reverse=schema == "city" if reverse is None else reverse)
    tree = t.TrainDecisionTree(
        inputs=learning.features,
        target="class",
        classes=label.classes,
        max_depth=max_depth,
        **common,  # type: ignore[arg-type]
    )
    upload = t.UploadBlob(store=store, blob="{model}", value="content", credential=credential)
    results = []
    for kind, models in (
        ("MLR", span.to_single().to(line, id="mlt")),
        ("DTC", span.to(label, id="label").to_single().to(tree, id="dtt")),
    ):
        done = models.to(upload, id=f"upload_{kind.lower()}")
        if publish is not None:
            topic = MODELS_TOPIC.format(stream=schema, kind=kind)
            task = publish_task(publish, topic=topic, payload="model", retain=True)
            done = done.to(task, id=f"publish_{kind.lower()}")
        results.append(done)
    flow.sink("models", *results)
    return flow
