"""Bloom filter check of several fields at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Probability
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.task import Case, Requirement, SketchTask, StatelessTask, register
from riot_ops.tasks.filter.check_bloom_filter import check_hashable, inline_filter, null_unless, stored_filter

__all__ = ["CheckBloomFilters"]


@register
@dataclass(frozen=True, kw_only=True)
class CheckBloomFilters(SketchTask, StatelessTask):
    """Drop or blank records with a field that is definitely not in its trained set.

    A record passes iff each listed field that the stream has passes its own filter, see
    :class:`CheckBloomFilter`. A stream with none of the fields passes unchanged.

    Parameters
    ----------
    models : mapping of str to (str or sequence of str)
        For each field, the path of a filter written by :meth:`BloomFilter.save`, or the known values.
    false_positive_rate : float, in (0, 1), default 0.01
        Target share of unknown values that pass, for filters built from values.
    secret : Secret or None, default None
        Keys the hash of all filters, see :class:`CheckBloomFilter`.
    on_fail : "drop" or "null", default "drop"
        Drop the record, or keep it with ``value`` set to null.
    value : str or None, default "value"
        Field that ``on_fail="null"`` sets to null; None: the failing field itself.

    Shapes and rates
    ----------------
    text[n] per field -> same[m], 1:0/1 (1:1 with ``on_fail="null"``); O(k) time per field. Each
    process holds the bits of the filters.

    Missing values
    --------------
    A null is in no set and fails. A field that the stream lacks is not tested.

    Errors
    ------
    No record is rejected. A missing or damaged model raises a configuration error at the first batch.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, multiple Bloom filter check.

    Examples
    --------
    >>> mbl = CheckBloomFilters(models={"sensor_id": ["s1"], "city": ["Rio"]}).session()
    >>> [len(mbl.push({"sensor_id": s, "city": c})) for s, c in (("s1", "Rio"), ("s1", "Bonn"))]
    [1, 0]
    """

    code: ClassVar[str] = "MBL"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    models: Any = ()
    false_positive_rate: Probability = 0.01
    on_fail: Literal["drop", "null"] = "drop"
    value: str | None = "value"

    def validate(self) -> None:
        object.__setattr__(self, "models", _normalized_models(self.models))

    @property
    def fields(self) -> tuple[str, ...]:
        """The listed fields."""
        return tuple(field for field, _ in self.models)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.value: "any"} if self.on_fail == "null" and self.value else {}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for field in self.fields:
            if field in schema.names:
                check_hashable(self.name(), schema.field(field))
        return schema

    def writes(self) -> frozenset[str] | None:
        if self.on_fail == "drop":
            return frozenset()
        return frozenset({self.value} if self.value else self.fields)

    def filters(self) -> dict[str, BloomFilter]:
        """Return the filter in use for each field."""
        return {
            field: stored_filter(model, self.hash_key)
            if isinstance(model, str)
            else inline_filter(model, self.false_positive_rate, self.hash_key)
            for field, model in self.models
        }

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        names = batch.schema.names
        found = {
            field: filter.contains(batch.column(field)) for field, filter in self.filters().items() if field in names
        }
        if not found:
            return batch
        value = self.value
        if self.on_fail == "null" and value is None:
            for field, ok in found.items():
                batch = batch if ok.all() else null_unless(batch, field, ok)
            return batch
        passed = np.logical_and.reduce(list(found.values()))
        if passed.all():
            return batch
        if self.on_fail == "drop" or value is None:
            return batch.filter(pa.array(passed))
        return null_unless(batch, value, passed)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "sensor_id": ["a", "", None, "ü", "stranger"],
                "kind": ["x", "x", "x", "y", "x"],
                "value": [1.0, None, 2.0, float("nan"), 3.0],
            }
        )
        models = {"sensor_id": ["a", "", "ü"], "kind": ["x"], "absent": ["z"]}
        yield Case(cls(models=models), batch)
        yield Case(cls(models=models, on_fail="null"), batch, "null")
        yield Case(cls(models=models, on_fail="null", value=None), batch, "null field")


def _normalized_models(given: Any) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    models: dict[str, str | tuple[str, ...]] = {}
    try:
        for field, model in pairs:
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
            f"check_bloom_filters: models must map fields to the path of a filter or to a list of texts: {error}"
        ) from None
    if not models:
        raise ConfigError("check_bloom_filters: models is empty; name at least one field and its filter")
    return tuple(sorted(models.items()))
