"""Base of the tasks that read a record from each line according to a table of fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.checks import check_encoding
from riot_ops.core.errors import ConfigError, did_you_mean, escape_surrogates, value_text
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import OWN_CHECK, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import boolean_column
from riot_ops.kernels.arrays.rows import filter_rows
from riot_ops.kernels.text.encodings import to_utf8
from riot_ops.kernels.text.strings import without_marks
from riot_ops.task import Requirement, StatelessTask
from riot_ops.tasks.parse.line_cells import CELL_TYPES, Cells, Mask

__all__ = ["LineParser", "ParsedFields"]


#: By field, where its value is, the kind of the value, and maybe a default.
ParsedFields = Annotated[Mapping[str, Sequence[Any]], OWN_CHECK]


@dataclass(frozen=True, kw_only=True)
class LineParser(StatelessTask):
    """A task that reads a record from each line; ``schema`` maps names to location, kind and maybe default."""

    #: The kinds of cells.
    kinds: ClassVar[tuple[str, ...]] = tuple(kind for kind in CELL_TYPES if kind not in ("quoted", "tweet"))

    schema: ParsedFields
    field: str = "payload"
    keep: Names = ()
    encoding: str = "utf-8"
    problems: str | None = None

    def validate(self) -> None:
        check_encoding(self.encoding)
        if not isinstance(self.schema, Mapping) or not self.schema:
            raise ConfigError(f"schema must be a dict of name to (place, kind), got {value_text(self.schema)}")
        object.__setattr__(self, "schema", {name: self._field_spec(name, one) for name, one in self.schema.items()})
        if both := set(self.keep) & set(self.schema):
            raise ConfigError(f"keep and schema must not both have {sorted(both)[0]!r}")
        if self.problems is not None and (not self.problems or self.problems in {*self.keep, *self.schema}):
            raise ConfigError(
                f"problems must name another field than those of schema and keep, got {value_text(self.problems)}"
            )

    def _field_spec(self, name: str, entry: Any) -> tuple[Any, ...]:
        """Check and normalise the entry of a field in ``schema``."""
        one = tuple(entry) if isinstance(entry, list | tuple) else ()
        if len(one) not in (2, 3):
            raise ConfigError(
                f"schema: {name!r} must be (place, kind) or (place, kind, default), got {value_text(entry)}"
            )
        place = tuple(one[0]) if isinstance(one[0], list | tuple) else one[0]
        self._check_location(name, place)
        kind = one[1]
        if kind not in self.kinds:
            known = f"{', '.join(self.kinds)}, got {value_text(kind)}{did_you_mean(str(kind), self.kinds)}"
            raise ConfigError(f"schema: the kind of {name!r} must be one of {known}")
        try:
            pa.array(one[2:], CELL_TYPES[kind])
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
            raise ConfigError(f"schema: the default of {name!r} is not a valid {kind}: {value_text(one[2])}") from None
        return (place, *one[1:])

    @abstractmethod
    def _check_location(self, name: str, place: Any) -> None:
        """Raise :class:`ConfigError` unless ``place`` is a valid location of a value in a line."""

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys(self.keep, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = [n for n in dict.fromkeys([*carried_fields(schema.names), *self.keep]) if n not in self.schema]
        parsed = [pa.field(name, CELL_TYPES[kind]) for name, (_, kind, *_) in self.schema.items()]
        if self.problems is not None:
            names = [name for name in names if name != self.problems]
            parsed.append(pa.field(self.problems, pa.string()))
        return pa.schema([*(schema.field(name) for name in names), *parsed])

    def writes(self) -> frozenset[str] | None:
        return frozenset(self.schema) | ({self.problems} if self.problems is not None else set())

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        text = batch.column(self.field)
        if pa.types.is_null(text.type):
            text = text.cast(pa.string())
        text, wrong = to_utf8(text, self.encoding)
        if wrong.any():
            errors.reject(batch, wrong, "invalid_encoding", f"the line is not {self.encoding}")
            batch, text = batch.filter(pa.array(~wrong)), text.filter(pa.array(~wrong))
        text = without_marks(text)
        found = self.read_fast(text)
        if found is None or 2 * np.count_nonzero(found[1]) < batch.num_rows:
            return self._make_records(batch, *self._read_columns(batch, text, errors))
        columns, plain = found
        if self.problems is not None:
            columns = {**columns, self.problems: pa.nulls(int(np.count_nonzero(plain)), pa.string())}
        records = self._make_records(batch, columns, plain)
        if plain.all():
            return records
        rows = np.flatnonzero(~plain)
        rest = batch.take(pa.array(rows))
        columns, good = self._read_columns(rest, text.take(pa.array(rows)), errors)
        if not good.any():
            return records
        order = np.argsort(np.concatenate([np.flatnonzero(plain), rows[good]]), kind="stable")
        return pa.concat_batches([records, self._make_records(rest, columns, good)]).take(pa.array(order))

    def _read_columns(
        self, batch: pa.RecordBatch, text: pa.Array, errors: RejectedRecords
    ) -> tuple[dict[str, pa.Array], Mask]:
        """Read lines of any form: the fields of the valid lines, and which lines are valid."""
        lines = self._cut_lines(batch, text, errors)
        columns = {}
        notes = _Notes(self.name())
        for number, (name, (_, kind, *default)) in enumerate(self.schema.items()):
            if not lines.good.any():  # every line is rejected already
                none = {name: pa.nulls(0, CELL_TYPES[kind]) for name, (_, kind, *_) in self.schema.items()}
                return none | ({} if self.problems is None else {self.problems: pa.nulls(0, pa.string())}), lines.good
            first, last = self._cells(number, name)
            problems = notes if default and self.problems is not None else errors
            good = lines.good.copy()
            column, empty = lines.column(name, first, last, kind, self._missing(lines, first, name, problems), problems)
            if problems is notes:
                empty |= good & ~lines.good
                lines.good = good
            if not empty.any():
                pass
            elif not default:
                lines.reject(errors, empty, "missing", f"{name} is missing")
            else:
                column = pc.if_else(pa.array(empty), pa.scalar(default[0], CELL_TYPES[kind]), column)
            columns[name] = column
        if self.problems is not None:
            columns[self.problems] = pa.array(map(notes.texts.get, range(batch.num_rows)), pa.string())
        if lines.good.all() or not lines.good.any():
            return {name: column[: np.count_nonzero(lines.good)] for name, column in columns.items()}, lines.good
        keep = boolean_column(lines.good)
        return {name: column.filter(keep) for name, column in columns.items()}, lines.good

    def _make_records(self, batch: pa.RecordBatch, columns: Mapping[str, pa.Array], good: Mask) -> pa.RecordBatch:
        """Join the parsed columns with the kept fields of the valid lines' records."""
        schema = self.output_schema(batch.schema)
        others = batch.select([f.name for f in schema if f.name not in columns])
        if others.num_columns and not good.all():
            others = filter_rows(others, good)
        all_columns = [columns[f.name] if f.name in columns else others.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(all_columns, schema=schema)

    def read_fast(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """Read the lines that the fast path accepts: their fields, and which lines those are; None without one."""
        return None

    @abstractmethod
    def _cut_lines(self, batch: pa.RecordBatch, text: pa.Array, errors: RejectedRecords) -> Cells:
        """Split the lines into cells and reject those that cannot be split."""

    @abstractmethod
    def _cells(self, number: int, name: str) -> tuple[int, int]:
        """Return the first and the last cell of the field with this number and name."""

    def _missing(self, lines: Any, cell: int, name: str, errors: RejectedRecords) -> Mask:
        """Return where the content of a cell counts as missing; lines whose content can be no value are rejected."""
        return np.zeros(lines.good.size, np.bool_)


class _Notes(RejectedRecords):
    """Notes why values of lines are bad, instead of rejecting the lines."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.texts: dict[int, str] = {}

    def reject(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[Any],
        reason: str,
        message: str | Sequence[str] | pa.StringArray,
        raw: pa.Array | None = None,
    ) -> None:
        given = message.to_pylist() if isinstance(message, pa.Array) else message
        texts = [given] * rows.size if isinstance(given, str) else given
        for row, text in zip(rows.tolist(), texts, strict=True):
            before = f"{self.texts[row]}; " if row in self.texts else ""
            self.texts[row] = escape_surrogates(f"{before}{reason}: {text}")
