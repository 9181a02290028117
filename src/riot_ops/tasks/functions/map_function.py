"""A plain Python function of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.order import carried
from riot_ops.task import Case, register
from riot_ops.tasks.functions.function_results import Collector, Row, as_dict
from riot_ops.tasks.functions.function_task import MappingTask

__all__ = ["MapFunction", "map_"]


@register
@dataclass(frozen=True, kw_only=True)
class MapFunction(MappingTask):
    """Replace each record by what a plain Python function makes of it.

    Parameters
    ----------
    function : callable
        Gets a record as a dict (a copy: it may change it) and returns a dict.
    adds : pyarrow.Schema, mapping of str to type, or None
        Fields that the function gives, and no others; the record keeps its own beside them. In place of
        schema, for functions that add fields or replace some.
    schema : pyarrow.Schema, mapping of str to type, or None
        Fields and types of the results, a type as an Arrow type or its name, such as ``"float64"``.
        None: those of the input.
    label : str, default the function's name
        What the step is called in messages and pictures.
    revision : int or str, optional
        Together with a label: which edition of the function it is. Functions of one label and revision count as the
        same in :mod:`riot_ops.reuse`; without one, a function is shared with nobody.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1. Runs at the speed of Python, some 100,000 records/s.

    Missing values
    --------------
    A field that the result lacks is null; ``seq``, ``ordinal`` and ``event_time`` are then those of the
    input, and with ``adds`` so are all that are not named there. A NaN among what is added is null.

    Errors
    ------
    An exception rejects the record as ``function_error``, with the file and line of the function where
    it arose, a :class:`RecordError` with its own reason; a result that is no dict, or a value that does
    not fit its type, as ``wrong_type``; a field that the schema lacks as ``unknown_field``.

    References
    ----------
    None.

    Examples
    --------
    >>> half = map_(lambda row: {"half": row["value"] / 2}, schema={"half": "float64"}).session()
    >>> half.push({"value": 3}), half.push({"value": None}), half.errors[0]["reason"]
    ([{'half': 1.5}], [], 'function_error')
    >>> warm = map_(lambda row: {"warm": row["value"] > 20}, adds={"warm": "bool"}).session()
    >>> warm.push({"device": "d1", "value": 25.0})
    [{'device': 'd1', 'value': 25.0, 'warm': True}]
    """

    code: ClassVar[str] = "MAP"

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        collect = Collector(self._returned(batch.schema))
        whole = self.adds is None
        for i, row in enumerate(batch.to_pylist()):
            parent = {name: row[name] for name in carried(row)} if whole else {}
            with collect.record(i):
                collect.add({**parent, **as_dict(self.function(row))})
        return self._joined(collect.reject(batch, dead), collect.batch())

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


def map_(
    fn: Callable[[Row], Row],
    schema: Any = None,
    name: str | None = None,
    *,
    adds: Any = None,
    version: int | str | None = None,
) -> MapFunction:
    """A task that replaces each record by ``fn(record)``, or adds that to it, see :class:`MapFunction`.

    >>> map_(lambda row: {**row, "value": -row["value"]}).session().push({"value": 2})
    [{'value': -2}]
    """
    return MapFunction(function=fn, schema=schema, adds=adds, label=name, revision=version)


def _fahrenheit(row: Row) -> Row:
    return {**row, "value": row["value"] * 1.8 + 32}


def _kelvin(row: Row) -> Row:
    return {"kelvin": row["value"] + 273.15}
