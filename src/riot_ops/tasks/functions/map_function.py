"""Python functions of one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.core.order import carried_fields
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike
from riot_ops.task import Case, register
from riot_ops.tasks.functions.function_task import MappingTask
from riot_ops.tasks.functions.result_collector import ResultCollector, Row, as_record

__all__ = ["MapFunction", "map"]


@register
@dataclass(frozen=True, kw_only=True)
class MapFunction(MappingTask):
    """Replace each record with the result of a Python function.

    Parameters
    ----------
    function : callable
        Takes a record as a dict, which it may modify, and returns a dict.
    adds : pyarrow.Schema, mapping of str to type, or None
        The only fields that the function returns; they are added to those of the record. Instead of schema,
        for functions that add or replace fields.
    schema : pyarrow.Schema, mapping of str to type, or None
        Fields of the results, with their types: those of Arrow, their names such as ``"float64"``, or types of
        Python such as ``float``. None: those of the input.
    label : str, default the function's name
        Name of the step in messages and diagrams.
    revision : int or str, optional
        Version of the function; needs a label. Functions with the same label and revision count as the same in
        :mod:`riot_ops.reuse`; a function without a revision is not shared.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1, at the speed of Python, about 100,000 records/s.

    Missing values
    --------------
    A field that the result lacks is null, but ``seq``, ``ordinal`` and ``event_time`` are then those of the
    input, and with ``adds`` so are all fields not named there. A NaN in an added field is null.

    Errors
    ------
    ``function_error``: the function raised an exception; the message names its file and line. A
    :class:`RecordError` gives its own reason. ``wrong_type``: the result is not a dict, or a value does not
    fit its type. ``unknown_field``: the result has a field that the schema lacks.

    References
    ----------
    None.

    Examples
    --------
    >>> half = map(lambda row: {"half": row["value"] / 2}, schema={"half": "float64"}).session()
    >>> half.push({"value": 3}), half.push({"value": None}), half.errors[0]["reason"]
    ([{'half': 1.5}], [], 'function_error')
    >>> warm = map(lambda row: {"warm": row["value"] > 20}, adds={"warm": "bool"}).session()
    >>> warm.push({"device": "d1", "value": 25.0})
    [{'device': 'd1', 'value': 25.0, 'warm': True}]
    """

    code: ClassVar[str] = "MAP"

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        collect = ResultCollector(self._returned(batch.schema))
        replaces = self.adds is None
        for i, row in enumerate(batch.to_pylist()):
            parent = {name: row[name] for name in carried_fields(row)} if replaces else {}
            with collect.record(i):
                collect.add({**parent, **as_record(self.function(row))})
        return self._joined(collect.reject(batch, errors), collect.batch())

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3, 4], pa.int64()),
                "name": ["a", "ü", None, ""],
                "value": [1.0, None, float("nan"), 4.0],
            }
        )
        yield Case(cls(function=_fahrenheit), batch)
        yield Case(cls(function=_fahrenheit, schema={"name": "string", "value": "float32"}), batch, "schema")
        yield Case(cls(function=_kelvin, adds={"kelvin": "float64", "name": "string"}), batch, "adds")


def map(
    function: Callable[[Row], Row],
    schema: SchemaLike | None = None,
    label: str | None = None,
    *,
    adds: SchemaLike | None = None,
    revision: int | str | None = None,
) -> MapFunction:
    """Make a task that replaces each record with ``function(record)``, or adds the result to it.

    See :class:`MapFunction`.

    >>> map(lambda row: {**row, "value": -row["value"]}).session().push({"value": 2})
    [{'value': -2}]
    """
    return MapFunction(function=function, schema=schema, adds=adds, label=label, revision=revision)


def _fahrenheit(row: Row) -> Row:
    return {**row, "value": row["value"] * 1.8 + 32}


def _kelvin(row: Row) -> Row:
    return {"kelvin": row["value"] + 273.15}
