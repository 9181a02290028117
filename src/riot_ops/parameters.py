"""Parameters of tasks and connectors: checked against their declared types, and as JSON-able data."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import numpy as np

from riot_ops.errors import ConfigError, did_you_mean
from riot_ops.secret import Secret, check_secret, is_secret_type, secret_from_json, secret_to_json

__all__ = [
    "Count",
    "NonNegative",
    "Positive",
    "Probability",
    "check_parameters",
    "parameters_from_json",
    "parameters_to_json",
]

Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]


def check_parameters(owner: object) -> None:
    """Check the fields of a frozen dataclass against their declared types, and convert them to those."""
    of: Any = type(owner)
    for name, kind in _types(of).items():
        if kind is not Any:
            object.__setattr__(owner, name, _checked(of.__name__, name, getattr(owner, name), kind))


@functools.cache
def _types(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _checked(owner: str, name: str, value: Any, kind: Any) -> Any:
    """The value as its declared type (lists become tuples, integers floats) or a ConfigError."""
    if is_secret_type(kind):
        return check_secret(owner, name, value)
    try:
        plain = msgspec.to_builtins(value, builtin_types=(timedelta, bytes))
        result = msgspec.convert(plain, kind, builtin_types=(timedelta, bytes))
    except (msgspec.ValidationError, TypeError) as error:
        reason = str(error).replace(" - at `$`", "")
        raise ConfigError(f"{owner}: {name} = {value!r}: {reason}") from None
    for number in result if isinstance(result, tuple) else (result,):
        if isinstance(number, float) and not np.isfinite(number):
            raise ConfigError(f"{owner}: {name} = {value!r}: must be finite")
    return result


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
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{owner}: {name} = {value!r}: {error}") from None


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
