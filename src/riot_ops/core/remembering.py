"""What an operator has worked out and keeps, since each batch asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["parameters_of", "remembered"]

#: Where an operator keeps the schema that it was asked for last.
MADE = "_schema_made"

Schemas = Callable[[Any, pa.Schema], pa.Schema]


def remembered(made: Schemas) -> Schemas:
    """A method that gives the schema of the output, with its last answer."""

    @functools.wraps(made)
    def output_schema(self: Any, schema: pa.Schema) -> pa.Schema:
        last = self.__dict__.get(MADE)
        if last is not None and last[0] is made and last[1].equals(schema, check_metadata=True):
            return last[2]
        found = made(self, schema)
        self.__dict__[MADE] = made, schema, found
        return found

    return output_schema


def parameters_of(operator: Any) -> dict[str, Any]:
    """What an operator was given, without what it has worked out."""
    kind = type(operator)
    return {
        name: value
        for name, value in vars(operator).items()
        if name != MADE and not isinstance(getattr(kind, name, None), functools.cached_property)
    }
