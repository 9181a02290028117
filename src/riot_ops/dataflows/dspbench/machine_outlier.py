"""Machine outlier: machines of a cluster whose load differs from the others."""

from __future__ import annotations

from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, Positive, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench import operators

__all__ = ["machine_outlier"]

#: By format of the trace: number of cells per line, position and type of each field, and maximum load.
FORMATS: dict[str, tuple[int, dict[str, tuple[int, str]], float]] = {
    "alibaba": (
        9,
        {"event_time": (1, "s"), "machine_id": (0, "string"), "cpu": (2, "double"), "memory": (3, "double")},
        100.0,
    ),
    "google": (
        19,
        {"event_time": (0, "us"), "machine_id": (4, "string"), "cpu": (5, "double"), "memory": (6, "double")},
        1.0,
    ),
}


def machine_outlier(
    *,
    format: Literal["alibaba", "google"] = "alibaba",
    cpu_scale: Positive | None = None,
    memory_scale: Positive | None = None,
    scorer: Literal["window", "decayed"] = "window",
    window: Count = 10,
    decay: Positive = 0.02,
    method: Literal["median", "top"] = "median",
    k: Count = 3,
    partial: bool = True,
) -> Dataflow:
    """Build machine outlier (MO): loads of machines → distance from the others → score over time → outliers.

    Each machine that reports at one time is a point of CPU and memory load; 1 plus its distance from the centre of all
    points is the machine's score at that time. The result stream is ``alerts``, with the fields ``machine_id``,
    ``stream_score`` (over time), ``timestamp``, ``instance_score`` (at that time) and ``is_abnormal``. A reading that
    arrives after a reading of a later time is an error (``late``), and so is a line with a negative load, with a load
    over the maximum of the format (or the larger divisor given for it), or with a cell that is neither empty nor a
    number.

    Parameters
    ----------
    format : "alibaba" or "google", default "alibaba"
        Format of the trace: machine, seconds, CPU and memory in percent and five more cells; or 19 cells, with
        microseconds in the first cell, and machine, CPU and memory (as shares) from the fifth on.
    cpu_scale, memory_scale : float > 0, optional
        Divisors that scale the loads to [0, 1]; by default the maximum load of the format, 100 or 1.
    scorer : "window" or "decayed", default "window"
        Score over time: the sum of the latest scores, or a decaying sum that is emitted for every machine at every
        time, see :class:`~riot_ops.dataflows.dspbench.operators.DecayedScores`.
    window : int >= 1, default 10
        Number of latest scores in the sum.
    decay : float > 0, default 0.02
        Decay rate of the decaying sum.
    method : "median" or "top", default "median"
        Which scores are outliers: those far above the median, or the largest of each time; in the latter case all
        records are emitted, see :class:`~riot_ops.dataflows.dspbench.operators.BatchOutliers`.
    k : int >= 1, default 3
        Number of largest scores.
    partial : bool, default True
        Whether the end of the stream closes its last time; else each step that waits for that end drops it.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = [f"m_{m},{60 * k},{90 if m == 3 else 30},40,,,1,1,1" for k in range(8) for m in range(5)]
    >>> alerts = machine_outlier().run(pa.table({"payload": lines, "event_time": pa.nulls(40)}))["alerts"]
    >>> [(row["machine_id"], f"{row['timestamp']:%H:%M}", round(row["stream_score"], 2)) for row in alerts.to_pylist()]
    [('m_3', '00:07', 11.84)]
    """
    check_arguments(machine_outlier, locals())
    cells, fields, scale = FORMATS[format]
    flow = Dataflow("machine_outlier")
    # All cells are read, because a line with a malformed one is damaged: none of its values can be trusted.
    read = {cell for cell, _ in fields.values()}
    others = {f"cell_{cell}": (cell, "double", None) for cell in range(cells) if cell not in read}
    lines = flow.source("usage").to(t.ParseLines(cells=cells, schema={**fields, **others}), id="parse")
    scales = (scale if cpu_scale is None else cpu_scale, scale if memory_scale is None else memory_scale)
    # A larger divisor than the format's maximum says that the loads reach it, such as the sum over processors.
    bounds = {name: (0.0, max(scale, float(divisor))) for name, divisor in zip(("cpu", "memory"), scales, strict=True)}
    lines = lines.to(t.RangeFilter(by=None, bounds=bounds, on_error="reject"), id="check")
    loads = lines >> t.Project(fields=("machine_id", "cpu", "memory"))
    distance = operators.CenterDistance(
        fields=("cpu", "memory"),
        scales=scales,
        bias=1.0,
        output="instance_score",
        partial=partial,
    )
    scores = loads.to_single().to(distance, id="instance_scores")
    over_time: Any = t.SlidingSum(by=("machine_id",), value="instance_score", window=window, output="stream_score")
    if scorer == "decayed":
        over_time = operators.DecayedScores(
            item="machine_id", value="instance_score", decay=decay, output="stream_score", partial=partial
        )
    spread = scores.partition_by("machine_id") if scorer == "window" else scores.to_single()
    sums = spread.to(over_time, id="stream_scores")
    outliers = operators.BatchOutliers(
        value="stream_score",
        latest="instance_score",
        method=method,
        k=k,
        emit_all=method == "top",
        output="is_abnormal",
        time="timestamp",
        partial=partial,
    )
    return flow.sink("alerts_sink", sums.to_single().to(outliers, id="alerts"))
