"""The forms of StreamBench's programs, and the digest by which their results are known to be the same."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from riot_bench.baselines.spark.streambench.form import Form

__all__ = ["PROGRAMS", "Program", "chosen", "collected", "digest", "forms", "latest", "settled"]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """What the results of a program come to in the end.

    Attributes
    ----------
    stream : str
        The result stream of its dataflow.
    fields : tuple of str
        What is compared, by the names of the dataflow.
    key : tuple of str or None
        The fields that tell a key of which only the last record counts, that with the highest ``count``; None: all
        records count.
    sized : bool
        Whether the highest ``count`` is a result of its own; what puts out values alone leaves it to be counted.
    """

    stream: str
    fields: tuple[str, ...]
    key: tuple[str, ...] | None = None
    sized: bool = False

    @property
    def columns(self) -> list[str]:
        """What is to be known of a record."""
        return [*self.fields, *(["count"] if self.sized else [])]


#: The programs of StreamBench by name.
PROGRAMS = {
    "identity": Program("records", ("seq", "payload")),
    "sample": Program("records", ("seq", "payload")),
    "projection": Program("values", ("seq", "value")),
    "grep": Program("matches", ("seq", "payload")),
    "wordcount": Program("counts", ("word", "count"), ("word",)),
    "distinct": Program("sizes", ("value",), sized=True),
    "statistics": Program("figures", ("count", "min", "max", "sum", "mean"), ()),
}


def chosen(named: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The programs of a suite: those that are named, once each; where none is, its usual ones.

    >>> chosen(["grep", "identity", "grep"], ["identity"]), chosen((), ["identity"])
    (['grep', 'identity'], ['identity'])
    """
    return list(dict.fromkeys(named or usual))


def forms(name: str) -> Mapping[str, Form]:
    """The forms of a program in plain PySpark, by name."""
    found: Mapping[str, Form] = importlib.import_module(f"riot_bench.baselines.spark.streambench.{name}").FORMS
    return found


def latest(name: str, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of a program that count: all, or of those of a key that with the highest count.

    None is left where that is 0, which Spark's aggregations of nothing put out.
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


def settled(name: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> list[Row]:
    """What the records of a program come to, those of a dataflow or those of Spark, in no order.

    Lines are texts without their ends. Of the records of a key, which may come after every record or with every
    micro-batch, one is left, see :func:`latest`. How many values there are stands behind them where that is a result.

    >>> settled("wordcount", [{"word": "a", "count": 1}, {"word": "a", "count": 3}, {"word": "a", "count": 2}])
    [('a', 3)]
    >>> settled("distinct", [{"value": "a", "count": 1}, {"value": "b", "count": 2}])
    [('a',), ('b',), (2,)]
    """
    one = PROGRAMS[name]
    if isinstance(rows, pa.Table):
        rows = rows.select(one.columns).to_pylist()
    records = latest(name, rows)
    found = [tuple(_text(row[field if field in row else "value"]) for field in one.fields) for row in records]
    if one.sized and records:
        found.append((max(row.get("count", len(records)) for row in records),))
    return found


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace").rstrip("\r\n") if isinstance(value, bytes) else value


def digest(rows: Iterable[Row]) -> str:
    """A digest of rows that does not depend on their order: how many, and the sum of the SHA-256 of each modulo 2^256.

    A row that comes twice counts twice, and ``1`` is not ``1.0``.

    >>> digest([("a", 1), ("b", 2.0)]) == digest([("b", 2.0), ("a", 1)])
    True
    """
    count = total = 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest())
    return f"{count}-{total % (1 << 256):064x}"


def collected(frame: Any, form: Form, checkpoint: Path) -> list[dict[str, Any]]:
    """The rows of a streaming DataFrame until its input ends, or of one that does not stream."""
    rows: list[dict[str, Any]] = []

    def take(batch: Any, _: int = 0) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    if not frame.isStreaming:
        take(frame)
        return rows
    writer = frame.writeStream.outputMode(form.mode).foreachBatch(take)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return rows
