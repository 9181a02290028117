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
    """Parameters and an input with which the contract suite tests a task.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> words = pa.RecordBatch.from_pydict({"word": ["so", "it", None]})
    >>> case = Case(t.RunningCount(by="word"), words, name="null key")
    >>> case.task.session().push_batch(case.batch)["count"].to_pylist()
    [1, 1, 1]
    """

    task: Task
    batch: pa.RecordBatch
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Task(Operator):
    """Base of all tasks: an :class:`~riot_ops.core.operator.Operator` that users compose and that can run by itself.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> kalman = t.KalmanFilter(by="device", value="temperature")
    >>> isinstance(kalman, Task), kalman.name(), kalman.code
    (True, 'kalman_filter', 'KAL')
    >>> kalman.to_dict()["by"]
    ['device']
    >>> [round(row["temperature"], 2) for row in kalman.session().push({"device": "d1", "temperature": 21.5})]
    [21.27]
    """

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
    """A task whose output for a record depends on that record alone; subclasses define ``apply(batch, errors)``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Fahrenheit(StatelessTask):
    ...     def requires(self):
    ...         return {"value": "number"}
    ...     def output_schema(self, schema):
    ...         return with_field(schema, pa.field("value", pa.float64()))
    ...     def apply(self, batch, errors):
    ...         values, _ = floats(batch, "value")
    ...         return replace_column(batch, "value", values * 1.8 + 32)
    >>> Fahrenheit().session().push_many([{"value": 20.0}, {"value": None}])
    [{'value': 68.0}, {'value': None}]
    """


@dataclass(frozen=True, kw_only=True)
class FilterTask(FilterOperator, StatelessTask):
    """A task that drops records and changes none; subclasses define ``passes(batch, errors)``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Above(FilterTask):
    ...     limit: float = 0.0
    ...     def requires(self):
    ...         return {"value": "number"}
    ...     def passes(self, batch, errors):
    ...         values, valid = floats(batch, "value")
    ...         return values > self.limit
    >>> Above(limit=20).session().push_many([{"value": 19.5}, {"value": 24.0}, {"value": None}])
    [{'value': 24.0}]
    """


@dataclass(frozen=True, kw_only=True)
class SketchTask(Task):
    """A task that remembers values by their hash, which a secret can key so that no sender can choose collisions.

    Without the secret the hash is fixed, and descriptors and kept state do not mention it. With it, state holds the
    secret's tag and continues only with the same secret.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops import tasks as t
    >>> count = t.DistinctCount(by="room", field="badge", secret=ro.Secret.env("RIOT_OPS_HASH_SECRET"))
    >>> isinstance(count, SketchTask), count.to_dict()["secret"]
    (True, {'env': 'RIOT_OPS_HASH_SECRET'})
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

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Highest(KeyedTask):
    ...     # The highest value of each key so far
    ...     def requires(self):
    ...         return {**super().requires(), "value": "number"}
    ...     def output_schema(self, schema):
    ...         return with_field(schema, pa.field("value", pa.float64()))
    ...     def state_fields(self):
    ...         return {"top": StateField("float64", initial=-np.inf)}
    ...     def update(self, batch, slots, state, errors):
    ...         values, _ = floats(batch, "value")
    ...         out = np.empty(values.size)
    ...         for i, slot in enumerate(slots):
    ...             state["top"][slot] = out[i] = np.fmax(state["top"][slot], values[i])
    ...         return replace_column(materialize(batch), "value", out)
    >>> live = Highest(by="device").session()
    >>> rows = [{"device": "a", "value": 2.0}, {"device": "b", "value": 1.0}, {"device": "a", "value": 1.0}]
    >>> [row["value"] for row in live.push_many(rows)]
    [2.0, 1.0, 2.0]
    """


@dataclass(frozen=True, kw_only=True)
class PeriodicTask(PeriodicOperator, KeyedTask):
    """A keyed task that is called as time passes; subclasses also define ``clock()`` and ``tick(keys, state, …)``.

    See :class:`~riot_ops.core.special_operators.PeriodicOperator`.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from datetime import UTC, datetime, timedelta
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Silent(PeriodicTask):
    ...     # The keys without a record in the last minute
    ...     def clock(self):
    ...         return Clock(timedelta(minutes=1))
    ...     def state_fields(self):
    ...         return {"n": StateField("int64")}
    ...     def output_schema(self, schema):
    ...         return pa.schema([schema.field(name) for name in (*self.by, "event_time")])
    ...     def update(self, batch, slots, state, errors):
    ...         np.add.at(state["n"], slots, 1)
    ...         return batch.slice(0, 0).select([*self.by, "event_time"])
    ...     def tick(self, keys, state, time, periods):
    ...         silent = np.flatnonzero(state["n"] == 0)
    ...         state["n"][:] = 0
    ...         return TimerOutput(silent, pa.RecordBatch.from_pydict({}))
    >>> live = Silent(by="device").session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> readings = [("a", 5), ("b", 6), ("a", 65), ("a", 121)]
    >>> found = live.push_many({"device": d, "event_time": noon + timedelta(seconds=s)} for d, s in readings)
    >>> [row["device"] for row in found]
    ['b']
    """


@dataclass(frozen=True, kw_only=True)
class PooledTask(PooledOperator, KeyedTask):
    """A keyed task that holds rows back and gets them again.

    See :class:`~riot_ops.core.special_operators.PooledOperator`.

    Parameters
    ----------
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> archives = t.Zip(field="data", entry="name", size=2)
    >>> isinstance(archives, PooledTask)
    True
    >>> session = archives.session()
    >>> [len(session.push({"name": name, "data": b"..."})) for name in ("a.svg", "b.svg")]
    [0, 1]
    """


def reject_infinite(batch: AnyRows, field: str, errors: RejectedRecords) -> AnyRows:
    """Reject the records with an infinite number in a field; return the others.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"seq": [1, 2], "value": [1.0, float("inf")]})
    >>> errors = RejectedRecords("check")
    >>> reject_infinite(batch, "value", errors)["value"].to_pylist(), errors.count
    ([1.0], 1)
    """
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

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Highest(ValueTask):
    ...     # The highest value of each key so far
    ...     def output_schema(self, schema):
    ...         return with_field(schema, pa.field(self.target, pa.float64()))
    ...     def state_fields(self):
    ...         return {"top": StateField("float64", initial=-np.inf)}
    ...     def update(self, batch, slots, state, errors):
    ...         values, _ = floats(batch, self.value)
    ...         out = np.empty(values.size)
    ...         for i, slot in enumerate(slots):
    ...             state["top"][slot] = out[i] = np.fmax(state["top"][slot], values[i])
    ...         return replace_column(materialize(batch), self.target, out)
    >>> live = Highest(by="device", value="load", output="peak").session()
    >>> live.push_many([{"device": "a", "load": 2.0}, {"device": "a", "load": 1.0}])
    [{'device': 'a', 'load': 2.0, 'peak': 2.0}, {'device': 'a', 'load': 1.0, 'peak': 2.0}]
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

    Examples
    --------
    >>> declare({"KalmanFilter": ("KAL", "riot_ops.tasks.math.kalman_filter")})
    >>> find_task("KAL").__name__
    'KalmanFilter'
    """
    for name, (code, module) in tasks.items():
        _DECLARED[code] = _DECLARED[snake_case(name)] = module, name


def register(cls: T) -> T:
    """Register a task by its name and code; the contract suite then covers it.

    A class that is defined again (in a reloaded module, or a notebook cell that runs again) replaces the earlier one. A
    name or code of another task raises a ConfigError.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> with isolated_tasks():
    ...     @register
    ...     @dataclass(frozen=True, kw_only=True)
    ...     class Positive(FilterTask):
    ...         code = "POS"
    ...         def passes(self, batch, errors):
    ...             return np.array([value is not None and value > 0 for value in batch["value"].to_pylist()])
    ...     find_task("POS")().session().push_many([{"value": 1.0}, {"value": -1.0}])
    [{'value': 1.0}]
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
    """Undo all registrations of tasks at the end of a ``with`` block; for tests.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> with isolated_tasks():
    ...     @register
    ...     @dataclass(frozen=True, kw_only=True)
    ...     class Everything(FilterTask):
    ...         code = "ALL"
    ...         def passes(self, batch, errors):
    ...             return np.ones(batch.num_rows, bool)
    >>> find_task("ALL")
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ConfigError: unknown task 'ALL'; did you mean "PAL"?
    """
    before = dict(_REGISTRY)
    try:
        yield
    finally:
        _REGISTRY.clear()
        _REGISTRY.update(before)


def registered_tasks() -> list[type[Task]]:
    """Return all registered tasks, in order of category and code.

    Examples
    --------
    >>> [task.code for task in registered_tasks() if task.category == "Filter"][:3]
    ['BLF', 'BLT', 'DDP']
    """
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
