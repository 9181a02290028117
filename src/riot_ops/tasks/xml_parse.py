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
from riot_ops.kernels.arrow import byte_spans, int_column, readonly, strings_from_spans
from riot_ops.kernels.strings import name_table
from riot_ops.kernels.xml import Names, walk_all
from riot_ops.schema import SUB_RANGE
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

_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


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
    text[n] -> two of int64[n], 1:1; with "records" text[m] per field, 1:N. O(bytes) time, no state.
    With "records", ``sub`` is set to that of the input row (0 without one) times 4096 + the record's
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
        if self.layout == "records":  # the class says what holds by default
            object.__setattr__(self, "pattern", "FlatMap")
            object.__setattr__(self, "selectivity", "1:N")
        elements = [_fold(name) for name in (self.record, *self.elements)]
        if not all(name.lstrip("@") for name in (self.record, *self.fields)) or self.record.startswith("@"):
            raise ConfigError(f"xml_parse: names must not be empty, got {self.record!r} and {self.fields!r}")
        if not self.fields or len({*elements, *self.attributes}) < 1 + len(self.fields):
            raise ConfigError(
                "xml_parse: fields must differ from each other and from the record "
                f"{self.record!r}, got {self.fields!r}"
            )
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
        n = batch.num_rows
        raw = batch.column(self.field)
        documents = raw.cast(pa.binary()) if pa.types.is_null(raw.type) else raw
        data, starts, ends, _ = byte_spans(documents)
        wanted, slow = self._check(batch, documents, dead)
        records, depths, checksums = (np.zeros(n, np.int64) for _ in range(3))
        plain = np.ones(n, np.bool_)
        names, todo = self._names(), readonly(wanted & ~slow)
        spans = np.empty((2, 64 if self.layout == "records" else 0, len(self.fields)), np.int64)
        document, row = 0, 0 if self.layout == "records" else -1
        while True:
            document, row = walk_all(
                data,
                starts,
                ends,
                todo,
                names,
                document,
                row,
                SUB_RANGE,
                spans[0],
                spans[1],
                checksums,
                records,
                depths,
                plain,
            )
            if document == n:
                break
            room = np.empty((2, row + int(records[document]), spans.shape[2]), np.int64)
            spans = np.concatenate([spans[:, :row], room], axis=1)
        slow |= wanted & ~plain
        read = {}
        view = memoryview(data)  # type: ignore[arg-type]
        for d in np.flatnonzero(slow).tolist():
            reader = _Reader(self)
            parser = expat.ParserCreate(_encoding(documents.type))
            reader.attach(parser)
            parser.Parse(view[starts[d] : ends[d]], True)
            checksums[d], records[d], depths[d] = reader.checksum, len(reader.rows), reader.deepest
            read[d] = reader.rows
        deep = wanted & (depths > self.max_depth)
        dead.reject(batch, deep, "too_deep", f"elements nest deeper than {self.max_depth}", documents)
        good = wanted & ~deep
        if self.layout == "document":
            batch = replace_column(batch, "checksum", pa.array(checksums))
            batch = replace_column(batch, "records", pa.array(records))
            return batch if good.all() else batch.filter(pa.array(good))
        many = good & (records > SUB_RANGE)
        dead.reject(batch, many, "too_many", f"more than {SUB_RANGE} records in a document", documents)
        good &= ~many
        kept = np.where(wanted & ~slow & (records <= SUB_RANGE), records, 0)
        origin = np.repeat(np.arange(n), kept)
        place = np.arange(origin.size) - (np.cumsum(kept) - kept)[origin]
        data, origin, place, spans = _with_rows(data, origin, place, spans[:, :row], read, self.fields)
        if not good.all():
            chosen = good[origin]
            origin, place, spans = origin[chosen], place[chosen], spans[:, chosen]
        return self._rows(batch, data, origin, place, spans)

    def _check(
        self, batch: pa.RecordBatch, documents: pa.Array, dead: DeadLetters
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which documents are good, and which of them are not UTF-8; all others are rejected."""
        data, starts, ends, valid = byte_spans(documents)
        null = ~valid if valid.size else np.zeros(len(documents), np.bool_)
        large = ~null & (ends - starts > self.max_bytes)
        dead.reject(batch, null, "missing", f"{self.field} is null", documents)
        dead.reject(batch, large, "too_large", f"the document is longer than {self.max_bytes} bytes", documents)
        wanted = ~(null | large)
        encoded = np.zeros(len(documents), np.bool_)
        failed: dict[str, list[tuple[int, str]]] = {"malformed": [], "forbidden_doctype": []}
        gate = _Gate()
        encoding = _encoding(documents.type)
        view = memoryview(data)  # type: ignore[arg-type]
        begins, stops = starts.tolist(), ends.tolist()
        for d in np.flatnonzero(wanted).tolist():
            document = view[begins[d] : stops[d]]
            gate.encoding = None
            parser = expat.ParserCreate(encoding)
            parser.StartDoctypeDeclHandler = gate.doctype
            parser.XmlDeclHandler = gate.declaration
            try:
                parser.Parse(document, True)
            except (expat.ExpatError, LookupError, ValueError) as error:  # the latter: unknown encodings
                failed["malformed"].append((d, str(error)))
            except _DoctypeError:
                failed["forbidden_doctype"].append((d, "the document has a DOCTYPE, which is not accepted"))
            else:
                encoded[d] = (gate.encoding or "utf-8").lower() not in _UTF8 or not _is_utf8(document)
        for reason, rows in failed.items():
            index = np.array([d for d, _ in rows], np.int64)
            wanted[index] = False
            dead.reject(batch, index, reason, [message for _, message in rows], documents)
        if encoding is not None:
            encoded[:] = False  # text is text, whatever it declares
        return wanted, encoded

    def _names(self) -> Names:
        """The names as the kernel wants them."""
        attributes = tuple(a.removeprefix("@") for a in self.attributes)
        places = [self.fields.index(name) for name in self.elements]
        return Names(
            *name_table([self.record, *self.elements]),
            *name_table(attributes),
            len(self.record),
            readonly(np.array([-1, *places], np.int64)),
            readonly(np.array([self.fields.index(name) for name in self.attributes], np.int64)),
        )

    def _rows(
        self,
        batch: pa.RecordBatch,
        data: npt.NDArray[np.uint8],
        origin: npt.NDArray[np.int64],
        place: npt.NDArray[np.int64],
        spans: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        """One row per record: the columns of its document, its place, its values."""
        index = pa.array(origin)
        columns = {name: batch.column(name).take(index) for name in batch.schema.names if name != self.field}
        sub = int_column(columns["sub"]) if "sub" in columns else 0
        columns["sub"] = pa.array(sub * SUB_RANGE + place)
        for f, name in enumerate(self.columns):
            starts, ends = spans[0][:, f], spans[1][:, f]
            columns[name] = strings_from_spans(
                data, np.ascontiguousarray(starts), np.ascontiguousarray(ends), starts >= 0
            )
        schema = self.output_schema(batch.schema)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "payload": [
                    '<class><student rollno="7"><firstname>Ada</firstname><marks/></student></class>',
                    None,
                    "",
                    "<a><b></a>",
                    "<!DOCTYPE a><a/>",
                    "<a/>",
                    "<s><STUDENT rollno='ü'><firstName>x<!-- y -->&amp;<![CDATA[<]]></firstName></STUDENT></s>",
                    "<student><student/><firstname>a</firstname><firstname>b</firstname></student>",
                    "<a>" * 40 + "</a>" * 40,
                ],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(layout="records"), batch, "records")
        latin = '<?xml version="1.0" encoding="iso-8859-1"?><s><student rollno="é"/></s>'.encode("latin-1")
        binary = pa.RecordBatch.from_pydict({"payload": pa.array([latin, b"\xff\xfe", None], pa.binary())})
        yield Case(cls(layout="records", max_bytes=100), binary, "binary")


class _DoctypeError(Exception):
    """Ends the parsing of a document with a DOCTYPE, before it can declare anything."""


class _Gate:
    """Lets documents without DOCTYPE pass, and notes the encoding that they declare."""

    encoding: str | None = None

    def doctype(self, *_: Any) -> None:
        raise _DoctypeError

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = encoding


class _Reader:
    """Reads a document event by event, where its bytes are not its text."""

    def __init__(self, task: XMLParse) -> None:
        self.task = task
        self.names = [_fold(name) for name in (task.record, *task.elements)]
        self.checksum = self.depth = self.deepest = self.record_depth = 0
        self.rows: list[dict[str, str]] = []
        self.field = 0
        self.text = ""

    def attach(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.finish()
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        found = self.names.index(_fold(name)) if _fold(name) in self.names else -1
        if found == 0:
            values = {"@" + a: value for a, value in attributes.items() if "@" + a in self.task.fields}
            self.checksum += sum(map(len, values.values()))
            if self.record_depth == 0:
                self.record_depth = self.depth
                self.rows.append(values)
        elif found > 0:
            self.checksum += 4 + found
            self.field, self.text = found, ""

    def characters(self, text: str) -> None:
        if self.field:
            self.text += text

    def finish(self) -> None:
        if self.field:
            if self.text:
                self.checksum += len(self.text) + self.field
            if self.record_depth:
                self.rows[-1].setdefault(self.task.elements[self.field - 1], self.text)
            self.field = 0

    def end(self, name: str) -> None:
        self.finish()
        if _fold(name) == self.names[0]:
            self.checksum += len(name)
        if self.depth == self.record_depth:
            self.record_depth = 0
        self.depth -= 1


def _encoding(kind: pa.DataType) -> str | None:
    """The encoding of documents: of bytes the one that they declare."""
    return None if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "utf-8"


def _fold(name: str) -> str:
    return name.translate(_LOWER)


def _is_utf8(document: memoryview) -> bool:
    """Whether a document that declares nothing else is UTF-8 and not UTF-16."""
    return 0 not in document[:4] and bytes(document[:2]) not in (b"\xff\xfe", b"\xfe\xff")


def _with_rows(
    data: npt.NDArray[np.uint8],
    origin: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    spans: npt.NDArray[np.int64],
    read: Mapping[int, list[dict[str, str]]],
    fields: tuple[str, ...],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All records in order: those of documents read event by event have their values behind the data."""
    if not read:
        return data, origin, place, spans
    extra: list[bytes] = []
    added, end = [], data.size
    for d, rows in read.items():
        for r, row in enumerate(rows):
            where = []
            for name in fields:
                text = row.get(name)
                where.append((-1, -1) if text is None else (end, end + len(text.encode())))
                if text is not None:
                    extra.append(text.encode())
                    end += len(extra[-1])
            added.append((d, r, where))
    if not added:
        return data, origin, place, spans
    data = np.concatenate([data, np.frombuffer(b"".join(extra), np.uint8)])
    origin = np.concatenate([origin, [d for d, _, _ in added]])
    place = np.concatenate([place, [r for _, r, _ in added]])
    spans = np.concatenate([spans, np.array([where for _, _, where in added]).transpose(2, 0, 1)], axis=1)
    order = np.lexsort((place, origin))
    return data, origin[order], place[order], spans[:, order]
