"""What users compose and authors subclass: operators that can also run themselves.

A :class:`Task` adds to its contract (:mod:`riot_ops.core.operator`) what a user does with one alone: feed it by hand
(:meth:`Task.session`), or apply it to a Spark ``DataFrame`` (:meth:`Task.transform` and the functions for Spark's own
operators). This module has all that the file of an operator needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import Clock
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import (
    Due,
    FilterOperator,
    KeyedOperator,
    Operator,
    Requirement,
    State,
    StateField,
    StatelessOperator,
)
from riot_ops.core.order import next_ordinal, with_next_ordinal, with_tick_places
from riot_ops.core.parameters import parameters_from_json, snake_case
from riot_ops.kernels.arrays.arrow import replace_column, with_field
from riot_ops.kernels.arrays.selection import Rows, Selection, floats, whole

if TYPE_CHECKING:
    from riot_ops.runtime.session import Session

__all__ = [
    "Case",
    "Clock",
    "DeadLetters",
    "Due",
    "FilterTask",
    "KeyedTask",
    "Lookback",
    "Requirement",
    "State",
    "StateField",
    "StatelessTask",
    "Task",
    "ValueTask",
    "declare",
    "find_task",
    "finite",
    "next_ordinal",
    "register",
    "replace_column",
    "tasks",
    "with_field",
    "with_next_ordinal",
    "with_tick_places",
]


@dataclass(frozen=True)
class Case:
    """Parameters and input with which the contract suite exercises a task."""

    task: Task
    batch: pa.RecordBatch
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Task(Operator):
    """Base of all tasks: an :class:`~riot_ops.core.operator.Operator` that users compose, and can run by itself."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """The task that :meth:`to_dict` described; unknown names are refused by name.

        >>> from riot_ops import tasks
        >>> tasks.Task.from_dict({"task": "kalman_filter", "process_noise": 0.5}).process_noise
        0.5
        """
        given = dict(data)
        kind = find_task(str(given.pop("task", cls.name())))
        return kind(**parameters_from_json(kind, kind.name(), given))

    # -- faces -----------------------------------------------------------------------------------

    def session(self) -> Session:
        """A running instance for one event (or batch) at a time, without Spark."""
        from riot_ops.runtime.session import Session

        return Session(self)

    @property
    def map_in_arrow(self) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
        """The function for Spark's ``mapInArrow`` (stateless tasks)."""
        from riot_ops.spark import udfs as faces

        return faces.map_in_arrow(self)

    @property
    def map_in_pandas(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """The function for Spark's ``mapInPandas`` (stateless tasks)."""
        from riot_ops.spark import udfs as faces

        return faces.map_in_pandas(self)

    def stateful_processor(self, schema: Any) -> Any:
        """A ``StatefulProcessor`` for ``transformWithStateInPandas``, grouped by the task's key.

        ``schema`` is that of the DataFrame: Arrow's, a ``StructType`` or a DDL text. The processor's
        ``output_schema`` is the ``outputStructType`` that Spark asks for.
        """
        from riot_ops.spark import udfs as faces

        return faces.stateful_processor(self, schema)

    def transform(self, df: Any, **options: Any) -> Any:
        """Apply the task to a batch or streaming Spark ``DataFrame``: the fast path.

        See :func:`riot_ops.spark.dataframe_transform` for the options.
        """
        from riot_ops.spark import dataframe_transform as adapters

        return adapters.transform(self, df, **options)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        """Parameters and inputs for the contract suite, ugly ones included."""
        return ()


@dataclass(frozen=True, kw_only=True)
class StatelessTask(StatelessOperator, Task):
    """A task whose output for a record depends on that record alone: subclasses have ``apply(batch, dead)``."""


@dataclass(frozen=True, kw_only=True)
class FilterTask(FilterOperator, StatelessTask):
    """A task that leaves records out and changes none: subclasses have ``passes(batch, dead)``."""


@dataclass(frozen=True, kw_only=True)
class KeyedTask(KeyedOperator, Task):
    """A task with state per key: subclasses have ``state_fields()`` and ``update(batch, slots, state, dead)``.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`~riot_ops.core.operator.KeyedOperator`.
    """


def finite(batch: Rows, field: str, dead: DeadLetters) -> Rows:
    """The records without those whose number in a field is infinite, which are rejected."""
    if isinstance(batch, Selection) and not batch.every.has_infinite(field):
        return batch
    values, _ = floats(batch, field)
    infinite = np.isinf(values)
    if not infinite.any():
        return batch
    batch = whole(batch)
    dead.reject(batch, infinite, "not_finite", f"{field} is infinite")
    return batch.filter(pa.array(~infinite))


@dataclass(frozen=True, kw_only=True)
class ValueTask(KeyedTask):
    """A keyed task that reads a number and writes one.

    Parameters
    ----------
    value : str, default "value"
        Numeric input field; a record whose value is infinite is rejected as ``not_finite``.
    output : str, optional
        Field for the result; by default the input field.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.
    """

    value: str = "value"
    output: str | None = None

    @property
    def target(self) -> str:
        """The field that receives the result."""
        return self.output or self.value

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.value: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.target, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target})

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return finite(batch, self.value, dead)


# -- registry --------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Task]] = {}
#: Names and codes of tasks that are imported at first use, with the module and the class of each.
_DECLARED: dict[str, tuple[str, str]] = {}
T = TypeVar("T", bound=type[Task])


def declare(tasks: Mapping[str, tuple[str, str]]) -> None:
    """Make tasks known whose modules are imported at first use.

    Parameters
    ----------
    tasks : mapping of str to tuple of str
        By class name, code and module.
    """
    for name, (code, module) in tasks.items():
        _DECLARED[code] = _DECLARED[snake_case(name)] = module, name


def register(kind: T) -> T:
    """Make a task known by its name and code; the contract suite then covers it.

    A class that is defined again (a module that is loaded again, a notebook's cell that is run again)
    replaces the earlier one. Names and codes of other tasks are refused.
    """
    if not kind.code:
        raise ConfigError(f"task {kind.__name__} cannot be registered: its code is empty")
    for label in (kind.name(), kind.code):
        known = _REGISTRY.get(label)
        if known is not None and not _is_redefinition(kind, known):
            owner = f"{known.__module__}.{known.__qualname__}"
        elif label in _DECLARED and _DECLARED[label] != (kind.__module__, kind.__qualname__):
            owner = ".".join(_DECLARED[label])
        else:
            continue
        raise ConfigError(
            f"task {kind.__name__} cannot be registered as {label!r}: {owner} has that name; "
            "give it another name and code"
        )
    for label in [label for label, known in _REGISTRY.items() if _is_redefinition(kind, known)]:
        del _REGISTRY[label]  # it may have had another code
    _REGISTRY[kind.name()] = _REGISTRY[kind.code] = kind
    return kind


def _is_redefinition(kind: type[Task], known: type[Task]) -> bool:
    same_module = kind.__module__ == known.__module__
    # in a notebook a class is renamed by changing its cell
    return same_module and (
        kind.__qualname__ == known.__qualname__
        or (kind.__module__ == "__main__" and (kind.code == known.code or kind.name() == known.name()))
    )


def tasks() -> list[type[Task]]:
    """All registered tasks, in order of category and code."""
    for module in {module for module, _ in _DECLARED.values()}:
        import_module(module)
    return sorted(set(_REGISTRY.values()), key=lambda t: (t.category, t.code))


def find_task(name: str) -> type[Task]:
    """A task by registry name or code, in upper or lower case.

    >>> find_task("KAL").__name__, find_task("kal").__name__
    ('KalmanFilter', 'KalmanFilter')
    """
    for label in (name, name.upper()):
        if label in _DECLARED and label not in _REGISTRY:
            import_module(_DECLARED[label][0])
        if label in _REGISTRY:
            return _REGISTRY[label]
    raise ConfigError(f"unknown task {name!r}{did_you_mean(name, {**_DECLARED, **_REGISTRY})}")
