"""The programs of StreamBench with Arrow and NumPy functions over whole batches of lines.

``BATCH_FUNCTIONS`` has a function for each program. It maps a batch with the columns ``seq`` and ``value`` to results,
or to partial aggregates per key. :func:`run_batched` merges the partial aggregates in process; on Spark, Spark's own
aggregations do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.streams.streambench.packets import FIELDS

__all__ = ["BATCH_FUNCTIONS", "SCHEMAS", "run_batched"]

#: Columns of each function's output, as a Spark schema.
SCHEMAS = {
    "identity": "seq bigint, value string",
    "sample": "seq bigint, value string",
    "projection": "seq bigint, value string",
    "grep": "seq bigint, value string",
    "wordcount": "word string, count bigint",
    "distinct": "value string",
    "statistics": "count bigint, min double, max double, sum decimal(38,0)",
}
#: The primes of XXH64.
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
WORD = 2**64 - 1
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def identity(lines: pa.RecordBatch) -> pa.RecordBatch:
    return lines


def sample(lines: pa.RecordBatch, *, share: float = 0.1, seed: int = 0) -> pa.RecordBatch:
    below = math.ceil(share * 2.0**64)
    if below >> 64:
        return lines
    begin = _xxh64(np.array([seed]), 42)[0]
    return lines.filter(pa.array(_xxh64(np.asarray(lines.column("seq")), int(begin)) < np.uint64(below)))


def projection(lines: pa.RecordBatch, *, column: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"seq": lines.column("seq"), "value": _cell(lines, "\t", column)})


def grep(lines: pa.RecordBatch, *, text: str = "ihiza", invert: bool = False) -> pa.RecordBatch:
    found = pc.match_substring(lines.column("value"), text)
    return lines.filter(pc.invert(found) if invert else found)


def wordcount(lines: pa.RecordBatch) -> pa.RecordBatch:
    words = pc.list_flatten(pc.ascii_split_whitespace(lines.column("value")))
    found = pc.value_counts(words.filter(pc.not_equal(words, "")))
    return pa.record_batch({"word": found.field("values"), "count": found.field("counts")})


def distinct(lines: pa.RecordBatch, *, column: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"value": pc.unique(_cell(lines, "\t", column))})


def statistics(lines: pa.RecordBatch, *, field: str = "v4_pkts") -> pa.RecordBatch:
    whole = pc.equal(pc.count_substring(lines.column("value"), ","), len(FIELDS) - 1)
    cells = _cell(lines.filter(whole), ",", FIELDS.index(field))
    values = pc.utf8_trim_whitespace(cells.filter(pc.match_substring_regex(cells, NUMBER))).cast(pa.float64())
    values = values.filter(pc.is_finite(values))
    total = pc.sum(values.cast(pa.int64()).cast(pa.decimal128(38, 0))).as_py() or 0
    found = {"count": len(values), "min": pc.min(values).as_py(), "max": pc.max(values).as_py()}
    types = {"count": pa.int64(), "min": pa.float64(), "max": pa.float64()}
    columns = {name: pa.array([value], types[name]) for name, value in found.items()}
    return pa.record_batch({**columns, "sum": pa.array([total], pa.decimal128(38, 0))})


#: Function of each program.
BATCH_FUNCTIONS: dict[str, Callable[..., pa.RecordBatch]] = {
    part.__name__: part for part in (identity, sample, projection, grep, wordcount, distinct, statistics)
}


def run_batched(
    name: str, batches: Iterable[pa.RecordBatch], **options: Any
) -> list[dict[str, Any]] | list[pa.RecordBatch]:
    """Run a program over batches in process; return its records, or the last record of each key."""
    parts = (BATCH_FUNCTIONS[name](batch, **options) for batch in batches)
    if name == "wordcount":
        counts: dict[str, int] = {}
        for part in parts:
            for word, count in zip(*(column.to_pylist() for column in part.columns), strict=True):
                counts[word] = counts.get(word, 0) + count
        return [{"word": word, "count": count} for word, count in counts.items()]
    if name == "distinct":
        seen: set[str] = set()
        for part in parts:
            seen.update(part.column("value").to_pylist())
        return [{"value": value} for value in seen]
    if name == "statistics":
        found = [row for part in parts for row in part.to_pylist() if row["count"]]
        count, total = sum(row["count"] for row in found), sum(int(row["sum"]) for row in found)
        if not count:
            return []
        minimum, maximum = min(row["min"] for row in found), max(row["max"] for row in found)
        return [{"count": count, "min": minimum, "max": maximum, "sum": float(total), "mean": float(total) / count}]
    return list(parts)


def _cell(lines: pa.RecordBatch, delimiter: str, field: int) -> pa.Array:
    """Return a cell of each line; empty if the line has too few cells."""
    cells = pc.split_pattern(lines.column("value"), delimiter, max_splits=field + 1)
    return pc.list_flatten(pc.list_slice(cells, field, field + 1, return_fixed_size_list=True)).fill_null("")


def _xxh64(numbers: Any, seed: int) -> Any:
    """Return XXH64 of eight-byte little-endian numbers."""

    def rotated(x: Any, by: int) -> Any:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    first, second, third, fourth = (np.uint64(p) for p in (P1, P2, P3, P4))
    with np.errstate(over="ignore"):
        h = np.uint64((seed + P5 + 8) & WORD) ^ (rotated(numbers.astype(np.uint64) * second, 31) * first)
        h = rotated(h, 27) * first + fourth
        h = (h ^ (h >> np.uint64(33))) * second
        h = (h ^ (h >> np.uint64(29))) * third
        return h ^ (h >> np.uint64(32))
