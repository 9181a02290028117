"""The last output schema of an operator, cached on the instance: every batch asks for it.

``functools.cached_property`` does not apply, since the method takes the schema of the input; ``functools.lru_cache``
would need hashable operators and keep them alive.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["cache_last_schema", "uncached_attributes"]

#: Attribute of an instance that holds the method, its last argument and its last result.
_CACHE = "_cached_schema"

OutputSchema = Callable[[Any, pa.Schema], pa.Schema]


def cache_last_schema(method: OutputSchema) -> OutputSchema:
    """Decorate ``output_schema`` to return its last result again for the same input schema."""

    @functools.wraps(method)
    def output_schema(self: Any, schema: pa.Schema) -> pa.Schema:
        last = self.__dict__.get(_CACHE)
        if last is not None and last[0] is method and last[1].equals(schema, check_metadata=True):
            return last[2]
        result = method(self, schema)
        self.__dict__[_CACHE] = method, schema, result
        return result

    return output_schema


def uncached_attributes(instance: Any) -> dict[str, Any]:
    """Return the attributes of an instance without the cached schema and cached properties."""
    cls = type(instance)
    return {
        name: value
        for name, value in vars(instance).items()
        if name != _CACHE and not isinstance(getattr(cls, name, None), functools.cached_property)
    }
