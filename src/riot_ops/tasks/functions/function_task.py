"""Bases of the tasks over Python functions, with function and schema as data."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields, next_ordinal
from riot_ops.core.parameters import OWN_CHECK
from riot_ops.core.schema import SchemaLike, arrow_type, canonical_schema, schema_pairs
from riot_ops.task import Requirement, StatelessTask, Task, replace_column, with_field

__all__ = ["FunctionTask", "MappingTask"]


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Task):
    """A task that runs a Python function: the function by reference, and the declared schema of its results."""

    reentrant: ClassVar[bool] = False

    function: Annotated[Callable[..., Any], OWN_CHECK] = None  # type: ignore[assignment]
    schema: SchemaLike | None = None
    label: str | None = None
    revision: int | str | None = None

    def validate(self) -> None:
        name = self.name()
        if self.revision is not None and self.label is None:
            raise ConfigError(
                f"{name}: revision = {self.revision!r} distinguishes functions of one label, so it needs a label"
            )
        if isinstance(self.function, str):
            raise ConfigError(
                f"{name}: a descriptor only names the function {self.function!r}, and no code is imported by "
                "name; supply the function with "
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

        The function must be reachable by this name: lambdas and nested functions raise
        :class:`ConfigError`.
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
        """Make the task that :meth:`to_dict` described, with the function that the descriptor names.

        ``from_dict`` refuses such a descriptor: a file must not decide which code is imported.

        >>> from riot_ops.tasks import MapFunction
        >>> descriptor = MapFunction(function=dict).to_dict()
        >>> descriptor["function"]
        'builtins:dict'
        >>> MapFunction.with_function(descriptor, dict) == MapFunction(function=dict)
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
        # a function of the library may declare the fields it reads
        return {**super().requires(), **getattr(self.function, "reads", {})}

    def writes(self) -> frozenset[str] | None:
        return None

    def _declared(self, schema: pa.Schema, *, ordinal: bool) -> pa.Schema:
        """Return the output schema: the declared fields, and those that order records."""
        place = pa.field(next_ordinal(schema.names), pa.int64())
        if self.schema is not None:
            declared = _schema_of(schema_pairs(self.schema))
            names = set(declared.names)
            order = [schema.field(name) for name in carried_fields(schema.names) if name not in names]
            schema = pa.schema([*order, *declared])
        return with_field(schema, place) if ordinal else schema


@dataclass(frozen=True, kw_only=True)
class MappingTask(FunctionTask, StatelessTask):
    """A task whose function returns one result per record: a whole record, or fields to add to it."""

    adds: SchemaLike | None = None

    def validate(self) -> None:
        super().validate()
        object.__setattr__(self, "adds", canonical_schema(self.name(), self.adds, "adds"))
        if self.adds is not None and self.schema is not None:
            raise ConfigError(
                f"{self.name()} takes either schema, all fields of a result, or adds, the fields to add to a record"
            )

    def writes(self) -> frozenset[str] | None:
        return None if self.adds is None else frozenset(name for name, _ in schema_pairs(self.adds))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        returned = self._returned(schema)
        return returned if self.adds is None else functools.reduce(with_field, returned, schema)

    def _returned(self, schema: pa.Schema) -> pa.Schema:
        """Return the fields that the function returns."""
        return self._declared(schema, ordinal=False) if self.adds is None else _schema_of(schema_pairs(self.adds))

    def _joined(self, batch: pa.RecordBatch, results: pa.RecordBatch) -> pa.RecordBatch:
        """Return the output, from the records and the function's results for them."""
        if self.adds is None:
            return results
        for name, column in zip(results.schema.names, results.columns, strict=True):
            batch = replace_column(batch, name, _nan_to_null(column))
        return batch


def _nan_to_null(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


# -- functions and schemas as data -----------------------------------------------------------------


def _reference(task: str, function: Any) -> str:
    """``module:qualname`` of a function; raise :class:`ConfigError` if that name does not lead to it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(module) if module else None
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    if found is not function:
        why = getattr(function, "not_portable", "use a module-level function")
        raise ConfigError(f"{task}: {function!r} cannot be found by name, so it cannot be part of a descriptor; {why}")
    return f"{module}:{name}"


def _schema_of(pairs: Iterable[tuple[str, str]]) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(text)) for name, text in pairs])
