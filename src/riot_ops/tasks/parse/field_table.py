"""What tasks have in common that read a record from each line by a table of fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, did_you_mean, short
from riot_ops.core.order import carried
from riot_ops.kernels.arrays.arrow import truth_column
from riot_ops.kernels.arrays.rows import filtered
from riot_ops.task import Requirement, StatelessTask
from riot_ops.tasks.parse.cell_lines import KINDS, CellLines, Mask

__all__ = ["FieldTable"]


@dataclass(frozen=True, kw_only=True)
class FieldTable(StatelessTask):
    """Base of these tasks; ``fields`` has the place, the kind and maybe a default of each field."""

    fields: Any
    field: str = "payload"
    keep: tuple[str, ...] = ()

    def validate(self) -> None:
        if not isinstance(self.fields, Mapping) or not self.fields:
            raise ConfigError(f"fields must be a dict of name to (place, kind), got {short(self.fields)}")
        object.__setattr__(self, "fields", {name: self._checked(name, one) for name, one in self.fields.items()})
        if both := set(self.keep) & set(self.fields):
            raise ConfigError(f"keep and fields must not both have {sorted(both)[0]!r}")

    def _checked(self, name: str, given: Any) -> tuple[Any, ...]:
        """The description of a field."""
        one = tuple(given) if isinstance(given, list | tuple) else ()
        if len(one) not in (2, 3):
            raise ConfigError(f"fields: {name!r} must be (place, kind) or (place, kind, default), got {short(given)}")
        place = tuple(one[0]) if isinstance(one[0], list | tuple) else one[0]
        self._check_place(name, place)
        kind = one[1]
        if kind not in KINDS:
            known = f"{', '.join(KINDS)}, got {short(kind)}{did_you_mean(str(kind), KINDS)}"
            raise ConfigError(f"fields: the kind of {name!r} must be one of {known}")
        try:
            pa.array(one[2:], KINDS[kind])
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
            raise ConfigError(f"fields: the default of {name!r} is no {kind}: {short(one[2])}") from None
        return (place, *one[1:])

    @abstractmethod
    def _check_place(self, name: str, place: Any) -> None:
        """Raise unless a value can stand there."""

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys(self.keep, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = [n for n in dict.fromkeys([*carried(schema.names), *self.keep]) if n not in self.fields]
        made = [pa.field(name, KINDS[kind]) for name, (_, kind, *_) in self.fields.items()]
        return pa.schema([*(schema.field(name) for name in names), *made])

    def writes(self) -> frozenset[str] | None:
        return frozenset(self.fields)

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        text = batch.column(self.field)
        if pa.types.is_null(text.type):
            text = text.cast(pa.string())
        found = self._plain(text)
        if found is None or 2 * np.count_nonzero(found[1]) < batch.num_rows:
            return self._record(batch, *self._columns(batch, text, dead))
        columns, plain = found
        records = self._record(batch, columns, plain)
        if plain.all():
            return records
        rows = np.flatnonzero(~plain)
        odd = batch.take(pa.array(rows))
        own = odd.column(self.field)
        columns, good = self._columns(odd, own if own.type.equals(text.type) else own.cast(text.type), dead)
        if not good.any():
            return records
        order = np.argsort(np.concatenate([np.flatnonzero(plain), rows[good]]), kind="stable")
        return pa.concat_batches([records, self._record(odd, columns, good)]).take(pa.array(order))

    def _columns(self, batch: pa.RecordBatch, text: pa.Array, dead: DeadLetters) -> tuple[dict[str, pa.Array], Mask]:
        """The fields of the good ones among lines of any kind, and which these are."""
        lines = self._lines(batch, text, dead)
        columns = {}
        for number, (name, (_, kind, *default)) in enumerate(self.fields.items()):
            if not lines.good.any():  # of a line that has been rejected nothing more is looked at
                return {name: pa.nulls(0, KINDS[kind]) for name, (_, kind, *_) in self.fields.items()}, lines.good
            first, last = self._cells(number, name)
            column, empty = lines.column(name, first, last, kind, self._absent(lines, first, name, dead), dead)
            if not empty.any():
                pass
            elif not default:
                lines.reject(dead, empty, "missing", f"{name} is missing")
            else:
                column = pc.if_else(pa.array(empty), pa.scalar(default[0], KINDS[kind]), column)
            columns[name] = column
        if lines.good.all() or not lines.good.any():
            return {name: column[: np.count_nonzero(lines.good)] for name, column in columns.items()}, lines.good
        kept = truth_column(lines.good)
        return {name: column.filter(kept) for name, column in columns.items()}, lines.good

    def _record(self, batch: pa.RecordBatch, columns: Mapping[str, pa.Array], good: Mask) -> pa.RecordBatch:
        """The records of the good lines, of whose fields there are columns."""
        schema = self.output_schema(batch.schema)
        others = batch.select([f.name for f in schema if f.name not in columns])
        if others.num_columns and not good.all():
            others = filtered(others, good)
        made = [columns[f.name] if f.name in columns else others.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(made, schema=schema)

    def _plain(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """The fields of those lines that can be read the fast way, and which these are; None: there is none."""
        return None

    @abstractmethod
    def _lines(self, batch: pa.RecordBatch, text: pa.Array, dead: DeadLetters) -> CellLines:
        """The lines cut into cells, without those that cannot be."""

    @abstractmethod
    def _cells(self, number: int, name: str) -> tuple[int, int]:
        """The first and the last cell of a field."""

    def _absent(self, lines: Any, cell: int, name: str, dead: DeadLetters) -> Mask:
        """Where what stands in a cell counts as nothing; what cannot be a value is rejected."""
        return np.zeros(lines.good.size, np.bool_)
