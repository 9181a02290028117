"""Bloom filter check: pass records whose value is probably in a trained set."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import is_key_type
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Probability
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.hash_key import HashKey
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.task import Case, FilterTask, Requirement, SketchTask, register, replace_column, with_field

__all__ = ["CheckBloomFilter", "check_hashable", "inline_filter", "null_unless", "stored_filter"]


@register
@dataclass(frozen=True, kw_only=True)
class CheckBloomFilter(SketchTask, FilterTask):
    """Drop, blank or flag records whose value is definitely not in a trained set.

    A value passes iff all its bits are set in the filter, see :class:`riot_ops.sketches.bloom.BloomFilter`:
    a member always passes, any other value with a probability of about the filter's false positive rate.

    Parameters
    ----------
    field : str, default "sensor_id"
        Field to look up: text or binary; values of other types are looked up as text.
    model : str or None
        Path of a filter written by :meth:`BloomFilter.save`. Each process loads it once, and again
        when the time or size of the file has changed.
    members : tuple of str or None
        The known values, from which the filter is built. Exactly one of ``model`` and ``members`` must
        be given.
    false_positive_rate : float, in (0, 1), default 0.01
        Target share of unknown values that pass, for a filter built from ``members``.
    secret : Secret or None, default None
        Keys the hash of values, so that no sender can choose values that pass as members; that of the model, which is
        readable only with it. None: the hash is fixed.
    on_fail : "drop", "null" or "flag", default "drop"
        Drop the record; keep it with ``value`` set to null; or keep all records and add the
        result as a boolean.
    value : str, default "value"
        Field that ``on_fail="null"`` sets to null.
    output : str, default "maybe_present"
        Field that ``on_fail="flag"`` adds.

    Shapes and rates
    ----------------
    text[n] -> same[m], 1:0/1 (1:1 with "null" and "flag"); O(k) time, m bits of filter per
    process. At the design load, false positives are at most 1.2 times the rate.

    Missing values
    --------------
    A null is in no set and fails.

    Errors
    ------
    No record is rejected. A missing or damaged model raises a configuration error at the first batch:
    the file need only exist where the task runs.

    References
    ----------
    .. [1] B. Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 1970.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task BLF.

    Examples
    --------
    >>> blf = CheckBloomFilter(members=("s1", "s2")).session()
    >>> blf.push({"sensor_id": "s2", "value": 1.0}), blf.push({"sensor_id": "s9", "value": 1.0})
    ([{'sensor_id': 's2', 'value': 1.0}], [])
    """

    code: ClassVar[str] = "BLF"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    field: str = "sensor_id"
    model: str | None = None
    members: tuple[str, ...] | None = None
    false_positive_rate: Probability = 0.01
    on_fail: Literal["drop", "null", "flag"] = "drop"
    value: str = "value"
    output: str = "maybe_present"

    def validate(self) -> None:
        if (self.model is None) == (self.members is None):
            given = "neither" if self.model is None else "both"
            raise ConfigError(f"check_bloom_filter needs either model (a path) or members, got {given}")

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "key", **({self.value: "any"} if self.on_fail == "null" else {})}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_hashable(self.name(), schema.field(self.field))
        return with_field(schema, pa.field(self.output, pa.bool_())) if self.on_fail == "flag" else schema

    def writes(self) -> frozenset[str] | None:
        return {"drop": frozenset[str](), "null": frozenset({self.value}), "flag": frozenset({self.output})}[
            self.on_fail
        ]

    @property
    def filter(self) -> BloomFilter:
        """The filter in use."""
        if self.model is not None:
            return stored_filter(self.model, self.hash_key)
        return inline_filter(self.members or (), self.false_positive_rate, self.hash_key)

    def passes(self, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_] | None:
        return self.filter.contains(batch.column(self.field)) if self.on_fail == "drop" else None

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        if self.on_fail == "drop":
            return super().apply(batch, dead)
        found = self.filter.contains(batch.column(self.field))
        if self.on_fail == "flag":
            return replace_column(batch, self.output, pa.array(found))
        return batch if found.all() else null_unless(batch, self.value, found)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "sensor_id": ["a", "", None, "ü", "stranger", "a"],
                "value": [1.0, None, 2.0, float("nan"), 3.0, float("inf")],
            }
        )
        known = ("a", "", "ü")
        yield Case(cls(members=known), batch)
        yield Case(cls(members=known, on_fail="null"), batch, "null")
        yield Case(cls(members=known, on_fail="flag"), batch, "flag")
        numbers = pa.RecordBatch.from_pydict({"n": pa.array([1, None, 12], pa.int64())})
        yield Case(cls(field="n", members=("12",)), numbers, "numbers")


def null_unless(batch: pa.RecordBatch, name: str, keep: Any) -> pa.RecordBatch:
    """Set a field to null where ``keep`` is False."""
    column = batch.column(name)
    return replace_column(batch, name, pc.if_else(pa.array(keep), column, pa.scalar(None, column.type)))


def check_hashable(task: str, field: pa.Field) -> None:
    """Raise :class:`ConfigError` for a field whose values have no text form."""
    if not is_key_type(field.type):
        raise ConfigError(f"{task} needs text or numbers in the field {field.name!r}, its input has {field.type}")


def stored_filter(path: str, key: HashKey) -> BloomFilter:
    """Load the filter in a file, once per process, version of the file and key."""
    try:
        status = local_path(path).stat()
    except OSError as error:
        raise ConfigError(f"the Bloom filter {path} cannot be read: {error.strerror or error}") from None
    return _load(path, status.st_mtime_ns, status.st_size, key)


@functools.lru_cache(maxsize=16)
def _load(path: str, modified: int, size: int, key: HashKey) -> BloomFilter:
    return BloomFilter.load(path, secret=key.secret)


@functools.lru_cache(maxsize=64)
def inline_filter(members: tuple[str, ...], rate: float, key: HashKey) -> BloomFilter:
    """Build the filter of the given members, once per process and key."""
    return BloomFilter.of(members, rate, secret=key.secret)
