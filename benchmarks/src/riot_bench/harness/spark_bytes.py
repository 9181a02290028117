"""Bytes that Spark moves through shuffles and to and from Python workers, by micro-batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from riot_bench.harness.micro_batches import progress
from riot_ops.core.errors import RiotError

__all__ = ["BatchBytes", "ByteLog"]


class BatchBytes(NamedTuple):
    """Bytes of a micro-batch: written and read by shuffles, sent to Python workers and returned from them.

    Those of sources and sinks in Python are left out: Spark counts them twice, and over all micro-batches.
    """

    written: int
    read: int
    to_python: int
    from_python: int


#: Spark's names of the metrics that add up to each figure.
METRICS = (
    ("shuffleBytesWritten",),
    ("localBytesRead", "remoteBytesRead"),
    ("pythonDataSent",),
    ("pythonDataReceived",),
)
#: Operators that read sources and write to sinks.
ENDS = ("MicroBatchScanExec", "WriteToDataSourceV2Exec")


class ByteLog:
    """Keeps the plans of a query's micro-batches, whose metrics are complete when the query has ended.

    Spark offers the metrics of operators as exact numbers only in the plan of the current micro-batch, so
    :meth:`watch` has to be called in each of them.
    """

    def __init__(self) -> None:
        self._executions: dict[int, Any] = {}
        self._streaming: Any = None

    def watch(self, streaming: Any) -> None:
        """Keep the plan of the current micro-batch of a streaming query."""
        self._streaming = streaming
        # PySpark has no public way to the plan
        execution = streaming._jsq.streamingQuery().lastExecution()  # noqa: SLF001
        if execution is not None:
            self._executions[int(execution.currentBatchId())] = execution

    def batches(self) -> list[tuple[BatchBytes, float]]:
        """Return bytes and seconds of each micro-batch, in order, also of those without data that end windows.

        Raises
        ------
        RiotError
            The plan of one was not seen, or there is none.
        """
        reports = {p["batchId"]: p for p in progress(self._streaming) if "addBatch" in p["durationMs"]}
        missing = [batch for batch in reports if batch not in self._executions]
        if missing or not reports:
            raise RiotError(f"{len(missing)} of {len(reports)} micro-batches ended before their plan was seen")
        return [
            (_bytes_of(self._executions[batch].executedPlan()), reports[batch]["durationMs"]["triggerExecution"] / 1000)
            for batch in sorted(reports)
        ]


def _bytes_of(plan: Any) -> BatchBytes:
    totals = dict[str, int]()
    for operator in _operators(plan):
        if operator.getClass().getSimpleName() in ENDS:
            continue
        found = operator.metrics()
        for name in itertools.chain.from_iterable(METRICS):
            metric = found.get(name)
            if metric.isDefined():
                totals[name] = totals.get(name, 0) + max(int(metric.get().value()), 0)  # -1: no task has set it
    return BatchBytes(*(sum(totals.get(name, 0) for name in names) for names in METRICS))


def _operators(plan: Any) -> Iterator[Any]:
    """Yield all operators of a plan, also those of stages if Spark adapts it while it runs."""
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        yield one
        kind = str(one.getClass().getSimpleName())
        if kind == "AdaptiveSparkPlanExec":
            waiting.append(one.executedPlan())
        elif kind.endswith("QueryStageExec"):
            waiting.append(one.plan())
        children = one.children()
        waiting += [children.apply(i) for i in range(children.size())]
