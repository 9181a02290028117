"""Parameters of tasks and connectors: checked against their declared types, and as JSON-able data.

Two types may be given in a shorter form: a duration as text (``"10min"``, see :func:`duration`), and
names, where there is only one, as a text instead of a tuple.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import numpy as np

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.secret import Secret, check_secret, is_secret_type, secret_from_json, secret_to_json

__all__ = [
    "LAST_CELL",
    "Bytes",
    "Count",
    "Natural",
    "NonNegative",
    "Place",
    "Positive",
    "Probability",
    "check_arguments",
    "check_parameters",
    "duration",
    "parameters_from_json",
    "parameters_to_json",
    "snake_case",
    "what_fits",
]

Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
#: Who reads a cell of a line has room for all before it.
LAST_CELL = 65_535
#: The number of a cell, from 0.
Place = Annotated[int, msgspec.Meta(ge=0, le=LAST_CELL)]
#: A limit on text, of which an Arrow array holds no more than 2 GiB.
Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]


_MINUTE = 60_000_000
_US = {"d": 1440 * _MINUTE, "h": 60 * _MINUTE, "min": _MINUTE, "m": _MINUTE, "s": 1_000_000, "ms": 1_000, "us": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(min|ms|us|d|h|m|s)")
_MOST_US = timedelta.max // timedelta(microseconds=1)


def duration(text: str) -> timedelta:
    """A duration from text: numbers with units, the largest first, or ISO 8601.

    Units are d, h, min (or m), s, ms and us.

    >>> [str(duration(text)) for text in ("10min", "1h30m", "1.5 s", "PT10M")]
    ['0:10:00', '1:30:00', '0:00:01.500000', '0:10:00']

    Raises
    ------
    ConfigError
        For any other text, and for parts of a microsecond.
    """
    if text.startswith("P"):
        try:
            return msgspec.convert(text, timedelta)
        except msgspec.ValidationError:
            raise ConfigError(_NO_DURATION.format(text)) from None
    parts = [(Decimal(number), _US[unit]) for number, unit in _PART.findall(text)]
    units = [unit for _, unit in parts]
    total = sum((number * unit for number, unit in parts), Decimal(0))
    if (
        not re.fullmatch(rf"{_PART.pattern}(?: ?{_PART.pattern})*", text)
        or units != sorted(set(units), reverse=True)
        or total != int(total)
        or total > _MOST_US
    ):
        raise ConfigError(_NO_DURATION.format(text))
    return timedelta(microseconds=int(total))


_NO_DURATION = (
    "{!r} is no duration; write numbers with d, h, min, s, ms or us, as in '10min' or '1h30m', ISO 8601 as in 'PT10M', "
    "or pass a timedelta"
)


def check_parameters(owner: object) -> None:
    """Check the fields of a frozen dataclass against their declared types, and convert them to those."""
    of: Any = type(owner)
    for name, kind in _types(of).items():
        if kind is not Any:
            object.__setattr__(owner, name, _checked(of.__name__, name, getattr(owner, name), kind))


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise unless what a function was called with, its ``locals()`` at first, fits its declared types.

    Examples
    --------
    >>> def build(window: int = 10, scorer: typing.Literal["window", "decayed"] = "window"):
    ...     check_arguments(build, locals())
    >>> build(scorer="decay")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: build: scorer = 'decay': must be 'window' or 'decayed'; did you mean "decayed"?
    """
    for name, (kind, classes) in _argument_types(function).items():
        if kind is not Any and not isinstance(given[name], classes):
            _checked(function.__name__, name, given[name], kind)


@functools.cache
def _argument_types(function: Callable[..., Any]) -> dict[str, tuple[Any, tuple[type, ...]]]:
    """By argument the types that are data, as one, and the classes of which it may be instead."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = {}
    for name in inspect.signature(function).parameters:
        kinds = _members(hints[name])
        classes = tuple(k for k in kinds if isinstance(k, type) and k.__module__ not in ("builtins", "datetime"))
        data = [k for k in kinds if k not in classes and not (k is str and timedelta in kinds)]
        result[name] = (functools.reduce(operator.or_, data) if data else None, classes)
    return result


@functools.cache
def _types(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _checked(owner: str, name: str, value: Any, kind: Any) -> Any:
    """The value as its declared type (lists become tuples, integers floats) or a ConfigError."""
    if is_secret_type(kind):
        return check_secret(owner, name, value)
    value = _spelt_out(owner, name, value, kind)
    try:
        plain = msgspec.to_builtins(value, builtin_types=(timedelta, bytes))
        result = msgspec.convert(plain, kind, builtin_types=(timedelta, bytes))
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{owner}: {name} = {value!r}: {what_fits(error, value, kind)}") from None
    for number in result if isinstance(result, tuple) else (result,):
        if isinstance(number, float) and not np.isfinite(number):
            raise ConfigError(f"{owner}: {name} = {value!r}: must be finite")
    return result


def what_fits(error: Exception, value: object, kind: Any) -> str:
    """What a type allows, of which a value is none; the error is what msgspec says of it."""
    if allowed := [x for one in _alternatives(kind) if get_origin(one) is Literal for x in get_args(one)]:
        return f"must be {' or '.join(map(repr, allowed))}{did_you_mean(str(value), map(str, allowed))}"
    return str(error).replace(" - at `$`", "")


def _spelt_out(owner: str, name: str, value: Any, kind: Any) -> Any:
    """The value of which a short form was given."""
    if not isinstance(value, str):
        return value
    kinds = _alternatives(kind)
    if str in kinds or Any in kinds:
        return value
    if timedelta in kinds:
        try:
            return duration(value)
        except ConfigError as error:
            raise ConfigError(f"{owner}: {name}: {error}") from None
    return (value,) if tuple[str, ...] in kinds else value


@functools.cache
def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, without bounds."""
    return tuple(one.__origin__ if get_origin(one) is Annotated else one for one in _members(kind))


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, with their bounds."""
    return get_args(kind) if get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def parameters_from_json(kind: Any, label: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a class from JSON data; unknown names are refused."""
    types = _types(kind)
    for name in data:
        if name not in types:
            raise ConfigError(
                f"{label} has no parameter {name!r}; parameters are {', '.join(types)}{did_you_mean(name, types)}"
            )
    return {name: _converted(kind.__name__, name, value, types[name]) for name, value in data.items()}


def _converted(owner: str, name: str, value: Any, kind: Any) -> Any:
    """A parameter from JSON data."""
    if kind is Any:
        return value
    if is_secret_type(kind):
        return secret_from_json(owner, name, value)
    value = _spelt_out(owner, name, value, kind)
    try:
        return msgspec.convert(value, kind, builtin_types=(timedelta,))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{owner}: {name} = {value!r}: {what_fits(error, value, kind)}") from None


def parameters_to_json(owner: Any, label: str) -> dict[str, Any]:
    """The fields of a frozen dataclass as JSON-able data, secrets by reference alone."""
    values = {name: getattr(owner, name) for name in _types(owner.__class__)}
    for name, value in list(values.items()):
        if isinstance(value, Secret):
            values[name] = secret_to_json(value)
            if values[name] is None:  # a value as such is not part of what it is
                del values[name]
    try:
        encoded = msgspec.json.encode(values)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(
            f"{label} has a parameter that is not JSON ({error}); a function has to be "
            "importable by name or passed beside the descriptor"
        ) from None
    return msgspec.json.decode(encoded)  # type: ignore[no-any-return]


def snake_case(name: str) -> str:
    """The name of a class in snake case.

    >>> snake_case("CSVToSenML")
    'csv_to_senml'
    """
    words = name.replace("SenML", "Senml")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()
