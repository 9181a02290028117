"""Lines of JSON to records, by a table of what stands where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, short
from riot_ops.core.order import carried
from riot_ops.task import Case, Requirement, StatelessTask, register
from riot_ops.tasks.parse.cell_lines import KINDS, check_default, check_kind
from riot_ops.tasks.parse.json_lines import JsonLines

__all__ = ["ParseJSON"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseJSON(StatelessTask):
    """Read a record from each line that is a JSON object.

    Parameters
    ----------
    fields : dict of str to (path, kind) or (path, kind, default)
        The fields of a record. A path is a name, or names of objects within one another with dots between them; of a
        list of paths the first counts at which something stands. Kinds are those of :class:`ParseLines`. With a
        default, even null, the value may be missing.
    field : str, default "payload"
        Field with the line.
    keep : tuple of str, default ()
        Fields of the line's record that are kept, besides its order and time.

    Shapes and rates
    ----------------
    text[n] -> record[n], 1:1; O(bytes) time, no state. Lines with escapes are read by a library, the others by a loop.
    A number may be given as text, and text as a number. Of several values of one name the last counts.

    Missing values
    --------------
    Null, and a value that is not there, are errors (``missing``) where the field has no default. Text may be empty.

    Errors
    ------
    ``not_json``, ``missing``, ``wrong_type`` (an object or a list), ``bad_number``, ``bad_bool``, ``bad_time``,
    ``out_of_range``, ``invalid_utf8``: as for :class:`ParseLines`.

    References
    ----------
    .. [1] T. Bray, *The JavaScript Object Notation (JSON) Data Interchange Format*, RFC 8259.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: tweets, clicks and mails.

    Examples
    --------
    >>> fields = {"id": (("data.id", "id"), "string"), "lang": ("data.lang", "string", None)}
    >>> tweets = ParseJSON(fields=fields).session()
    >>> tweets.push({"payload": '{"data": {"id": "7", "lang": "en"}}'}), tweets.push({"payload": '{"id": 8}'})
    ([{'id': '7', 'lang': 'en'}], [{'id': '8', 'lang': None}])
    """

    code: ClassVar[str] = "PJS"
    category: ClassVar[str] = "Parse"

    fields: Any
    field: str = "payload"
    keep: tuple[str, ...] = ()

    def validate(self) -> None:
        if not isinstance(self.fields, Mapping) or not self.fields:
            raise ConfigError(f"fields must be a dict of name to (path, kind), got {short(self.fields)}")
        object.__setattr__(self, "fields", {name: _checked(name, one) for name, one in self.fields.items()})
        if both := set(self.keep) & set(self.fields):
            raise ConfigError(f"keep and fields must not both have {sorted(both)[0]!r}")

    def __hash__(self) -> int:
        return hash(repr(self))

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys(self.keep, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = [n for n in dict.fromkeys([*carried(schema.names), *self.keep]) if n not in self.fields]
        made = [pa.field(name, KINDS[kind]) for name, (_, kind, *_) in self.fields.items()]
        return pa.schema([*(schema.field(name) for name in names), *made])

    def writes(self) -> frozenset[str] | None:
        return None

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        column = batch.column(self.field)
        text = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        paths = [(path,) if isinstance(path, str) else path for path, *_ in self.fields.values()]
        lines = JsonLines(batch, text, paths)
        lines.reject_what_is_no_text(dead)
        columns = {}
        for cell, (name, (_, kind, *default)) in enumerate(self.fields.items()):
            lines.reject(dead, lines.nested(cell), "wrong_type", f"{name} is an object or a list")
            column, empty = lines.column(name, cell, cell, kind, lines.absent(cell), dead)
            if not default:
                lines.reject(dead, empty, "missing", f"{name} is missing")
            elif empty.any():
                column = pc.if_else(pa.array(empty), pa.scalar(default[0], KINDS[kind]), column)
            columns[name] = column
        schema = self.output_schema(batch.schema)
        whole = [columns[f.name] if f.name in columns else batch.column(f.name) for f in schema]
        kept = None if lines.good.all() else pa.array(lines.good)
        return pa.RecordBatch.from_arrays([c if kept is None else c.filter(kept) for c in whole], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        lines = [
            '{"id": "1", "n": 2}',
            '{"data": {"id": "ü\\n"}}',
            "[1]",
            None,
            "{",
            '{"id": {}}',
            '{"n": "7"}',
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(7), pa.int64()), "line": lines})
        fields: dict[str, Any] = {"id": (("data.id", "id"), "string"), "n": ("n", "double", 0.0)}
        yield Case(cls(fields=fields, field="line"), batch)
        fields = {"id": ("id", "string", None), "event_time": ("n", "s", None)}
        yield Case(cls(fields=fields, field="line", keep=("line",)), batch)


def _checked(name: str, given: Any) -> tuple[Any, ...]:
    """The description of a field."""
    one = tuple(given) if isinstance(given, list | tuple) else ()
    if len(one) not in (2, 3):
        raise ConfigError(f"fields: {name!r} must be (path, kind) or (path, kind, default), got {short(given)}")
    path = tuple(one[0]) if isinstance(one[0], list | tuple) else one[0]
    every = path if isinstance(path, tuple) else (path,)
    if not every or not all(isinstance(p, str) and all(p.split(".")) for p in every):
        raise ConfigError(f"fields: the path of {name!r} must be names with dots between them, got {short(one[0])}")
    check_kind(name, one[1])
    if len(one) == 3:
        check_default(name, one[1], one[2])
    return (path, *one[1:])
