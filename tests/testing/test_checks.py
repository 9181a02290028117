"""The checks catch what they are for: each is shown a task with that fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.errors import StateError
from riot_ops.state import KeyedState, StateField
from riot_ops.task import Case, StatelessTask, ValueTask, replace_column, with_field
from riot_ops.testing import CHECKS, check_task, exact

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

    code: ClassVar[str] = "TOT"

    def state_fields(self) -> Mapping[str, StateField]:
        return {"total": StateField("float64")}

    def update(self, batch, slots, state, dead):
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
    """Begins anew with each batch."""

    def totals(self, batch, slots, state):
        return np.cumsum(np.nan_to_num(np.asarray(batch.column(self.value), float)))


@dataclass(frozen=True, kw_only=True)
class Aliasing(Total):
    """Hands its state out."""

    def update(self, batch, slots, state, dead):
        self.totals(batch, slots, state)
        return replace_column(batch, self.target, pa.array(state["total"][: batch.num_rows]))

    @classmethod
    def cases(cls):
        yield Case(cls(), pa.RecordBatch.from_pydict({"value": [1.0, 2.0]}))


@dataclass(frozen=True, kw_only=True)
class Mutating(StatelessTask):
    """Writes into its input."""

    def apply(self, batch, dead):
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
    """Puts out a field that it does not declare."""

    def update(self, batch, slots, state, dead):
        return batch.append_column("more", pa.nulls(batch.num_rows))


@dataclass(frozen=True, kw_only=True)
class Traces(Total):
    """Adds a reading up before it rejects it."""

    def admit(self, batch, dead):
        return batch

    def update(self, batch, slots, state, dead):
        out = super().update(batch, slots, state, dead)
        bad = np.isinf(np.asarray(batch.column(self.value), float))
        dead.reject(batch, bad, "not_finite", "infinite")
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
class Doubling(Total):
    """Puts out every record twice, though it declares 1:1."""

    def update(self, batch, slots, state, dead):
        out = super().update(batch, slots, state, dead)
        return pa.concat_batches([out, out])


@dataclass(frozen=True, kw_only=True)
class Numbering(Total):
    """Numbers its records by ``sub``, but does not say so."""

    def output_schema(self, schema):
        return with_field(super().output_schema(schema), pa.field("sub", pa.int64()))

    def update(self, batch, slots, state, dead):
        out = super().update(batch, slots, state, dead)
        return replace_column(out, "sub", pa.array(range(out.num_rows), pa.int64()))


@dataclass(frozen=True, kw_only=True)
class Hashing(Total):
    """Puts out what the hash of a text is."""

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

    def update(self, batch, slots, state, dead):
        return replace_column(batch, self.target, pa.array(np.full(batch.num_rows, np.nan)))


@dataclass(frozen=True, kw_only=True)
class Merging(Total):
    """Adds totals up."""

    def merge(self, state, other):
        return {"total": state["total"] + other["total"]}


@dataclass(frozen=True, kw_only=True)
class Halving(Total):
    """Merges in a way that depends on the order."""

    def merge(self, state, other):
        return {"total": state["total"] + 0.5 * other["total"]}


@dataclass(frozen=True, kw_only=True)
class Sharing(Total):
    """Merges into what it is given."""

    def merge(self, state, other):
        other["total"] += state["total"]
        return other


def _fails(kind, name: str) -> None:
    check = next(c for c in CHECKS if c.__name__ == f"check_{name}")
    with pytest.raises((AssertionError, TypeError), match=r".*"):
        check_task(kind, checks=(check,))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Forgetful, "any_split"),
        (Forgetful, "determinism"),
        (Splitting, "any_split"),
        (Splitting, "key_independence"),
        (Splitting, "session_equals_bulk"),
        (Aliasing, "output_is_not_mutated"),
        (Mutating, "input_is_not_mutated"),
        (Undeclared, "schema"),
        (Traces, "missing_and_bad_values"),
        (Growing, "bounded_state"),
        (Doubling, "selectivity"),
        (Numbering, "derivation"),
        (Hashing, "determinism"),
        (Unlike, "config_is_identity"),
        (Heavy, "serialisable"),
        (NotANumber, "missing_and_bad_values"),
        (Splitting, "docstring"),
        (Halving, "merge"),
        (Sharing, "merge"),
    ],
    ids=lambda p: p if isinstance(p, str) else p.__name__,
)
def test_a_fault_is_found(kind, name):
    _fails(kind, name)


def test_a_good_task_passes():
    skipped = {"check_config_roundtrip"}  # it is not registered
    assert check_task(Total, [c for c in CHECKS if c.__name__ not in skipped]) == len(CHECKS) - 1


def test_a_good_merge_passes():
    assert check_task(Merging, [c for c in CHECKS if c.__name__ == "check_merge"]) == 1


@pytest.mark.parametrize("fault", ["accepts all", "forgets", "says nothing"])
def test_state_that_is_not_refused_is_found(monkeypatch, fault):
    check = KeyedState._check_identity

    def wrong(self, found, where):
        if fault == "accepts all":
            return
        try:
            check(self, found, where)
        except StateError:
            if fault == "says nothing":
                raise StateError("no") from None
            self._reset()
            raise

    monkeypatch.setattr(KeyedState, "_check_identity", wrong)
    _fails(Total, "state_versions")


def test_a_failure_names_check_task_and_case():
    with pytest.raises(AssertionError) as caught:
        check_task(Doubling, [c for c in CHECKS if c.__name__ == "check_selectivity"])
    assert any("Doubling, case 0" in note for note in caught.value.__notes__)


def test_a_task_without_cases_is_not_tested():
    class Bare(t.KalmanFilter):
        @classmethod
        def cases(cls):
            return ()

    with pytest.raises(AssertionError, match="Bare has no cases"):
        check_task(Bare)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (float("nan"), -float("nan"), True),
        (0.0, -0.0, False),
        (1, 1.0, False),
        (True, 1, False),
        (None, "None", False),
        ([1.0, None], [1.0, None], True),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, False),
        (b"x", "x", False),
    ],
)
def test_exact_compares_to_the_last_bit(a, b, same):
    assert (exact(a) == exact(b)) is same
