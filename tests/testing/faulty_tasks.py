"""Tasks with one fault each, which the checks of riot_ops.testing must find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.operator import StateField
from riot_ops.task import (
    Case,
    FilterTask,
    StatelessTask,
    ValueTask,
    isolated_tasks,
    register,
    replace_column,
    with_field,
)
from riot_ops.testing import CHECKS, check_task

BATCH = pa.RecordBatch.from_pydict({"key": ["a", "b", "a", "b"], "value": [1.0, 2.0, None, 4.0]})
CALLS: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Total(ValueTask):
    """Add up the readings of each key.

    Parameters
    ----------
    by, value, output, ttl
        See :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1.

    Missing values
    --------------
    Null gives the total so far.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    None.

    Examples
    --------
    >>> [Total().session().push({"value": v}) for v in (1.0, 2.0)]
    [[{'value': 1.0}], [{'value': 2.0}]]
    """

    code: ClassVar[str] = "FAULT"

    def state_fields(self) -> Mapping[str, StateField]:
        return {"total": StateField("float64")}

    def update(self, batch, slots, state, rejects):
        return replace_column(batch, self.target, self.totals(batch, slots, state))

    def totals(self, batch, slots, state) -> Any:
        out = np.empty(batch.num_rows)
        for i, v in enumerate(batch.column(self.value).to_pylist()):
            state["total"][slots[i]] += 0.0 if v is None or np.isnan(v) else v
            out[i] = state["total"][slots[i]]
        return out

    @classmethod
    def cases(cls) -> Iterable[Case]:
        yield Case(cls(by=("key",)), BATCH)


@dataclass(frozen=True, kw_only=True)
class Forgetful(Total):
    """Keeps its totals outside of the state."""

    def totals(self, batch, slots, state):
        CALLS.append(1)
        return np.full(batch.num_rows, float(len(CALLS)))


@dataclass(frozen=True, kw_only=True)
class Splitting(Total):
    """Starts again with each batch."""

    def totals(self, batch, slots, state):
        return np.cumsum(np.nan_to_num(np.asarray(batch.column(self.value), float)))


@dataclass(frozen=True, kw_only=True)
class Aliasing(Total):
    """Hands its state out."""

    def update(self, batch, slots, state, rejects):
        self.totals(batch, slots, state)
        return replace_column(batch, self.target, pa.array(state["total"][: batch.num_rows]))

    @classmethod
    def cases(cls):
        yield Case(cls(), pa.RecordBatch.from_pydict({"value": [1.0, 2.0]}))


@dataclass(frozen=True, kw_only=True)
class Mutating(StatelessTask):
    """Writes into its input."""

    def apply(self, batch, rejects):
        address = np.frombuffer(batch.column("value").buffers()[1], np.float64)
        writable = np.lib.stride_tricks.as_strided(address)
        pointer = writable.ctypes.data
        import ctypes

        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_double))[0] += 1.0
        return batch

    @classmethod
    def cases(cls):
        yield Case(cls(), pa.RecordBatch.from_pydict({"value": np.array([1.0, 2.0])}))


@dataclass(frozen=True, kw_only=True)
class Undeclared(Total):
    """Emits a field that it does not declare."""

    def update(self, batch, slots, state, rejects):
        return batch.append_column("more", pa.nulls(batch.num_rows))


@dataclass(frozen=True, kw_only=True)
class Masking(Total):
    """Clears a field that it does not say it writes."""

    def update(self, batch, slots, state, rejects):
        return replace_column(batch, "key", pa.array(["masked"] * batch.num_rows))


@dataclass(frozen=True, kw_only=True)
class Traces(Total):
    """Adds a reading up before it rejects it as ``not_finite``."""

    def validate_rows(self, batch, rejects):
        return batch

    def update(self, batch, slots, state, rejects):
        out = super().update(batch, slots, state, rejects)
        bad = np.isinf(np.asarray(batch.column(self.value), float))
        rejects.reject(batch, bad, "not_finite", "infinite")
        return out.filter(pa.array(~bad))


@dataclass(frozen=True, kw_only=True)
class Growing(Total):
    """Remembers every reading."""

    def state_fields(self):
        return {"all": StateField("json", initial=())}

    def totals(self, batch, slots, state):
        out = np.empty(batch.num_rows)
        for i, v in enumerate(batch.column(self.value).to_pylist()):
            s = slots[i]
            state["all"][s] = [*state["all"][s], 0.0 if v is None or np.isnan(v) else v][: 10**5]
            out[i] = len(state["all"][s])
        return out


@dataclass(frozen=True, kw_only=True)
class Roomy(Growing):
    """Keeps every reading, and doubles its capacity when it is full."""

    def totals(self, batch, slots, state):
        for s in slots.tolist():
            count, *room = state["all"][s] or [0]
            state["all"][s] = [count + 1, *room, *([0] * max(1, len(room)) if count == len(room) else [])]
        return np.ones(batch.num_rows)


@dataclass(frozen=True, kw_only=True)
class Doubling(Total):
    """Emits every record twice, though it declares 1:1."""

    def update(self, batch, slots, state, rejects):
        out = super().update(batch, slots, state, rejects)
        return pa.concat_batches([out, out])


@dataclass(frozen=True, kw_only=True)
class Numbering(Total):
    """Numbers its records by ``ordinal``, but does not declare it."""

    def output_schema(self, schema):
        return with_field(super().output_schema(schema), pa.field("ordinal", pa.int64()))

    def update(self, batch, slots, state, rejects):
        out = super().update(batch, slots, state, rejects)
        return replace_column(out, "ordinal", pa.array(range(out.num_rows), pa.int64()))


@dataclass(frozen=True, kw_only=True)
class Repeating(Numbering):
    """Declares that it numbers its records, and gives all of a message the same number."""

    def expands(self):
        return True

    def update(self, batch, slots, state, rejects):
        out = pa.concat_batches(2 * [super().update(batch, slots, state, rejects)])
        return replace_column(out, "ordinal", pa.array([0] * out.num_rows, pa.int64()))


@dataclass(frozen=True, kw_only=True)
class Inventing(Total):
    """Emits records of messages that were not in the input."""

    def update(self, batch, slots, state, rejects):
        out = super().update(batch, slots, state, rejects)
        if "seq" not in out.schema.names:
            return out
        return replace_column(out, "seq", pa.array([s + 1000 for s in out.column("seq").to_pylist()]))


@dataclass(frozen=True, kw_only=True)
class Undocumented(Total):
    """Rejects for a reason that it does not document."""

    def update(self, batch, slots, state, rejects):
        rejects.reject(batch, np.arange(batch.num_rows) == 0, "moody", "it is the first one")
        return super().update(batch.slice(1), slots[1:], state, rejects)


@dataclass(frozen=True, kw_only=True)
class Trusting(Total):
    """Takes any input."""

    def output_schema(self, schema):
        return schema


@dataclass(frozen=True, kw_only=True)
class Dropping(Total):
    """Loses a parameter on its way through JSON."""

    code: ClassVar[str] = "DRP"
    number: float = 0.0

    def to_dict(self):
        return {k: v for k, v in super().to_dict().items() if k != "number"}

    @classmethod
    def cases(cls):
        yield Case(cls(by=("key",), number=5.0), BATCH)


@dataclass(frozen=True, kw_only=True)
class Hashing(Total):
    """Emits the hash of a text."""

    def totals(self, batch, slots, state):
        return np.array([float(hash(k)) for k in batch.column("key").to_pylist()])


@dataclass(frozen=True, kw_only=True)
class Unlike(Total):
    """Equal parameters make unequal tasks."""

    number: float = field(default=0.0)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Heavy(Total):
    """Carries a large parameter."""

    ballast: str = "x" * 200_000


@dataclass(frozen=True, kw_only=True)
class NotANumber(Total):
    """Writes NaN."""

    def update(self, batch, slots, state, rejects):
        return replace_column(batch, self.target, pa.array(np.full(batch.num_rows, np.nan)))


@dataclass(frozen=True, kw_only=True)
class Merging(Total):
    """Adds totals."""

    def merge_states(self, state, other):
        return {"total": state["total"] + other["total"]}


@dataclass(frozen=True, kw_only=True)
class Halving(Total):
    """Merges in a way that depends on the order."""

    def merge_states(self, state, other):
        return {"total": state["total"] + 0.5 * other["total"]}


@dataclass(frozen=True, kw_only=True)
class Sharing(Total):
    """Merges into its argument."""

    def merge_states(self, state, other):
        other["total"] += state["total"]
        return other


@dataclass(frozen=True, kw_only=True)
class Misstating(Total):
    __doc__ = Total.__doc__.replace(
        "        See :class", "        See.\n    low, high : int, default 0 and 9\n        Of :class"
    )

    low: int = 0
    high: int = 8


@dataclass(frozen=True, kw_only=True)
class Twofold(FilterTask):
    """Passes other rows than it returns."""

    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    def passes(self, batch, rejects):
        return np.ones(batch.num_rows, np.bool_)

    def apply(self, batch, rejects):
        return batch.slice(0, 1)

    @classmethod
    def cases(cls):
        yield Case(cls(), BATCH)


def assert_found(kind, name: str, law: str) -> None:
    """Assert that a check fails for a task, with a message that matches ``law``."""
    check = next(c for c in CHECKS if c.__name__ == f"check_{name}")
    with isolated_tasks():
        if kind.code:
            register(kind)
        with pytest.raises(AssertionError, match=law):
            check_task(kind, checks=(check,))


FAULTS = [
    (Forgetful, "any_split", r"^cut at 0: rows\[0\] differ"),
    (Forgetful, "determinism", "^two runs in one process differ"),
    (Forgetful, "cold_start", r"^after an empty batch: rows\[0\] differ"),
    (Splitting, "any_split", r"^cut at 1: rows\[1\] differ"),
    (Splitting, "key_independence", r"^key \[str 'a'\]: rows\[1\] differ"),
    (Splitting, "session_equals_bulk", "^one event at a time gave"),
    (Aliasing, "output_is_not_mutated", "^rows that had been emitted changed later"),
    (Mutating, "input_is_not_mutated", "^the input was changed"),
    (Undeclared, "schema", r"(?s)^declared:.*but the output has:.*more: null"),
    (Masking, "writes", "^key becomes 'masked', but writes\\(\\) does not name it"),
    (Trusting, "bad_input_schema", "^accepted although 'key' is missing"),
    (Traces, "missing_and_bad_values", r"^without the rejected records: rows\[\d+\] differ"),
    (Undocumented, "missing_and_bad_values", "^reason 'moody' is not documented"),
    (NotANumber, "missing_and_bad_values", "^NaN in value, missing is null"),
    (Growing, "bounded_state", r"^the state grew from \d+ to \d+ bytes"),
    (Roomy, "bounded_state", r"^the state grew from \d+ to \d+ bytes"),
    (Doubling, "selectivity", "^8 rows and 0 errors were emitted for 4, declared is 1:1"),
    (Inventing, "selectivity", "^rows were emitted for messages that were not in the input"),
    (Numbering, "derivation", r"^the output has the places \(1,\), which no input has"),
    (Repeating, "derivation", "^records of one number"),
    (Twofold, "selection", "^other rows pass than apply returns"),
    (Hashing, "determinism", "^a process with another PYTHONHASHSEED gives something else"),
    (Unlike, "config_is_identity", r"^Unlike\(.*\) != Unlike\("),
    (Dropping, "config_roundtrip", r"^Dropping\(.*number=0\.0\) was restored from JSON for"),
    (Heavy, "serialisable", r"^200\d\d\d bytes, allowed are 100000"),
    (Splitting, "docstring", "^Splitting: the docstring lacks the section 'Parameters'"),
    (Misstating, "docstring", "^high is 8 by default, documented is 9"),
    (Halving, "merge", "^parts merged in the order .* differ from one pass"),
    (Sharing, "merge", "^merging changes the merged state"),
]


def faults_of(module) -> list[tuple[type, str, str]]:
    """Faults that the checks of a module find."""
    return [fault for fault in FAULTS if f"check_{fault[1]}" in module.__all__]
