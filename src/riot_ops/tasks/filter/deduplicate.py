"""Deduplication: pass each record once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Names, Probability
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.hashing import fmix64, hash_columns
from riot_ops.kernels.arrays.rows import filter_rows
from riot_ops.kernels.jit import kernel
from riot_ops.sketches.bloom import bloom_size
from riot_ops.task import (
    Case,
    KeyedTask,
    Requirement,
    SketchTask,
    State,
    StateField,
    register,
    replace_column,
    with_field,
)

__all__ = ["Deduplicate"]

_SIX = np.uint64(6)
_LOW = np.uint64(63)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@kernel
def first_of_key(slots: Any, seen: Any, is_first: Any) -> None:
    for i in range(slots.size):
        s = slots[i]
        is_first[i] = not seen[s]
        seen[s] = True


@kernel
def first_of_value(
    h1: Any, h2: Any, slots: Any, m: Any, k: Any, capacity: Any, bits: Any, count: Any, current: Any, is_first: Any
) -> None:
    """Look up each value in the two filters of its key, and insert it into the current one.

    ``bits[s]`` holds both filters, one after the other. Bit j of value h is ``mix(h1 + j h2) mod m``, with the
    64-bit finaliser of MurmurHash3: without it, the bits of a small filter depend on each other.
    """
    size = np.uint64(m)
    words = bits.shape[1] // 2
    for i in range(h1.size):
        s = slots[i]
        now = current[s] * words
        old = words - now
        in_now = True
        in_old = True
        g = h1[i]
        for _ in range(k):
            b = fmix64(g) % size
            word = np.int64(b >> _SIX)
            bit = _ONE << (b & _LOW)
            if bits[s, now + word] & bit == _ZERO:
                in_now = False
            if bits[s, old + word] & bit == _ZERO:
                in_old = False
            g += h2[i]
        is_first[i] = not (in_now or in_old)
        if in_now:
            continue
        if count[s] == capacity:  # clear the older filter and make it the current one
            current[s] = 1 - current[s]
            count[s] = 0
            now, old = old, now
            for j in range(words):
                bits[s, now + j] = _ZERO
        g = h1[i]
        for _ in range(k):
            b = fmix64(g) % size
            bits[s, now + np.int64(b >> _SIX)] |= _ONE << (b & _LOW)
            g += h2[i]
        count[s] += 1


@register
@dataclass(frozen=True, kw_only=True)
class Deduplicate(SketchTask, KeyedTask):
    """Pass the first record of each identity and drop its repetitions, or flag them.

    Exact, with ``by`` as the identity: each key is remembered until it has not occurred for ``ttl``. Or with
    bounded memory, with ``fields`` as the identity and a ``capacity``: each key of ``by`` has two Bloom filters
    for ``capacity`` values each; when the current filter is full, the older one is cleared and takes its place.
    Repetitions of the latest ``capacity`` distinct values are always dropped.

    Parameters
    ----------
    by : tuple of str, default ()
        Without capacity: the fields that identify a record. With capacity: the key, each with its own pair
        of filters; empty: one pair for the stream.
    fields : tuple of str, default ()
        With capacity: the fields that identify a record within its key.
    capacity : int >= 1 or None, default None
        Number of distinct values remembered: at least this many, at most twice as many.
    error : float, in (0, 1), default 0.001
        With capacity: probability, at most, that a new record is dropped. A full filter has half this error.
    secret : Secret or None, default None
        With capacity: keys the hash of the fields, so that no sender can choose records that count as repetitions of
        others. State continues only with the same secret. None: the hash is fixed, the same in every system.
    flag : str or None, default None
        If given, repetitions are kept, and this boolean field says whether a record is the first.
    ttl : timedelta or text such as "1h", or None
        A key that has not occurred for longer than this, in event time, counts as new; a repetition counts
        as an occurrence. None: keys are never forgotten. See :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1 (1:1 with ``flag``). Exact: O(1) time; 17 bytes of state per identity, plus its key
    fields. With capacity n: O(k) time; ``2 ceil(-n ln(error / 2) / (ln 2)²)`` bits per key, 32 bits per value by
    default.

    Missing values
    --------------
    A null is a value like any other: two records with null are repetitions of each other. So is NaN.

    Errors
    ------
    No record is rejected.

    References
    ----------
    .. [1] B. Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 1970.
    .. [2] A. Kirsch, M. Mitzenmacher, *Less hashing, same performance*, ESA 2006, section 3.
    .. [3] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the repeated visits of click analytics.
    .. [4] F. Chang, W. Feng, K. Li, *Approximate caches for packet classification*, INFOCOM 2004, section
       III: two filters that take turns.

    Examples
    --------
    >>> once = Deduplicate(by=("device", "message")).session()
    >>> [len(once.push({"device": "d1", "message": m})) for m in (1, 2, 1, 2, 3)]
    [1, 1, 0, 0, 1]
    >>> visits = Deduplicate(by="client", flag="first").session()
    >>> [visits.push({"client": c})[0]["first"] for c in ("x", "y", "x")]
    [True, True, False]
    >>> lately = Deduplicate(by="device", fields="message", capacity=100_000).session()
    >>> [len(lately.push({"device": "d1", "message": m})) for m in (1, 2, 1, 2, 3)]
    [1, 1, 0, 0, 1]
    """

    code: ClassVar[str] = "DDP"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"flag"})

    fields: Names = ()
    capacity: Count | None = None
    error: Probability = 0.001
    flag: str | None = None

    def validate(self) -> None:
        if self.capacity is None and self.fields:
            raise ConfigError(
                f"deduplicate needs the identity of a record, either as by, or as fields with a capacity: "
                f"got by = {self.by!r}, fields = {self.fields!r}, capacity = None"
            )
        if self.capacity is not None and (not self.fields or len(set(self.fields)) < len(self.fields)):
            raise ConfigError(
                f"deduplicate with capacity = {self.capacity!r} needs fields, the distinct names of at least one "
                f"field; got {self.fields!r}"
            )

        if self.capacity is None and self.secret is not None:
            raise ConfigError("deduplicate: secret needs a capacity; without it, records are compared exactly")
        if self.flag in (*self.by, *self.fields, "seq", "event_time"):
            raise ConfigError(f"flag must not be the name of a field in use, got {self.flag!r}")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.fields, "key")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        if not self.by and not self.fields:  # a stream with a key sets by
            raise ConfigError(
                "deduplicate needs the identity of a record: by, also from key_by, or fields with a capacity"
            )
        self.check_input(schema)
        return schema if self.flag is None else with_field(schema, pa.field(self.flag, pa.bool_()))

    def writes(self) -> frozenset[str] | None:
        return frozenset() if self.flag is None else frozenset({self.flag})

    def _size(self) -> tuple[int, int]:
        """Return the bits and hash functions of a filter."""
        return bloom_size(self.capacity or 1, self.error / 2)

    def state_fields(self) -> Mapping[str, StateField]:
        if self.capacity is None:
            return {"seen": StateField("bool", initial=False)}
        m, _ = self._size()
        return {
            "bits": StateField("uint64", shape=2 * -(-m // 64)),
            "count": StateField("int64"),
            "current": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        is_first = np.empty(batch.num_rows, np.bool_)
        if self.capacity is None:
            first_of_key(slots, state["seen"], is_first)
        else:
            h1, h2 = hash_columns([batch.column(name) for name in self.fields], batch.num_rows, self.hash_key.words)
            m, k = self._size()
            first_of_value(
                h1, h2, slots, m, k, self.capacity, state["bits"], state["count"], state["current"], is_first
            )
        if self.flag is not None:
            return replace_column(batch, self.flag, pa.array(is_first))
        return batch if is_first.all() else filter_rows(batch, is_first)

    def precombine(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if self.capacity is not None or self.flag is not None or self.ttl is not None:
            return None
        is_first = np.empty(batch.num_rows, np.bool_)
        first_of_key(slots, np.zeros(keys, np.bool_), is_first)
        return batch.filter(pa.array(is_first))

    def merge_states(self, state: State, other: State) -> State | None:
        return {"seen": state["seen"] | other["seen"]} if self.capacity is None else None

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "device": ["a", "b", "a", "ü", None, "a", None, "b", "a"],
                "message": [1.0, 1.0, 1.0, None, float("nan"), 2.0, float("nan"), 0.0, -0.0],
                "event_time": pa.array([1, 2, 3, 4, 5, 6, 7, 8, 20], pa.int64()).cast(pa.timestamp("s", "UTC")),
            }
        ).cast(pa.schema({"device": pa.string(), "message": pa.float64(), "event_time": TIMESTAMP}))
        yield Case(cls(by=("device", "message")), batch, "exact")
        yield Case(cls(by=("device",), ttl=timedelta(seconds=5)), batch, "for a time")
        yield Case(cls(fields=("device", "message"), capacity=3), batch, "one pair of filters")
        yield Case(cls(by=("device",), fields=("message",), capacity=1, error=0.1), batch, "a pair per device")
        yield Case(cls(by=("device", "message"), flag="fresh"), batch, "flagged")
