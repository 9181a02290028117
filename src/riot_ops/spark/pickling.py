"""Classes that Spark unpickles in its own Python processes: they travel by value, and unpickle their content later.

For each step of planning a query (looking up a source or a sink, its schema, its reader, the variables of its state)
Spark starts a Python process and sends it the class in question. cloudpickle sends classes defined within a function by
value. So those processes import neither riot_ops nor the dataflow's modules, which would take longer than all their
other work.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from riot_ops.spark.blocks import BLOCKS_DDL
from riot_ops.spark.features import DataSourceStreamArrowWriter, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from riot_ops.spark.sink import SinkCommitter
    from riot_ops.spark.source import Reader
    from riot_ops.spark.stage import StageProcessor

__all__ = ["from_pickle", "pickled_processor", "pickled_sink", "pickled_source", "to_pickle"]

# types instead of DDL texts, which Spark's worker would have the JVM parse in every task; and one state variable of as
# few types as possible, as the JVM makes an encoder for each type of each variable in every task
GENERATION = StructType([StructField("generation", LongType())])
DATA = StructType([StructField("data", BinaryType())])

INSPECTOR = "pyspark.sql.streaming.transform_with_state_driver_worker"
#: Command-line argument of the process that plans the writing of each micro-batch.
WRITE_PLANNER = "pyspark.sql.worker.write_into_data_source"


def to_pickle(what: Any) -> bytes:
    """Pickle an object for our own workers, for which Spark has no channel."""
    data: bytes = dumps(what)  # type: ignore[no-untyped-call]
    return data


def from_pickle(data: bytes) -> Any:
    """Unpickle an object of :func:`to_pickle`; never call it with bytes of unknown origin."""
    return loads(data)


def pickled_source(name_of_source: str, reader: Reader) -> type[DataSource]:
    """Return a data source class over a reader, to register with a session."""
    pickled = dumps(reader)  # type: ignore[no-untyped-call]

    class PickledReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        processor: Any = None

        def _reader(self) -> Any:
            if self.processor is None:
                self.processor = loads(pickled)
            return self.processor

        def initialOffset(self) -> dict[str, Any]:
            return self._reader().begin()  # type: ignore[no-any-return]

        def getDefaultReadLimit(self) -> ReadLimit:
            return self._reader().read_limit()  # type: ignore[no-any-return]

        def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
            return self._reader().advance(start, limit)  # type: ignore[no-any-return]

        def prepareForTriggerAvailableNow(self) -> None:
            pass  # a source of a bounded run ends by itself

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return self._reader().plan(start, end)  # type: ignore[no-any-return]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from self._reader().read(partition)
            from riot_ops.spark.worker_gc import freeze_once

            freeze_once()

        def commit(self, end: dict[str, Any]) -> None:
            self._reader().commit(end)

        def stop(self) -> None:
            self._reader().stop()

    class PickledSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_source

        def schema(self) -> str:
            return BLOCKS_DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return PickledReader()

    return PickledSource


def pickled_sink(name_of_sink: str, writer: SinkCommitter) -> type[DataSource]:
    """Return a data sink class over a committer, to register with a session."""
    pickled = dumps(writer)  # type: ignore[no-untyped-call]

    class PickledWriter(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            return loads(pickled).write(iterator)  # type: ignore[no-any-return]

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            loads(pickled).commit(messages, batchId)
            from riot_ops.spark.worker_gc import freeze_once  # loaded by now; planning does without it

            freeze_once()

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            loads(pickled).abort(batchId)

    class PickledSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_sink

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
            if WRITE_PLANNER in sys.argv and not gc.get_freeze_count():
                gc.freeze()  # like freeze_once(), without importing it
            return PickledWriter()

    return PickledSink


def pickled_processor(stage: StageProcessor) -> StatefulProcessor:
    """Return the processor of a stage with state."""
    pickled = dumps(stage)  # type: ignore[no-untyped-call]

    class PickledProcessor(StatefulProcessor):
        processor: Any = None

        def __setstate__(self, state: dict[str, Any]) -> None:
            """Keep the output of Spark's helper that inspects a processor out of the terminal.

            It prints five lines per stage. Only its standard output is closed; errors take another way.
            """
            main = getattr(sys.modules["__main__"], "__spec__", None)
            if main is not None and main.name == INSPECTOR:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            vars(self).update(state)

        def __getstate__(self) -> dict[str, Any]:
            return {"sent": True}  # an empty state would not be passed to __setstate__

        def init(self, handle: Any) -> None:
            self.chain = handle.getMapState("chain", GENERATION, DATA)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            if self.processor is None:
                self.processor = loads(pickled)
            yield from self.processor.process(int(key[0]), rows, self.chain)
            from riot_ops.spark.worker_gc import freeze_once

            freeze_once()

        def close(self) -> None:
            pass

    return PickledProcessor()
