"""The check that a parameter's name has one type and one meaning, over tasks, builders, sources and sinks."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args, get_origin

from riot_ops.core.errors import ConfigError
from riot_ops.testing.parameter_table import PARAMETERS, SYNONYMS

__all__ = ["PARAMETERS", "check_parameter_names", "covers", "other_word", "parameter_uses"]

#: Endings of names that have a unit, and the beginning of a word for a bound.
_UNITS = ("_s", "_ms", "_us", "_sec", "_secs", "_seconds", "_millis", "_minutes", "_hours", "_days")
_BOUNDS = {"most_": "max_", "maximum_": "max_", "least_": "min_", "minimum_": "min_"}
_NEGATIVES = ("no_", "not_", "non_", "dont_", "without_", "disable_", "ignore_")


def check_parameter_names(
    objects: Iterable[Callable[..., Any]], meanings: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Check that each parameter's name has a meaning in the table of names, and the type that the table has.

    None and bounds of numbers do not count as part of a type. A duration is one type, whether the signature has a
    timedelta, or a timedelta or text. Of the forms and choices of a name, such as those of ``emit``, an object may have
    some. Of names that the table lacks, the report has the word that riot_ops uses instead, if it has one; a duration
    has no unit in its name, and a flag no negation.

    Parameters
    ----------
    objects : iterable of classes and functions
        Tasks, builders of dataflows, sources and sinks.
    meanings : mapping of str to (str, str), optional
        Type and meaning of names that the table lacks.

    Raises
    ------
    AssertionError
        With a line for each name that has another type, or no meaning.
    ConfigError
        If ``meanings`` has a name of the table.

    Examples
    --------
    >>> def site_mean(value: str = "value", window: str | timedelta = "10min", site: str = "hall"): ...
    >>> check_parameter_names([site_mean])
    Traceback (most recent call last):
    AssertionError: site: site_mean has 'str', and the table of names has no meaning
    >>> check_parameter_names([site_mean], {"site": ("str", "The building.")})
    >>> def slow_mean(value: str = "value", wait_ms: int = 10, missing: str = "drop"): ...
    >>> check_parameter_names([slow_mean])
    Traceback (most recent call last):
    AssertionError: missing: slow_mean has 'str', and the table of names has no meaning; riot_ops says on_missing
    wait_ms: slow_mean has 'int', and the table of names has no meaning; a duration is a timedelta or a text, as wait
    """
    if known := sorted(PARAMETERS.keys() & (meanings or {}).keys()):
        raise ConfigError(f"check_parameter_names: meanings defines names of the table: {', '.join(known)}")
    table = {**PARAMETERS, **(meanings or {})}
    problems = []
    for name, found in sorted(parameter_uses(objects).items()):
        declared, meaning = table.get(name, ("", ""))
        for written, owners in found.items():
            shown = f"{name}: {', '.join(owners)} has {written!r}"
            if not meaning:
                hint = other_word(name)
                problems.append(f"{shown}, and the table of names has no meaning{f'; {hint}' if hint else ''}")
            elif not covers(declared, written):
                problems.append(f"{shown}, and the table of names {declared!r}")
    if problems:
        raise AssertionError("\n".join(problems))


def covers(declared: str, written: str) -> bool:
    """Whether a type of the table covers that of a signature.

    >>> covers("'each' or 'final' or 'update'", "'each' or 'update'"), covers("'each' or 'final'", "'each' or 'end'")
    (True, False)
    """
    if declared == "function":
        return written.startswith("Callable")
    forms = set(written.split(" or "))
    if declared == "tuple of str":  # one name stands for a tuple of it
        forms -= {"str"} if len(forms) > 1 else set()
    if declared == "choice":
        return all(one.startswith("'") for one in forms)
    return forms <= set(declared.split(" or "))


def other_word(name: str) -> str:
    """Return what riot_ops says instead of a name; empty if it has no word for it.

    >>> other_word("directory"), other_word("most_rows"), other_word("no_header"), other_word("site")
    ('riot_ops says folder', 'riot_ops says max_rows', 'a flag is named for what it does, as header', '')
    """
    if name in SYNONYMS:
        return f"riot_ops says {SYNONYMS[name]}"
    for ending in _UNITS:
        if name.endswith(ending):
            return f"a duration is a timedelta or a text, as {name.removesuffix(ending)}"
    for beginning, word in _BOUNDS.items():
        if name.startswith(beginning):
            return f"riot_ops says {word}{name.removeprefix(beginning)}"
    for beginning in _NEGATIVES:
        if name.startswith(beginning):
            return f"a flag is named for what it does, as {name.removeprefix(beginning)}"
    return ""


def parameter_uses(objects: Iterable[Callable[..., Any]]) -> dict[str, dict[str, list[str]]]:
    """Return by parameter's name and type the names of the objects whose signatures have them.

    >>> def show(rows: int = 10): ...
    >>> parameter_uses([show])
    {'rows': {'int': ['show']}}
    """
    uses: dict[str, dict[str, list[str]]] = {}
    for one in objects:
        plain = isinstance(one, type) and not is_dataclass(one)
        hints = _hints(one.__init__ if plain else one)
        owner = one.__qualname__.rpartition("<locals>.")[2]
        for name, parameter in inspect.signature(one).parameters.items():
            if name == "self" or parameter.kind is parameter.VAR_KEYWORD:
                continue
            written = _describe(hints.get(name, Any))
            if parameter.kind is parameter.VAR_POSITIONAL:
                written = f"tuple of {written}"
            uses.setdefault(name, {}).setdefault(written, []).append(owner)
    return uses


def _hints(one: Any) -> dict[str, Any]:
    """Return the annotations; a name that is imported for type checkers only stands for itself."""
    names: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(one, localns=names, include_extras=True)
        except NameError as error:
            name = str(error.name)
            names[name] = type(name, (), {"__module__": "builtins"})


def _describe(declared: Any) -> str:
    """Describe a type without None and bounds; text or a timedelta is a duration."""
    origin, inner = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return _describe(inner[0])
    if origin in (typing.Union, types.UnionType):
        parts = list(dict.fromkeys(_describe(one) for one in inner if one is not type(None)))
        if any("_SupportsArray" in one for one in parts):
            return "ArrayLike"
        return " or ".join(one for one in parts if one != "str" or "duration" not in parts)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        if inner[1:] == (...,):
            return f"tuple of {_describe(inner[0])}"
        return f"({', '.join(map(_describe, inner))})"
    if origin in (Sequence, Iterable) and " or " not in (item := _describe(inner[0])):
        return f"tuple of {item}"
    if "numpy.ndarray" in str(declared):
        return "array"
    if declared is timedelta:
        return "duration"
    if origin is not None:
        return str(declared).replace("collections.abc.", "").replace("typing.", "").replace("pyarrow.lib.", "")
    return getattr(declared, "__name__", str(declared))
