"""Selection of fields, with constant and null fields added."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields, is_ordinal
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike, arrow_type, canonical_schema, schema_pairs
from riot_ops.kernels.arrays.dictionaries import dictionary_values
from riot_ops.task import Case, Requirement, StatelessTask, register

__all__ = ["Project"]

FIXED = ("seq", "ordinal", "event_time")


@register
@dataclass(frozen=True, kw_only=True)
class Project(StatelessTask):
    """Keep some fields of a record and add constant or empty ones, so that streams can be merged.

    Parameters
    ----------
    fields : tuple of str
        Fields to keep, in this order; ``seq``, ``ordinal`` and ``event_time`` are always kept.
    constants : tuple of (str, str), default ()
        Names and texts of fields to add, such as the name of the analytic.
    nulls : mapping of str to type, or pyarrow Schema, default none
        Null fields to add and their Arrow types: fields of other streams that this one lacks.
    decoded : bool, default False
        Whether to decode dictionary columns of Arrow into their values.

    Shapes and rates
    ----------------
    1:1; columns are passed on without copying, except decoded ones.

    Missing values
    --------------
    Kept unchanged.

    Errors
    ------
    None at run time; an unknown field, or a record without any field, is refused when the dataflow is
    built.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017: results are merged under the names of
       observation type and analytic.

    Examples
    --------
    >>> label = Project(fields=("value",), constants=(("analytic", "AVG"),)).session()
    >>> label.push({"value": 2.0, "count": 10})
    [{'value': 2.0, 'analytic': 'AVG'}]
    """

    code: ClassVar[str] = "PRJ"
    category: ClassVar[str] = "Parse"

    fields: Names
    constants: tuple[tuple[str, str], ...] = ()
    nulls: SchemaLike = ()
    decoded: bool = False

    def validate(self) -> None:
        object.__setattr__(self, "nulls", canonical_schema(self.name(), self.nulls) if len(self.nulls) else ())
        names = [*self.fields, *(name for name, _ in (*self.constants, *schema_pairs(self.nulls)))]
        if len(set(names)) < len(names):
            raise ConfigError(f"fields, constants and nulls must not name a field twice, got {names}")
        for name, text in self.constants:
            if name in FIXED or is_ordinal(name):
                raise ConfigError(f"constants must not name {name!r}: {', '.join(FIXED)} are kept unchanged")
            try:
                f"{name}{text}".encode()
            except UnicodeEncodeError:
                raise ConfigError(f"constants: {name!r} = {text!r} is not Unicode text") from None

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys(self.fields, "any")

    def writes(self) -> frozenset[str]:
        return frozenset(name for name, _ in (*self.constants, *schema_pairs(self.nulls)))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        kept = [schema.field(name) for name in self._kept_fields(schema)]
        if self.decoded:
            kept = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in kept]
        if not kept and not self.constants and not self.nulls:
            raise ConfigError(f"{self.name()} would keep no field; name some of {', '.join(schema.names)}")
        texts = [pa.field(name, pa.string()) for name, _ in self.constants]
        return pa.schema(
            [*kept, *texts, *(pa.field(name, arrow_type(dtype)) for name, dtype in schema_pairs(self.nulls))]
        )

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        columns = [batch.column(name) for name in self._kept_fields(batch.schema)]
        if self.decoded:
            columns = [dictionary_values(c) if pa.types.is_dictionary(c.type) else c for c in columns]
        columns += [_repeated(text, batch.num_rows) for _, text in self.constants]
        columns += [pa.nulls(batch.num_rows, arrow_type(dtype)) for _, dtype in schema_pairs(self.nulls)]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema(batch.schema))

    def _kept_fields(self, schema: pa.Schema) -> list[str]:
        own = [name for name in carried_fields(schema.names) if name not in self.fields]
        return [*own, *self.fields]

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"seq": [0, 1], "key": ["ü", None], "value": [1.0, None]})
        yield Case(cls(fields=("value",), constants=(("analytic", "AVG"),)), batch)
        yield Case(cls(fields=("key", "value")), batch)
        yield Case(cls(fields=("key",), nulls={"model": "string", "error": "double"}), batch, "nulls")
        coded = batch.set_column(1, "key", batch.column("key").dictionary_encode())
        yield Case(cls(fields=("key", "value"), decoded=True), coded, "decoded")


def _repeated(text: str, rows: int) -> pa.Array:
    return _block(text, 1 << max(0, rows - 1).bit_length()).slice(0, rows)


@functools.lru_cache(32)
def _block(text: str, rows: int) -> pa.Array:
    """Return a column of one repeated text; cached, as most batches have about the same size."""
    return pa.repeat(pa.scalar(text, pa.string()), rows)
