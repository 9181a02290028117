"""Several fields of a record as records of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, short
from riot_ops.core.order import carried
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register, with_next_ordinal

__all__ = ["Unpivot"]


@register
@dataclass(frozen=True, kw_only=True)
class Unpivot(StatelessTask):
    """Make a record of each of several fields (also called melt): the two ends of a call, the legs of a trip.

    Parameters
    ----------
    fields : dict of str to label, or sequence of str
        The fields, of one type, in the order in which they come out, and what labels each: texts, truth values or
        numbers, all of one kind; by default its name.
    label : str, default "name"
        Field for the label.
    value : str, default "value"
        Field for the value.
    keep : tuple of str, default ()
        Fields of the record that each has, besides its order and time.

    Shapes and rates
    ----------------
    record[n] -> record[k n], 1:N; no state. Records are told apart by a further ``ordinal``.

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
    >>> ends = Unpivot(fields={"callee": True, "caller": False}, label="called", value="number").session()
    >>> ends.push({"caller": "17", "callee": "42"})
    [{'called': True, 'number': '42', 'ordinal': 0}, {'called': False, 'number': '17', 'ordinal': 1}]
    """

    code: ClassVar[str] = "UPV"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    fields: Any
    label: str = "name"
    value: str = "value"
    keep: tuple[str, ...] = ()

    def validate(self) -> None:
        given = self.fields
        if not isinstance(given, Mapping) and not isinstance(given, str):
            given = {name: name for name in given} if isinstance(given, Iterable) else {}
        if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
            raise ConfigError(f"fields must name at least one field, got {short(self.fields)}")
        kinds = {type(label) for label in given.values()}
        if not (kinds in ({str}, {bool}) or kinds <= {int, float}):
            raise ConfigError(f"fields: labels must be all texts, all truth values or all numbers, got {short(given)}")
        object.__setattr__(self, "fields", dict(given))
        taken = [self.label, self.value, *self.keep]
        if len(set(taken)) < len(taken):
            raise ConfigError(f"label, value and keep must not name a field twice, got {taken}")

    def __hash__(self) -> int:
        return hash((self.label, self.value, self.keep, *self.fields.items()))

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys((*self.fields, *self.keep), "any")

    def writes(self) -> frozenset[str] | None:
        return None

    def expands(self) -> bool:
        return True

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        kinds = {name: schema.field(name).type for name in self.fields}
        if len({kind for kind in kinds.values() if not pa.types.is_null(kind)}) > 1:
            raise ConfigError(f"unpivot needs fields of one type, got {short(kinds)}")
        names = [n for n in dict.fromkeys([*carried(schema.names), *self.keep]) if n not in (self.label, self.value)]
        out = pa.schema([schema.field(name) for name in names])
        out = out.append(pa.field(self.label, pa.array(self.fields.values()).type))
        return with_next_ordinal(out.append(pa.field(self.value, self._kind(schema))))

    def _kind(self, schema: pa.Schema) -> pa.DataType:
        kinds = [schema.field(name).type for name in self.fields]
        return next((kind for kind in kinds if not pa.types.is_null(kind)), kinds[0])

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        n, k = batch.num_rows, len(self.fields)
        schema, kind = self.output_schema(batch.schema), self._kind(batch.schema)
        rows = pa.array(np.repeat(np.arange(n), k))
        places = np.tile(np.arange(k), n)
        columns = [batch.column(name) for name in self.fields]
        values = pa.concat_arrays([c.cast(kind) if pa.types.is_null(c.type) else c for c in columns])
        made = {
            self.label: pa.array(self.fields.values()).take(pa.array(places)),
            self.value: values.take(pa.array(np.arange(k * n).reshape(k, n).T.ravel())),
            next_ordinal(batch.schema.names): pa.array(places),
        }
        whole = [made[f.name] if f.name in made else batch.column(f.name).take(rows) for f in schema]
        return pa.RecordBatch.from_arrays(whole, schema=schema)

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
        yield Case(cls(fields={"b": True, "a": False}, keep=("n",)), batch)
        yield Case(cls(fields=("a",), label="which", value="a"), batch, "names")
        yield Case(cls(fields={"n": 1.5, "seq": 2}, keep=("a", "b")), batch, "numbers")
