"""Python functions that return any number of records for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike
from riot_ops.task import Case, StatelessTask, register
from riot_ops.tasks.functions.function_task import FunctionTask
from riot_ops.tasks.functions.result_collector import ResultCollector, Row, collect_results

__all__ = ["FlatMapFunction", "flat_map"]


@register
@dataclass(frozen=True, kw_only=True)
class FlatMapFunction(FunctionTask, StatelessTask):
    """Replace each record with the records, none or many, that a Python function returns.

    Parameters
    ----------
    function : callable
        Takes a record as a dict and returns an iterable of dicts, or None for no records; it may be a
        generator.
    schema, label, revision
        As for :class:`MapFunction`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:N. A further field ``ordinal`` (int64; ``ordinal_2`` if the input has ``ordinal``) numbers
    the results of a record, which keeps records in order.

    Missing values
    --------------
    As for :class:`MapFunction`.

    Errors
    ------
    ``function_error``, ``wrong_type`` and ``unknown_field`` as for :class:`MapFunction`. A record with one bad
    result is rejected with all its results.

    References
    ----------
    None.

    Examples
    --------
    >>> words = flat_map(lambda row: ({"word": w} for w in row["text"].split()), schema={"word": "string"})
    >>> words.session().push({"text": "so it goes"})
    [{'word': 'so', 'ordinal': 0}, {'word': 'it', 'ordinal': 1}, {'word': 'goes', 'ordinal': 2}]
    """

    code: ClassVar[str] = "FLM"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._declared(schema, ordinal=True)

    def expands(self) -> bool:
        return True

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        collect = ResultCollector(self.output_schema(batch.schema))
        for i, row in enumerate(batch.to_pylist()):
            with collect.record(i):
                collect_results(row, self.function(dict(row)), collect)
        collect.reject(batch, errors)
        return collect.batch()

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3], pa.int64()),
                "ordinal": pa.array([0, 1, None], pa.int64()),
                "text": ["a b", None, "ü"],
            }
        )
        yield Case(cls(function=_words), batch)


def flat_map(
    function: Callable[[Row], Iterable[Row] | None],
    schema: SchemaLike | None = None,
    label: str | None = None,
    *,
    revision: int | str | None = None,
) -> FlatMapFunction:
    """Make a task that replaces each record with those in ``function(record)``, see :class:`FlatMapFunction`.

    >>> twice = flat_map(lambda row: [row, row])
    >>> len(twice.session().push({"value": 1}))
    2
    """
    return FlatMapFunction(function=function, schema=schema, label=label, revision=revision)


def _words(row: Row) -> Iterator[Row]:
    for word in row["text"].split():
        yield {"text": word}
