"""State that is of the whole stream, in plain PySpark: one key, whose value is a pickled object."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

__all__ = ["Follower", "followed"]


class Follower(Protocol):
    """What follows a stream from row to row."""

    def follow(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        """The rows that the rows of a micro-batch give."""


class _OfAll(StatefulProcessor):
    def __init__(self, make: Callable[[], Follower], names: list[str]) -> None:
        self._make = make
        self._names = names

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("follower", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        follower = self._make() if stored is None else pickle.loads(stored[0])  # noqa: S301 (our own)
        found = follower.follow(rows)
        self._state.update((pickle.dumps(follower),))
        yield pd.DataFrame(found, columns=self._names, dtype=object)  # whole numbers may be missing

    def close(self) -> None:
        pass


def followed(frame: Any, make: Callable[[], Follower], schema: str) -> Any:
    """What a follower of all rows gives, in columns of a schema of names and types."""
    names = [part.split()[0] for part in schema.split(", ")]
    return (
        frame.withColumn("_all", f.lit(True))
        .groupBy("_all")
        .transformWithStateInPandas(_OfAll(make, names), outputStructType=schema, outputMode="append", timeMode="None")
    )
