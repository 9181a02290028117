"""What Spark unpickles in Python processes of its own: classes that travel as code, and open what they hold later.

For each step of planning a query (looking up a source or a sink, its schema, its reader, the variables of its state)
Spark starts a Python process and sends it the class in question. What is defined within a function cloudpickle sends by
value; so those processes do not import riot_ops and what the dataflow is made of, which takes longer than all else
that they do.
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
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from riot_ops.spark.blocks import BLOCKS_DDL

if TYPE_CHECKING:
    from riot_ops.spark.sink import Writer
    from riot_ops.spark.source import Reader
    from riot_ops.spark.stage import StageProcessor

__all__ = ["opened", "packed", "packed_processor", "packed_sink", "packed_source"]

# types, not texts: Spark's worker asks the JVM to parse texts, in every task; and one state variable of as few
# types as can be, as the JVM makes an encoder for each type of each variable in every task
GENERATION = StructType([StructField("generation", LongType())])
DATA = StructType([StructField("data", BinaryType())])

HELPER = "pyspark.sql.streaming.transform_with_state_driver_worker"
#: What the process runs that plans the writing of each micro-batch, as its command line has it.
PLANNER = "pyspark.sql.worker.write_into_data_source"


def packed(what: Any) -> bytes:
    """What workers of one's own get in another way than from Spark."""
    data: bytes = dumps(what)  # type: ignore[no-untyped-call]
    return data


def opened(data: bytes) -> Any:
    """The same again; only what is known to be one's own."""
    return loads(data)


def packed_source(name_of_source: str, reader: Reader) -> type[DataSource]:
    """A data source class over a reader, to be registered with a session."""
    parcel = dumps(reader)  # type: ignore[no-untyped-call]

    class PackedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        opened: Any = None

        def _reader(self) -> Any:
            if self.opened is None:
                self.opened = loads(parcel)
            return self.opened

        def initialOffset(self) -> dict[str, Any]:
            return self._reader().initial_offset()  # type: ignore[no-any-return]

        def getDefaultReadLimit(self) -> ReadLimit:
            return self._reader().read_limit()  # type: ignore[no-any-return]

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            return self._reader().latest_offset(start, limit)  # type: ignore[no-any-return]

        def prepareForTriggerAvailableNow(self) -> None:
            pass  # a source of a bounded run ends by itself

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return self._reader().partitions(start, end)  # type: ignore[no-any-return]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from self._reader().read(partition)
            from riot_ops.spark.worker_gc import settle

            settle()

        def commit(self, end: dict[str, Any]) -> None:
            self._reader().commit(end)

        def stop(self) -> None:
            self._reader().stop()

    class PackedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_source

        def schema(self) -> str:
            return BLOCKS_DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return PackedReader()

    return PackedSource


def packed_sink(name_of_sink: str, writer: Writer) -> type[DataSource]:
    """A data sink class over a writer, to be registered with a session."""
    parcel = dumps(writer)  # type: ignore[no-untyped-call]

    class PackedWriter(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            return loads(parcel).write(iterator)  # type: ignore[no-any-return]

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            loads(parcel).commit(messages, batchId)
            from riot_ops.spark.worker_gc import settle  # which is there now; planning does without it

            settle()

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            """Temporary files of the batch stay; the next start removes them."""

    class PackedSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_sink

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
            if PLANNER in sys.argv and not gc.get_freeze_count():
                gc.freeze()  # as ``settle`` does, which would have to be imported
            return PackedWriter()

    return PackedSink


def packed_processor(stage: StageProcessor) -> StatefulProcessor:
    """The processor of a stage with state."""
    parcel = dumps(stage)  # type: ignore[no-untyped-call]

    class PackedProcessor(StatefulProcessor):
        opened: Any = None

        def __setstate__(self, state: dict[str, Any]) -> None:
            """Keep what the helper for the first look at a processor tells of its own steps out of the terminal.

            It prints five lines per stage. Only its standard output is closed; errors go another way.
            """
            main = getattr(sys.modules["__main__"], "__spec__", None)
            if main is not None and main.name == HELPER:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            vars(self).update(state)

        def __getstate__(self) -> dict[str, Any]:
            return {"sent": True}  # what is empty is not handed to __setstate__

        def init(self, handle: Any) -> None:
            self.chain = handle.getMapState("chain", GENERATION, DATA)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            if self.opened is None:
                self.opened = loads(parcel)
            yield from self.opened.process(int(key[0]), rows, self.chain)
            from riot_ops.spark.worker_gc import settle

            settle()

        def close(self) -> None:
            pass

    return PackedProcessor()
