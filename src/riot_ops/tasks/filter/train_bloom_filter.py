"""Bloom filter training: learn the set of values in a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Probability
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.stats.bloom import insert_hashes
from riot_ops.sketches.bloom import BloomFilter, bloom_size, value_hashes
from riot_ops.task import Case, KeyedTask, Requirement, SketchTask, State, StateField, register
from riot_ops.tasks.filter.check_bloom_filter import check_hashable

__all__ = ["TrainBloomFilter"]


@register
@dataclass(frozen=True, kw_only=True)
class TrainBloomFilter(SketchTask, KeyedTask):
    """Build a Bloom filter of the values of a field, for :class:`CheckBloomFilter`.

    Each value sets the bits ``g_i = ((h1 + i h2) mod 2^64) mod m`` for i = 0 … k-1, with m and k
    from :func:`riot_ops.sketches.bloom.bloom_size`.

    Parameters
    ----------
    field : str, default "sensor_id"
        Field whose values are inserted: text or binary; values of other types as text.
    capacity : int, >= 1, default 20000000
        Number n of distinct values per key for which the filter is sized.
    error : float, in (0, 1), default 0.01
        Target share p of unknown values that pass once n values are inserted.
    secret : Secret or None, default None
        Keys the hash, so that no sender can choose values that pass as members. The model is readable only with it,
        and state continues only with it. None: the hash is fixed, the same in every system.
    by, ttl
        Key (one filter per key; by default one for the stream) and time to live, see
        :class:`KeyedTask`.

    Shapes and rates
    ----------------
    text[n] -> one row per key at the end of the stream, N:1, with the key fields, ``model``
    (binary: :meth:`BloomFilter.to_bytes`) and ``count`` (int64); O(k) time, m bits of state per
    key: 24 MB by default. A checkpoint of a key's state has the same size.

    Missing values
    --------------
    Nulls are not inserted.

    Errors
    ------
    No record is rejected.

    References
    ----------
    .. [1] B. Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 1970.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, Bloom filter train.

    Examples
    --------
    >>> blt = TrainBloomFilter(capacity=100).session()
    >>> [blt.push({"sensor_id": s}) for s in ("s1", "s2")]
    [[], []]
    >>> row = blt.flush()[0]
    >>> row["count"], "s1" in BloomFilter.from_bytes(row["model"])
    (2, True)
    """

    code: ClassVar[str] = "BLT"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    field: str = "sensor_id"
    capacity: Count = 20_000_000
    error: Probability = 0.01

    def validate(self) -> None:
        conflicts = sorted({"model", "count"} & set(self.by))
        if conflicts:
            raise ConfigError(f"train_bloom_filter adds the field {conflicts[0]!r}; the key must not have that name")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.field: "key"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_hashable(self.name(), schema.field(self.field))
        return pa.schema(
            [*(schema.field(name) for name in self.by), pa.field("model", pa.binary()), pa.field("count", pa.int64())]
        )

    def writes(self) -> frozenset[str] | None:
        return frozenset({"model", "count"})

    def state_fields(self) -> Mapping[str, StateField]:
        m, _ = bloom_size(self.capacity, self.error)
        return {"bits": StateField("uint64", shape=-(-m // 64)), "count": StateField("int64")}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        h1, h2, valid = value_hashes(batch.column(self.field), self.hash_key.words)
        m, k = bloom_size(self.capacity, self.error)
        insert_hashes(h1, h2, valid, slots, m, k, state["bits"], state["count"])
        return pa.RecordBatch.from_pylist([], schema=self.output_schema(batch.schema))

    def merge_states(self, state: State, other: State) -> State | None:
        return {"bits": state["bits"] | other["bits"], "count": state["count"] + other["count"]}

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        models, counts = [], []
        for bits, count in zip(state["bits"], state["count"], strict=True):
            bloom = BloomFilter(self.capacity, self.error, secret=self.secret)
            bloom.words, bloom.count = bits, int(count)
            models.append(bloom.to_bytes())
            counts.append(int(count))
        columns = [*keys.columns, pa.array(models, pa.binary()), pa.array(counts, pa.int64())]
        return pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([*keys.schema, pa.field("model", pa.binary()), pa.field("count", pa.int64())])
        )

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "sensor_id": ["a", "", None, "ü", "a", "b"],
                "city": ["x", "y", "x", None, "y", "x"],
            }
        )
        yield Case(cls(capacity=10), batch)
        yield Case(cls(capacity=10, error=0.2, by=("city",)), batch, "by city")
