"""Bytes of micro-batches, from plans as Spark has them."""

from __future__ import annotations

from typing import Any

import pytest
from riot_bench.harness.spark_bytes import BatchBytes, ByteLog

from riot_ops.core.errors import RiotError


class Option:
    """An option, or a metric, of Scala."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def isDefined(self) -> bool:  # noqa: N802 - as in Scala
        return self.number is not None

    def get(self) -> Option:
        return self

    def value(self) -> int:
        assert self.number is not None
        return self.number


class Operator:
    """An operator of a plan: its kind, children and metrics, and the plan that a wrapper hides."""

    def __init__(self, kind: str, *children: Operator, hidden: Operator | None = None, **numbers: int) -> None:
        self._kind, self._children, self._hidden, self._numbers = kind, children, hidden, numbers

    def metrics(self) -> Any:
        numbers = self._numbers

        class Map:
            def get(self, name: str) -> Option:
                return Option(numbers.get(name))

        return Map()

    def children(self) -> Any:
        children = self._children

        class Seq:
            def size(self) -> int:
                return len(children)

            def apply(self, i: int) -> Operator:
                return children[i]

        return Seq()

    def getClass(self) -> Operator:  # noqa: N802 - as in Java
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - as in Java
        return self._kind

    def executedPlan(self) -> Operator | None:  # noqa: N802 - as in Spark
        return self._hidden

    def plan(self) -> Operator | None:
        return self._hidden


class Streaming:
    """A streaming query whose current micro-batch is set by the test."""

    def __init__(self, *seconds: float) -> None:
        self.current: tuple[int, Operator] | None = None
        self.recentProgress = [
            {"batchId": i, "durationMs": {"triggerExecution": 1000 * s, "addBatch" if s else "latestOffset": 1}}
            for i, s in enumerate(seconds)
        ]
        self._jsq = self

    def streamingQuery(self) -> Streaming:  # noqa: N802 - as in Spark
        return self

    def lastExecution(self) -> Any:  # noqa: N802 - as in Spark
        if self.current is None:
            return None
        batch, plan = self.current

        class Execution:
            def currentBatchId(self) -> int:  # noqa: N802 - as in Spark
                return batch

            def executedPlan(self) -> Operator:  # noqa: N802 - as in Spark
                return plan

        return Execution()


def test_bytes_of_all_operators_add_up_by_micro_batch() -> None:
    scan = Operator("MicroBatchScanExec", Operator("MapInArrowExec", pythonDataSent=-1), pythonDataReceived=9)
    exchange = Operator("ShuffleExchangeExec", scan, shuffleBytesWritten=100, localBytesRead=60, remoteBytesRead=40)
    udf = Operator("ArrowEvalPythonExec", exchange, pythonDataSent=7, pythonDataReceived=5)
    stage = Operator("ShuffleQueryStageExec", hidden=Operator("ShuffleExchangeExec", shuffleBytesWritten=30))
    adapted = Operator("AdaptiveSparkPlanExec", hidden=Operator("ProjectExec", stage, udf))
    streaming, log = Streaming(2.0, 0.0, 0.5), ByteLog()
    log.watch(streaming)  # it has not begun
    for batch, plan in (
        (0, Operator("WriteToDataSourceV2Exec", adapted, exchange, pythonDataSent=9)),
        (1, udf),
        (2, udf),
        (2, udf),
    ):
        streaming.current = batch, plan
        log.watch(streaming)
    assert log.batches() == [(BatchBytes(230, 200, 7, 5), 2.0), (BatchBytes(100, 100, 7, 5), 0.5)]


def test_micro_batch_whose_plan_was_not_seen_is_refused() -> None:
    streaming, log = Streaming(1.0, 1.0), ByteLog()
    streaming.current = 1, Operator("ProjectExec")
    log.watch(streaming)
    with pytest.raises(RiotError, match="1 of 2 micro-batches ended before their plan was seen"):
        log.batches()
