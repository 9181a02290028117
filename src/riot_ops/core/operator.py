"""The contract of an operator: typed frozen parameters, a code, and a function over record batches.

A :class:`StatelessOperator` maps a batch to a batch. A :class:`KeyedOperator` also has state per key, declared as
arrays that the engine owns. Both pass the records that they cannot process to a :class:`RejectedRecords` collector.
Neither knows where it runs. A :class:`~riot_ops.task.Task`, which users compose, is an operator that can also run by
itself.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.casting import is_key_type
from riot_ops.core.clock import Clock, Ticks
from riot_ops.core.display import operator_html, operator_text, wrapped
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.lookback import Lookback
from riot_ops.core.parameters import Duration, Names, as_timedelta, check_parameters, parameters_to_json, snake_case
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema_cache import cache_last_schema, uncached_attributes

__all__ = [
    "NUMBER_REQUIREMENTS",
    "FilterOperator",
    "KeyedOperator",
    "Operator",
    "Requirement",
    "State",
    "StateField",
    "StatelessOperator",
    "TimerOutput",
    "both_requirements",
    "emits_per_batch",
    "operator_clocks",
]

#: What a task requires of the type of an input field: ``number``, which it computes with in float64, see
#: :attr:`Operator.float64_fields`; ``exact number``, without decimals, whose digits it would lose; ``value``, an exact
#: number or a time, which it passes on or compares; ``key``, a value whose equality is known.
Requirement = Literal["number", "exact number", "value", "text", "key", "any"]
State = dict[str, Any]


def _is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_floating(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_decimal(dtype)
        or pa.types.is_null(dtype)
    )


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
        or pa.types.is_dictionary(dtype)
        or pa.types.is_null(dtype)
    )


def _is_exact_number(dtype: pa.DataType) -> bool:
    return _is_number(dtype) and not pa.types.is_decimal(dtype)


#: Maximum of bytes in the arrays of one key; and of the whole stream, where there is no key.
MAX_KEY_BYTES, MAX_STREAM_BYTES = 1 << 26, 1 << 30
#: Requirements that numbers meet.
NUMBER_REQUIREMENTS = ("number", "exact number", "value")


#: Which Arrow types satisfy a requirement.
_SATISFIES: dict[str, Callable[[pa.DataType], bool]] = {
    "number": _is_number,
    "exact number": _is_exact_number,
    "value": lambda dtype: _is_exact_number(dtype) or (pa.types.is_temporal(dtype) and not pa.types.is_interval(dtype)),
    "text": _is_text,
    "key": is_key_type,
    "any": lambda _: True,
}


#: Clearer descriptions of what some requirements allow.
_WORDS = {
    "exact number": "number of at most 64 bits",
    "value": "number of at most 64 bits, or a time,",
    "key": "key (a number, text, bytes of any kind, a boolean, a date, a time or a duration)",
}


def both_requirements(one: Requirement | None, other: Requirement) -> Requirement:
    """Return the requirement on a field that has to meet two of them.

    >>> both_requirements("number", "value"), both_requirements("any", "value")
    ('exact number', 'value')
    """
    if one is None or one in ("any", "key", other):
        return other
    return one if other in ("any", "key") else "exact number"


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
    """Base of all tasks: frozen parameters, validated at construction.

    Subclasses are frozen keyword-only dataclasses. The constructor checks the types of parameters, and the range of a
    type with bounds (:data:`Positive`, :data:`Count` …); :meth:`validate` checks rules over several parameters.
    """

    code: ClassVar[str] = ""
    category: ClassVar[str] = "Custom"
    pattern: ClassVar[str] = "Transform"
    selectivity: ClassVar[str] = "1:1"
    stateful: ClassVar[bool] = False
    #: Whether several threads may run it at once; otherwise the runner passes batches one by one and in order.
    reentrant: ClassVar[bool] = True
    #: Whether the methods of a filter or of a keyed task accept lazy rows in place of a batch, see
    #: :class:`~riot_ops.kernels.arrays.lazy_rows.Rows`.
    accepts_lazy_rows: ClassVar[bool] = False
    #: Columns that it overwrites by purpose, as documented, though it does not read them and no parameter names them.
    replaces: ClassVar[frozenset[str]] = frozenset()
    #: Version of behaviour and state; the engine refuses state of another version.
    version: ClassVar[int] = 1
    #: Parameters that shape no state: with another value of them it keeps its meaning, and a restart keeps it.
    state_free_parameters: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "output_schema" in cls.__dict__:
            cls.output_schema = cache_last_schema(cls.output_schema)  # type: ignore[assignment, method-assign]
        if not {"__repr__", "_repr_pretty_"} & cls.__dict__.keys():
            cls._repr_pretty_ = _print_pretty  # type: ignore[assignment, method-assign]  # before the __repr__ that dataclass adds

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the parameters; leave out cached values."""
        return uncached_attributes(self)

    def validate(self) -> None:
        """Raise :class:`ConfigError` if parameters contradict each other."""

    @classmethod
    def name(cls) -> str:
        """Registry name: the class name in snake case.

        >>> from riot_ops import tasks
        >>> tasks.KalmanFilter.name()
        'kalman_filter'
        """
        return snake_case(cls.__name__)

    # -- schema ------------------------------------------------------------------------------

    def requires(self) -> Mapping[str, Requirement]:
        """Return the input fields that the task reads, and the requirement of each."""
        return {}

    @cached_property
    def float64_fields(self) -> tuple[str, ...]:
        """The input fields that kernels read as float64: by default those that must be a ``number``.

        The runner rejects a record with a number in one of them that float64 cannot hold (``out_of_range``).
        """
        return tuple(name for name, requirement in self.requires().items() if requirement == "number")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the output for a schema of the input; :class:`ConfigError` if the input is unsuitable."""
        self.check_input(schema)
        return schema

    def check_input(self, schema: pa.Schema) -> None:
        """Raise :class:`ConfigError` unless the schema has the fields that the task reads, with suitable types."""
        for name, requirement in self.requires().items():
            if name not in schema.names:
                raise ConfigError(
                    f"{self.name()} reads the field {name!r}, which its input lacks; "
                    f"fields are {', '.join(schema.names) or '(none)'}"
                    f"{did_you_mean(name, schema.names)}"
                )
            dtype = schema.field(name).type
            if not _SATISFIES[requirement](dtype):
                raise ConfigError(
                    f"{self.name()} needs a {_WORDS.get(requirement, requirement)} in the field {name!r}, "
                    f"its input has {dtype}"
                )

    def writes(self) -> frozenset[str] | None:
        """Return the fields that the task changes or adds, without the ordinal of :meth:`expands`; None: any field."""
        return frozenset()

    def expands(self) -> bool:
        """Whether one input record may give several, numbered by one more ordinal; see :mod:`riot_ops.core.order`."""
        return False

    def lookback(self) -> Lookback | None:
        """How much of the input before a result it depends on; None, the default of tasks with state: all of it."""
        return Lookback()

    # -- displays ------------------------------------------------------------------------------

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the parameters that are not the defaults, in a terminal of IPython."""
        _print_pretty(self, printer, cycle)

    def _repr_html_(self) -> str:
        """Return the purpose of the task and its parameters."""
        return operator_html(self)

    # -- parameters as data --------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the name and the parameters as JSON-able data."""
        return {"task": self.name(), **parameters_to_json(self, self.name())}

    def secret_tags(self) -> Mapping[str, str]:
        """Return, by parameter, the tag of each secret that state depends on; its identity holds the tag instead."""
        return {}

    def replace(self, **parameters: Any) -> Self:
        """Return a copy with other parameters."""
        return dataclasses.replace(self, **parameters)


def _print_pretty(operator: Operator, printer: Any, cycle: bool) -> None:
    printer.text("\n".join(wrapped(operator_text(operator, 4000), "  ", max_lines=20)))


@dataclass(frozen=True, kw_only=True)
class StatelessOperator(Operator):
    """A task whose output for a record depends on that record alone."""

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Process a batch; reject the rows that cannot be processed through ``errors``."""

    def batches(self, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
        """Like :meth:`apply`, in batches of limited size; for a task whose output may be far larger than its input."""
        yield self.apply(batch, errors)


@dataclass(frozen=True, kw_only=True)
class FilterOperator(StatelessOperator):
    """A task that drops records and changes none, so that the runner may copy the remaining ones later, or never."""

    @abstractmethod
    def passes(self, batch: pa.RecordBatch, errors: RejectedRecords) -> npt.NDArray[np.bool_] | None:
        """Which rows pass; None if the parameters need more than a mask, and the subclass overrides :meth:`apply`."""

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        passes = self.passes(batch, errors)
        assert passes is not None
        return batch if passes.all() else batch.filter(pa.array(passes))


@dataclass(frozen=True)
class StateField:
    """One field of a key's state.

    Parameters
    ----------
    dtype : str
        NumPy type such as ``float64``; or ``json`` (any JSON value) and ``rows`` (a record batch or None), which are
        stored as a list with one Python object per key.
    shape : int, default 0
        Length of the field; 0 for a scalar.
    initial : number or object, default 0
        Value for a new key.
    growable : bool, default False
        Whether the task may replace the field's array by a longer one, see :meth:`widen`; ``shape`` is the initial
        length.
    pack, unpack : functions, optional
        Of a ``json`` or ``rows`` field: convert the object to a JSON value or a record batch, and back. A key without
        rows (None) gets the initial object back.

    Examples
    --------
    >>> StateField("float64", shape=3).dtype
    'float64'
    """

    dtype: str
    shape: int = 0
    initial: Any = 0
    growable: bool = False
    pack: Callable[[Any], Any] | None = field(default=None, compare=False)
    unpack: Callable[[Any], Any] | None = field(default=None, compare=False)

    @property
    def is_object(self) -> bool:
        return self.dtype in ("json", "rows")

    def empty(self, n: int, like: Any = None) -> Any:
        """Return the field for n new keys; a growable field gets the length of ``like``, an existing array of it."""
        if self.is_object:
            return [self.initial] * n
        shape = like.shape[1] if self.growable and like is not None else self.shape
        room = (n, shape) if shape else n
        # the operating system allocates zeroed memory only when it is written
        return np.full(room, self.initial, self.dtype) if self.initial else np.zeros(room, self.dtype)

    def widen(self, array: Any, min_width: int) -> Any:
        """Double the length of a growable field until it has room for ``min_width`` values per key."""
        width = array.shape[1]
        while width < min_width:
            width *= 2
        if width == array.shape[1]:
            return array
        grown = self.empty(len(array), np.empty((0, width)))
        grown[:, : array.shape[1]] = array
        return grown


@dataclass(frozen=True)
class TimerOutput:
    """Rows that a keyed task emits when stream time passes a multiple of its clock's period.

    Parameters
    ----------
    slots : array of int64, shape (n,)
        Slot of the key of each row. Rows of a key at one time are in order.
    rows : record batch
        Fields other than those of the key, of time and of order.
    times : array of int64, shape (n,), optional
        When each row was due: a multiple of the clock's period, in microseconds; by default the multiple that stream
        time has passed. The event time of the row is the microsecond before.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> due = TimerOutput(np.array([0, 2]), pa.RecordBatch.from_pydict({"mean": [1.5, 4.0]}))
    >>> due.rows.num_rows, due.times is None
    (2, True)
    """

    slots: npt.NDArray[np.int64]
    rows: pa.RecordBatch
    times: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, kw_only=True)
class KeyedOperator(Operator):
    """A task with state per key.

    Parameters
    ----------
    by : tuple of str, default ()
        Fields that make up the key, or the name of one; empty: one state for the whole stream.
    ttl : timedelta or text such as "1h30m", optional
        The engine drops the state of a key that has had no record for longer than this, in stream time, and starts it
        again; None keeps keys for ever. If only other keys advance stream time, a key may stay for up to a sixteenth
        longer. An event time more than a day (or the ttl) away from stream time ages other keys only once further
        records agree with it, see :mod:`riot_ops.core.clock`.
    """

    stateful: ClassVar[bool] = True
    by: Names = ()
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.by)) < len(self.by):
            raise ConfigError(f"by must not name a field twice, got {self.by!r}")
        if self.ttl is not None and as_timedelta(self.ttl) <= timedelta(0):
            raise ConfigError(f"ttl must be longer than 0, got {self.ttl!r}")
        self._check_state_size()

    def _check_state_size(self) -> None:
        """Refuse parameters with which the arrays of a single key would not fit the memory."""
        size = sum(
            np.dtype(f.dtype).itemsize * max(f.shape, 1) for f in self.state_fields().values() if not f.is_object
        )
        limit = MAX_KEY_BYTES if self.by else MAX_STREAM_BYTES
        if size <= limit:
            return
        numbers = {f.name: v for f in dataclasses.fields(self) if type(v := getattr(self, f.name)) is int}
        name = max(numbers, key=lambda one: numbers[one], default="parameters")
        raise ConfigError(
            f"{type(self).__name__}: {name} = {numbers.get(name)!r}: the state of a key would take {size:,} bytes; "
            f"{'with' if self.by else 'without'} a key (by) at most {limit:,} are allowed"
        )

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {"event_time": "any"} if self.ttl else {}
        return {**dict.fromkeys(self.by, "key"), **extra}

    @abstractmethod
    def state_fields(self) -> Mapping[str, StateField]:
        """Return the fields of the state of one key, by name."""

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Reject the rows that must not touch the state; return the others."""
        return batch

    @abstractmethod
    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Process rows in order: row i belongs to the key in ``slots[i]`` of the state arrays."""

    def stateless_equivalent(self) -> StatelessOperator | None:
        """The stateless operator that replaces it in a dataflow if its parameters need no state; None: it has state."""
        return None

    def lookback(self) -> Lookback | None:
        return None if self.stateless_equivalent() is None else Lookback()

    # -- stream time -------------------------------------------------------------------------------

    def clock(self) -> Clock | None:
        """When stream time calls :meth:`advance`; None, the default: never (a ``ttl`` removes keys in any case)."""
        return None

    def with_lateness(self, lateness: timedelta) -> Self:
        """Return a copy for a dataflow in which some inputs are late by ``lateness`` and others are not.

        By default the task itself, whose stream time is that of the late inputs; a task that holds records overrides
        it to wait for them.
        """
        return self

    def precombine(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        """Combine records into fewer ones that lead to the same state and results, before a shuffle; None: keep all.

        Row i, in the order of ``seq``, has the key ``slots[i]`` of ``keys`` distinct ones. The result may carry a
        column that :meth:`update` reads and removes. Spark combines the results of several batches again.
        """
        return None

    @property
    def key_retention(self) -> timedelta | None:
        """For how long, in stream time, a key without a record stays; None: for ever."""
        return as_timedelta(self.ttl)

    def advance(
        self,
        batch: pa.RecordBatch | None,
        slots: npt.NDArray[np.int64],
        state: State,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        """Process rows and ticks in one loop, in place of :meth:`update`; for a task with a clock.

        Returns what :meth:`update` would, and the timer output with its times. ``batch`` is None if there are ticks but
        no rows. At the end of a bounded stream the engine advances time to :data:`~riot_ops.core.clock.END` and does
        not call :meth:`flush`. A :class:`~riot_ops.core.special_operators.PeriodicOperator` is called between the rows
        instead.
        """
        raise NotImplementedError(f"{type(self).__name__} has a clock, and so needs advance()")

    def merge_states(self, state: State, other: State) -> State | None:
        """Merge the state arrays of two consecutive parts of a stream; None if the task cannot.

        Element i of both belongs to one key. The result equals the state after one pass over both parts.
        """
        return None

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Output at the end of a bounded stream, such as partial windows; row i of ``keys`` is the key of slot i."""
        return None


def operator_clocks(task: Operator) -> list[Clock]:
    """Return the clocks of a task: its own, and the one that removes keys after their ``ttl``."""
    if not isinstance(task, KeyedOperator):
        return []
    own = task.clock()
    aging = [] if task.ttl is None else [Clock(max(as_timedelta(task.ttl) // 16, timedelta.resolution))]
    return [*aging, *([] if own is None else [own])]


def emits_per_batch(task: object) -> bool:
    """Whether a task with the parameter ``emit`` is set to "update": its output depends on the records of one call.

    On Spark these are the records of a micro-batch. The runner may pass a batch to any other task in pieces.
    """
    return getattr(task, "emit", None) == "update"
