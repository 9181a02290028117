"""A batch DataFrame as a source: its rows, written once to files that the query reads like a log.

A DataFrame has no offsets, and its rows may come in another order when it is computed again; files have offsets and a
fixed order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.source import Offset, Source, Split
from riot_ops.graph.graph import Graph
from riot_ops.spark.dataframe_transform import to_utc
from riot_ops.spark.features import to_arrow_schema
from riot_ops.spark.map_batches import map_batches, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FrameFiles", "has_batch_frames", "write_batch_frames"]

INDEX = "rows.json"


class PartFile(msgspec.Struct, array_like=True):
    """A file and its number of rows."""

    name: str
    rows: int


def write_batch_frames(flow: Graph, given: Any, folder: Path | None) -> Any:
    """Return the given sources, with batch DataFrames written to files below the checkpoint's folder."""
    if isinstance(given, Mapping):
        return {name: _materialized(flow, name, source, folder) for name, source in given.items()}
    nodes = flow.nodes_of_kind("source")
    return _materialized(flow, nodes[0].id, given, folder) if len(nodes) == 1 else given


def is_batch_frame(source: Any) -> bool:
    return hasattr(source, "sparkSession") and not source.isStreaming


def has_batch_frames(given: Any) -> bool:
    """Whether any of the given sources is a batch DataFrame, whose rows the workers write to the checkpoint."""
    return any(map(is_batch_frame, given.values() if isinstance(given, Mapping) else [given]))


def _materialized(flow: Graph, name: str, source: Any, folder: Path | None) -> Any:
    if not is_batch_frame(source):
        return source
    if folder is None:
        raise ConfigError("a batch DataFrame needs a checkpoint in a folder, which keeps its rows to be read again")
    node = flow.nodes.get(name)
    declared = node.schema.names if node is not None and node.schema is not None else []
    # columns that the dataflow does not read are not written; missing ones are reported where sources are bound
    return write_frame(source.select([quoted(n) for n in source.columns if n in declared]), folder / "rows" / name)


def write_frame(frame: DataFrame, folder: Path) -> FrameFiles:
    """Write the rows of a DataFrame to files below a folder, unless they are there, and return the files as a source.

    The rows are numbered, in the order of ``seq`` if there is one, else of the DataFrame's partitions.
    """
    schema = to_arrow_schema(frame.schema)
    index = folder / INDEX
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if "seq" in frame.columns:
            frame = frame.orderBy("seq")
        written = map_batches(frame, file_writer(str(folder), schema), "place int, name string, rows long").collect()
        parts = [PartFile(row["name"], row["rows"]) for row in sorted(written)]
        hidden = folder / f".{INDEX}"
        hidden.write_bytes(msgspec.json.encode(parts))
        os.replace(hidden, index)
    try:
        parts = msgspec.json.decode(index.read_bytes(), type=list[PartFile])
    except msgspec.MsgspecError as error:
        raise StateError(f"{index} is damaged: {error}; use a new checkpoint") from None
    return FrameFiles(folder, parts, schema)


def file_writer(folder: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        # a task that Spark runs twice writes two files, but only one is reported
        name = f"part-{context.partitionId():05d}-{context.taskAttemptId()}.arrow"
        rows = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(os.path.join(folder, name), "wb") as file, pa.ipc.new_file(file, schema, options=options) as out:
            for batch in batches:
                out.write_batch(to_utc(batch).cast(schema))
                rows += batch.num_rows
        yield pa.RecordBatch.from_pydict(
            {"place": pa.array([context.partitionId()], pa.int32()), "name": [name], "rows": [rows]}
        )

    return write


class FrameFiles(Source):
    """The rows of the files, numbered.

    Attributes
    ----------
    had_numbers : bool
        Whether the DataFrame had a column ``seq``; the rows are in its order then.
    """

    def __init__(self, folder: Path, parts: list[PartFile], schema: pa.Schema) -> None:
        self._files = [folder / part.name for part in parts]
        self._starts = [0, *itertools.accumulate(part.rows for part in parts)]
        self.had_numbers: bool = "seq" in schema.names
        if not self.had_numbers:
            schema = schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def initial(self) -> Offset:
        return {"row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = self._starts[-1]
        return {"row": end if limit is None else min(end, start["row"] + limit)}

    def finished(self, offset: Offset) -> bool:
        return bool(offset["row"] >= self._starts[-1])

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        edges = [start["row"] + (end["row"] - start["row"]) * i // n for i in range(n + 1)]
        return [{"start": a, "end": b} for a, b in itertools.pairwise(edges) if a < b]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for file, (first, last) in zip(self._files, itertools.pairwise(self._starts), strict=True):
            if first < split["end"] and last > split["start"]:
                yield from self._rows(file, first, split)

    def _rows(self, file: Path, at: int, split: Split) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as reader:
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                begin, end = max(split["start"] - at, 0), min(split["end"] - at, batch.num_rows)
                if begin < end:
                    yield self._with_numbers(batch.slice(begin, end - begin), at + begin)
                at += batch.num_rows

    def _with_numbers(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if self.had_numbers:
            return batch
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=self._schema)

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["row"] - start["row"])
