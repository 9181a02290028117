"""A column of XML documents: most read by the compiled reader, the others by Expat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import RecordError
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.strings import name_table
from riot_ops.kernels.text.xml.exact import ExactReader
from riot_ops.kernels.text.xml.records import Found, Names, make_scratch, read_all

__all__ = ["GROWTH", "Documents", "read_documents"]

#: A byte, in whatever encoding, makes at most so many of UTF-8.
GROWTH = 3
#: Bytes of a document per record for which there is room from the start, and at least so many rows.
_RECORD, _ROWS = 128, 64
#: Depth for which room is kept; deeper documents are left to Expat.
_DEPTH = 1024


class Documents(NamedTuple):
    """What was read. Of a refused document all figures are 0."""

    checksums: npt.NDArray[np.int64]
    #: Number of records of each document.
    records: npt.NDArray[np.int64]
    #: The values of record r in field f are ``data[starts[f, r]:ends[f, r]]``; starts are -1 for none.
    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    #: By reason the documents refused, with messages.
    refused: dict[str, list[tuple[int, str]]]


def read_documents(
    documents: pa.Array,
    wanted: npt.NDArray[np.bool_],
    record: str,
    fields: Sequence[str],
    max_depth: int,
    keep: bool,
) -> Documents:
    """Read the wanted documents of a text or binary column.

    Parameters
    ----------
    record : str
        Name of the elements that are records.
    fields : sequence of str
        ``@name`` for an attribute, ``name`` for an element.
    max_depth : int
        Documents that go deeper are refused.
    keep : bool
        Whether to keep the values of records, beside their number.
    """
    n = len(documents)
    data, starts, ends, _ = byte_spans(documents)
    encoding = None if pa.types.is_binary(documents.type) or pa.types.is_large_binary(documents.type) else "utf-8"
    elements = [f for f in fields if not f.startswith("@")]
    attributes = [f.removeprefix("@") for f in fields if f.startswith("@")]
    names = _names(record, fields, elements, attributes)
    lengths = (ends - starts)[wanted]
    total = int(lengths.sum() if keep else lengths.max(initial=0))
    rows = np.empty((2, len(fields), max(_ROWS, total // _RECORD) if keep else 0), np.int64)
    text = np.empty(GROWTH * total, np.uint8)
    found = Found(np.zeros(n, np.int64), np.zeros(n, np.int64), rows[0], rows[1], text)
    scratch = make_scratch(min(max_depth, _DEPTH), names)
    refused: dict[str, list[tuple[int, str]]] = {}
    view = memoryview(data)  # type: ignore[arg-type]
    todo, decoded = readonly(wanted), encoding is not None
    d, row, at = 0, 0 if keep else -1, 0
    while True:
        d, row, at = read_all(data, starts, ends, todo, decoded, names, found, scratch, d, row, at)
        if d == n:
            break
        if found.records[d] >= 0:
            found = _with_rows(found, row + int(found.records[d]))
            continue
        found.checksums[d] = found.records[d] = 0
        reader = ExactReader(record, elements, attributes, max_depth)
        try:
            reader.read(view[starts[d] : ends[d]], encoding)
        except RecordError as error:
            refused.setdefault(error.reason, []).append((d, str(error)))
        else:
            found.checksums[d], found.records[d] = reader.checksum, len(reader.records)
            if keep:
                found = _with_rows(found, row + len(reader.records))
                at = _put(found, reader.records, fields, row, at, data.size)
                row += len(reader.records)
        d += 1
    if at:
        data = np.concatenate([data, text[:at]])
    reach = max(row, 0)
    return Documents(
        found.checksums, found.records, data, found.value_starts[:, :reach], found.value_ends[:, :reach], refused
    )


def _names(record: str, fields: Sequence[str], elements: Sequence[str], attributes: Sequence[str]) -> Names:
    """The names as the compiled reader wants them."""
    columns = [fields.index(name) for name in elements]
    return Names(
        *name_table([record, *elements]),
        *name_table(attributes),
        len(record),
        readonly(np.array([-1, *columns], np.int64)),
        readonly(np.array([fields.index("@" + name) for name in attributes], np.int64)),
    )


def _with_rows(found: Found, rows: int) -> Found:
    """The same with room for so many rows, and for as many again."""
    before = found.value_starts.shape[1]
    if rows <= before:
        return found
    wider = np.empty((2, found.value_starts.shape[0], 2 * rows), np.int64)
    wider[0, :, :before] = found.value_starts
    wider[1, :, :before] = found.value_ends
    return found._replace(value_starts=wider[0], value_ends=wider[1])


def _put(found: Found, records: Sequence[dict[str, str]], fields: Sequence[str], row: int, at: int, behind: int) -> int:
    """Write the values of records from a row on, their text behind the data; returns where it ends."""
    for r, values in enumerate(records, row):
        for f, name in enumerate(fields):
            value = values.get(name)
            if value is None:
                found.value_starts[f, r] = -1
                continue
            encoded = np.frombuffer(value.encode(), np.uint8)
            found.value_starts[f, r], found.value_ends[f, r] = behind + at, behind + at + encoded.size
            found.text[at : at + encoded.size] = encoded
            at += encoded.size
    return at
