"""Tasks over plain Python functions of one record."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError, RecordError, excerpt
from riot_ops.state import StateField
from riot_ops.task import (
    Case,
    DeadLetters,
    KeyedTask,
    Requirement,
    State,
    StatelessTask,
    Task,
    register,
    with_field,
)

__all__ = [
    "FilterFunction",
    "FlatMapFunction",
    "KeyedFunction",
    "MapFunction",
    "filter_",
    "flat_map",
    "keyed",
    "map_",
]

Row = dict[str, Any]
_SUB = 4096
_CARRIED = ("seq", "sub", "event_time")


@dataclass(frozen=True, kw_only=True)
class _Function(Task):
    """What the four tasks share: the function, its name as data, and the check of what it returns."""

    function: Any = None
    schema: Any = None
    label: str | None = None

    def validate(self) -> None:
        name = self.name()
        if isinstance(self.function, str):
            raise ConfigError(
                f"{name}: a descriptor only names the function {self.function!r}, and no code "
                "is imported from it; supply it with "
                f"{type(self).__name__}.with_function(descriptor, function)"
            )
        if not callable(self.function):
            raise ConfigError(f"{name} needs a function of one record, got {self.function!r}")
        object.__setattr__(self, "schema", _canonical(name, self.schema))
        if self.label is None:
            label = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "label", label)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as JSON-able data, the function as ``module:qualname``.

        Only a function that can be found under its name can be named: lambdas and functions
        inside functions raise :class:`ConfigError`.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "function"}
        return {
            "task": self.name(),
            "function": _reference(self.name(), self.function),
            **msgspec.json.decode(msgspec.json.encode(values)),
        }

    @classmethod
    def with_function(cls, data: Mapping[str, Any], function: Callable[..., Any]) -> Self:
        """The task that :meth:`to_dict` described, with the function that the descriptor names.

        ``from_dict`` alone refuses such a descriptor: a file must not decide what code is imported.

        >>> described = map_(_fahrenheit).to_dict()
        >>> described["function"]
        'riot_ops.tasks.user_functions:_fahrenheit'
        >>> MapFunction.with_function(described, _fahrenheit) == map_(_fahrenheit)
        True
        """
        if data.get("task", cls.name()) not in (cls.name(), cls.code):
            raise ConfigError(f"the descriptor is of {data['task']!r}, not of {cls.name()}")
        wanted = data.get("function")
        if wanted is not None and wanted != _reference(cls.name(), function):
            raise ConfigError(
                f"{cls.name()}: the descriptor names the function {wanted!r}, got {_reference(cls.name(), function)!r}"
            )
        return cast(Self, cls.from_dict({**data, "task": cls.name(), "function": function}))

    def writes(self) -> frozenset[str] | None:
        return None

    def _declared(self, schema: pa.Schema, *, sub: bool) -> pa.Schema:
        """The output schema: what is declared, and the fields that order records."""
        if self.schema is not None:
            made = pa.schema([pa.field(name, _type(text)) for name, text in self.schema])
            carried = [schema.field(name) for name in _CARRIED if name in schema.names and name not in made.names]
            schema = pa.schema([*carried, *made])
        return with_field(schema, pa.field("sub", pa.int64())) if sub else schema


@dataclass(frozen=True, kw_only=True)
class _Stateless(_Function, StatelessTask):
    """A function applied record by record."""

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        collect = _Collector(self.output_schema(batch.schema))
        for i, row in enumerate(batch.to_pylist()):
            with collect.record(i):
                self._one(row, collect)
        collect.reject(batch, dead)
        return collect.batch()

    @abstractmethod
    def _one(self, row: Row, collect: _Collector) -> None:
        """Call the function and hand over what it returned."""


@register
@dataclass(frozen=True, kw_only=True)
class MapFunction(_Stateless):
    """Replace each record by what a plain Python function makes of it.

    Parameters
    ----------
    function : callable
        Gets a record as a dict (a copy: it may change it) and returns a dict.
    schema : pyarrow.Schema, mapping of str to type, or None
        Fields and types of the results, a type as an Arrow type or its name, such as ``"float64"``.
        None: those of the input.
    label : str, default the function's name
        What the step is called in messages and pictures.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1. Runs at the speed of Python, some 100,000 records/s.

    Missing values
    --------------
    A field that the result lacks is null; ``seq``, ``sub`` and ``event_time`` are then those of the
    input.

    Errors
    ------
    An exception rejects the record as ``function_error``, a :class:`RecordError` with its own
    reason; a result that is no dict, or a value that does not fit its type, as ``wrong_type``; a
    field that the schema lacks as ``unknown_field``.

    References
    ----------
    None.

    Examples
    --------
    >>> half = map_(lambda row: {"half": row["value"] / 2}, schema={"half": "float64"}).session()
    >>> half.push({"value": 3}), half.push({"value": None}), half.errors[0]["reason"]
    ([{'half': 1.5}], [], 'function_error')
    """

    code: ClassVar[str] = "MAP"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._declared(schema, sub=False)

    def _one(self, row: Row, collect: _Collector) -> None:
        parent = {name: row[name] for name in _CARRIED if name in row}
        collect.add({**parent, **_dict(self.function(row))})

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


@register
@dataclass(frozen=True, kw_only=True)
class FlatMapFunction(_Stateless):
    """Replace each record by the records, none or many, that a plain Python function returns.

    Parameters
    ----------
    function : callable
        Gets a record as a dict and returns an iterable of dicts, or None for none; it may be a
        generator.
    schema, label
        As for :class:`MapFunction`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:N, N at most 4096. The field ``sub`` (int64) is set to the input's (0
    without one) times 4096 + the place of the result, which keeps records in order.

    Missing values
    --------------
    As for :class:`MapFunction`.

    Errors
    ------
    As for :class:`MapFunction`, and ``too_many``; a record with one bad result gives none at all.

    References
    ----------
    None.

    Examples
    --------
    >>> words = flat_map(lambda row: ({"word": w} for w in row["text"].split()), schema={"word": "string"})
    >>> words.session().push({"text": "so it goes"})
    [{'word': 'so', 'sub': 0}, {'word': 'it', 'sub': 1}, {'word': 'goes', 'sub': 2}]
    """

    code: ClassVar[str] = "FLM"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._declared(schema, sub=True)

    def _one(self, row: Row, collect: _Collector) -> None:
        _add_all(row, self.function(dict(row)), collect)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3], pa.int64()),
                "sub": pa.array([0, 1, None], pa.int64()),
                "text": ["a b", None, "ü"],
            }
        )
        yield Case(cls(function=_words), batch)


@register
@dataclass(frozen=True, kw_only=True)
class FilterFunction(_Function, StatelessTask):
    """Pass the records for which a plain Python function returns True.

    Parameters
    ----------
    function : callable
        Gets a record as a dict and returns True or False.
    schema
        Has no use here: the fields stay.
    label
        As for :class:`MapFunction`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1. Runs at the speed of Python.

    Missing values
    --------------
    Up to the function.

    Errors
    ------
    As for :class:`MapFunction`; a result that is not a bool is a ``wrong_type``.

    References
    ----------
    None.

    Examples
    --------
    >>> warm = filter_(lambda row: row["value"] > 20).session()
    >>> warm.push({"value": 25}), warm.push({"value": 15})
    ([{'value': 25}], [])
    """

    code: ClassVar[str] = "FLT"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    def validate(self) -> None:
        super().validate()
        if self.schema is not None:
            raise ConfigError("filter_function takes no schema: its records keep their fields")

    def writes(self) -> frozenset[str] | None:
        return frozenset()

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        collect = _Collector(batch.schema)
        keep = np.zeros(batch.num_rows, np.bool_)
        for i, row in enumerate(batch.to_pylist()):
            with collect.record(i):
                passed = self.function(row)
                if not isinstance(passed, bool | np.bool_):
                    raise RecordError(f"the function returned {_short(passed)}, not True or False", reason="wrong_type")
                keep[i] = passed
        collect.reject(batch, dead)
        return batch if keep.all() else batch.filter(pa.array(keep))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"value": [1.0, None, float("nan"), -4.0]})
        yield Case(cls(function=_positive), batch)


@register
@dataclass(frozen=True, kw_only=True)
class KeyedFunction(_Function, KeyedTask):
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
    schema, label
        As for :class:`MapFunction`.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.
    value, output
        Have no use here: the function reads the record and names its results.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:N, N at most 4096; ``sub`` as for :class:`FlatMapFunction`. Runs at the
    speed of Python; the state is what the function makes it.

    Missing values
    --------------
    As for :class:`MapFunction`; up to the function otherwise.

    Errors
    ------
    As for :class:`MapFunction`; a state that is no JSON value, or anything but a pair, is a
    ``wrong_type``. After any of them the state is as before.

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
        if self.value != "value" or self.output is not None:
            raise ConfigError("keyed_function has no use for value and output: the function reads the record")
        try:
            object.__setattr__(self, "initial", _stored(self.initial))
        except RecordError as error:
            raise ConfigError(f"keyed_function: initial = {self.initial!r}: {error}") from None

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {"event_time": "any"} if self.ttl else {}
        return {**dict.fromkeys(self.by, "any"), **extra}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return self._declared(schema, sub=True)

    def state_fields(self) -> Mapping[str, StateField]:
        return {"state": StateField("json", initial=self.initial)}

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        collect = _Collector(self.output_schema(batch.schema))
        states = state["state"]
        for i, (s, row) in enumerate(zip(slots.tolist(), batch.to_pylist(), strict=True)):
            with collect.record(i):
                answer = self.function(_stored(states[s]), dict(row))
                if not isinstance(answer, tuple) or len(answer) != 2:
                    raise RecordError(
                        f"the function returned {_short(answer)}, not a pair of state and results", reason="wrong_type"
                    )
                after = _stored(answer[0])
                results = answer[1]
                _add_all(row, [results] if isinstance(results, Mapping) else results, collect)
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


# -- helpers ---------------------------------------------------------------------------------------


def map_(fn: Callable[[Row], Row], schema: Any = None, name: str | None = None) -> MapFunction:
    """A task that replaces each record by ``fn(record)``, see :class:`MapFunction`.

    >>> map_(lambda row: {**row, "value": -row["value"]}).session().push({"value": 2})
    [{'value': -2}]
    """
    return MapFunction(function=fn, schema=schema, label=name)


def flat_map(fn: Callable[[Row], Iterable[Row] | None], schema: Any = None, name: str | None = None) -> FlatMapFunction:
    """A task that replaces each record by those in ``fn(record)``, see :class:`FlatMapFunction`.

    >>> twice = flat_map(lambda row: [row, row])
    >>> len(twice.session().push({"value": 1}))
    2
    """
    return FlatMapFunction(function=fn, schema=schema, label=name)


def filter_(fn: Callable[[Row], bool], name: str | None = None) -> FilterFunction:
    """A task that passes the records for which ``fn(record)`` is True, see :class:`FilterFunction`.

    >>> filter_(lambda row: row["value"] > 0, name="positive").label
    'positive'
    """
    return FilterFunction(function=fn, label=name)


def keyed(
    fn: Callable[[Any, Row], tuple[Any, Any]],
    initial: Any = None,
    by: Iterable[str] = (),
    schema: Any = None,
    name: str | None = None,
    **options: Any,
) -> KeyedFunction:
    """A task that runs ``state, results = fn(state, record)`` per key, see :class:`KeyedFunction`.

    >>> count = keyed(lambda n, row: (n + 1, {"n": n + 1}), initial=0, schema={"n": "int64"}).session()
    >>> [count.push({"value": 1})[0]["n"] for _ in range(3)]
    [1, 2, 3]
    """
    return KeyedFunction(function=fn, initial=initial, by=tuple(by), schema=schema, label=name, **options)


def _fahrenheit(row: Row) -> Row:
    return {**row, "value": row["value"] * 1.8 + 32}


def _words(row: Row) -> Iterator[Row]:
    for word in row["text"].split():
        yield {"text": word}


def _positive(row: Row) -> bool:
    return bool(row["value"] > 0)


def _running_total(state: Any, row: Row) -> tuple[Any, Row]:
    state["sum"] += row["value"]
    return state, {**row, "value": state["sum"]}


# -- results ---------------------------------------------------------------------------------------


def _dict(result: Any) -> Mapping[str, Any]:
    if not isinstance(result, Mapping):
        raise RecordError(f"the function returned {_short(result)}, not a dict", reason="wrong_type")
    return result


def _add_all(row: Row, results: Any, collect: _Collector) -> None:
    """Add the results of a record, numbered."""
    if results is None:
        return
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise RecordError(f"the function returned {_short(results)}, not an iterable of dicts", reason="wrong_type")
    parent = {name: row[name] for name in _CARRIED if name in row}
    base = (row.get("sub") or 0) * _SUB
    for i, result in enumerate(results):
        if i == _SUB:
            raise RecordError(f"the function returned more than {_SUB} results for a record", reason="too_many")
        collect.add({**parent, **_dict(result), "sub": base + i})


def _short(value: Any) -> str:
    return f"{excerpt(repr(value), 60)} ({type(value).__name__})"


class _Collector:
    """Results that fit a schema, and the records that gave none."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names = frozenset(schema.names)
        self.columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self.checks = [(f.name, f.type, self.columns[f.name], _FAST.get(str(f.type), frozenset())) for f in schema]
        self.size = 0
        self.failed: dict[str, list[tuple[int, str]]] = {}
        self._row = 0
        self._kept = 0

    def record(self, row: int) -> _Collector:
        """Within ``with``: all results of this record, or none where one fails."""
        self._row, self._kept = row, self.size
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
        for column in self.columns.values():
            del column[self._kept :]
        self.size = self._kept
        if isinstance(error, RecordError):
            reason, message = error.reason, str(error)
        else:
            reason, message = "function_error", f"{type(error).__name__}: {error}"
        self.failed.setdefault(reason, []).append((self._row, message))
        return True

    def add(self, result: Mapping[str, Any]) -> None:
        """Add a result, or raise where it does not fit."""
        if not self.names.issuperset(result):
            unknown = next(name for name in result if name not in self.names)
            raise RecordError(
                f"the function returned the field {unknown!r}, which its schema lacks; fields "
                f"are {', '.join(self.schema.names)}",
                reason="unknown_field",
            )
        for name, kind, column, fast in self.checks:
            value = result.get(name)
            if value is not None and not (type(value) in fast and _fits(value)):
                try:
                    if _is_number(kind) and _is_odd(value, kind):
                        raise TypeError("it would change")  # Arrow would make a number of it
                    value = pa.array([value], kind)[0].as_py()
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise RecordError(
                        f"{name} = {_short(value)} is not a {kind}: {error}", reason="wrong_type"
                    ) from None
            column.append(value)
        self.size += 1

    def reject(self, batch: pa.RecordBatch, dead: DeadLetters) -> None:
        """Name the failed records."""
        for reason, rows in self.failed.items():
            dead.reject(batch, np.array([i for i, _ in rows], np.int64), reason, [text for _, text in rows])

    def batch(self) -> pa.RecordBatch:
        """The results."""
        return pa.RecordBatch.from_arrays(
            [pa.array(self.columns[f.name], f.type) for f in self.schema], schema=self.schema
        )


#: Types of values that fit a column as they are, once :func:`_fits` agrees.
_FAST: dict[str, frozenset[type]] = {
    "double": frozenset({float, int}),
    "int64": frozenset({int}),
    "string": frozenset({str}),
    "bool": frozenset({bool}),
    "timestamp[us, tz=UTC]": frozenset({datetime}),
}


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_odd(value: Any, kind: pa.DataType) -> bool:
    """Whether a value is no number, or has a fraction that an integer would lose."""
    if isinstance(value, float | np.floating):
        return pa.types.is_integer(kind) and not (math.isfinite(value) and value == int(value))
    return isinstance(value, str | bytes | bool | np.bool_)


def _fits(value: Any) -> bool:
    """Whether Arrow takes a value of a fast type without a look at it."""
    kind = type(value)
    if kind is int:
        return bool(-(1 << 53) <= value <= 1 << 53)
    if kind is str:
        return bool(value.isascii())
    return bool(kind is not datetime or value.tzinfo is not None)


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
        raise RecordError(f"the state {_short(state)} is no JSON value: {error}", reason="wrong_type") from None


# -- functions and schemas as data -----------------------------------------------------------------


def _reference(task: str, function: Any) -> str:
    """``module:qualname`` of a function that can be found by it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(module) if module else None
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise ConfigError(
            f"{task}: {function!r} cannot be found by name and so cannot be part of a "
            "descriptor; use a function at the top of a module"
        )
    return f"{module}:{name}"


def _canonical(task: str, schema: Any) -> tuple[tuple[str, str], ...] | None:
    """Names and types as text, whichever way the schema was given."""
    if schema is None:
        return None
    if isinstance(schema, pa.Schema):
        pairs = [(f.name, f.type) for f in schema]
    elif isinstance(schema, Mapping):
        pairs = list(schema.items())
    else:
        try:
            pairs = [(name, kind) for name, kind in schema]
        except (TypeError, ValueError):
            raise ConfigError(
                f"{task}: schema must be a pyarrow schema or map names to types, got {schema!r}"
            ) from None
    made = []
    for name, kind in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{task}: schema has {name!r} for the name of a field")
        try:
            known = _type(kind) if isinstance(kind, str) else kind
            if not isinstance(known, pa.DataType) or _type(str(known)) != known:
                raise ValueError(f"{kind!r} is no Arrow type that has a short name")
        except ValueError as error:
            raise ConfigError(f"{task}: schema field {name!r}: {error}") from None
        made.append((name, str(known)))
    if not made or len({name for name, _ in made}) < len(made):
        raise ConfigError(f"{task}: schema must name at least one field, and none twice, got {schema!r}")
    return tuple(made)


def _type(text: str) -> pa.DataType:
    """An Arrow type by its text."""
    if match := re.fullmatch(r"timestamp\[(\w+), tz=([^\]]+)\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"(?:list<(?:item|element): (.+)>)", text):
        return pa.list_(_type(match[1]))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise ValueError(
            f"unknown type {text!r}; types are float64, int64, string, bool, binary, timestamp[us, tz=UTC] and the like"
        ) from None
