"""A plain Python function with a state per key."""

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

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, RecordError, short
from riot_ops.task import Case, KeyedTask, State, StateField, register
from riot_ops.tasks.functions.function_results import Collector, Row, add_all
from riot_ops.tasks.functions.function_task import FunctionTask

__all__ = ["KeyedFunction", "keyed"]


@register
@dataclass(frozen=True, kw_only=True)
class KeyedFunction(FunctionTask, KeyedTask):
    """Run a plain Python function with a state of its own per key.

    Parameters
    ----------
    function : callable
        Gets the key's state and a record as a dict; returns the new state and the results: a dict,
        an iterable of dicts, or None for none. It may change the state that it gets: that is a copy.
    initial : JSON value, default None
        State of a new key. States hold what JSON does: None, booleans, numbers, texts, lists and
        dicts with text keys. Other values become what JSON makes of them: tuples and sets lists,
        NaN None, integers beyond 64 bits floats.
    schema, label, revision
        As for :class:`MapFunction`.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:N; ``ordinal`` as for :class:`FlatMapFunction`. Runs at the
    speed of Python; the state is what the function makes it.

    Missing values
    --------------
    As for :class:`MapFunction`; up to the function otherwise.

    Errors
    ------
    ``function_error``, ``wrong_type`` and ``unknown_field`` as for :class:`MapFunction`; a state that is no JSON
    value, or anything but a pair, is a ``wrong_type``. After any of them the state is as before.

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
            object.__setattr__(self, "initial", _stored(self.initial))
        except RecordError as error:
            raise ConfigError(f"keyed_function: initial = {self.initial!r}: {error}") from None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return self._declared(schema, ordinal=True)

    def expands(self) -> bool:
        return True

    def state_fields(self) -> Mapping[str, StateField]:
        return {"state": StateField("json", initial=self.initial)}

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        collect = Collector(self.output_schema(batch.schema))
        states = state["state"]
        for i, (s, row) in enumerate(zip(slots.tolist(), batch.to_pylist(), strict=True)):
            with collect.record(i):
                answer = self.function(_stored(states[s]), dict(row))
                if not isinstance(answer, tuple) or len(answer) != 2:
                    raise RecordError(
                        f"the function returned {short(answer)}, not a pair of state and results", reason="wrong_type"
                    )
                after = _stored(answer[0])
                results = answer[1]
                add_all(row, [results] if isinstance(results, Mapping) else results, collect)
                states[s] = after
        collect.reject(batch, dead)
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
    fn: Callable[[Any, Row], tuple[Any, Any]],
    initial: Any = None,
    by: str | Iterable[str] = (),
    schema: Any = None,
    name: str | None = None,
    *,
    version: int | str | None = None,
    **options: Any,
) -> KeyedFunction:
    """A task that runs ``state, results = fn(state, record)`` per key, see :class:`KeyedFunction`.

    >>> count = keyed(lambda n, row: (n + 1, {"n": n + 1}), initial=0, schema={"n": "int64"}).session()
    >>> [count.push({"value": 1})[0]["n"] for _ in range(3)]
    [1, 2, 3]
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    return KeyedFunction(function=fn, initial=initial, by=names, schema=schema, label=name, revision=version, **options)


def _running_total(state: Any, row: Row) -> tuple[Any, Row]:
    state["sum"] += row["value"]
    return state, {**row, "value": state["sum"]}


def _stored(state: Any) -> Any:
    """A copy of a state as JSON keeps it, so that a restart makes no difference."""
    kind = type(state)
    if state is None or kind is bool or kind is str:
        return state
    if kind is float:
        return state if math.isfinite(state) else None
    if kind is int and -(1 << 63) <= state < 1 << 63:
        return state
    try:
        return msgspec.json.decode(msgspec.json.encode(state))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise RecordError(f"the state {short(state)} is no JSON value: {error}", reason="wrong_type") from None
