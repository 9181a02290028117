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

from riot_ops.bench.opponents.streambench_spark.form import Form

__all__ = ["PROGRAMS", "Program", "chosen", "collected", "digest", "forms", "settled"]

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
    """

    stream: str
    fields: tuple[str, ...]
    key: tuple[str, ...] | None = None


#: The programs of StreamBench by name.
PROGRAMS = {
    "identity": Program("records", ("seq", "payload")),
    "sample": Program("records", ("seq", "payload")),
    "projection": Program("values", ("seq", "value")),
    "grep": Program("matches", ("seq", "payload")),
    "wordcount": Program("counts", ("word", "count"), ("word",)),
    "distinct": Program("sizes", ("value",)),
    "statistics": Program("figures", ("count", "min", "max", "sum", "mean"), ()),
}


def chosen(named: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The programs of a suite: those that are named, once each; where all are, which is if none is, its usual ones.

    >>> chosen(["grep", "identity", "grep"], ["identity"]), chosen(list(PROGRAMS), ["identity"])
    (['grep', 'identity'], ['identity'])
    """
    if set(named) == set(PROGRAMS):
        return list(usual)
    return list(dict.fromkeys(named))


def forms(name: str) -> Mapping[str, Form]:
    """The forms of a program in plain PySpark, by name."""
    found: Mapping[str, Form] = importlib.import_module(f"riot_ops.bench.opponents.streambench_spark.{name}").FORMS
    return found


def settled(name: str, rows: pa.Table | Iterable[Mapping[str, Any]]) -> list[Row]:
    """What the records of a program come to, those of a dataflow or those of Spark, in no order.

    Lines are texts without their ends. Of the records of a key, which may come after every record or with every
    micro-batch, the one with the highest count is left, and none where that is 0, which Spark's aggregations of
    nothing put out.

    >>> settled("wordcount", [{"word": "a", "count": 1}, {"word": "a", "count": 3}, {"word": "a", "count": 2}])
    [('a', 3)]
    """
    one = PROGRAMS[name]
    if isinstance(rows, pa.Table):
        rows = rows.select(list(one.fields)).to_pylist()
    last: dict[Any, Row] = {}
    counts: dict[Any, int] = {}
    for number, row in enumerate(rows):
        key = number if one.key is None else tuple(row[name] for name in one.key)
        count = 0 if one.key is None else row["count"]
        if one.key is not None and not count:
            continue
        if count >= counts.get(key, 0):
            counts[key] = count
            last[key] = tuple(_text(row[name if name in row else "value"]) for name in one.fields)
    return list(last.values())


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
