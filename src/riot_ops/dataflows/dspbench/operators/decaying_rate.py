"""Decaying rate: exponentially decaying event rates, exact per key or in a sketch of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Names, Probability
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.stats.decay import UNTOUCHED, decay_table, rates, sketched_rates
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

__all__ = ["DecayingRate"]

#: A sketch rescales its cells once they have decayed by e to this power.
MAX_FADE_EXPONENT = 30.0
_NO_HASHES = np.empty(0, np.uint64)


@register
@dataclass(frozen=True, kw_only=True)
class DecayingRate(SketchTask, KeyedTask):
    """Compute the current event rate of each key, per second, as an exponentially decaying average.

    ``rate(t) = λ Σ amount_i decay^(t - t_i)`` with ``λ = -ln decay``, over the events of the key up to t, in seconds of
    event time: a key with one event (of amount 1) per second reaches a rate of about 1.

    The rate is exact if ``by`` is the key. With ``fields`` as the key and a ``capacity``, memory is bounded: an
    on-demand time-decaying Bloom filter maps a key to several buckets that it shares with other keys; its rate is the
    minimum of theirs, so that it is never too low (except for late events). Buckets decay when they are accessed.

    Parameters
    ----------
    decay : float, in (0, 1), default 0.9672
        Share of an event that remains after one second.
    weight : str, optional
        Numeric field, >= 0, with the weight of a record; by default 1.
    flag : str, optional
        Boolean field: whether a record counts, or only queries the rate; by default all records count.
    output : str, default "rate"
        Field for the rate, after a record that counts or at the time of a query.
    fields : tuple of str, default ()
        With capacity: the fields of the key.
    asks : tuple of str, default ()
        With capacity: the fields of the key to query, if it differs from the key that counts.
    capacity : int >= 1, optional
        Number of keys that the sketch is sized for.
    per_element : int >= 1, default 10
        Buckets of the sketch per key of the capacity; a key uses ``round(per_element ln 2)`` of them.
    per_word : int >= 1, default 16
        Buckets that share a timestamp and decay together.
    secret : Secret or None, default None
        With capacity: keys the hash of the key, so that no sender can choose keys that raise another's rate. State
        continues only with the same secret. None: the hash is fixed, the same in every system.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; with capacity, each key has its own sketch.

    Shapes and rates
    ----------------
    time[n], float64[n] -> float64[n], 1:1; O(1) time, in a sketch 7 buckets per key.
    State: 16 bytes per key, or with capacity 8 bytes per bucket and 8 per word: 15.3 MB for 180,000 keys.

    Missing values
    --------------
    A record whose amount is null or NaN, or whose ``flag`` is null, is a query. A null key is a key of its own.

    Errors
    ------
    ``no_event_time``, ``not_finite`` (an infinite amount), ``out_of_range`` (a negative amount). A late record is no
    error: it counts with the share that remains at the key's time (in a sketch, at the time of its buckets), and
    receives the rate of that time.

    References
    ----------
    .. [1] G. Bianchi, N. d'Heureuse, S. Niccolini, *On-demand time-decaying Bloom filters for telemarketer detection*,
       ACM SIGCOMM Computer Communication Review 41(5), 2011.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: VoIP stream.

    Examples
    --------
    >>> from datetime import datetime, timedelta, UTC
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> rate = DecayingRate(by="caller").session()
    >>> times = [noon + timedelta(seconds=s) for s in (0, 10, 10)]
    >>> [round(rate.push({"event_time": at, "caller": "a"})[0]["rate"], 7) for at in times]
    [0.03335, 0.0572423, 0.0905923]
    """

    code: ClassVar[str] = "DCR"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"

    decay: Probability = 0.9672
    weight: str | None = None
    flag: str | None = None
    output: str = "rate"
    fields: Names = ()
    asks: Names = ()
    capacity: Count | None = None
    per_element: Count = 10
    per_word: Count = 16

    def validate(self) -> None:
        for name in ("fields", "asks"):
            if self.capacity is None and getattr(self, name):
                raise ConfigError(f"{name} = {getattr(self, name)!r} needs a capacity; without it, by is the key")
        if self.capacity is not None and (not self.fields or len(set(self.fields)) < len(self.fields)):
            raise ConfigError(f"a capacity needs fields, at least one and none twice; got {self.fields!r}")
        if self.capacity is None and self.secret is not None:
            raise ConfigError("decaying_rate: secret needs a capacity; without it, keys are compared exactly")
        if self.capacity is not None and self.capacity * self.per_element >= 1 << 31:
            raise ConfigError(
                f"capacity = {self.capacity} with per_element = {self.per_element} buckets each exceeds 2^31 buckets"
            )

    @property
    def _sizes(self) -> tuple[int, int]:
        """Number of words in the sketch, and of buckets per key."""
        words = ((self.capacity or 1) * self.per_element + 20) // self.per_word
        return max(1, words), max(1, round(self.per_element * math.log(2)))

    @cached_property
    def _table(self) -> npt.NDArray[np.float64]:
        return decay_table(self.decay)

    def requires(self) -> Mapping[str, Requirement]:
        needs: dict[str, Requirement] = {**super().requires(), "event_time": "any"}
        needs |= {
            **({} if self.flag is None else {self.flag: "any"}),
            **dict.fromkeys((*self.fields, *self.asks), "key"),
        }
        return needs if self.weight is None else {**needs, self.weight: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        dtype = pa.bool_() if self.flag is None else schema.field(self.flag).type
        if not (pa.types.is_boolean(dtype) or pa.types.is_null(dtype)):
            raise ConfigError(f"{self.name()} needs booleans in the field {self.flag!r}, its input has {dtype}")
        return with_field(schema, pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        if self.capacity is None:
            return {"rate": StateField("float64"), "time": StateField("int64", initial=UNTOUCHED)}
        words, _ = self._sizes
        return {
            "buckets": StateField("float64", words * self.per_word),
            "times": StateField("int64", words, initial=UNTOUCHED),
        }

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        wrong = ~microseconds(batch.column("event_time"))[1]
        errors.reject(batch, wrong, "no_event_time", "the event time is missing")
        if self.weight is not None:
            amounts, _ = float_column(batch.column(self.weight))
            for bad, reason, text in (
                (np.isinf(amounts), "not_finite", "infinite"),
                (amounts < 0, "out_of_range", "negative"),
            ):
                errors.reject(batch, bad & ~wrong, reason, f"{self.weight} is {text}")
                wrong |= bad
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n = batch.num_rows
        times, _ = microseconds(batch.column("event_time"))
        per_second = -math.log(self.decay)
        amounts = np.full(n, per_second)
        adds = np.ones(n, np.bool_)
        if self.flag is not None:
            adds = np.asarray(batch.column(self.flag).cast(pa.bool_()).fill_null(False))
        if self.weight is not None:
            values, _ = float_column(batch.column(self.weight))
            missing = np.isnan(values)
            adds = adds & ~missing
            amounts *= np.where(missing, 0.0, values)
        out = np.empty(n)
        rate = per_second / 1e6
        if self.capacity is None:
            rates(slots, times, amounts, adds, self._table, rate, state["rate"], state["time"], out)
            return replace_column(batch, self.output, pa.array(out))
        words = self.hash_key.words
        added = hash_columns([batch.column(name) for name in self.fields], n, words)
        asked = (_NO_HASHES, _NO_HASHES)
        if self.asks:
            asked = hash_columns([batch.column(name) for name in self.asks], n, words)
        sizes = (self._sizes[1], self.per_word)
        period = max(1, int(MAX_FADE_EXPONENT / rate))
        sketched_rates(
            slots, times, amounts, adds, *added, *asked, *sizes, rate, period, state["buckets"], state["times"], out
        )
        return replace_column(batch, self.output, pa.array(out))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "event_time": pa.array([0, 5, 3, 1500, 4000, None, 9000, 9000, 10_000_000], pa.timestamp("ms", "UTC")),
                "caller": ["a", "b", "a", "ü", "a", "a", None, "b", "a"],
                "callee": ["b", "a", "a", "a", "b", "b", "b", None, "ü"],
                "seconds": [10.0, 0.5, 12.0, None, float("nan"), 7.0, 4.0, 1e300, 2.0],
                "new": [True, True, False, None, True, False, True, False, True],
            }
        )
        yield Case(cls(by=("caller",)), batch)
        yield Case(cls(decay=0.5, by=("caller",), weight="seconds", flag="new", output="seconds"), batch, "amounts")
        yield Case(cls(fields=("callee",), asks=("caller",), capacity=4, per_word=4, flag="new"), batch, "sketch")
        yield Case(
            cls(by=("callee",), fields=("caller",), capacity=1, per_element=3, weight="seconds"), batch, "sketches"
        )
