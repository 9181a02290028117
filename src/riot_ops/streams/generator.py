"""What the generated streams have in common: records by number, in one of three forms."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.schema import OBSERVATIONS, RAW, TIMESTAMP, StreamSchema
from riot_ops.core.source import Offset, Split
from riot_ops.streams.pace import TimedSource

__all__ = ["FORMATS", "Format", "GeneratedSource", "null_bitmap", "text_column"]

Format = Literal["senml", "csv", "observations", "wide"]
FORMATS = ("senml", "csv", "observations", "wide")

#: How far one may read at once in a stream without end, if nobody sets a limit.
AHEAD = 1 << 20


class GeneratedSource(TimedSource):
    """A stream whose record *i* is a function of the parameters, the seed and *i* alone.

    Subclasses say what a range of messages looks like in each format.
    """

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
        if messages is not None and (not isinstance(messages, int) or messages < 0):
            raise ConfigError(f"messages must be a number >= 0 or None, got {messages!r}")
        if not isinstance(seed, int):
            raise ConfigError(f"seed must be a whole number, got {seed!r}")
        self.messages = messages
        self.seed = seed
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

    @abstractmethod
    def _time_of(self, message: int) -> int:
        """Event time of a message in ms."""

    @abstractmethod
    def _messages_until(self, time_ms: int) -> int:
        """Number of messages not later than a time."""

    # -- source ------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        if self.format in ("senml", "csv"):
            return RAW
        return OBSERVATIONS if self.format == "observations" else wide_schema(self.stream)

    def initial(self) -> Offset:
        return {"message": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = start["message"] + (
            AHEAD if limit is None and self.messages is None else self.messages if limit is None else limit
        )
        return {"message": end if self.messages is None else max(start["message"], min(end, self.messages))}

    def finished(self, offset: Offset) -> bool:
        return self.messages is not None and bool(offset["message"] >= self.messages)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        a, b = start["message"], end["message"]
        edges = [a + (b - a) * i // n for i in range(n + 1)]
        return [{"start": x, "end": y} for x, y in itertools.pairwise(edges) if x < y]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        make = {"senml": self.lines, "csv": self.lines, "observations": self.observations, "wide": self.wide}[
            self.format
        ]
        step = self.rows_per_batch[self.format]
        for start in range(split["start"], split["end"], step):
            yield make(start, min(start + step, split["end"]))

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["message"] - start["message"])

    def time_at(self, offset: Offset) -> int | None:
        return None if self.finished(offset) else self._time_of(offset["message"]) * 1000

    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        end = max(start["message"], self._messages_until(event_time // 1000))
        if limit is not None:
            end = min(end, start["message"] + limit)
        return {"message": end if self.messages is None else max(start["message"], min(end, self.messages))}

    def __getstate__(self) -> dict[str, Any]:
        """Parameters only: tables are built where they are needed."""
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in self.__getstate__().items())
        return f"{type(self).__name__}({parameters})"


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
    """The columns ``sub`` and ``obs_type`` for up to so many messages."""
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
    """Observations from columns that have a row per observation."""
    n = len(seq)
    sub, kinds = observed_columns(stream, rows)
    return pa.RecordBatch.from_arrays(
        [pa.array(seq), sub.slice(0, n), timestamps(times), ids, kinds.slice(0, n), values], schema=OBSERVATIONS
    )


def timestamps(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Microseconds as a timestamp column, not copied."""
    return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)], 0)


def text_column(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], kind: pa.DataType | None = None
) -> pa.Array:
    """A text column over bytes written end to end, not copied."""
    return pa.Array.from_buffers(
        kind or pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0
    )


def null_bitmap(values: npt.NDArray[np.float64]) -> pa.Array:
    """A float column with null where NaN; the values are not copied."""
    missing = np.isnan(values)
    if not missing.any():
        return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)], 0)
    bits = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(values), [pa.py_buffer(bits), pa.py_buffer(values)], -1)
