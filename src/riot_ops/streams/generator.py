"""Base class of the generated streams: records by number, in one of three forms."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.schema import OBSERVATIONS, RAW, StreamSchema
from riot_ops.core.source import Split
from riot_ops.kernels.arrays.buffers import timestamp_column
from riot_ops.streams.indexed import IndexedSource

__all__ = ["FORMATS", "Format", "GeneratedSource"]

Format = Literal["senml", "csv", "observations", "wide"]
FORMATS = ("senml", "csv", "observations", "wide")


class GeneratedSource(IndexedSource):
    """A stream of RIoTBench, generated: subclasses make a range of messages in each format."""

    stream: ClassVar[StreamSchema]
    rows_per_batch: ClassVar[Mapping[str, int]] = {
        "senml": 8192,
        "csv": 8192,
        "observations": 8192,
        "wide": 32768,
    }

    def __init__(self, messages: int | None, seed: int, format: str) -> None:
        if format not in FORMATS:
            raise ConfigError(
                f"format must be one of {', '.join(FORMATS)}, got {format!r}{did_you_mean(str(format), FORMATS)}"
            )
        super().__init__(messages, seed)
        self.format = format

    # -- what subclasses provide -------------------------------------------------------------------

    @abstractmethod
    def lines(self, start: int, end: int, newline: bool = False) -> pa.RecordBatch:
        """Messages as text: CSV if that is the format, else the wire format; with or without line breaks."""

    @abstractmethod
    def observations(self, start: int, end: int) -> pa.RecordBatch:
        """Messages as one row per observed value."""

    @abstractmethod
    def wide(self, start: int, end: int) -> pa.RecordBatch:
        """Messages as one row each, with a column per field."""

    # -- source ------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        if self.format in ("senml", "csv"):
            return RAW
        return OBSERVATIONS if self.format == "observations" else wide_schema(self.stream)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        make = {"senml": self.lines, "csv": self.lines, "observations": self.observations, "wide": self.wide}[
            self.format
        ]
        step = self.rows_per_batch[self.format]
        for start in range(split["start"], split["end"], step):
            yield make(start, min(start + step, split["end"]))


@functools.cache
def wide_schema(stream: StreamSchema) -> pa.Schema:
    """``seq``, ``event_time`` and the stream's own columns."""
    kinds = dict(zip(stream.columns, stream.kinds, strict=True))
    return pa.schema(
        [
            RAW.field("seq"),
            RAW.field("event_time"),
            *(
                pa.field(c, pa.float64() if kinds[c] == "v" else pa.string())
                for c in stream.columns
                if c != stream.time_field
            ),
        ]
    )


@functools.lru_cache(8)
def observed_columns(stream: StreamSchema, messages: int) -> tuple[pa.Array, pa.Array]:
    """Return the columns ``ordinal`` and ``obs_type`` for a maximum of ``messages`` messages."""
    names = stream.observed
    index = np.tile(np.arange(len(names)), messages)
    return pa.array(index), pa.array(names).take(pa.array(index))


def observation_batch(
    stream: StreamSchema,
    rows: int,
    seq: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    ids: pa.Array,
    values: pa.Array,
) -> pa.RecordBatch:
    """Return the observations from columns that have a row per observation."""
    n = len(seq)
    sub, kinds = observed_columns(stream, rows)
    return pa.RecordBatch.from_arrays(
        [pa.array(seq), sub.slice(0, n), timestamp_column(times), ids, kinds.slice(0, n), values], schema=OBSERVATIONS
    )
