"""State of a whole stream in plain PySpark: a single key whose value is a pickled object."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

__all__ = ["GlobalState", "with_global_state"]


class GlobalState(Protocol):
    """A state that is updated by all rows of a stream."""

    def update(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        """Process the rows of a micro-batch and return the output rows."""


class _GlobalStateProcessor(StatefulProcessor):
    def __init__(self, make: Callable[[], GlobalState], names: list[str]) -> None:
        self._make = make
        self._names = names

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        state = self._make() if stored is None else pickle.loads(stored[0])  # noqa: S301 (our own)
        found = state.update(rows)
        self._state.update((pickle.dumps(state),))
        yield pd.DataFrame(found, columns=self._names, dtype=object)  # integers may be missing

    def close(self) -> None:
        pass


def with_global_state(frame: Any, make: Callable[[], GlobalState], schema: str) -> Any:
    """Apply a global state to all rows; ``schema`` has the names and types of the output."""
    names = [part.split()[0] for part in schema.split(", ")]
    return (
        frame.withColumn("_all", f.lit(True))
        .groupBy("_all")
        .transformWithStateInPandas(
            _GlobalStateProcessor(make, names), outputStructType=schema, outputMode="append", timeMode="None"
        )
    )
