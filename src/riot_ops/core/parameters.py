"""Parameters of tasks and connectors: checks against their declared types, and conversion from and to JSON-able data.

Some types have a short form: a duration may be text (``"10min"``, see :func:`duration`), one duration stands for a pair
of equal ones, and a tuple of names with one element may be a text.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin, overload

import msgspec
import numpy as np

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.secret import Secret, check_secret, is_secret_type, secret_from_json, secret_to_json

__all__ = [
    "MAX_CELL_INDEX",
    "MAX_DURATION",
    "MAX_LENGTH",
    "OWN_CHECK",
    "Bytes",
    "CellIndex",
    "Count",
    "Duration",
    "Length",
    "Names",
    "Natural",
    "NonNegative",
    "Positive",
    "Probability",
    "as_names",
    "as_timedelta",
    "check_arguments",
    "check_parameters",
    "describe_mismatch",
    "duration",
    "parameters_from_json",
    "parameters_to_json",
    "plain_value",
    "snake_case",
]

if TYPE_CHECKING:
    # a field has one type for type checkers, with the short forms; the checks convert these
    Duration: TypeAlias = timedelta | str
    Names: TypeAlias = str | Sequence[str]
else:
    Duration = timedelta
    Names = tuple[str, ...]

Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
#: The maximum number of values that a task may be asked to keep, or to make of one record.
MAX_LENGTH = 1 << 20
#: How many values a task keeps per key, or makes of one record.
Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_LENGTH)]
#: Highest index of a cell in a line: readers allocate room for all cells before it.
MAX_CELL_INDEX = 65_535
#: Durations add up in 64 bits, and stream time plus a few of them is before its end; no stream is longer.
MAX_DURATION = timedelta(days=3_652_425)
#: Index of a cell in a line, from 0.
CellIndex = Annotated[int, msgspec.Meta(ge=0, le=MAX_CELL_INDEX)]
#: A limit of text in bytes: an Arrow array holds no more than 2 GiB.
Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]
#: Mark of a parameter with several forms, which its class checks and normalises itself: ``Annotated[type, OWN_CHECK]``.
OWN_CHECK = object()


_MINUTE = 60_000_000
_US = {"d": 1440 * _MINUTE, "h": 60 * _MINUTE, "min": _MINUTE, "m": _MINUTE, "s": 1_000_000, "ms": 1_000, "us": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(min|ms|us|d|h|m|s)")
_MAX_US = MAX_DURATION // timedelta(microseconds=1)


def duration(text: str) -> timedelta:
    """Parse a duration: numbers with units, the largest first, or ISO 8601.

    Units are d, h, min (or m), s, ms and us.

    >>> [str(duration(text)) for text in ("10min", "1h30m", "1.5 s", "PT10M")]
    ['0:10:00', '1:30:00', '0:00:01.500000', '0:10:00']

    Raises
    ------
    ConfigError
        For any other text, and for fractions of a microsecond.
    """
    if text.startswith("P"):
        try:
            parsed = msgspec.convert(text, timedelta)
        except msgspec.ValidationError:
            raise ConfigError(_INVALID_DURATION.format(text)) from None
        if parsed > MAX_DURATION:
            raise ConfigError(_TOO_LONG.format(text))
        return parsed
    parts = [(Decimal(number), _US[unit]) for number, unit in _PART.findall(text)]
    units = [unit for _, unit in parts]
    total = sum((number * unit for number, unit in parts), Decimal(0))
    if (
        not re.fullmatch(rf"{_PART.pattern}(?: ?{_PART.pattern})*", text)
        or units != sorted(set(units), reverse=True)
        or total != int(total)
    ):
        raise ConfigError(_INVALID_DURATION.format(text))
    if total > _MAX_US:
        raise ConfigError(_TOO_LONG.format(text))
    return timedelta(microseconds=int(total))


@overload
def as_timedelta(value: timedelta | str) -> timedelta: ...
@overload
def as_timedelta(value: timedelta | str | None) -> timedelta | None: ...
def as_timedelta(value: timedelta | str | None) -> timedelta | None:
    """Return a duration as a timedelta; None stays None.

    >>> as_timedelta("1min") == as_timedelta(timedelta(minutes=1))
    True
    """
    return duration(value) if isinstance(value, str) else value


def plain_value(value: Any) -> Any:
    """Return Python's own scalar for one of NumPy or pandas that has the same value; any other object unchanged.

    >>> plain_value(np.int64(10)), plain_value(np.timedelta64(1500, "ms"))
    (10, datetime.timedelta(seconds=1, microseconds=500000))
    """
    if isinstance(value, np.timedelta64):
        exact = np.datetime_data(value.dtype)[0] not in ("Y", "M", "generic")
        length = value.astype("timedelta64[us]") if exact else value
        return length.item() if exact and length == value else value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, timedelta) and type(value) is not timedelta and not getattr(value, "nanoseconds", 0):
        return timedelta(value.days, value.seconds, value.microseconds)
    return value


def as_names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; a text is one name.

    >>> as_names("device"), as_names(["device", "kind"])
    (('device',), ('device', 'kind'))
    """
    return (value,) if isinstance(value, str) else tuple(value)


#: Two durations, which one stands for as well.
_DURATIONS = tuple[timedelta, timedelta]
_TOO_LONG = f"{{!r}}: must be at most {MAX_DURATION.days:,} days (10,000 years)"
_INVALID_DURATION = (
    "{!r} is not a duration; write numbers with d, h, min, s, ms or us, as in '10min' or '1h30m', ISO 8601 as in "
    "'PT10M', or pass a timedelta"
)


def check_parameters(owner: object) -> None:
    """Check the fields of a frozen dataclass against their declared types, and convert the values to these."""
    cls: Any = type(owner)
    for name, declared in _types(cls).items():
        value = plain_value(getattr(owner, name))
        if declared is not Any:
            value = _checked(cls.__name__, name, value, declared)
        object.__setattr__(owner, name, value)


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise unless the arguments of a call match the declared types of the function.

    Parameters
    ----------
    function : function
    arguments : mapping of str to object
        The function passes its ``locals()`` in its first statement.

    Examples
    --------
    >>> def build(window: int = 10, scorer: typing.Literal["window", "decayed"] = "window"):
    ...     check_arguments(build, locals())
    >>> build(scorer="decay")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: build: scorer = 'decay': must be 'window' or 'decayed'; did you mean "decayed"?
    """
    for name, (declared, classes) in _argument_types(function).items():
        if declared is not Any and not isinstance(arguments[name], classes):
            _checked(function.__name__, name, arguments[name], declared)


@functools.cache
def _argument_types(function: Callable[..., Any]) -> dict[str, tuple[Any, tuple[type, ...]]]:
    """By argument, the union of its JSON-able types, and the classes whose instances it accepts as well."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = {}
    for name in inspect.signature(function).parameters:
        members = _members(hints[name])
        classes = tuple(m for m in members if isinstance(m, type) and m.__module__ not in ("builtins", "datetime"))
        data = [m for m in members if m not in classes and not (m is str and timedelta in members)]
        result[name] = (functools.reduce(operator.or_, data) if data else None, classes)
    return result


@functools.cache
def _types(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: Any if _has_own_check(hints[f.name]) else hints[f.name] for f in fields(cls)}


def _has_own_check(declared: Any) -> bool:
    return any(get_origin(one) is Annotated and OWN_CHECK in one.__metadata__ for one in _members(declared))


def _checked(owner: str, name: str, value: Any, declared: Any) -> Any:
    """Convert a value to its declared type (lists become tuples, integers floats), or raise a ConfigError."""
    if is_secret_type(declared):
        return check_secret(owner, name, value)
    if isinstance(value, set | frozenset):
        raise ConfigError(f"{owner}: {name} = {value!r}: a set has no order; pass a list or a tuple")
    if isinstance(value, list | tuple):
        value = type(value)(map(plain_value, value)) if type(value) in (list, tuple) else value
    value = _expanded(owner, name, plain_value(value), declared)
    try:
        plain = msgspec.to_builtins(value, builtin_types=(timedelta, bytes))
        result = msgspec.convert(plain, declared, builtin_types=(timedelta, bytes))
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{owner}: {name} = {value!r}: {describe_mismatch(error, value, declared)}") from None
    for number in result if isinstance(result, tuple) else (result,):
        if isinstance(number, float) and not np.isfinite(number):
            raise ConfigError(f"{owner}: {name} = {value!r}: must be finite")
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            raise ConfigError(f"{owner}: {name} = {value!r}: must be an integer of at most 64 bits")
        if isinstance(number, timedelta) and abs(number) > MAX_DURATION:
            raise ConfigError(f"{owner}: {name} = {value!r}: must be at most {MAX_DURATION.days:,} days (10,000 years)")
    return result


def describe_mismatch(error: Exception, value: object, declared: Any) -> str:
    """Describe the values that a type allows; the error is that of msgspec."""
    if allowed := [x for one in _alternatives(declared) if get_origin(one) is Literal for x in get_args(one)]:
        return f"must be {' or '.join(map(repr, allowed))}{did_you_mean(str(value), map(str, allowed))}"
    if timedelta in _alternatives(declared):
        text = "must be a timedelta or a text such as '10s' or '1h30m'"
        return f"{text}, or a whole number{_bounds(declared)}" if int in _alternatives(declared) else text
    return str(error).replace(" - at `$`", "")


def _bounds(declared: Any) -> str:
    """Describe the bounds of the whole number among the types of a union."""
    for one in _members(declared):
        if get_origin(one) is Annotated and one.__origin__ is int:
            for meta in one.__metadata__:
                return f" from {meta.ge:,} to {meta.le:,}"
    return ""


def _expanded(owner: str, name: str, value: Any, declared: Any) -> Any:
    """Expand the short form of a duration, of a pair of equal durations, or of a tuple with one name."""
    alternatives = _alternatives(declared)
    if _DURATIONS in alternatives:
        both = value if isinstance(value, tuple | list) else (value, value)
        return tuple(_expanded(owner, name, one, timedelta) for one in both)
    if not isinstance(value, str):
        return value
    if str in alternatives or Any in alternatives:
        return value
    if timedelta in alternatives:
        try:
            return duration(value)
        except ConfigError as error:
            raise ConfigError(f"{owner}: {name}: {error}") from None
    return (value,) if tuple[str, ...] in alternatives else value


@functools.cache
def _alternatives(declared: Any) -> tuple[Any, ...]:
    """Return the types of a union, without bounds."""
    return tuple(one.__origin__ if get_origin(one) is Annotated else one for one in _members(declared))


def _members(declared: Any) -> tuple[Any, ...]:
    """Return the types of a union, with their bounds."""
    return get_args(declared) if get_origin(declared) in (typing.Union, types.UnionType) else (declared,)


def parameters_from_json(cls: Any, label: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert JSON data to arguments for a class; unknown names raise a ConfigError."""
    types = _types(cls)
    for name in data:
        if name not in types:
            raise ConfigError(
                f"{label} has no parameter {name!r}; parameters are {', '.join(types)}{did_you_mean(name, types)}"
            )
    return {name: _converted(cls.__name__, name, value, types[name]) for name, value in data.items()}


def _converted(owner: str, name: str, value: Any, declared: Any) -> Any:
    """Convert one parameter from JSON data."""
    if declared is Any:
        return value
    if is_secret_type(declared):
        return secret_from_json(owner, name, value)
    value = _expanded(owner, name, value, declared)
    try:
        return msgspec.convert(value, declared, builtin_types=(timedelta,))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{owner}: {name} = {value!r}: {describe_mismatch(error, value, declared)}") from None


def parameters_to_json(owner: Any, label: str) -> dict[str, Any]:
    """Convert the fields of a frozen dataclass to JSON-able data; a secret is only referenced."""
    values = {name: getattr(owner, name) for name in _types(owner.__class__)}
    for name, value in list(values.items()):
        if isinstance(value, Secret):
            values[name] = secret_to_json(value)
            if values[name] is None:  # a literal secret is never written
                del values[name]
        elif hasattr(value, "to_dict"):  # a table
            values[name] = value.to_dict()
    try:
        encoded = msgspec.json.encode(values)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(
            f"{label} has a parameter that is not JSON ({error}); a function must be "
            "importable by name or passed beside the descriptor"
        ) from None
    return msgspec.json.decode(encoded)  # type: ignore[no-any-return]


def snake_case(name: str) -> str:
    """Convert the name of a class to snake case.

    >>> snake_case("CSVToSenML")
    'csv_to_senml'
    """
    words = name.replace("SenML", "Senml")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()
