"""XML parsing: the records of a document, safely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from xml.parsers import expat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import byte_spans, readonly, strings_from_spans
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.strings import name_table
from riot_ops.task import (
    Case,
    Count,
    DeadLetters,
    Requirement,
    StatelessTask,
    register,
    replace_column,
    with_field,
)

__all__ = ["XMLParse"]

_LT, _GT, _SLASH, _BANG, _WHAT, _EQUALS = 60, 62, 47, 33, 63, 61
_AMP, _CR = 38, 13


@kernel
def find_name(data: Any, start: Any, end: Any, names: Any, starts: Any, ends: Any, fold: Any) -> Any:
    """Which of the names ``data[start:end]`` is, -1 for none; fold ignores the case of ASCII."""
    for j in range(starts.size):
        if ends[j] - starts[j] != end - start:
            continue
        same = True
        for i in range(end - start):
            a = data[start + i]
            b = names[starts[j] + i]
            if a != b and not (fold and (a | 32) == (b | 32) and 97 <= (a | 32) <= 122):
                same = False
                break
        if same:
            return j
    return -1


@kernel
def measure(data: Any, start: Any, end: Any) -> Any:
    """Characters of a text; -1 where the raw bytes are not what the text is."""
    n = 0
    for i in range(start, end):
        b = data[i]
        if b == _AMP or b == _CR:
            return -1
        if (b & 0xC0) != 0x80:
            n += 1
    return n


@kernel
def measure_value(data: Any, start: Any, end: Any) -> Any:
    """As :func:`measure`, for the value of an attribute."""
    for i in range(start, end):
        if data[i] == 9 or data[i] == 10:
            return -1
    return measure(data, start, end)


@kernel
def walk(data: Any, start: Any, end: Any, names: Any, name_starts: Any, name_ends: Any, attributes: Any,
         attribute_starts: Any, attribute_ends: Any, name_places: Any, attribute_places: Any, first: Any,
         value_starts: Any, value_ends: Any) -> Any:
    """Walk a well-formed UTF-8 document without DOCTYPE.

    ``names`` are the record's name and then the fields'. The spans of the values of record r go to
    row ``first + r`` of value_starts and value_ends, if these have rows (-1: absent). Returns
    ``(checksum, records, depth, plain)``; not plain where a value is not what its bytes are.
    """
    checksum = 0
    records = 0
    depth = 0
    deepest = 0
    record_depth = 0                           # of the record at hand; 0 outside
    filling = value_starts.shape[0] > 0
    field = -1                                 # whose text begins at text_start
    text_start = 0
    i = start
    while i < end:
        if data[i] != _LT:
            i += 1
            continue
        mark = data[i + 1]
        if mark == _WHAT or mark == _BANG:
            if field >= 0:
                return checksum, records, deepest, False
            if mark == _WHAT:
                i += 2
                while not (data[i] == _WHAT and data[i + 1] == _GT):
                    i += 1
                i += 2
            elif data[i + 2] == 45:            # <!-- -->
                i += 4
                while not (data[i] == 45 and data[i + 1] == 45 and data[i + 2] == _GT):
                    i += 1
                i += 3
            else:                              # <![CDATA[ ]]>
                i += 9
                while not (data[i] == 93 and data[i + 1] == 93 and data[i + 2] == _GT):
                    i += 1
                i += 3
            continue
        if field >= 0:
            n = measure(data, text_start, i)
            if n < 0:
                return checksum, records, deepest, False
            if n > 0:
                checksum += n + field
            place = name_places[field]
            if filling and record_depth > 0 and value_starts[first + records - 1, place] < 0:
                value_starts[first + records - 1, place] = text_start
                value_ends[first + records - 1, place] = i
            field = -1
        if mark == _SLASH:
            i += 2
            name = i
            while data[i] != _GT and data[i] > 32:
                i += 1
            if find_name(data, name, i, names, name_starts, name_ends, True) == 0:
                checksum += i - name
            while data[i] != _GT:
                i += 1
            i += 1
            if depth == record_depth:
                record_depth = 0
            depth -= 1
            continue
        i += 1
        name = i
        while data[i] != _GT and data[i] != _SLASH and data[i] > 32:
            i += 1
        found = find_name(data, name, i, names, name_starts, name_ends, True)
        name_length = i - name
        depth += 1
        deepest = max(deepest, depth)
        opens = found == 0 and record_depth == 0
        if opens:
            record_depth = depth
            records += 1
        while True:                            # attributes
            while data[i] <= 32:
                i += 1
            if data[i] == _GT or data[i] == _SLASH:
                break
            attribute = i
            while data[i] != _EQUALS and data[i] > 32:
                i += 1
            attribute_end = i
            while data[i] != 34 and data[i] != 39:
                i += 1
            quote = data[i]
            i += 1
            value = i
            while data[i] != quote:
                i += 1
            if found == 0:
                a = find_name(data, attribute, attribute_end, attributes, attribute_starts, attribute_ends, False)
                if a >= 0:
                    n = measure_value(data, value, i)
                    if n < 0:
                        return checksum, records, deepest, False
                    checksum += n
                    if filling and opens:
                        value_starts[first + records - 1, attribute_places[a]] = value
                        value_ends[first + records - 1, attribute_places[a]] = i
            i += 1
        closed = data[i] == _SLASH
        if found > 0:
            checksum += 4 + found
            field = found
            text_start = i + 2 if closed else i + 1
        i += 2 if closed else 1
        if closed:
            if found == 0:
                checksum += name_length
            if found > 0:
                place = name_places[field]
                if filling and record_depth > 0 and value_starts[first + records - 1, place] < 0:
                    value_starts[first + records - 1, place] = text_start
                    value_ends[first + records - 1, place] = text_start
                field = -1
            if depth == record_depth:
                record_depth = 0
            depth -= 1
    return checksum, records, deepest, True


@kernel
def walk_all(data: Any, starts: Any, ends: Any, todo: Any, names: Any, name_starts: Any, name_ends: Any,
             attributes: Any, attribute_starts: Any, attribute_ends: Any, name_places: Any,
             attribute_places: Any, first: Any, value_starts: Any, value_ends: Any, checksums: Any,
             records: Any, depths: Any, plain: Any) -> None:
    for d in range(starts.size):
        if todo[d]:
            checksums[d], records[d], depths[d], plain[d] = walk(
                data, starts[d], ends[d], names, name_starts, name_ends, attributes, attribute_starts,
                attribute_ends, name_places, attribute_places, first[d], value_starts, value_ends)


@register
@dataclass(frozen=True, kw_only=True)
class XMLParse(StatelessTask):
    """Parse XML messages, which may come from anybody, into records or a checksum.

    checksum = sum over record elements of their name's length and of the lengths of their listed
    attributes; plus, for the j-th listed element (j = 1, 2, …), 4 + j per occurrence and, where it
    has text, j + the length of the text.

    Parameters
    ----------
    field : str, default "payload"
        Field with the document: text, or bytes in the encoding that the document declares.
    record : str, default "student"
        Name of the elements that are records. A record within a record belongs to the outer one.
    fields : tuple of str, default ("@rollno", "firstname", "lastname", "nickname", "marks")
        What to read of a record: ``@name`` an attribute of the record element, ``name`` the text of
        the first element of that name inside it, up to that element's first child. Comments are
        passed over, references and CDATA resolved.
    layout : "document" or "records", default "document"
        One row per document with ``checksum`` and ``records`` (their number) added; or one row per
        record with a text column per field (without the ``@``) in place of the document.
    max_bytes : int, >= 1, default 1048576
        Longest document accepted.
    max_depth : int, >= 1, default 32
        Deepest nesting of elements accepted.

    Shapes and rates
    ----------------
    text[n] -> int64[n] × 2, 1:1; with "records" text[m] per field, 1:N. O(bytes) time, no state.
    With "records", ``sub`` is set to that of the input row (0 without one) · 4096 + the record's
    place. Lengths are counted in characters (code points).

    Missing values
    --------------
    With "records" an absent element or attribute is null and an empty one is empty text. Names of
    elements match whatever the case of their ASCII letters, names of attributes exactly.

    Errors
    ------
    ``malformed`` (with line and column), ``forbidden_doctype`` (any DOCTYPE, so no entity can be
    declared), ``too_large``, ``too_deep``, ``too_many`` (over 4096 records in a document, with
    "records"), ``missing`` (null). Nothing is ever fetched.

    References
    ----------
    .. [1] *Extensible Markup Language (XML) 1.0*, fifth edition, W3C 2008.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task XML.

    Examples
    --------
    >>> text = '<class><student rollno="7"><firstname>Ada</firstname></student></class>'
    >>> XMLParse().session().push({"payload": text})[0]["checksum"]    # 1 + 5 + (3 + 1) + 7
    17
    >>> records = XMLParse(layout="records", fields=("@rollno", "firstname", "marks")).session()
    >>> records.push({"payload": text})
    [{'sub': 0, 'rollno': '7', 'firstname': 'Ada', 'marks': None}]
    """

    code: ClassVar[str] = "XML"
    category: ClassVar[str] = "Parse"

    field: str = "payload"
    record: str = "student"
    fields: tuple[str, ...] = ("@rollno", "firstname", "lastname", "nickname", "marks")
    layout: Literal["document", "records"] = "document"
    max_bytes: Count = 1 << 20
    max_depth: Count = 32

    def validate(self) -> None:
        elements = [name.lower() for name in (self.record, *self.elements)]
        if not all(name.lstrip("@") for name in (self.record, *self.fields)) or self.record.startswith("@"):
            raise ConfigError(f"xml_parse: names must not be empty, got {self.record!r} and {self.fields!r}")
        if not self.fields or len({*elements, *self.attributes}) < 1 + len(self.fields):
            raise ConfigError(f"xml_parse: fields must differ from each other and from the record {self.record!r}, "
                              f"got {self.fields!r}")
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"xml_parse: two of the fields {self.fields!r} would make the same column")

    @property
    def elements(self) -> tuple[str, ...]:
        """The fields that are elements."""
        return tuple(f for f in self.fields if not f.startswith("@"))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The fields that are attributes, with their ``@``."""
        return tuple(f for f in self.fields if f.startswith("@"))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the fields."""
        return tuple(f.removeprefix("@") for f in self.fields)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.layout == "document":
            for name in ("checksum", "records"):
                schema = with_field(schema, pa.field(name, pa.int64()))
            return schema
        schema = with_field(schema.remove(schema.get_field_index(self.field)), pa.field("sub", pa.int64()))
        for name in self.columns:
            schema = with_field(schema, pa.field(name, pa.string()))
        return schema

    def writes(self) -> frozenset[str] | None:
        if self.layout == "document":
            return frozenset({"checksum", "records"})
        return frozenset({self.field, "sub", *self.columns})

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        raw = batch.column(self.field)
        documents = raw.cast(pa.binary()) if pa.types.is_null(raw.type) else raw
        data, starts, ends, _ = byte_spans(documents)
        wanted, special = self._check(batch, documents, dead)
        if special:                            # values that are not in the bytes as such: keep them behind
            data, spans = _appended(data, special)
        n = batch.num_rows
        records, depths, checksums = (np.zeros(n, np.int64) for _ in range(3))
        plain = np.ones(n, np.bool_)
        nothing = np.empty((0, len(self.fields)), np.int64)
        tables = self._tables()

        def run(first: npt.NDArray[np.int64], value_starts: npt.NDArray[np.int64],
                value_ends: npt.NDArray[np.int64]) -> None:
            walk_all(data, starts, ends, readonly(wanted & plain), *tables, first, value_starts, value_ends,
                     checksums, records, depths, plain)

        run(np.zeros(n, np.int64), nothing, nothing)
        raise NotImplementedError(spans)


_ = Any
