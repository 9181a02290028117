"""Number of records of each key so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from riot_ops.task import Case, KeyedTask, register
from riot_ops.tasks.window.windowing.window_task import WindowTask

__all__ = ["RunningCount"]


@register
@dataclass(frozen=True, kw_only=True)
class RunningCount(WindowTask, KeyedTask):
    """Count the records of each key.

    Parameters
    ----------
    output : str, default "count"
        Field for the count.
    emit : "each" or "update", default "each"
        Emit the count after every record; or, like Spark's update mode, once per key and batch (on Spark: micro-batch),
        with the key's last record: fewer records, which depend on how the stream is cut into batches, and the same
        final count of each key.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    any[n] -> int64[n], 1:1 (``update``: N:1); O(1) time; 8 bytes of state per key.

    Missing values
    --------------
    A null in a key field is a key of its own.

    Errors
    ------
    None.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: word count, log processing.

    Examples
    --------
    >>> count = RunningCount(by="word").session()
    >>> [count.push({"word": w})[0]["count"] for w in ("so", "it", "so")]
    [1, 1, 2]
    """

    code: ClassVar[str] = "CNT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    output: str = "count"
    emit: Literal["each", "update"] = "each"

    @property
    def aggregates(self) -> dict[str, Any]:
        return {self.output: "count"}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        words = ["a", "b", "a", "ü", None, "", "a", None]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(8), pa.int64()), "word": words})
        yield Case(cls(by=("word",)), batch)
        yield Case(cls(by=("word",), output="word_count"), batch)
