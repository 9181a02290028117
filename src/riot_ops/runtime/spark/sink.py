"""riot_ops sinks as a Spark data sink that takes packed blocks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from riot_ops.metrics import Latency
from riot_ops.runtime.spark.blocks import SINK, decode
from riot_ops.sink import Fan, Sink

__all__ = ["packed_sink"]


@dataclass
class _Written(WriterCommitMessage):
    message: dict[str, Any]


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, routes: Mapping[str, Sequence[str]], sinks: Mapping[str, Sink], metrics: str) -> None:
        self._routes = routes
        self._sinks = sinks
        self._metrics = metrics

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        fan = Fan(self._routes, self._sinks, batch_id, context.partitionId())
        latency = Latency()
        try:
            for rows in iterator:
                addresses = rows.drop_columns(["payload"]).to_pylist()
                for row, payload in zip(addresses, rows.column("payload"), strict=True):
                    if row["stage"] == SINK:
                        for batch in decode(payload.as_buffer()):
                            fan.write(row["stream"], batch)
                        latency.add(row["first_us"], row["last_us"], time.time() * 1e6, row["rows"])
            return _Written({**fan.finish(), "latency": latency.blocks()})
        except BaseException:
            fan.abort()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [m.message for m in messages if isinstance(m, _Written)]
        for name, sink in self._sinks.items():
            sink.commit(batchId, [m["sinks"][name] for m in written])
        _write_metrics(Path(self._metrics), batchId, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Temporary files of the batch stay; the next start removes them."""


def _write_metrics(folder: Path, batch_id: int, written: list[dict[str, Any]]) -> None:
    """Counts and latency of a batch, for the process that started the query."""
    rows: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for message in written:
        for total, part in ((rows, message["rows"]), (reasons, message["reasons"])):
            for name, n in part.items():
                total[name] = total.get(name, 0) + n
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{batch_id}.tmp"
    temporary.write_text(
        json.dumps({"rows": rows, "reasons": reasons, "latency": [b for m in written for b in m["latency"]]}),
        encoding="utf-8",
    )
    os.replace(temporary, folder / f"{batch_id}.json")


def packed_sink(
    name_of_sink: str, routes: Mapping[str, Sequence[str]], sinks: Mapping[str, Sink], metrics: str
) -> type[DataSource]:
    """A data sink class over bound sinks, to be registered with a session."""

    class PackedSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_sink

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
            return _Writer(routes, sinks, metrics)

    return PackedSink
