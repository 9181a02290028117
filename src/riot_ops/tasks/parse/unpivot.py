"""Unpivoting: several fields of a record as separate records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import OWN_CHECK, Names, as_names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register, with_next_ordinal

__all__ = ["Unpivot"]


@register
@dataclass(frozen=True, kw_only=True)
class Unpivot(StatelessTask):
    """Turn several fields of a record into one record each (melt): the two ends of a call, the legs of a trip.

    Parameters
    ----------
    fields : tuple of str
        The fields, all of one type, in the order of the output records.
    labels : tuple of str, bool, int or float, optional
        The label of each field, all of one type; by default the names of the fields.
    variable_name : str, default "name"
        Field for the label.
    value_name : str, default "value"
        Field for the value.
    keep : tuple of str, default ()
        Fields of the input record that each output record keeps, besides those of its order and time.

    Shapes and rates
    ----------------
    record[n] -> record[k n], 1:N; no state. A further field ``ordinal`` numbers the k records of one input record.

    Missing values
    --------------
    A null is a value like any other.

    Errors
    ------
    None.

    References
    ----------
    .. [1] C. Cunningham, G. Graefe, C. Galindo-Legaria, *PIVOT and UNPIVOT: optimization and execution strategies in an
       RDBMS*, VLDB 2004.

    Examples
    --------
    >>> ends = Unpivot(fields=("callee", "caller"), labels=(True, False), variable_name="called", value_name="number")
    >>> ends = ends.session()
    >>> ends.push({"caller": "17", "callee": "42"})
    [{'called': True, 'number': '42', 'ordinal': 0}, {'called': False, 'number': '17', 'ordinal': 1}]
    """

    code: ClassVar[str] = "UPV"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    fields: Names
    labels: Annotated[Sequence[str] | Sequence[bool] | Sequence[float] | None, OWN_CHECK] = None
    variable_name: str = "name"
    value_name: str = "value"
    keep: Names = ()

    def validate(self) -> None:
        names = as_names(self.fields)
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"fields must name at least one field, none twice, got {value_text(self.fields)}")
        if self.labels is not None:
            listed = isinstance(self.labels, list | tuple)
            types = {type(label) for label in self.labels} if listed else set()
            if not (types in ({str}, {bool}) or (types and types <= {int, float})):
                raise ConfigError(f"labels must be texts, booleans or numbers only, got {value_text(self.labels)}")
            if len(self.labels) != len(names):
                raise ConfigError(f"labels must be {len(names)}, one per field, got {value_text(self.labels)}")
            object.__setattr__(self, "labels", tuple(self.labels))
        added = [self.variable_name, self.value_name, *self.keep]
        if len(set(added)) < len(added):
            raise ConfigError(f"variable_name, value_name and keep must not name a field twice, got {added}")

    @property
    def _labels(self) -> pa.Array:
        return pa.array(self.fields if self.labels is None else self.labels)

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((*self.fields, *self.keep), "any")

    def writes(self) -> frozenset[str]:
        return frozenset({self.variable_name, self.value_name})

    def expands(self) -> bool:
        return True

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        types = {name: schema.field(name).type for name in self.fields}
        if len({dtype for dtype in types.values() if not pa.types.is_null(dtype)}) > 1:
            raise ConfigError(f"unpivot needs fields of one type, got {value_text(types)}")
        added = (self.variable_name, self.value_name)
        names = [n for n in dict.fromkeys([*carried_fields(schema.names), *self.keep]) if n not in added]
        out = pa.schema([schema.field(name) for name in names])
        out = out.append(pa.field(self.variable_name, self._labels.type))
        return with_next_ordinal(out.append(pa.field(self.value_name, self._value_type(schema))))

    def _value_type(self, schema: pa.Schema) -> pa.DataType:
        types = [schema.field(name).type for name in self.fields]
        return next((dtype for dtype in types if not pa.types.is_null(dtype)), types[0])

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        n, k = batch.num_rows, len(self.fields)
        schema, dtype = self.output_schema(batch.schema), self._value_type(batch.schema)
        rows = pa.array(np.repeat(np.arange(n), k))
        places = np.tile(np.arange(k), n)
        sources = [batch.column(name) for name in self.fields]
        values = pa.concat_arrays([c.cast(dtype) if pa.types.is_null(c.type) else c for c in sources])
        new = {
            self.variable_name: self._labels.take(pa.array(places)),
            self.value_name: values.take(pa.array(np.arange(k * n).reshape(k, n).T.ravel())),
            next_ordinal(batch.schema.names): pa.array(places),
        }
        columns = [new[f.name] if f.name in new else batch.column(f.name).take(rows) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(4), pa.int64()),
                "a": ["x", None, "ü", ""],
                "b": ["y", "z", None, "x"],
                "n": [1, 2, None, 4],
            }
        )
        yield Case(cls(fields=("b", "a"), labels=(True, False), keep=("n",)), batch)
        yield Case(cls(fields=("b",), variable_name="which", value_name="a"), batch, "names")
        yield Case(cls(fields=("n", "seq"), labels=(1.5, 2), keep=("a", "b")), batch, "numbers")
