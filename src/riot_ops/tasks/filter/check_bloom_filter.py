"""Bloom filter check: pass records whose values are probably in trained sets."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import is_key_type
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import OWN_CHECK, Probability
from riot_ops.core.paths import local_path
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.hash_key import HashKey
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.task import Case, FilterTask, Requirement, SketchTask, register, replace_column, with_field

__all__ = ["CheckBloomFilter", "check_hashable"]


@register
@dataclass(frozen=True, kw_only=True)
class CheckBloomFilter(SketchTask, FilterTask):
    """Drop, blank or flag records with a value that is definitely not in the trained set of its field.

    A value passes iff all its bits are set in the filter, see :class:`riot_ops.sketches.bloom.BloomFilter`:
    a member always passes, any other value with a probability of about the filter's false positive rate.
    A record passes iff each of its checked fields does.

    Parameters
    ----------
    models : mapping of str to (str or sequence of str)
        For each field, its filter: the path of a file written by :meth:`BloomFilter.save`, or the known values. Each
        process loads a file once, and again when its time or size has changed. Fields are text or
        binary; values of other types are looked up as text.
    error : float, in (0, 1), default 0.01
        Target share of unknown values that pass, for filters built from known values.
    secret : Secret or None, default None
        Keys the hash of values, so that no sender can choose values that pass as members; that of the models, which are
        readable only with it. None: the hash is fixed.
    on_error : "drop", "null" or "flag", default "drop"
        Drop the record; keep it with ``value`` set to null; or keep all records and add the
        result as a boolean.
    value : str or None, default "value"
        Field that ``on_error="null"`` sets to null; None: the failing fields themselves.
    output : str, default "maybe_present"
        Field that ``on_error="flag"`` adds.

    Shapes and rates
    ----------------
    text[n] per field -> same[m], 1:0/1 (1:1 with "null" and "flag"); O(k) time and m bits of filter per field and
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
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, tasks BLF and, for several fields, MBL.

    Examples
    --------
    >>> blf = CheckBloomFilter(models={"sensor_id": ["s1", "s2"]}).session()
    >>> blf.push({"sensor_id": "s2", "value": 1.0}), blf.push({"sensor_id": "s9", "value": 1.0})
    ([{'sensor_id': 's2', 'value': 1.0}], [])
    >>> mbl = CheckBloomFilter(models={"sensor_id": ["s1"], "city": ["Rio"]}, on_error="flag").session()
    >>> [mbl.push({"sensor_id": s, "city": c})[0]["maybe_present"] for s, c in (("s1", "Rio"), ("s1", "Bonn"))]
    [True, False]
    """

    code: ClassVar[str] = "BLF"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    models: Annotated[Mapping[str, str | Sequence[str]], OWN_CHECK]
    error: Probability = 0.01
    on_error: Literal["drop", "null", "flag"] = "drop"
    value: str | None = "value"
    output: str = "maybe_present"

    def validate(self) -> None:
        object.__setattr__(self, "models", _normalized_models(self.models))

    @property
    def _pairs(self) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
        return cast("tuple[tuple[str, str | tuple[str, ...]], ...]", self.models)

    @property
    def fields(self) -> tuple[str, ...]:
        """The checked fields."""
        return tuple(field for field, _ in self._pairs)

    def requires(self) -> Mapping[str, Requirement]:
        blanked: dict[str, Requirement] = {self.value: "any"} if self.on_error == "null" and self.value else {}
        return {**blanked, **dict.fromkeys(self.fields, "key")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for field in self.fields:
            check_hashable(self.name(), schema.field(field))
        return with_field(schema, pa.field(self.output, pa.bool_())) if self.on_error == "flag" else schema

    def writes(self) -> frozenset[str] | None:
        blanked = frozenset({self.value} if self.value else self.fields)
        return {"drop": frozenset[str](), "null": blanked, "flag": frozenset({self.output})}[self.on_error]

    @property
    def filters(self) -> dict[str, BloomFilter]:
        """The filter in use for each field."""
        return {
            field: _stored_filter(model, self.hash_key)
            if isinstance(model, str)
            else _inline_filter(model, self.error, self.hash_key)
            for field, model in self._pairs
        }

    def passes(self, batch: pa.RecordBatch, errors: RejectedRecords) -> npt.NDArray[np.bool_] | None:
        return _all_true(self._found(batch)) if self.on_error == "drop" else None

    def _found(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[np.bool_]]:
        """Whether the value of each checked field is in its set."""
        return {field: filter.contains(batch.column(field)) for field, filter in self.filters.items()}

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        if self.on_error == "drop":
            return super().apply(batch, errors)
        found = self._found(batch)
        if self.on_error == "flag":
            return replace_column(batch, self.output, pa.array(_all_true(found)))
        for field, passed in ({self.value: _all_true(found)} if self.value else found).items():
            batch = batch if passed.all() else _null_unless(batch, field, passed)
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "sensor_id": ["a", "", None, "ü", "stranger", "a"],
                "kind": ["x", "x", "x", "y", "x", None],
                "value": [1.0, None, 2.0, float("nan"), 3.0, float("inf")],
            }
        )
        one = {"sensor_id": ("a", "", "ü")}
        several = {**one, "kind": ("x",)}
        yield Case(cls(models=one), batch)
        yield Case(cls(models=one, on_error="null"), batch, "null")
        yield Case(cls(models=one, on_error="flag"), batch, "flag")
        yield Case(cls(models={"n": ("12",)}), pa.RecordBatch.from_pydict({"n": pa.array([1, None, 12])}), "numbers")
        yield Case(cls(models=several), batch, "several")
        yield Case(cls(models=several, on_error="null", value=None), batch, "null field")


def _all_true(found: Mapping[str, npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    first, *others = found.values()
    return functools.reduce(np.logical_and, others, first)


def _normalized_models(given: Any) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
    """Normalise a mapping (or its normal form) to sorted pairs, so that equal models make equal tasks."""
    models: dict[str, str | tuple[str, ...]] = {}
    try:
        for field, model in given.items() if isinstance(given, Mapping) else given:
            if not isinstance(field, str) or not field:
                raise ValueError(f"{field!r} is not a field name")
            if field in models:
                raise ValueError(f"{field!r} is named twice")
            if isinstance(model, str):
                models[field] = model
            elif isinstance(model, Sequence) and all(isinstance(m, str) for m in model):
                models[field] = tuple(model)
            else:
                raise ValueError(f"{field!r} has {model!r}")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"check_bloom_filter: models must map fields to the path of a filter or to a list of texts: {error}"
        ) from None
    if not models:
        raise ConfigError("check_bloom_filter: models is empty; name at least one field and its filter")
    return tuple(sorted(models.items()))


def _null_unless(batch: pa.RecordBatch, name: str, keep: Any) -> pa.RecordBatch:
    """Set a field to null where ``keep`` is False."""
    column = batch.column(name)
    return replace_column(batch, name, pc.if_else(pa.array(keep), column, pa.scalar(None, column.type)))


def check_hashable(task: str, field: pa.Field) -> None:
    """Raise :class:`ConfigError` for a field whose values have no text form."""
    if not is_key_type(field.type):
        raise ConfigError(f"{task} needs text or numbers in the field {field.name!r}, its input has {field.type}")


def _stored_filter(path: str, key: HashKey) -> BloomFilter:
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
def _inline_filter(members: tuple[str, ...], rate: float, key: HashKey) -> BloomFilter:
    """Build the filter of the given members, once per process and key."""
    return BloomFilter.of(members, rate, secret=key.secret)
