"""Change detection: a record whenever a field of a key changes its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.exact import exact_columns, exact_result, exact_type
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["ChangeDetector"]


@kernel
def _changes(
    values: Any, rests: Any, slots: Any, last: Any, rows: Any, places: Any, which: Any, new: Any, new_rest: Any
) -> Any:
    """Write row, ordinal within the row, field and new value of each change; return their number. NaN means unknown.

    ``last`` has the values of all fields, then their rests.
    """
    n = 0
    width = values.shape[0]
    for i in range(slots.size):
        s = slots[i]
        place = 0
        for f in range(values.shape[0]):
            v = values[f, i]
            if np.isnan(v):
                continue
            r = rests[f, i] if rests.size > 0 else 0.0
            if (v != last[s, f] or r != last[s, width + f]) and not np.isnan(last[s, f]):
                rows[n] = i
                places[n] = place
                which[n] = f
                new[n] = v
                new_rest[n] = r
                place += 1
                n += 1
            last[s, f] = v
            last[s, width + f] = r
    return n


@register
@dataclass(frozen=True, kw_only=True)
class ChangeDetector(KeyedTask):
    """Detect changes of a key's fields, such as switches, states and counters.

    The first value of a field is no change.

    Parameters
    ----------
    fields : tuple of str
        Fields to watch, numbers, booleans or times. The changes of one record are emitted in this order.
    keep : tuple of str, default ()
        Fields of the record that a change carries, besides the key, its order and time.
    output : str, default "field"
        Field for the name of the changed field.
    value : str, default "value"
        Field for the new value, with the type that all of ``fields`` have. Otherwise they must be numbers and booleans:
        int64 if all of them fit it, else float64, which then must hold all of them: int64 and uint64 are refused
        beside floating types, uint64 beside any.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/N; O(fields) time; 16 bytes of state per field and key. A further ``ordinal``
    distinguishes the changes of one record.

    Missing values
    --------------
    A null or NaN is skipped: it is no change.

    Errors
    ------
    None. Decimals are refused.

    References
    ----------
    .. [1] T. Buddhika, *Real-time stream processing in sensing environments*, thesis, 2015: equipment monitoring.

    Examples
    --------
    >>> changes = ChangeDetector(fields=("pump", "valve")).session()
    >>> states = ((False, True), (False, True), (True, False))
    >>> [changes.push({"pump": pump, "valve": valve}) for pump, valve in states][-1]
    [{'field': 'pump', 'value': True, 'ordinal': 0}, {'field': 'valve', 'value': False, 'ordinal': 1}]
    """

    code: ClassVar[str] = "CHG"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:0/N"
    version: ClassVar[int] = 2
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"keep", "output", "value"})

    fields: Names
    keep: Names = ()
    output: str = "field"
    value: str = "value"

    def validate(self) -> None:
        if not 0 < len(set(self.fields)) == len(self.fields):
            raise ConfigError(f"fields must name at least one field, and none twice; got {self.fields!r}")
        names = [*self.keep, *self.by, self.output, self.value]
        if len(set(names)) < len(names):
            raise ConfigError(f"keep, by, output and value must not name a field twice, got {names}")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self.keep, "any"), **dict.fromkeys(self.fields, "value")}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str]:
        return frozenset({self.output, self.value})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = self._value_type({name: schema.field(name).type for name in self.fields})
        out = pa.schema(
            [schema.field(name) for name in dict.fromkeys([*carried_fields(schema.names), *self.by, *self.keep])]
        )
        return with_next_ordinal(out.append(pa.field(self.output, pa.string())).append(pa.field(self.value, dtype)))

    def _value_type(self, dtypes: Mapping[str, pa.DataType]) -> pa.DataType:
        """Return the type for the values of all fields; refuse types that have none that holds them all exactly."""
        known = {name: exact_type(dtype) for name, dtype in dtypes.items() if not pa.types.is_null(dtype)}
        kinds = {*known.values()}
        if len(kinds) < 2:
            return kinds.pop() if kinds else pa.float64()
        floating = pa.float64() in kinds
        for name, dtype in known.items():
            wide = dtype == pa.uint64() or (floating and dtype == pa.int64())
            if pa.types.is_temporal(dtype) or wide:
                others = ", ".join(sorted(str(kind) for kind in kinds - {dtype}))
                raise ConfigError(
                    f"{self.name()} cannot give the changes of {name!r} ({dtype}) in one field with those of others "
                    f"({others}): no type holds both; use a task for each"
                )
        return pa.float64() if floating else pa.int64()

    def state_fields(self) -> Mapping[str, StateField]:
        return {"last": StateField("float64", 2 * len(self.fields), np.nan)}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        values, rests = exact_columns([batch.column(name) for name in self.fields])
        room = values.size
        rows, places, which = (np.empty(room, np.int64) for _ in range(3))
        new, new_rest = np.empty(room), np.empty(room)
        last = state["last"].reshape(-1, 2 * len(self.fields))
        n = int(_changes(values, rests, slots, last, rows, places, which, new, new_rest))
        taken = pa.array(rows[:n])
        dtype = schema.field(self.value).type
        computed = {
            self.output: pa.array(self.fields).take(pa.array(which[:n])),
            self.value: exact_result(new[:n], new_rest[:n], np.zeros(n, np.bool_), dtype),
            next_ordinal(batch.schema.names): pa.array(places[:n]),
        }
        arrays = [computed[f.name] if f.name in computed else batch.column(f.name).take(taken) for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(8), pa.int64()),
                "key": ["a", "b", "a", "ü", "a", None, "a", "b"],
                "on": [True, False, False, None, None, True, True, True],
                "level": [1.0, 2.0, 1.0, 4.0, float("nan"), 6.0, 7.0, -0.0],
                "open": [False, False, True, True, True, None, False, False],
            }
        )
        yield Case(cls(fields=("on", "open"), by=("key",), keep=("level",)), batch)
        yield Case(cls(fields=("level", "on"), output="what", value="new"), batch, "numbers")
