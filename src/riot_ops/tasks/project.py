"""Keep some fields of a record, and label it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.task import Case, DeadLetters, Requirement, StatelessTask, register

__all__ = ["Project"]

CARRIED = ("seq", "sub", "event_time")


@register
@dataclass(frozen=True, kw_only=True)
class Project(StatelessTask):
    """Keep some fields of a record and add constant text fields, so that streams can be merged.

    Parameters
    ----------
    fields : tuple of str
        Fields to keep, in this order; ``seq``, ``sub`` and ``event_time`` stay anyway.
    constants : tuple of (str, str), default ()
        Names and texts of fields to add, such as the name of the analytic.

    Shapes and rates
    ----------------
    1:1; columns are passed on without copying.

    Missing values
    --------------
    Kept as they are.

    Errors
    ------
    None at run time; an unknown field is refused when the dataflow is built.

    References
    ----------
    .. [1] RIoTBench names a result by its observation type and analytic when it merges them.

    Examples
    --------
    >>> label = Project(fields=("value",), constants=(("analytic", "AVG"),)).session()
    >>> label.push({"value": 2.0, "count": 10})
    [{'value': 2.0, 'analytic': 'AVG'}]
    """

    code: ClassVar[str] = "PRJ"
    category: ClassVar[str] = "Parse"

    fields: tuple[str, ...]
    constants: tuple[tuple[str, str], ...] = ()

    def validate(self) -> None:
        names = [*self.fields, *(name for name, _ in self.constants)]
        if len(set(names)) < len(names):
            raise ConfigError(f"fields and constants must not name a field twice, got {names}")

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys(self.fields, "any")

    def writes(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.constants)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        kept = [schema.field(name) for name in self._kept(schema)]
        return pa.schema([*kept, *(pa.field(name, pa.string()) for name, _ in self.constants)])

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        columns = [batch.column(name) for name in self._kept(batch.schema)]
        columns += [pa.repeat(pa.scalar(text, pa.string()), batch.num_rows) for _, text in self.constants]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema(batch.schema))

    def _kept(self, schema: pa.Schema) -> list[str]:
        carried = [name for name in CARRIED if name in schema.names and name not in self.fields]
        return [*carried, *self.fields]

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict({"seq": [0, 1], "key": ["ü", None], "value": [1.0, None]})
        yield Case(cls(fields=("value",), constants=(("analytic", "AVG"),)), batch)
        yield Case(cls(fields=("key", "value")), batch)
