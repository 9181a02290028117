"""Novelty flag: whether a value, or a combination of values, is new."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Probability
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.jit import kernel
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
from riot_ops.tasks.filter.deduplicate import first_of_key

__all__ = ["NoveltyFlag"]

_SIX, _32 = np.uint64(6), np.uint64(32)
_LOW = np.uint64(63)
_ONE, _ZERO = np.uint64(1), np.uint64(0)


@kernel
def _flag_novel(
    h1: Any, h2: Any, slots: Any, m: Any, k: Any, most: Any, bits: Any, ones: Any, learner: Any, new: Any
) -> None:
    """Flag the values that are new to the detector of their key, and add them to both filters.

    The two filters are adjacent in ``bits[s]``, with ``ones[s, f]`` bits set in filter f. Filter ``learner[s]`` learns;
    when more than ``most`` bits of the detector are set, the filters swap roles, and the new learner starts empty.
    """
    words = bits.shape[1] // 2
    for i in range(h1.size):
        s = slots[i]
        learns = learner[s]
        new[i] = False
        for j in range(k):
            b = ((h1[i] + np.uint64(j) * h2[i]) >> _32) * np.uint64(m) >> _32
            bit = _ONE << (b & _LOW)
            for f in range(2):
                w = f * words + np.int64(b >> _SIX)
                if bits[s, w] & bit == _ZERO:
                    bits[s, w] |= bit
                    ones[s, f] += 1
                    new[i] |= f != learns
        if ones[s, 1 - learns] > most:
            learner[s] = 1 - learns
            ones[s, 1 - learns] = 0
            for w in range((1 - learns) * words, (2 - learns) * words):
                bits[s, w] = _ZERO


@register
@dataclass(frozen=True, kw_only=True)
class NoveltyFlag(SketchTask, KeyedTask):
    """Flag records with a new value, such as a caller's first call to a number.

    The flag is exact if ``by`` is the value. With ``fields`` as the value and a ``capacity``, memory is bounded: two
    Bloom filters, a detector and a learner, receive every value, and the detector decides. When the detector fills up,
    the learner, which has the values since the last swap, becomes the detector, and an empty learner starts.

    Parameters
    ----------
    output : str, default "new"
        Field for whether the value is new.
    fields : tuple of str, default ()
        With capacity: the fields of the value.
    capacity : int >= 1, optional
        Number of values that a filter is sized for; it is full when ``1/√2`` of its bits are set, after about 1.77
        times as many values.
    error : float, in (0, 1), default 0.01
        Share of new values that a filter with ``capacity`` values takes for known.
    secret : Secret or None, default None
        With capacity: keys the hash of the fields, so that no sender can choose values that count as known. State
        continues only with the same secret. None: the hash is fixed, the same in every system.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; with capacity, each key has its own filters.

    Shapes and rates
    ----------------
    any[n] -> bool[n], 1:1; O(1) time, with filters ``k = ceil(-log2 error)`` bits per value. State: 1 byte per value,
    or with capacity two times ``capacity k / ln 2`` bits: 454 KB for 180,000 values at 1 %.

    Missing values
    --------------
    A null is a value of its own.

    Errors
    ------
    None.

    References
    ----------
    .. [1] G. Bianchi, N. d'Heureuse, S. Niccolini, *On-demand time-decaying Bloom filters for telemarketer detection*,
       ACM SIGCOMM Computer Communication Review 41(5), 2011.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: VoIP stream.

    Examples
    --------
    >>> calls = [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a")]
    >>> exact = NoveltyFlag(by=("caller", "callee")).session()
    >>> [exact.push({"caller": a, "callee": b})[0]["new"] for a, b in calls]
    [True, True, False, True]
    >>> sketch = NoveltyFlag(fields=("caller", "callee"), capacity=180_000).session()
    >>> [sketch.push({"caller": a, "callee": b})[0]["new"] for a, b in calls]
    [True, True, False, True]
    """

    code: ClassVar[str] = "VRD"
    category: ClassVar[str] = "Filter"

    output: str = "new"
    fields: tuple[str, ...] = ()
    capacity: Count | None = None
    error: Probability = 0.01

    def validate(self) -> None:
        if self.capacity is None and (self.fields or not self.by):
            raise ConfigError(
                f"the value is either by, or fields with a capacity; got by={self.by!r}, fields={self.fields!r}"
            )
        if self.capacity is not None and (not self.fields or len(set(self.fields)) < len(self.fields)):
            raise ConfigError(f"a capacity needs fields, at least one and none twice; got {self.fields!r}")
        if self.capacity is None and self.secret is not None:
            raise ConfigError("novelty_flag: secret needs a capacity; without it, values are compared exactly")
        if self.capacity is not None and self._size[0] >= 1 << 32:
            raise ConfigError(
                f"capacity = {self.capacity} with error = {self.error} needs a filter of more than 2^32 bits"
            )

    @property
    def _size(self) -> tuple[int, int]:
        """Number of bits and of hash functions of a filter."""
        k = math.ceil(-math.log2(self.error))
        return math.ceil((self.capacity or 1) * k / math.log(2)), k

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.fields, "key")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.bool_()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        if self.capacity is None:
            return {"seen": StateField("bool", initial=False)}
        m, _ = self._size
        return {
            "bits": StateField("uint64", 2 * -(-m // 64)),
            "ones": StateField("int64", 2),
            "learner": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        new = np.empty(batch.num_rows, np.bool_)
        if self.capacity is None:
            first_of_key(slots, state["seen"], new)
        else:
            m, k = self._size
            h1, h2 = hash_columns([batch.column(name) for name in self.fields], batch.num_rows, self.hash_key.words)
            most = math.floor(m / math.sqrt(2))
            _flag_novel(h1, h2, slots, m, k, most, state["bits"], state["ones"], state["learner"], new)
        return replace_column(batch, self.output, pa.array(new))

    def merge_states(self, state: State, other: State) -> State | None:
        return {"seen": state["seen"] | other["seen"]} if self.capacity is None else None

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "caller": ["a", "b", "a", "ü", None, "a", None, "b", "a"],
                "callee": ["b", "a", "b", None, "a", "a", "a", "c", "b"],
            }
        )
        yield Case(cls(by=("caller", "callee")), batch)
        yield Case(cls(fields=("caller", "callee"), capacity=2, error=0.1), batch, "filters")
        yield Case(cls(by=("caller",), fields=("callee",), capacity=1, error=0.3, output="callee"), batch, "by caller")
