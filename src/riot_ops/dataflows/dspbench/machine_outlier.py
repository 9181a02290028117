"""Machine outlier: machines of a cluster whose load is unlike that of the others."""

from __future__ import annotations

from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, Positive, check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["machine_outlier"]

#: By format of the trace: how many cells a line has, what is in which, and how large a load is at most.
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
    trigger: Literal["median", "top"] = "median",
    top: Count = 3,
    partial: bool = True,
) -> Dataflow:
    """Build machine outlier (MO): loads of machines → distance from the others → over time → machines that stand out.

    The machines that report at one time make up a point each, of processor and memory; its distance from their centre,
    and 1, is the machine's score at that time. The result stream is ``alerts``, with the fields ``machine_id``,
    ``stream_score`` (over time), ``timestamp``, ``instance_score`` (of that time) and ``is_abnormal``. A reading
    that comes after one of a later time is an error (``late``).

    Parameters
    ----------
    format : "alibaba" or "google", default "alibaba"
        Whose traces the lines are: machine, seconds, percent of processor and memory and five cells more; or 19 cells,
        with microseconds in the first, then from the fifth on machine, processor and memory, as shares.
    cpu_scale, memory_scale : float > 0, optional
        What loads are divided by, to be between 0 and 1; by default 100 and 1, by format.
    scorer : "window" or "decayed", default "window"
        The score over time: the sum of the latest, or a sum that fades and is put out for every machine at every time,
        see :class:`riot_ops.tasks.DecayedScores`.
    window : int >= 1, default 10
        How many the latest are.
    decay : float > 0, default 0.02
        How fast sums fade.
    trigger : "median" or "top", default "median"
        What stands out: scores far above the median, or the largest of each time; in the latter case all are put out,
        see :class:`riot_ops.tasks.BatchOutliers`.
    top : int >= 1, default 3
        How many the largest are.
    partial : bool, default True
        Whether the end of the stream ends its last time as well; else that is lost, in each step that waits for it.

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
    loads = flow.source("usage").to(t.ParseLines(cells=cells, fields=fields), id="parse")
    distance = t.CenterDistance(
        fields=("cpu", "memory"),
        scales=(scale if cpu_scale is None else cpu_scale, scale if memory_scale is None else memory_scale),
        offset=1.0,
        output="instance_score",
        partial=partial,
    )
    scores = loads.to_single().to(distance, id="instance_scores")
    over_time: Any = t.SlidingSum(by=("machine_id",), value="instance_score", window=window, output="stream_score")
    if scorer == "decayed":
        over_time = t.DecayedScores(
            thing="machine_id", score="instance_score", decay=decay, output="stream_score", partial=partial
        )
    spread = scores.partition_by("machine_id") if scorer == "window" else scores.to_single()
    sums = spread.to(over_time, id="stream_scores")
    outliers = t.BatchOutliers(
        score="stream_score",
        latest="instance_score",
        method=trigger,
        top=top,
        emit="outliers" if trigger == "median" else "all",
        output="is_abnormal",
        time="timestamp",
        partial=partial,
    )
    return flow.sink("alerts_sink", sums.to_single().to(outliers, id="alerts"))
