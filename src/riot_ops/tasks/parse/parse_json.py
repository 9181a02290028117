"""Parsing of JSON lines into records by a table of paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.text.json_paths import is_plain, parse_path
from riot_ops.task import Case, register
from riot_ops.tasks.parse.fast_json import FastJSONReader
from riot_ops.tasks.parse.json_cells import JSONCells
from riot_ops.tasks.parse.line_cells import CELL_TYPES, Mask
from riot_ops.tasks.parse.line_parser import LineParser

__all__ = ["ParseJSON"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseJSON(LineParser):
    """Read a record from each line that is a JSON object.

    Parameters
    ----------
    schema : dict of str to (path, kind) or (path, kind, default)
        The fields of a record. A path is a name, or the names of nested objects joined by dots; ``"a[0].b"`` is
        ``b`` in the first item of the list ``a``, and a name with dots or brackets stands in quotes, ``'"a.b"[1]'``.
        From a list of paths, the first one with a value counts. Paths with indexes or quotes are slower. Kinds are
        those of :class:`ParseLines`, where a ``string`` may be the text of a number; ``quoted``, which must be a string
        of JSON; and ``tweet``, a time in ISO 8601 or of the form ``Wed Oct 10 20:19:24 +0000 2018``. With a default,
        which may be null, the value may be missing.
    wrapper : str, optional
        Path of an object or list that a line may have: if it does, all fields are read from within it, else all from
        the line itself.
    field : str, default "payload"
        Field with the line.
    keep : tuple of str, default ()
        Fields of the input record to keep, besides those of its order and time.
    encoding, problems
        Encoding of lines of bytes, and field for the reasons why defaults replace values, see :class:`ParseLines`.

    Shapes and rates
    ----------------
    text[n] -> record[n], 1:1; O(bytes) time, no state. A compiled loop reads the lines; msgspec decodes texts with
    escapes, and lines with escapes in names. A number may be written as text, and a text as a number. If a name
    occurs several times, its last value counts.

    Missing values
    --------------
    A null or absent value is an error (``missing``) if the field has no default. Text may be empty.

    Errors
    ------
    ``not_json``, ``missing``, ``wrong_type`` (an object or a list, or as ``quoted`` no string), ``bad_number``,
    ``bad_bool``, ``bad_time``, ``out_of_range``, ``invalid_utf8``, ``invalid_encoding``: see :class:`ParseLines`.

    References
    ----------
    .. [1] T. Bray, *The JavaScript Object Notation (JSON) Data Interchange Format*, RFC 8259.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: tweets, clicks and mails.

    Examples
    --------
    >>> fields = {"id": ("id", "string"), "lang": (("lang", "language"), "quoted", None)}
    >>> tweets = ParseJSON(schema=fields, wrapper="data").session()
    >>> tweets.push({"payload": '{"data": {"id": "7", "lang": "en"}}'}), tweets.push({"payload": '{"id": 8}'})
    ([{'id': '7', 'lang': 'en'}], [{'id': '8', 'lang': None}])
    """

    code: ClassVar[str] = "PJS"
    category: ClassVar[str] = "Parse"
    kinds: ClassVar[tuple[str, ...]] = tuple(CELL_TYPES)

    wrapper: str | None = None

    def validate(self) -> None:
        super().validate()
        if self.wrapper is not None and not _is_path(self.wrapper):
            raise ConfigError(f"wrapper must be {_A_PATH}, got {value_text(self.wrapper)}")

    def __hash__(self) -> int:
        return hash(repr(self))

    def _check_location(self, name: str, place: Any) -> None:
        paths = place if isinstance(place, tuple) else (place,)
        if not paths or not all(isinstance(path, str) and _is_path(path) for path in paths):
            raise ConfigError(f"schema: the path of {name!r} must be {_A_PATH}, got {value_text(place)}")

    @cached_property
    def _fast_reader(self) -> FastJSONReader | None:
        """The fast path, for lines without errors; None with paths other than names."""
        fields = {name: (_paths(place), *rest) for name, (place, *rest) in self.schema.items()}
        places = [path for paths, *_ in fields.values() for path in paths]
        plain = all(map(is_plain, [*places, self.wrapper or ""]))
        return FastJSONReader(fields, self.wrapper) if plain else None

    def read_fast(self, text: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        return None if self._fast_reader is None else self._fast_reader.read(text)

    def _cut_lines(self, batch: pa.RecordBatch, text: pa.Array, errors: RejectedRecords) -> JSONCells:
        lines = JSONCells(batch, text, [_paths(place) for place, *_ in self.schema.values()], self.wrapper)
        lines.reject_non_text(errors)
        return lines

    def _cells(self, number: int, name: str) -> tuple[int, int]:
        return number, number

    def _missing(self, lines: JSONCells, cell: int, name: str, errors: RejectedRecords) -> Mask:
        lines.reject(errors, lines.nested(cell), "wrong_type", f"{name} is an object or a list")
        if self.schema[name][1] == "quoted":
            lines.reject(errors, lines.unquoted(cell), "wrong_type", f"{name} is not a string")
        return lines.absent(cell)

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
        yield Case(cls(schema=fields, field="line"), batch)
        fields = {"id": ('"data"."id"', "string", None), "n": ("n[0]", "double", 0.0)}
        yield Case(cls(schema=fields, field="line", problems="why"), batch)
        fields = {"id": ("id", "string", None), "event_time": ("n", "s", None)}
        yield Case(cls(schema=fields, field="line", keep=("line",)), batch)
        fields = {"id": ("id", "quoted", None), "event_time": ("n", "tweet", None)}
        yield Case(cls(schema=fields, field="line", wrapper="data"), batch)


#: What a path is, for messages.
_A_PATH = """names joined by dots, with indexes as in 'list[0].name', or in quotes as in '"a.b"'"""


def _is_path(text: str) -> bool:
    try:
        parse_path(text)
    except ValueError:
        return False
    return True


def _paths(place: str | tuple[str, ...]) -> tuple[str, ...]:
    return (place,) if isinstance(place, str) else place
