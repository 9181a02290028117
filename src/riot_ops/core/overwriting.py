"""Refuse a task that would overwrite a column of its input by accident.

Output schemas are compared: that of the task, and those for a result or an input column of another name. If the output
then has both columns, one overwrites the other.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Operator
from riot_ops.core.order import is_ordinal

__all__ = ["checked_output_schema", "results_of"]

#: Names that no column of a user has.
_UNUSED_NAME = "riot_ops_other_{}"


def checked_output_schema(task: Operator, schema: pa.Schema, results: Set[str] = frozenset()) -> pa.Schema:
    """Return the output schema of a task; :class:`ConfigError` if it overwrites a column that nothing names.

    A task may overwrite a column that it reads, if the result takes its place by default; a column that a parameter
    with another value than its default names; those in ``replaces``; and the columns of time and order. It must not
    overwrite a column that only happens to have the default name of a result. ``results`` are the columns that tasks
    before it have written, which it may replace. Columns of time and order must have their types.
    """
    out = task.output_schema(schema)
    writes = task.writes()
    if writes is not None and not writes:
        return out
    _check_reserved(task, out)
    overwritten = {*schema.names} & {*out.names}
    if writes is not None:
        overwritten &= writes
    overwritten -= task.replaces | results | {"seq", "event_time"}
    overwritten = {name for name in overwritten if not is_ordinal(name)}
    if not overwritten:
        return out
    lost = (
        _lost_by_default_name(task, schema, overwritten)
        or _lost_unrelated_column(task, schema, overwritten)
        or _lost_input_column(task, schema, overwritten)
    )
    if lost is not None:
        raise _error(task, schema, lost)
    return task.output_schema(schema)  # is cached from here on, in place of the schemas above


def _check_reserved(task: Operator, out: pa.Schema) -> None:
    """Raise :class:`ConfigError` if the number, an ordinal or the event time of records has become something else."""
    if (name := getattr(task, "output", None)) == "seq" or (isinstance(name, str) and is_ordinal(name)):
        raise ConfigError(f"{task.name()}: output must not be {name!r}, which has the order of records")
    for field in out:
        timed = field.name == "event_time"
        if (timed and not pa.types.is_timestamp(field.type)) or (
            (field.name == "seq" or is_ordinal(field.name)) and not pa.types.is_integer(field.type)
        ):
            raise ConfigError(
                f"{task.name()} writes {field.type} to the field {field.name!r}, which has the "
                f"{'event time' if timed else 'order'} of records: give its result another name"
            )


def results_of(task: Operator, schema: pa.Schema, out: pa.Schema, results: Set[str]) -> Set[str]:
    """Return the columns of an output that are results of tasks, given those of the input; none of a parser."""
    kept = results & set(out.names)
    if task.category in ("Parse", "Custom"):
        return kept
    writes = task.writes()
    return kept | ((set(out.names) - set(schema.names)) if writes is None else writes)


def _lost_by_default_name(task: Operator, schema: pa.Schema, overwritten: set[str]) -> str | None:
    """Find a column that has the default name of a result, and that the output would keep if that had another name."""
    other = _UNUSED_NAME.format(0)
    for field in _parameters(task):
        name = getattr(task, field.name)
        if isinstance(name, str) and name in overwritten and name == field.default:
            renamed = _replace(task, {field.name: other})
            names = [] if renamed is None else _names(renamed, schema)
            if renamed is not None and name in names and other in names and other not in renamed.requires():
                return name
    return None


def _lost_unrelated_column(task: Operator, schema: pa.Schema, overwritten: set[str]) -> str | None:
    """Find a column that the task neither reads nor names, and that the output would keep if it had another name."""
    values = [(getattr(task, field.name), field) for field in _parameters(task)]
    named = {text for value, field in values if not _is_default(value, field) for text in _texts(value)}
    unnamed = sorted(overwritten - set(task.requires()) - named)
    if not unnamed:
        return None
    other = {name: _UNUSED_NAME.format(i) for i, name in enumerate(unnamed)}
    names = _names(task, pa.schema([f.with_name(other.get(f.name, f.name)) for f in schema]))
    return next((name for name in unnamed if name in names and other[name] in names), None)


def _lost_input_column(task: Operator, schema: pa.Schema, overwritten: set[str]) -> str | None:
    """Find a column that the task reads, and that a result of a fixed name would overwrite."""
    other = _UNUSED_NAME.format(0)
    for name in sorted(overwritten & set(task.requires())):
        changes = {
            field.name: other if value == name else tuple(other if one == name else one for one in value)
            for field in _parameters(task)
            if (value := getattr(task, field.name)) == name or (isinstance(value, tuple) and name in value)
        }
        renamed = _replace(task, changes) if changes else None
        if renamed is not None:
            names = _names(renamed, pa.schema([f.with_name(other) if f.name == name else f for f in schema]))
            if name in names and other in names:
                return name
    return None


def _error(task: Operator, schema: pa.Schema, lost: str) -> ConfigError:
    """Return the error, with the parameters that would give the result another name."""
    parameters = []
    for field in _parameters(task):
        if getattr(task, field.name) is None or isinstance(getattr(task, field.name), str):
            renamed = _replace(task, {field.name: "other"})
            names = [] if renamed is None else _names(renamed, schema)
            if renamed is not None and any("other" in n for n in names) and lost not in (renamed.writes() or ()):
                parameters.append(f"{field.name}=")
    way = f"give its result another name ({' or '.join(parameters)}), or " if parameters else ""
    return ConfigError(
        f"{task.name()} writes the column {lost!r}, which its input has already and would lose: {way}"
        "rename or drop that column before"
    )


def _parameters(task: Operator) -> Iterable[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(task) if field.init]


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    return value is field.default or (isinstance(value, str | tuple) and bool(value == field.default))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in the value of a parameter, and their words."""
    if isinstance(value, str):
        yield value
        yield from re.split(r"[\s,:`]+", value)
    elif isinstance(value, pa.Schema):
        yield from value.names
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for one in value:
            yield from _texts(one)


def _replace(task: Operator, changes: Mapping[str, Any]) -> Operator | None:
    """Return the task with other parameters; None if it refuses them."""
    try:
        return task.replace(**changes)
    except ConfigError:
        return None


def _names(task: Operator, schema: pa.Schema) -> list[str]:
    """Return the names of the output; none if the task refuses the schema."""
    try:
        return list(task.output_schema(schema).names)
    except ConfigError:
        return []
