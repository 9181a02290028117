"""What the tasks over plain Python functions share: the function and the schema as data."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried, next_ordinal
from riot_ops.task import Requirement, StatelessTask, Task, replace_column, with_field

__all__ = ["FunctionTask", "MappingTask", "arrow_type", "canonical_schema"]


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Task):
    """What they all share: the function, its name as data, and the check of what it returns."""

    reentrant: ClassVar[bool] = False

    function: Any = None
    schema: Any = None
    label: str | None = None
    revision: int | str | None = None

    def validate(self) -> None:
        name = self.name()
        if self.revision is not None and self.label is None:
            raise ConfigError(f"{name}: version = {self.revision!r} tells functions of one name apart: give a name too")
        if isinstance(self.function, str):
            raise ConfigError(
                f"{name}: a descriptor only names the function {self.function!r}, and no code "
                "is imported from it; supply it with "
                f"{type(self).__name__}.with_function(descriptor, function)"
            )
        if not callable(self.function):
            raise ConfigError(f"{name} needs a function of one record, got {self.function!r}")
        object.__setattr__(self, "schema", canonical_schema(name, self.schema))
        if self.label is None:
            label = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "label", label)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as JSON-able data, the function as ``module:qualname``.

        Only a function that can be found under its name can be named: lambdas and functions
        inside functions raise :class:`ConfigError`.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "function"}
        if self.revision is None:
            del values["revision"]
        return {
            "task": self.name(),
            "function": _reference(self.name(), self.function),
            **msgspec.json.decode(msgspec.json.encode(values)),
        }

    @classmethod
    def with_function(cls, data: Mapping[str, Any], function: Callable[..., Any]) -> Self:
        """The task that :meth:`to_dict` described, with the function that the descriptor names.

        ``from_dict`` alone refuses such a descriptor: a file must not decide what code is imported.

        >>> from riot_ops.tasks import MapFunction
        >>> described = MapFunction(function=dict).to_dict()
        >>> described["function"]
        'builtins:dict'
        >>> MapFunction.with_function(described, dict) == MapFunction(function=dict)
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

    def requires(self) -> Mapping[str, Requirement]:
        # a function of the library may say what it reads
        return {**super().requires(), **getattr(self.function, "reads", {})}

    def writes(self) -> frozenset[str] | None:
        return None

    def _declared(self, schema: pa.Schema, *, ordinal: bool) -> pa.Schema:
        """The output schema: what is declared, and the fields that order records."""
        place = pa.field(next_ordinal(schema.names), pa.int64())
        if self.schema is not None:
            made = _fields(self.schema)
            own = [schema.field(name) for name in carried(schema.names) if name not in made.names]
            schema = pa.schema([*own, *made])
        return with_field(schema, place) if ordinal else schema


@dataclass(frozen=True, kw_only=True)
class MappingTask(FunctionTask, StatelessTask):
    """A function that makes one record of each: a whole one, or only the fields to add to it."""

    adds: Any = None

    def validate(self) -> None:
        super().validate()
        object.__setattr__(self, "adds", canonical_schema(self.name(), self.adds, "adds"))
        if self.adds is not None and self.schema is not None:
            raise ConfigError(
                f"{self.name()} takes either schema, the fields of a whole record, or adds, fields beside those it has"
            )

    def writes(self) -> frozenset[str] | None:
        return None if self.adds is None else frozenset(name for name, _ in self.adds)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        returned = self._returned(schema)
        return returned if self.adds is None else functools.reduce(with_field, returned, schema)

    def _returned(self, schema: pa.Schema) -> pa.Schema:
        """The fields that the function gives."""
        return self._declared(schema, ordinal=False) if self.adds is None else _fields(self.adds)

    def _joined(self, batch: pa.RecordBatch, made: pa.RecordBatch) -> pa.RecordBatch:
        """The output, given the records and what the function gave for each."""
        if self.adds is None:
            return made
        for name, column in zip(made.schema.names, made.columns, strict=True):
            batch = replace_column(batch, name, _no_nan(column))
        return batch


def _no_nan(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


# -- functions and schemas as data -----------------------------------------------------------------


def _reference(task: str, function: Any) -> str:
    """``module:qualname`` of a function that can be found by it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(module) if module else None
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    if found is not function:
        why = getattr(function, "not_portable", "use a function at the top of a module")
        raise ConfigError(f"{task}: {function!r} cannot be found by name and so cannot be part of a descriptor; {why}")
    return f"{module}:{name}"


def _fields(pairs: Iterable[tuple[str, str]]) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(text)) for name, text in pairs])


def canonical_schema(task: str, schema: Any, parameter: str = "schema") -> tuple[tuple[str, str], ...] | None:
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
                f"{task}: {parameter} must be a pyarrow schema or map names to types, got {schema!r}"
            ) from None
    made = []
    for name, kind in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{task}: {parameter} has {name!r} for the name of a field")
        try:
            known = arrow_type(kind) if isinstance(kind, str) else kind
            if not isinstance(known, pa.DataType) or arrow_type(str(known)) != known:
                raise ValueError(f"{kind!r} is no Arrow type that has a short name")
        except ValueError as error:
            raise ConfigError(f"{task}: {parameter} field {name!r}: {error}") from None
        made.append((name, str(known)))
    if not made or len({name for name, _ in made}) < len(made):
        raise ConfigError(f"{task}: {parameter} must name at least one field, and none twice, got {schema!r}")
    return tuple(made)


def arrow_type(text: str) -> pa.DataType:
    """An Arrow type by its text."""
    if match := re.fullmatch(r"timestamp\[(\w+), tz=([^\]]+)\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"(?:list<(?:item|element): (.+)>)", text):
        return pa.list_(arrow_type(match[1]))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise ValueError(
            f"unknown type {text!r}; types are float64, int64, string, bool, binary, timestamp[us, tz=UTC] and the like"
        ) from None
