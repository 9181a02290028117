"""Fraud detection: card holders with an unlikely sequence of purchases."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from riot_ops import tasks as t
from riot_ops.core.parameters import MAX_CELL_INDEX, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench import operators

__all__ = ["fraud_detection"]

Algorithm = Literal["miss_probability", "miss_rate", "entropy_reduction"]


def fraud_detection(
    *,
    model: str | None = None,
    column: Annotated[int, msgspec.Meta(ge=0, le=MAX_CELL_INDEX - 1)] = 1,
    scope: Literal["window", "all"] = "window",
    window: int = 5,
    metric: Algorithm = "miss_probability",
    threshold: float = 0.96,
) -> Dataflow:
    """Build fraud detection (FD): purchases → score of each customer's latest purchases → outliers.

    A line has a customer, a transaction and its state, ``8MFRVKTSJC,T00000000000,LNN``; a line with more or fewer cells
    is an error. With another ``column`` than 1, further cells may follow the state. The result stream is
    ``outliers``, with the fields ``entity_id``, ``score`` and ``states`` (the comma-separated states of the window). A
    state that the model lacks is an error and does not enter the window.

    Parameters
    ----------
    model : str, optional
        Path of a Markov model, see :class:`~riot_ops.dataflows.dspbench.operators.MarkovScore`; by default a model
        trained on generated purchases.
    column : int from 0 to 65,534, default 1
        Index of the state's cell among the cells after the customer.
    scope : "window" or "all", default "window"
        Whether to score the latest purchases, or, from the second purchase on, all of them.
    window : int >= 2, default 5
        Number of latest purchases.
    metric : "miss_probability", "miss_rate" or "entropy_reduction", default "miss_probability"
        Score, see :class:`~riot_ops.dataflows.dspbench.operators.MarkovScore`.
    threshold : float, default 0.96
        Score that an outlier must exceed.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = [f"{who},T{i},{state}" for i in range(5) for who, state in (("Ann", "MNN"), ("Bob", "HHS"))]
    >>> table = pa.table({"payload": lines, "event_time": pa.nulls(10)})
    >>> outliers = fraud_detection().run(table)["outliers"].to_pylist()
    >>> [(row["entity_id"], round(row["score"], 3), row["states"]) for row in outliers]
    [('Bob', 0.996, 'HHS,HHS,HHS,HHS,HHS')]
    """
    check_arguments(fraud_detection, locals())
    flow = Dataflow("fraud_detection")
    # Lines of another layout may have any number of cells after the state.
    fields = {"entity_id": (0, "string"), "state": (1 + column, "string")}
    parse = t.ParseLines(schema=fields, cells=3 if column == 1 else None)
    score = operators.MarkovScore(
        by=("entity_id",),
        model=model,
        metric=metric,
        window=window,
        scope=scope,
        threshold=threshold,
    )
    states = flow.source("cards").to(parse, id="parse")
    outliers = states.partition_by("entity_id").to(score, id="outliers")
    return flow.sink("outliers_sink", outliers)
