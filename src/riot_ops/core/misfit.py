"""Data from outside that is not of the form that it should have: where, what it is, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from riot_ops.core.errors import did_you_mean, short

__all__ = ["misfit"]


def misfit(error: msgspec.ValidationError, data: Any, allowed: Mapping[str, Sequence[str]] | None = None) -> str:
    r"""What is wrong with data, of which msgspec says why they do not fit; ``allowed`` are the texts for a field.

    >>> try:
    ...     _ = msgspec.convert([{"x": 1}, {"x": "2"}], list[dict[str, int]])
    ... except msgspec.ValidationError as error:
    ...     print(error, "...", misfit(error, [{"x": 1}, {"x": "2"}]), sep="\n")
    Expected `int`, got `str` - at `$[1][...]`
    ...
    [1] = an object with x: Expected `int`, got `str`
    """
    why, _, path = str(error).partition(" - at `$")
    place, value = "", data
    for name, number in re.findall(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]", path):
        if number == "...":  # some value of an object
            break
        key: Any = name or int(number)
        place += f".{name}" if name else f"[{number}]"
        value = value[key]
    texts = (allowed or {}).get(place.rpartition(".")[2])
    if texts and isinstance(value, str):
        why = f"must be {', '.join(map(repr, texts))}{did_you_mean(value, texts)}"
    return f"{place.lstrip('.')} = {_told(value)}: {why}" if place else f"{_told(value)}: {why}"


def _told(value: Any) -> str:
    """A value; of an object the names alone, as there may be a secret in it."""
    if isinstance(value, Mapping):
        return f"an object with {', '.join(map(str, value)) or 'nothing'}"
    return "a list" if isinstance(value, list) else short(value)
