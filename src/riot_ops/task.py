"""What a task is: typed frozen parameters, a code, and a function over record batches.

A :class:`StatelessTask` maps a batch to a batch. A :class:`KeyedTask` also has state per key,
declared as arrays that the framework owns. Both name the records that they cannot process in a
:class:`DeadLetters` collector. Neither knows where it runs.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.dead_letters import DeadLetters
from riot_ops.errors import ConfigError, did_you_mean
from riot_ops.kernels.arrow import float_column
from riot_ops.parameters import check_parameters, parameters_from_json, parameters_to_json

if TYPE_CHECKING:
    from riot_ops.session import Session
    from riot_ops.state import StateField

__all__ = [
    "Case",
    "KeyedTask",
    "Requirement",
    "State",
    "StatelessTask",
    "Task",
    "ValueTask",
    "applied",
    "as_batch",
    "find_task",
    "register",
    "registry_name",
    "replace_column",
    "tasks",
]

Requirement = Literal["number", "text", "any"]
State = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Parameters and input with which the contract suite exercises a task."""

    task: Task
    batch: pa.RecordBatch
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base of all tasks: frozen parameters, validated at construction.

    Subclasses are frozen keyword-only dataclasses. Parameter types are checked, and where a type
    is annotated with bounds (:data:`Positive`, :data:`Count` …) its range as well; a rule that
    involves several parameters goes into :meth:`validate`.
    """

    code: ClassVar[str] = ""
    category: ClassVar[str] = "Custom"
    pattern: ClassVar[str] = "Transform"
    selectivity: ClassVar[str] = "1:1"
    stateful: ClassVar[bool] = False
    #: Version of behaviour and state; state of another version is refused.
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        """Check what involves several parameters; raise :class:`ConfigError`."""

    @classmethod
    def name(cls) -> str:
        """Registry name: the class name in snake case.

        >>> from riot_ops import tasks
        >>> tasks.KalmanFilter.name()
        'kalman_filter'
        """
        return registry_name(cls)

    # -- schema ------------------------------------------------------------------------------

    def requires(self) -> Mapping[str, Requirement]:
        """The input fields that the task reads, and what they must be."""
        return {}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the output, given the input's. Raises :class:`ConfigError` if it won't do."""
        self.check_input(schema)
        return schema

    def check_input(self, schema: pa.Schema) -> None:
        """Raise unless the schema has the fields that the task reads, with fitting types."""
        for name, wanted in self.requires().items():
            if name not in schema.names:
                raise ConfigError(
                    f"{self.name()} reads the field {name!r}, which its input lacks; "
                    f"fields are {', '.join(schema.names) or '(none)'}"
                    f"{did_you_mean(name, schema.names)}"
                )
            kind = schema.field(name).type
            if not _FITS[wanted](kind):
                raise ConfigError(f"{self.name()} needs a {wanted} in the field {name!r}, its input has {kind}")

    def writes(self) -> frozenset[str] | None:
        """The fields that the task changes or adds; None where any may change."""
        return frozenset()

    def derives(self) -> bool:
        """Whether records that come of one record are numbered by ``sub``; see :data:`riot_ops.schema.SUB_RANGE`."""
        return False

    # -- parameters as data --------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as JSON-able data."""
        return {"task": self.name(), **parameters_to_json(self, self.name())}

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

    def replace(self, **parameters: Any) -> Self:
        """A copy with other parameters."""
        return dataclasses.replace(self, **parameters)

    # -- faces -----------------------------------------------------------------------------------

    def session(self) -> Session:
        """A running instance for one event (or batch) at a time, without Spark."""
        from riot_ops.session import Session

        return Session(self)

    @property
    def map_in_arrow(self) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
        """The function for Spark's ``mapInArrow`` (stateless tasks)."""
        from riot_ops.runtime.spark import faces

        return faces.map_in_arrow(self)

    @property
    def map_in_pandas(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """The function for Spark's ``mapInPandas`` (stateless tasks)."""
        from riot_ops.runtime.spark import faces

        return faces.map_in_pandas(self)

    def stateful_processor(self, schema: Any) -> Any:
        """A ``StatefulProcessor`` for ``transformWithStateInPandas``, grouped by the task's key.

        ``schema`` is that of the DataFrame: Arrow's, a ``StructType`` or a DDL text. The processor's
        ``output_schema`` is the ``outputStructType`` that Spark asks for.
        """
        from riot_ops.runtime.spark import faces

        return faces.stateful_processor(self, schema)

    def transform(self, df: Any, **options: Any) -> Any:
        """Apply the task to a batch or streaming Spark ``DataFrame``: the fast path.

        See :func:`riot_ops.runtime.spark.transform` for the options.
        """
        from riot_ops.runtime.spark import adapters

        return adapters.transform(self, df, **options)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        """Parameters and inputs for the contract suite, ugly ones included."""
        return ()


@dataclass(frozen=True, kw_only=True)
class StatelessTask(Task):
    """A task whose output for a record depends on that record alone."""

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Process a batch; name the rows that cannot be processed in ``dead``."""

    def batches(self, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
        """The same in batches of limited size, for a task whose output may be far larger than its input."""
        yield self.apply(batch, dead)


@dataclass(frozen=True, kw_only=True)
class KeyedTask(Task):
    """A task with state per key.

    Parameters
    ----------
    by : tuple of str, default ()
        Fields that make up the key, or the name of one; empty: one state for the whole stream.
    ttl : timedelta or text such as "1h30m", optional
        A key not seen for longer than this, in event time, starts afresh and its state is
        dropped; None keeps keys for ever. As the times of all keys tell when to drop one, a record out of
        order by about as much may find its key kept or dropped.
    """

    stateful: ClassVar[bool] = True
    #: Whether one state serves all keys, by holding rows back in its field ``held`` (of dtype
    #: ``rows``): they come again before the rows of the next batch. Keys then leave nothing behind.
    pooled: ClassVar[bool] = False

    by: tuple[str, ...] = ()
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.by)) < len(self.by):
            raise ConfigError(f"by must not name a field twice, got {self.by!r}")
        if self.ttl is not None and self.ttl <= timedelta(0):
            raise ConfigError(f"ttl must be longer than 0, got {self.ttl!r}")

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {"event_time": "any"} if self.ttl else {}
        return {**dict.fromkeys(self.by, "any"), **extra}

    @abstractmethod
    def state_fields(self) -> Mapping[str, StateField]:
        """The state of one key, by name."""

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Reject the rows that must not touch the state; returns the others."""
        return batch

    @abstractmethod
    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        """Process rows in order: row i belongs to the key in ``slots[i]`` of the state arrays.

        Where the task is :attr:`pooled` the state arrays have one element, and slots number the keys
        of this call.
        """

    def merge(self, state: State, other: State) -> State | None:
        """State arrays of two parts of a stream as those of both; None where that cannot be told.

        Element i of both is of one key. The result is what one pass over both would have left.
        """
        return None

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Output at the end of a bounded stream, such as partial windows (``keys[i]`` is slot i)."""
        return None

    def end(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch | None:
        """In place of :meth:`flush` for a :attr:`pooled` task, with the rows that it holds."""
        return None


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

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        infinite = np.isinf(values)
        if not infinite.any():
            return batch
        dead.reject(batch, infinite, "not_finite", f"{self.value} is infinite")
        return batch.filter(pa.array(~infinite))


def applied(task: StatelessTask, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """What a task makes of a batch, at least one; :class:`ConfigError` where that is no batch."""
    for made in task.batches(batch, dead):
        yield as_batch(task, "apply", made)


def as_batch(task: Task, method: str, made: Any) -> pa.RecordBatch:
    """What a method of a task returned, where it is a batch."""
    if isinstance(made, pa.RecordBatch):
        return made
    raise ConfigError(
        f"{type(task).__name__}.{method} returned {'None' if made is None else f'a {type(made).__name__}'}; "
        "it must return a pyarrow.RecordBatch, without rows where there is no output"
    )


def replace_column(batch: pa.RecordBatch, name: str, values: Any, valid: Any = None) -> pa.RecordBatch:
    """The batch with a float64 column set; NaN is written as null (or where not ``valid``)."""
    if isinstance(values, np.ndarray):
        mask = np.isnan(values) if valid is None else ~valid
        values = pa.array(values, pa.float64(), mask=mask if mask.any() else None)
    position = batch.schema.get_field_index(name)
    column = pa.field(name, values.type)
    if position < 0:
        return batch.append_column(column, values)
    return batch.set_column(position, column, values)


def with_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    """The schema with a field set."""
    position = schema.get_field_index(field.name)
    return schema.append(field) if position < 0 else schema.set(position, field)


# -- registry --------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Task]] = {}
T = TypeVar("T", bound=type[Task])


def registry_name(kind: type[Any]) -> str:
    """The name of a class in snake case."""
    words = kind.__name__.replace("SenML", "Senml")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()


def register(kind: T) -> T:
    """Make a task known by its name and code; the contract suite then covers it.

    A class that is defined anew (a module that is loaded again, a notebook's cell that is run again)
    takes the place of the earlier one. Names and codes of other tasks are refused.
    """
    if not kind.code:
        raise ConfigError(f"task {kind.__name__} cannot be registered: its code is empty")
    for label in (kind.name(), kind.code):
        known = _REGISTRY.get(label)
        if known is not None and not _is_anew(kind, known):
            raise ConfigError(
                f"task {kind.__name__} cannot be registered as {label!r}: {known.__module__}.{known.__qualname__} "
                "has that name; give it another name and code"
            )
    for label in [label for label, known in _REGISTRY.items() if _is_anew(kind, known)]:
        del _REGISTRY[label]  # it may have had another code
    _REGISTRY[kind.name()] = _REGISTRY[kind.code] = kind
    return kind


def _is_anew(kind: type[Task], known: type[Task]) -> bool:
    """Whether a class is another one's new definition."""
    same_module = kind.__module__ == known.__module__
    # in a notebook a class is renamed by changing its cell
    return same_module and (
        kind.__qualname__ == known.__qualname__
        or (kind.__module__ == "__main__" and (kind.code == known.code or kind.name() == known.name()))
    )


def tasks() -> list[type[Task]]:
    """All registered tasks, in order of category and code."""
    import riot_ops.tasks  # noqa: F401  (importing them registers them)

    return sorted(set(_REGISTRY.values()), key=lambda t: (t.category, t.code))


def find_task(name: str) -> type[Task]:
    """A task by registry name or code, in upper or lower case.

    >>> find_task("KAL").__name__, find_task("kal").__name__
    ('KalmanFilter', 'KalmanFilter')
    """
    import riot_ops.tasks  # noqa: F401

    found = _REGISTRY.get(name) or _REGISTRY.get(name.upper())
    if found is None:
        raise ConfigError(f"unknown task {name!r}{did_you_mean(name, _REGISTRY)}")
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_null(kind)
    )


_FITS: dict[str, Callable[[pa.DataType], bool]] = {"number": _is_number, "text": _is_text, "any": lambda _: True}
