"""Parsing of XML documents from untrusted senders into records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import next_ordinal, with_next_ordinal
from riot_ops.core.parameters import Bytes, Count, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import CHUNK_BYTES, chunk_ranges, concat_batches, strings_from_spans, text_lengths
from riot_ops.kernels.text.xml.documents import GROWTH, Documents, read_documents
from riot_ops.kernels.text.xml.expat_reader import fold
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["ParseXML"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseXML(StatelessTask):
    """Parse XML messages from untrusted senders into records or a checksum.

    checksum = sum over record elements of their name's length and of the lengths of their listed
    attributes; plus, for the j-th listed element (j = 1, 2, …), 4 + j per occurrence and, if it has
    text, j + the length of the text.

    Parameters
    ----------
    field : str, default "payload"
        Field with the document: text, or bytes in the encoding that the document declares (UTF-8, UTF-16, ASCII,
        ISO 8859, Windows 1250 to 1258 and a few other single-byte encodings).
    record : str, default "student"
        Name of the record elements. A record inside another record belongs to the outer one.
    fields : tuple of str, default ("@rollno", "firstname", "lastname", "nickname", "marks")
        What to read from a record: ``@name`` is an attribute of the record element, ``name`` the text of
        the first element of that name inside it, up to that element's first child. Comments are
        skipped, references and CDATA resolved.
    layout : "document" or "records", default "document"
        One row per document, with ``checksum`` and ``records`` (the number of records) added; or one row
        per record, with a text column per field (without the ``@``) in place of the document.
    max_bytes : int, 1 to 2^30, default 1048576
        Longest document accepted.
    max_output_bytes : int, 1 to 2^30, default 16777216
        With "records": most text accepted in all records of one document together, including the other fields of
        the input, which each record repeats.
    max_depth : int, >= 1, default 32
        Deepest nesting of elements accepted.

    Shapes and rates
    ----------------
    text[n] -> int64[n] twice, 1:1; with "records" text[m] per field, 1:N. O(bytes) time, no state.
    With "records", large output is split into several batches, and a further field ``ordinal`` (int64; ``ordinal_2`` if
    the input has ``ordinal``) is the record's place in its document. Lengths are counted in characters (code points).

    Missing values
    --------------
    With "records" an absent element or attribute is null, and an empty one is empty text. Names of
    elements match without regard to the case of ASCII letters, names of attributes exactly.

    Errors
    ------
    ``malformed`` (with line and column), ``forbidden_doctype`` (any DOCTYPE, so no entity can be
    declared), ``too_large``, ``too_deep``, ``missing`` (null). No external resource is ever loaded.

    References
    ----------
    .. [1] *Extensible Markup Language (XML) 1.0*, fifth edition, W3C 2008.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task XML.

    Examples
    --------
    >>> text = '<class><student rollno="7"><firstname>Ada</firstname></student></class>'
    >>> ParseXML().session().push({"payload": text})[0]["checksum"]    # 1 + 5 + (3 + 1) + 7
    17
    >>> records = ParseXML(layout="records", fields=("@rollno", "firstname", "marks")).session()
    >>> records.push({"payload": text})
    [{'ordinal': 0, 'rollno': '7', 'firstname': 'Ada', 'marks': None}]
    """

    code: ClassVar[str] = "XML"
    category: ClassVar[str] = "Parse"

    field: str = "payload"
    record: str = "student"
    fields: Names = ("@rollno", "firstname", "lastname", "nickname", "marks")
    layout: Literal["document", "records"] = "document"
    max_bytes: Bytes = 1 << 20
    max_output_bytes: Bytes = 1 << 24
    max_depth: Count = 32

    def validate(self) -> None:
        if self.layout == "records":  # the class attributes describe the default layout
            object.__setattr__(self, "pattern", "FlatMap")
            object.__setattr__(self, "selectivity", "1:N")
        elements = [fold(name) for name in (self.record, *self.elements)]
        for what, name in (("record", self.record), *(("fields", f.removeprefix("@")) for f in self.fields)):
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{what}: {name!r} is not a name that an element or attribute can have; paths are not supported, "
                    "and only attributes of the record element can be read (@name)"
                )
        if not self.fields or len({*elements, *self.attributes}) < 1 + len(self.fields):
            raise ConfigError(
                "parse_xml: fields must differ from each other and from the record "
                f"{self.record!r}, got {self.fields!r}"
            )
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"parse_xml: two of the fields {self.fields!r} would have the same column")

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
        schema = with_next_ordinal(schema.remove(schema.get_field_index(self.field)))
        for name in self.columns:
            schema = with_field(schema, pa.field(name, pa.string()))
        return schema

    def expands(self) -> bool:
        return self.layout == "records"

    def writes(self) -> frozenset[str] | None:
        if self.layout == "document":
            return frozenset({"checksum", "records"})
        return frozenset({self.field, *self.columns})

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return concat_batches(list(self.batches(batch, errors)))

    def batches(self, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
        if pa.types.is_null(batch.schema.field(self.field).type):
            place = batch.schema.get_field_index(self.field)
            batch = batch.set_column(place, self.field, batch.column(place).cast(pa.binary()))
        sizes = text_lengths(batch.column(self.field))
        for start, stop in chunk_ranges(sizes):
            yield from self._piece(batch.slice(start, stop - start), sizes[start:stop], errors)

    def _piece(
        self, batch: pa.RecordBatch, sizes: npt.NDArray[np.int64], errors: RejectedRecords
    ) -> Iterator[pa.RecordBatch]:
        documents = batch.column(self.field)
        if pa.types.is_dictionary(documents.type):
            documents = documents.dictionary_decode()
        null = np.asarray(documents.is_null())
        large = sizes > self.max_bytes
        errors.reject(batch, null, "missing", f"{self.field} is null", documents)
        errors.reject(batch, large, "too_large", f"the document is longer than {self.max_bytes} bytes", documents)
        good = ~(null | large)
        read = read_documents(documents, good, self.record, self.fields, self.max_depth, keep=self.layout == "records")
        for reason, rows in read.rejected.items():
            index = np.array([d for d, _ in rows], np.int64)
            good[index] = False
            errors.reject(batch, index, reason, [message for _, message in rows], documents)
        if self.layout == "records":
            yield from self._rows(batch, documents, sizes, read, errors)
            return
        batch = replace_column(batch, "checksum", pa.array(read.checksums))
        batch = replace_column(batch, "records", pa.array(read.records))
        yield batch if good.all() else batch.filter(pa.array(good))

    def _rows(
        self,
        batch: pa.RecordBatch,
        documents: pa.Array,
        sizes: npt.NDArray[np.int64],
        read: Documents,
        errors: RejectedRecords,
    ) -> Iterator[pa.RecordBatch]:
        """Make one row per record: the columns of its document, its place, its values."""
        counts = read.records
        begin = np.cumsum(counts) - counts
        schema = self.output_schema(batch.schema)
        around = batch.drop_columns([self.field, *(c for c in self.columns if c in batch.schema.names)])
        repeated = counts * _row_sizes(around)
        # an upper bound first: usually no document is near the limit
        output = repeated + GROWTH * sizes
        if int(output.max(initial=0)) > self.max_output_bytes or int(output.sum()) > CHUNK_BYTES:
            values = np.where(read.starts >= 0, read.ends - read.starts, 0).sum(axis=0)
            offsets = np.append(0, np.cumsum(values))
            output = repeated + offsets[begin + counts] - offsets[begin]
        large = output > self.max_output_bytes
        errors.reject(
            batch,
            large,
            "too_large",
            f"the records, and the fields that each repeats, would hold more than {self.max_output_bytes} bytes",
            documents,
        )
        counts, output = np.where(large, 0, counts), np.where(large, 0, output)
        for start, stop in chunk_ranges(output):
            origin = np.repeat(np.arange(start, stop), counts[start:stop])
            first = np.cumsum(counts[start:stop]) - counts[start:stop]
            place = np.arange(origin.size) - first[origin - start]
            row = begin[origin] + place
            # usually a contiguous range, which needs no gathering
            rows = slice(row[0], row[-1] + 1) if row.size and row[-1] - row[0] < row.size else row
            columns = {name: around.column(name).take(pa.array(origin)) for name in around.schema.names}
            columns[next_ordinal(around.schema.names)] = pa.array(place)
            for name, begins, ends in zip(self.columns, read.starts, read.ends, strict=True):
                columns[name] = strings_from_spans(read.data, begins[rows], ends[rows] - begins[rows])
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

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


#: Names of elements and attributes [1]_, section 2.3.
_START = (
    ":A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = re.compile(f"[{_START}][{_START}\\-.0-9\u00b7\u0300-\u036f\u203f\u2040]*")


def _row_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of the variable-size values in each row; dictionary values are not counted, they are not copied."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        dtype = column.type
        if pa.types.is_nested(dtype):
            sizes += [column.slice(i, 1).nbytes for i in range(len(column))]
        elif dtype in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
            sizes += text_lengths(column)
    return sizes
