"""Reading a column of XML documents: most by the compiled reader, the others by Expat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import RecordError
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.strings import name_table
from riot_ops.kernels.text.xml.expat_reader import ExpatReader
from riot_ops.kernels.text.xml.reader import Names, Results, make_scratch, read_all

__all__ = ["GROWTH", "Documents", "read_documents"]

#: Maximum bytes of UTF-8 per byte of any supported encoding.
GROWTH = 3
#: Initial number of rows: one per ``_BYTES_PER_ROW`` bytes, at least ``_MIN_ROWS``.
_BYTES_PER_ROW, _MIN_ROWS = 128, 64
#: Maximum nesting of the compiled reader; deeper documents are left to Expat.
_DEPTH = 1024


class Documents(NamedTuple):
    """The records of documents; all figures of a rejected document are 0."""

    checksums: npt.NDArray[np.int64]
    #: Number of records of each document.
    records: npt.NDArray[np.int64]
    #: The values of record r in field f are ``data[starts[f, r]:ends[f, r]]``; starts are -1 for none.
    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    #: Rejected documents with error messages, by reason.
    rejected: dict[str, list[tuple[int, str]]]


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
        Documents with deeper nesting are rejected.
    keep : bool
        Whether to keep the values of records, and not only count them.
    """
    n = len(documents)
    data, starts, ends, _ = byte_spans(documents)
    encoding = None if pa.types.is_binary(documents.type) or pa.types.is_large_binary(documents.type) else "utf-8"
    elements = [f for f in fields if not f.startswith("@")]
    attributes = [f.removeprefix("@") for f in fields if f.startswith("@")]
    names = _names(record, fields, elements, attributes)
    lengths = (ends - starts)[wanted]
    total = int(lengths.sum() if keep else lengths.max(initial=0))
    rows = np.empty((2, len(fields), max(_MIN_ROWS, total // _BYTES_PER_ROW) if keep else 0), np.int64)
    text = np.empty(GROWTH * total, np.uint8)
    found = Results(np.zeros(n, np.int64), np.zeros(n, np.int64), rows[0], rows[1], text)
    scratch = make_scratch(min(max_depth, _DEPTH), names)
    rejected: dict[str, list[tuple[int, str]]] = {}
    view = memoryview(data)  # type: ignore[arg-type]
    todo, decoded = readonly(wanted), encoding is not None
    d, row, at = 0, 0 if keep else -1, 0
    while True:
        d, row, at = read_all(data, starts, ends, todo, decoded, names, found, scratch, d, row, at)
        if d == n:
            break
        if found.records[d] >= 0:
            found = _extended(found, row + int(found.records[d]))
            continue
        found.checksums[d] = found.records[d] = 0
        reader = ExpatReader(record, elements, attributes, max_depth)
        try:
            reader.read(view[starts[d] : ends[d]], encoding)
        except RecordError as error:
            rejected.setdefault(error.reason, []).append((d, str(error)))
        else:
            found.checksums[d], found.records[d] = reader.checksum, len(reader.records)
            if keep:
                found = _extended(found, row + len(reader.records))
                at = _write_records(found, reader.records, fields, row, at, data.size)
                row += len(reader.records)
        d += 1
    if at:
        data = np.concatenate([data, text[:at]])
    end = max(row, 0)
    return Documents(
        found.checksums, found.records, data, found.value_starts[:, :end], found.value_ends[:, :end], rejected
    )


def _names(record: str, fields: Sequence[str], elements: Sequence[str], attributes: Sequence[str]) -> Names:
    """Return the names in the form of the compiled reader."""
    columns = [fields.index(name) for name in elements]
    return Names(
        *name_table([record, *elements]),
        *name_table(attributes),
        len(record),
        readonly(np.array([-1, *columns], np.int64)),
        readonly(np.array([fields.index("@" + name) for name in attributes], np.int64)),
    )


def _extended(found: Results, rows: int) -> Results:
    """Extend results to at least ``rows`` rows, with as many in reserve."""
    before = found.value_starts.shape[1]
    if rows <= before:
        return found
    extended = np.empty((2, found.value_starts.shape[0], 2 * rows), np.int64)
    extended[0, :, :before] = found.value_starts
    extended[1, :, :before] = found.value_ends
    return found._replace(value_starts=extended[0], value_ends=extended[1])


def _write_records(
    found: Results, records: Sequence[dict[str, str]], fields: Sequence[str], row: int, at: int, size: int
) -> int:
    """Write the values of records from ``row`` on, their texts from ``at`` on; returns the end of the text."""
    for r, values in enumerate(records, row):
        for f, name in enumerate(fields):
            value = values.get(name)
            if value is None:
                found.value_starts[f, r] = -1
                continue
            encoded = np.frombuffer(value.encode(), np.uint8)
            found.value_starts[f, r], found.value_ends[f, r] = size + at, size + at + encoded.size
            found.text[at : at + encoded.size] = encoded
            at += encoded.size
    return at
