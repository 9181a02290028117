"""StreamBench's programs, their implementations in plain PySpark, and their comparable results."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.baselines.spark.streambench.implementation import Implementation

__all__ = [
    "PROGRAMS",
    "Program",
    "choose_programs",
    "collect_rows",
    "final_results",
    "find_implementations",
    "latest_records",
]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """Description of a program's comparable results.

    Attributes
    ----------
    stream : str
        Result stream of its dataflow.
    fields : tuple of str
        Compared fields, by the names of the dataflow.
    key : tuple of str or None
        Key whose last record alone counts, that with the highest ``count``; None if all records count.
    keeps_count : bool
        Whether the highest ``count`` is a result, too; an implementation that emits values alone leaves the counting to
        the consumer.
    """

    stream: str
    fields: tuple[str, ...]
    key: tuple[str, ...] | None = None
    keeps_count: bool = False

    @property
    def columns(self) -> list[str]:
        """Columns that a comparison needs."""
        return [*self.fields, *(["count"] if self.keeps_count else [])]


#: The programs of StreamBench by name.
PROGRAMS = {
    "identity": Program("records", ("seq", "payload")),
    "sample": Program("records", ("seq", "payload")),
    "projection": Program("values", ("seq", "value")),
    "grep": Program("matches", ("seq", "payload")),
    "wordcount": Program("counts", ("word", "count"), ("word",)),
    "distinct": Program("sizes", ("value",), keeps_count=True),
    "statistics": Program("figures", ("count", "min", "max", "sum", "mean"), ()),
}


def choose_programs(named: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Return the named programs without duplicates, or the default ones if none is named.

    >>> choose_programs(["grep", "identity", "grep"], ["identity"]), choose_programs((), ["identity"])
    (['grep', 'identity'], ['identity'])
    """
    return list(dict.fromkeys(named or usual))


def find_implementations(name: str) -> Mapping[str, Implementation]:
    """Return the implementations of a program in plain PySpark by name."""
    found: Mapping[str, Implementation] = importlib.import_module(
        f"riot_bench.baselines.spark.streambench.{name}"
    ).IMPLEMENTATIONS
    return found


def latest_records(name: str, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records that count: all, or for each key the one with the highest count.

    Records with count 0, which Spark's aggregations emit for empty input, are dropped.
    """
    key = PROGRAMS[name].key
    if key is None:
        return list(rows)
    last: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        of = tuple(row[field] for field in key)
        if row["count"] and (of not in last or row["count"] >= last[of]["count"]):
            last[of] = row
    return list(last.values())


def final_results(name: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the comparable results of a program from the records of a dataflow or of Spark, in any order.

    Lines are text without newlines. One record of each key remains, see :func:`latest_records`, whether records are
    emitted for every input or for every micro-batch. If the number of values is a result, it is the last row.

    >>> final_results("wordcount", [{"word": "a", "count": 1}, {"word": "a", "count": 3}, {"word": "a", "count": 2}])
    [('a', 3)]
    >>> final_results("distinct", [{"value": "a", "count": 1}, {"value": "b", "count": 2}])
    [('a',), ('b',), (2,)]
    """
    one = PROGRAMS[name]
    if isinstance(rows, pa.Table):
        rows = rows.select(one.columns).to_pylist()
    records = latest_records(name, rows)
    found = [tuple(_decode(row[field if field in row else "value"]) for field in one.fields) for row in records]
    if one.keeps_count and records:
        found.append((max(row.get("count", len(records)) for row in records),))
    return found


def _decode(value: Any) -> Any:
    return value.decode("utf-8", "replace").rstrip("\r\n") if isinstance(value, bytes) else value


def collect_rows(frame: Any, implementation: Implementation, checkpoint: Path) -> list[dict[str, Any]]:
    """Collect the rows of a DataFrame; for a streaming one, until its input ends."""
    rows: list[dict[str, Any]] = []

    def take(batch: Any, _: int = 0) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    if not frame.isStreaming:
        take(frame)
        return rows
    writer = frame.writeStream.outputMode(implementation.mode).foreachBatch(take)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return rows
