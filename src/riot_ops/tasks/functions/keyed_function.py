"""Python functions with a state per key."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, RecordError, value_text
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike
from riot_ops.task import Case, KeyedTask, State, StateField, register
from riot_ops.tasks.functions.function_task import FunctionTask
from riot_ops.tasks.functions.result_collector import ResultCollector, Row, collect_results

__all__ = ["KeyedFunction", "keyed"]


@register
@dataclass(frozen=True, kw_only=True)
class KeyedFunction(FunctionTask, KeyedTask):
    """Run a Python function with a separate state per key.

    Parameters
    ----------
    function : callable
        Takes the key's state, a copy that it may modify, and a record as a dict. Returns the new state
        and the results: a dict, an iterable of dicts, or None for no records.
    initial : JSON value, default None
        State of a new key. States are JSON values: None, booleans, numbers, texts, lists and dicts with
        text keys. Other values are converted as in JSON: tuples and sets to lists, NaN to None, integers
        beyond 64 bits to floats.
    schema, label, revision
        As for :class:`MapFunction`.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:N, at the speed of Python; ``ordinal`` as for :class:`FlatMapFunction`. The
    size of the state is up to the function.

    Missing values
    --------------
    As for :class:`MapFunction`; otherwise up to the function.

    Errors
    ------
    ``function_error``, ``wrong_type`` and ``unknown_field`` as for :class:`MapFunction`; ``wrong_type`` also if the
    function does not return a pair, or the state is not a JSON value. After an error the state is unchanged.

    References
    ----------
    None.

    Examples
    --------
    >>> def total(state, row):
    ...     return state + row["value"], {"total": state + row["value"]}
    >>> totals = keyed(total, initial=0, by=("key",), schema={"total": "float64"}).session()
    >>> [totals.push({"key": k, "value": v})[0]["total"] for k, v in (("a", 1), ("b", 5), ("a", 2))]
    [1.0, 5.0, 3.0]
    """

    code: ClassVar[str] = "KFN"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    initial: Any = dataclasses.field(default=None, hash=False)

    def validate(self) -> None:
        super().validate()
        try:
            object.__setattr__(self, "initial", _json_copy(self.initial))
        except RecordError as error:
            raise ConfigError(f"keyed_function: initial = {self.initial!r}: {error}") from None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return self._declared(schema, ordinal=True)

    def expands(self) -> bool:
        return True

    def state_fields(self) -> Mapping[str, StateField]:
        return {"state": StateField("json", initial=self.initial)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        collect = ResultCollector(self.output_schema(batch.schema))
        states = state["state"]
        for i, (s, row) in enumerate(zip(slots.tolist(), batch.to_pylist(), strict=True)):
            with collect.record(i):
                result = self.function(_json_copy(states[s]), dict(row))
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RecordError(
                        f"the function returned {value_text(result)}, not a pair of state and results",
                        reason="wrong_type",
                    )
                new_state = _json_copy(result[0])
                results = result[1]
                collect_results(row, [results] if isinstance(results, Mapping) else results, collect)
                states[s] = new_state
        collect.reject(batch, errors)
        return collect.batch()

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", None, "a", "ü", "a"],
                "value": [1.0, 2.0, 3.0, None, float("nan"), 4.0],
            }
        )
        initial = {"sum": 0.0}
        yield Case(cls(function=_running_total, initial=initial, by=("key",)), batch)
        yield Case(cls(function=_running_total, initial=initial), batch, "whole")


def keyed(
    function: Callable[[Any, Row], tuple[Any, Any]],
    initial: Any = None,
    by: Names = (),
    schema: SchemaLike | None = None,
    label: str | None = None,
    *,
    revision: int | str | None = None,
    **options: Any,
) -> KeyedFunction:
    """Make a task that runs ``state, results = function(state, record)`` per key, see :class:`KeyedFunction`.

    >>> count = keyed(lambda n, row: (n + 1, {"n": n + 1}), initial=0, schema={"n": "int64"}).session()
    >>> [count.push({"value": 1})[0]["n"] for _ in range(3)]
    [1, 2, 3]
    """
    return KeyedFunction(
        function=function, initial=initial, by=by, schema=schema, label=label, revision=revision, **options
    )


def _running_total(state: Any, row: Row) -> tuple[Any, Row]:
    state["sum"] += row["value"]
    return state, {**row, "value": state["sum"]}


def _json_copy(state: Any) -> Any:
    """Copy a state through JSON, so that it has the same form before and after a restart."""
    cls = type(state)
    if state is None or cls is bool or cls is str:
        return state
    if cls is float:
        return state if math.isfinite(state) else None
    if cls is int and -(1 << 63) <= state < 1 << 63:
        return state
    try:
        return msgspec.json.decode(msgspec.json.encode(state))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise RecordError(f"the state {value_text(state)} is not a JSON value: {error}", reason="wrong_type") from None
