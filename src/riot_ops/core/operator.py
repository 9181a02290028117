"""The contract of an operator: typed frozen parameters, a code, and a function over record batches.

A :class:`StatelessOperator` maps a batch to a batch. A :class:`KeyedOperator` also has state per key,
declared as arrays that the framework owns. Both name the records that they cannot process in a
:class:`DeadLetters` collector. Neither knows where it runs. What users compose, a :class:`~riot_ops.task.Task`, is an
operator that can also run itself.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import Clock, Ticks
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.fits import FITS
from riot_ops.core.lookback import Lookback
from riot_ops.core.parameters import check_parameters, parameters_to_json, snake_case
from riot_ops.core.remembering import parameters_of, remembered
from riot_ops.core.state_field import StateField

__all__ = [
    "Due",
    "FilterOperator",
    "KeyedOperator",
    "Operator",
    "Requirement",
    "State",
    "StateField",
    "StatelessOperator",
    "clocks",
]

Requirement = Literal["number", "text", "any"]
State = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
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
    #: Whether several threads may run it at once; else it gets batches one by one and in order.
    reentrant: ClassVar[bool] = True
    #: Version of behaviour and state; state of another version is refused.
    version: ClassVar[int] = 1

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "output_schema" in cls.__dict__:
            cls.output_schema = remembered(cls.output_schema)  # type: ignore[assignment, method-assign]

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is worked out again."""
        return parameters_of(self)

    def validate(self) -> None:
        """Check what involves several parameters; raise :class:`ConfigError`."""

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
            if not FITS[wanted](kind):
                raise ConfigError(f"{self.name()} needs a {wanted} in the field {name!r}, its input has {kind}")

    def writes(self) -> frozenset[str] | None:
        """The fields that the task changes or adds, but for the place that :meth:`expands` adds; None: any."""
        return frozenset()

    def expands(self) -> bool:
        """Whether several records may come of one, told apart by a further ``ordinal``; see :mod:`riot_ops.core.order`."""
        return False

    def lookback(self) -> Lookback | None:
        """How far back its results reach; None, as by default of one with state: to all that came before."""
        return Lookback()

    # -- parameters as data --------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as JSON-able data."""
        return {"task": self.name(), **parameters_to_json(self, self.name())}

    def replace(self, **parameters: Any) -> Self:
        """A copy with other parameters."""
        return dataclasses.replace(self, **parameters)


@dataclass(frozen=True, kw_only=True)
class StatelessOperator(Operator):
    """A task whose output for a record depends on that record alone."""

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Process a batch; name the rows that cannot be processed in ``dead``."""

    def batches(self, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
        """The same in batches of limited size, for a task whose output may be far larger than its input."""
        yield self.apply(batch, dead)

    def derived(self, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[Any] | None:
        """The same as :class:`~riot_ops.kernels.arrays.derived.Derived`: what records share is copied later, if at all.

        None, as by default, where a task makes batches at once.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class FilterOperator(StatelessOperator):
    """A task that leaves records out and changes none: whoever runs it may copy those that pass later, or never."""

    #: Whether :meth:`passes` takes a :class:`~riot_ops.kernels.arrays.selection.Selection` for a batch.
    selects: ClassVar[bool] = False

    @abstractmethod
    def passes(self, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_] | None:
        """Which rows pass; None where the parameters ask for more, which an :meth:`apply` of its own then does."""

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        passes = self.passes(batch, dead)
        assert passes is not None
        return batch if passes.all() else batch.filter(pa.array(passes))


@dataclass(frozen=True)
class Due:
    """What a keyed task gives because time has come.

    Parameters
    ----------
    slots : array of int64, shape (n,)
        The key that each row is of. Rows of a key at one time are in order.
    rows : record batch
        Fields besides those of the key, of time and order.
    times : array of int64, shape (n,), optional
        When each was due: the multiple of the clock's period, in microseconds; by default the one that was passed.
        The event time of the row is the microsecond before.
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
        A key not seen for longer than this, in stream time, starts afresh and its state is
        dropped; None keeps keys for ever. Where other keys alone tell that time has passed, a key may be kept for
        up to a sixteenth longer.
    """

    stateful: ClassVar[bool] = True
    #: Whether one state serves all keys, by holding rows back in its field ``held`` (of dtype
    #: ``rows``): they come again before the rows of the next batch. Keys then leave nothing behind.
    pooled: ClassVar[bool] = False
    #: Whether :meth:`validate_rows` and :meth:`update` take a :class:`~riot_ops.kernels.arrays.selection.Selection` for a batch.
    selects: ClassVar[bool] = False

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

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
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

    def merge_aligned(self, batches: Sequence[pa.RecordBatch], state: State) -> pa.RecordBatch | None:
        """In place of :meth:`update` for a :attr:`pooled` task that holds nothing, with a batch of each of its inputs.

        Where these fit row by row, as those do that were made of the same records, nobody has to bring their rows
        together. The result is what :meth:`update` would give of all rows in order, with nothing held and nothing
        rejected; None where that cannot be told at once.
        """
        return None

    def update_derived(self, rows: Any, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters) -> Any | None:
        """In place of :meth:`validate_rows` and :meth:`update` for a :class:`~riot_ops.kernels.arrays.derived.Derived`, in order.

        Where the words are the key, ``slots[i]`` is that of the key ``rows.keys()[i]``. Of a :attr:`pooled` task, which
        holds nothing then and is not to, the fields in ``by`` tell the texts apart. The result, a batch or a
        ``Derived``, is what :meth:`update` would give; None where that cannot be told of these rows, and nothing has
        been done.
        """
        return None

    def only_tells(self, rows: Any) -> bool:
        """Whether all that :meth:`update_derived` does with some records is telling what is known of their words.

        On Spark it is then asked about the different words alone, in a ``Derived`` of one text that has them all.
        """
        return False

    def without_state(self) -> StatelessOperator | None:
        """What stands in for it in a dataflow where its parameters leave nothing to remember; None: nothing does."""
        return None

    def lookback(self) -> Lookback | None:
        return None if self.without_state() is None else Lookback()

    # -- stream time -------------------------------------------------------------------------------

    def clock(self) -> Clock | None:
        """When :meth:`tick` is called by stream time; None: never. By default never, but keys age with a ``ttl``."""
        return None

    def with_lateness(self, by: timedelta) -> Self:
        """The task where some inputs are late by so much and others are not.

        By default as it is, and its stream time that of the late ones; a task that holds records waits for them.
        """
        return self

    @property
    def needs_full_batch(self) -> bool:
        """Whether what it puts out depends on the records it is handed at once, which on Spark are a micro-batch's.

        Else it may be handed them in pieces.
        """
        return False

    def condensed(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        """Fewer records, which leave the state and the results that those of a batch do; None: all stay as they are.

        On Spark it is asked for them before records cross, so that less has to. Row i, in the order of ``seq``, is of
        key ``slots[i]`` of so many ``keys``. What the records stand for may be in a column that :meth:`update` knows
        and takes away; what is left of several batches is asked for once more.
        """
        return None

    def condensed_derived(self, rows: Any) -> pa.RecordBatch | None:
        """The same for a :class:`~riot_ops.kernels.arrays.derived.Derived` whose words are the key, in order.

        Nothing else comes between the first and the last of them, so that all may have the number of the first.
        """
        return None

    @property
    def keys_live(self) -> timedelta | None:
        """For how much stream time a key is kept without a record; None: for ever."""
        return self.ttl

    def tick(self, keys: pa.RecordBatch, state: State, time: int, periods: int) -> Due | None:
        """Called between two records when stream time, less the clock's delay, has passed multiples of its period.

        Parameters
        ----------
        keys : record batch
            The key fields: row i is the key of element i of the state arrays.
        time : int
            The multiple that has been passed (the last of them), in microseconds.
        periods : int
            How many have been passed since the call before, or since the first event time.
        """
        return None

    def advance(
        self, batch: pa.RecordBatch | None, slots: npt.NDArray[np.int64], state: State, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, Due | None]:
        """In place of :meth:`update` and :meth:`tick`, for a task with a clock that has one loop over rows and ticks.

        Returns what :meth:`update` would, and what is due with its times. ``batch`` is None where there are ticks
        but no rows. At the end of a bounded stream time comes to :data:`~riot_ops.core.clock.END`; there is no
        :meth:`flush`.
        """
        raise NotImplementedError

    def merge(self, state: State, other: State) -> State | None:
        """State arrays of two parts of a stream as those of both; None where that cannot be told.

        Element i of both is of one key. The result is what one pass over both would have left.
        """
        return None

    def decode_state(self, table: pa.Table) -> pa.Table:
        """State for people: given a table of the fields of the keys and those of the state, by default as they are."""
        return table

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Output at the end of a bounded stream, such as partial windows (``keys[i]`` is slot i)."""
        return None

    def end(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch | None:
        """In place of :meth:`flush` for a :attr:`pooled` task, with the rows that it holds."""
        return None


def clocks(task: Operator) -> list[Clock]:
    """The clocks that a task goes by: its own, and one by which its keys age."""
    if not isinstance(task, KeyedOperator):
        return []
    own = task.clock()
    aging = [] if task.ttl is None else [Clock(max(task.ttl // 16, timedelta.resolution))]
    return [*aging, *([] if own is None else [own])]
