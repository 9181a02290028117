"""Tasks, which users compose and authors subclass: operators that can also run by themselves.

A :class:`Task` adds to the contract of operators (:mod:`riot_ops.core.operator`) how a user runs a single one: record
by record (:meth:`Task.session`), or over a Spark ``DataFrame`` (:meth:`Task.transform`, and the functions for Spark's
own operators). This module exports everything that the module of a task needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.clock import Clock
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import (
    FilterOperator,
    KeyedOperator,
    Operator,
    Requirement,
    State,
    StateField,
    StatelessOperator,
    TimerOutput,
)
from riot_ops.core.order import next_ordinal, with_next_ordinal, with_timer_ordinals
from riot_ops.core.parameters import parameters_from_json, snake_case
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.secret import Secret
from riot_ops.core.special_operators import PeriodicOperator, PooledOperator, ReadableState
from riot_ops.kernels.arrays.arrow import replace_column, with_field
from riot_ops.kernels.arrays.hash_key import HashKey
from riot_ops.kernels.arrays.lazy_rows import AnyRows, Rows, floats, materialize

if TYPE_CHECKING:
    from riot_ops.runtime.session import Session

__all__ = [
    "Case",
    "Clock",
    "FilterTask",
    "KeyedTask",
    "Lookback",
    "PeriodicTask",
    "PooledTask",
    "ReadableState",
    "RejectedRecords",
    "Requirement",
    "SketchTask",
    "State",
    "StateField",
    "StatelessTask",
    "Task",
    "TimerOutput",
    "ValueTask",
    "declare",
    "find_task",
    "isolated_tasks",
    "next_ordinal",
    "register",
    "registered_tasks",
    "reject_infinite",
    "replace_column",
    "with_field",
    "with_next_ordinal",
    "with_timer_ordinals",
]


@dataclass(frozen=True)
class Case:
    """Parameters and an input with which the contract suite tests a task."""

    task: Task
    batch: pa.RecordBatch
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Task(Operator):
    """Base of all tasks: an :class:`~riot_ops.core.operator.Operator` that users compose and that can run by itself."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """Create the task that :meth:`to_dict` described; an unknown name raises a ConfigError that shows it.

        >>> from riot_ops import tasks
        >>> tasks.Task.from_dict({"task": "kalman_filter", "process_noise": 0.5}).process_noise
        0.5
        """
        parameters = dict(data)
        task = find_task(str(parameters.pop("task", cls.name())))
        return task(**parameters_from_json(task, task.name(), parameters))

    def align_inputs(self, schemas: Sequence[pa.Schema]) -> tuple[Task, Sequence[Task]] | None:
        """Return the task for inputs of these schemas, and for each input a task before it that aligns its records.

        None, the default: all inputs have the same fields, and their order has no meaning.
        """
        return None

    # -- runners -----------------------------------------------------------------------------------

    def session(self, *, ordered: bool = True) -> Session:
        """Start an instance that processes one event (or batch) per call, without Spark.

        With ``ordered=False`` it takes batches whose ``seq`` falls, in the order of their rows.
        """
        from riot_ops.runtime.session import Session

        return Session(self, ordered=ordered)

    @property
    def map_in_arrow(self) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
        """The function for Spark's ``mapInArrow`` (stateless tasks)."""
        from riot_ops.spark import udfs

        return udfs.map_in_arrow(self)

    @property
    def map_in_pandas(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """The function for Spark's ``mapInPandas`` (stateless tasks)."""
        from riot_ops.spark import udfs

        return udfs.map_in_pandas(self)

    def arrow_udf(self, schema: Any) -> Any:
        """Create a scalar Arrow UDF over a struct of the fields of ``schema`` (stateless tasks; Spark 4.1 and later).

        ``schema`` is an Arrow schema, a ``StructType`` or a DDL text. The result is a struct: null where the task drops
        the row, with the reason in ``_error`` where it rejects it.
        """
        from riot_ops.spark import udfs

        return udfs.arrow_udf(self, schema)

    def stateful_processor(self, schema: Any) -> Any:
        """Create a ``StatefulProcessor`` for ``transformWithStateInPandas``, grouped by the task's key.

        ``schema`` is the schema of the DataFrame: an Arrow schema, a ``StructType`` or a DDL text. The processor's
        ``output_schema`` is the ``outputStructType`` that Spark requires.
        """
        from riot_ops.spark import udfs

        return udfs.stateful_processor(self, schema)

    def row_processor(self, schema: Any) -> Any:
        """Create a ``StatefulProcessor`` for ``transformWithState``, row by row (Spark 4.1 and later).

        As :meth:`stateful_processor`, without pandas.
        """
        from riot_ops.spark import udfs

        return udfs.row_processor(self, schema)

    def transform(
        self,
        df: Any,
        *,
        on_error: Literal["column", "drop"] = "column",
        order: Literal["auto", "arrival", "event_time"] = "auto",
        partitions: int | None = None,
        buffering: Buffering | str | None = None,
        streaming: bool | None = None,
    ) -> Any:
        """Apply the task to a Spark ``DataFrame``, batch or streaming, or to a pandas or Polars frame or Arrow table.

        The result is of the same kind. See :func:`riot_ops.spark.transform` for the options; for a frame in memory,
        which needs no Spark, see :func:`riot_ops.runtime.frame_transform.transform_frame`.

        >>> import pyarrow as pa
        >>> from riot_ops import tasks
        >>> tasks.RunningCount(by="word").transform(pa.table({"word": ["so", "it", "so"]}), on_error="drop").to_pydict()
        {'word': ['so', 'it', 'so'], 'count': [1, 1, 2]}
        """
        from riot_ops.ingest.tables import is_frame

        if is_frame(df) and not hasattr(df, "sparkSession"):
            from riot_ops.runtime import frame_transform

            return frame_transform.transform_frame(
                self,
                df,
                on_error=on_error,
                order=order,
                partitions=partitions,
                buffering=buffering,
                streaming=streaming,
            )
        from riot_ops.spark import dataframe_transform

        return dataframe_transform.transform(
            self, df, on_error=on_error, order=order, partitions=partitions, buffering=buffering, streaming=streaming
        )

    @classmethod
    def cases(cls) -> Iterable[Case]:
        """Return the parameters and inputs for the contract suite, including malformed input."""
        return ()


@dataclass(frozen=True, kw_only=True)
class StatelessTask(StatelessOperator, Task):
    """A task whose output for a record depends on that record alone; subclasses define ``apply(batch, errors)``."""


@dataclass(frozen=True, kw_only=True)
class FilterTask(FilterOperator, StatelessTask):
    """A task that drops records and changes none; subclasses define ``passes(batch, errors)``."""


@dataclass(frozen=True, kw_only=True)
class SketchTask(Task):
    """A task that remembers values by their hash, which a secret can key so that no sender can choose collisions.

    Without the secret the hash is fixed, and descriptors and kept state do not mention it. With it, state holds the
    secret's tag and continues only with the same secret.
    """

    secret: Secret | None = None

    @cached_property
    def hash_key(self) -> HashKey:
        """The key of the hash; an environment variable is read once per process and task."""
        return HashKey(self.secret)

    def secret_tags(self) -> Mapping[str, str]:
        return {} if self.secret is None else {"secret": f"tag:{self.hash_key.tag.hex()}"}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self.secret is None:
            state.pop("secret", None)
        return state

    def to_dict(self) -> dict[str, Any]:
        if self.secret is not None and self.secret.variable is None:
            # without its secret, the task would work with another hash and show no error
            raise ConfigError(f"{self.name()}: secret is a value, which is never written; give Secret.env('NAME')")
        described = super().to_dict()
        if self.secret is None:
            del described["secret"]
        return described


@dataclass(frozen=True, kw_only=True)
class KeyedTask(KeyedOperator, Task):
    """A task with state per key; subclasses define ``state_fields()`` and ``update(batch, slots, state, errors)``.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`~riot_ops.core.operator.KeyedOperator`.
    """


@dataclass(frozen=True, kw_only=True)
class PeriodicTask(PeriodicOperator, KeyedTask):
    """A keyed task that is called as time passes; subclasses also define ``clock()`` and ``tick(keys, state, …)``.

    See :class:`~riot_ops.core.special_operators.PeriodicOperator`.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`KeyedTask`.
    """


@dataclass(frozen=True, kw_only=True)
class PooledTask(PooledOperator, KeyedTask):
    """A keyed task that holds rows back and gets them again.

    See :class:`~riot_ops.core.special_operators.PooledOperator`.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`KeyedTask`.
    """


def reject_infinite(batch: AnyRows, field: str, errors: RejectedRecords) -> AnyRows:
    """Reject the records with an infinite number in a field; return the others."""
    if isinstance(batch, Rows) and not batch.may_have_infinite(field):
        return batch
    values, _ = floats(batch, field)
    infinite = np.isinf(values)
    if not infinite.any():
        return batch
    batch = materialize(batch)
    errors.reject(batch, infinite, "not_finite", f"{field} is infinite")
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

    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"output"})

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

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return reject_infinite(batch, self.value, errors)


# -- registry --------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Task]] = {}
#: By name and by code, the module and the class of tasks that are imported at first use.
_DECLARED: dict[str, tuple[str, str]] = {}
T = TypeVar("T", bound=type[Task])


def declare(tasks: Mapping[str, tuple[str, str]]) -> None:
    """Declare tasks whose modules are imported at first use.

    Parameters
    ----------
    tasks : mapping of str to tuple of str
        By class name, the code and the module.
    """
    for name, (code, module) in tasks.items():
        _DECLARED[code] = _DECLARED[snake_case(name)] = module, name


def register(cls: T) -> T:
    """Register a task by its name and code; the contract suite then covers it.

    A class that is defined again (in a reloaded module, or a notebook cell that runs again) replaces the earlier one. A
    name or code of another task raises a ConfigError.
    """
    if not cls.code:
        raise ConfigError(f"task {cls.__name__} cannot be registered: its code is empty")
    for label in (cls.name(), cls.code):
        known = _REGISTRY.get(label)
        if known is not None and not _is_redefinition(cls, known):
            owner = f"{known.__module__}.{known.__qualname__}"
        elif label in _DECLARED and _DECLARED[label] != (cls.__module__, cls.__qualname__):
            owner = ".".join(_DECLARED[label])
        else:
            continue
        raise ConfigError(
            f"task {cls.__name__} cannot be registered as {label!r}: {owner} has that name; "
            "give it another name and code"
        )
    for label in [label for label, known in _REGISTRY.items() if _is_redefinition(cls, known)]:
        del _REGISTRY[label]  # the earlier class may have had another code
    _REGISTRY[cls.name()] = _REGISTRY[cls.code] = cls
    return cls


def _is_redefinition(cls: type[Task], known: type[Task]) -> bool:
    same_module = cls.__module__ == known.__module__
    # the user of a notebook renames a class by editing its cell
    return same_module and (
        cls.__qualname__ == known.__qualname__
        or (cls.__module__ == "__main__" and (cls.code == known.code or cls.name() == known.name()))
    )


@contextmanager
def isolated_tasks() -> Iterator[None]:
    """Undo all registrations of tasks at the end of a ``with`` block; for tests."""
    before = dict(_REGISTRY)
    try:
        yield
    finally:
        _REGISTRY.clear()
        _REGISTRY.update(before)


def registered_tasks() -> list[type[Task]]:
    """Return all registered tasks, in order of category and code."""
    for module in {module for module, _ in _DECLARED.values()}:
        import_module(module)
    return sorted(set(_REGISTRY.values()), key=lambda t: (t.category, t.code))


def find_task(name: str) -> type[Task]:
    """Look up a task by name or code, in upper or lower case.

    >>> find_task("KAL").__name__, find_task("kal").__name__
    ('KalmanFilter', 'KalmanFilter')
    """
    for label in (name, name.upper()):
        if label in _DECLARED and label not in _REGISTRY:
            module, cls = _DECLARED[label]
            import_module(module)
            label = snake_case(cls)  # a task may have several codes
        if label in _REGISTRY:
            return _REGISTRY[label]
    raise ConfigError(f"unknown task {name!r}{did_you_mean(name, {**_DECLARED, **_REGISTRY})}")
