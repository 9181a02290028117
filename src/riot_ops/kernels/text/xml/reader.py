"""The compiled reader of XML documents: one pass checks a document and finds the values of its records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import byte
from riot_ops.kernels.text.strings import equal_words
from riot_ops.kernels.text.xml.characters import SPACE, continues_name, find_name, is_class, name_end, skip_space
from riot_ops.kernels.text.xml.markup import (
    read_attributes,
    read_text,
    resolve,
    skip_declaration,
    skip_misc,
    skip_other,
)

__all__ = ["MAX_ATTRIBUTES", "Names", "Results", "Scratch", "make_scratch", "read_all"]

_TAB, _LF, _CR, _BANG, _AMP, _SLASH, _GT, _QUESTION = 9, 10, 13, 33, 38, 47, 62, 63

#: Maximum number of attributes of an element, as each is compared with all others; Expat reads those with more.
MAX_ATTRIBUTES = 64


class Names(NamedTuple):
    """The wanted names: concatenated bytes with starts and ends, and the columns of their values."""

    #: The record's name, then those of elements that are fields.
    elements: Any
    element_starts: Any
    element_ends: Any
    #: Names of the record's attributes that are fields.
    attributes: Any
    attribute_starts: Any
    attribute_ends: Any
    #: Characters of the record's name.
    record_length: Any
    #: The column of each element (-1 for the record) and attribute.
    element_columns: Any
    attribute_columns: Any


class Results(NamedTuple):
    """The records found."""

    #: By document; the number of records is -1 if the document is left to Expat.
    checksums: Any
    records: Any
    #: By column and row, -1 for absent values; positions beyond the data refer to ``text``.
    value_starts: Any
    value_ends: Any
    #: Values that differ from their bytes, such as those with references.
    text: Any


class Scratch(NamedTuple):
    """State of the reader within a document."""

    #: For each open element: start and end of its name, and its index among the names.
    open: Any
    #: For each of the names, after one entry for all others: start and end of its last occurrence, and the element
    #: that began next.
    seen: Any
    #: For each attribute of an element: start and end of its name and of its value.
    attributes: Any


def make_scratch(max_depth: int, names: Names) -> Scratch:
    """Allocate the state for documents of up to ``max_depth`` nested elements."""
    return Scratch(
        np.empty((max_depth, 3), np.int64),
        np.zeros((names.element_starts.size + 1, 3), np.int64),
        np.empty((MAX_ATTRIBUTES, 4), np.int64),
    )


@kernel
def write_value(
    data: Any, start: Any, end: Any, raw: Any, more: Any, attribute: Any, found: Any, at: Any, column: Any, row: Any
) -> Any:
    """Store a value, unless row is -1 or the cell has one already; returns ``(characters, end of the text)``.

    ``raw``: whether the value differs from its bytes. ``more``: number of bytes that are not the first of a character.
    """
    if raw:
        until, n = resolve(data, start, end, attribute, found.text, at)
        start = data.size + at
        end = data.size + until
    else:
        until, n = at, end - start - more
    if row < 0 or found.value_starts[column, row] >= 0:
        return n, at
    found.value_starts[column, row] = start
    found.value_ends[column, row] = end
    return n, until


@kernel
def measure(data: Any, start: Any, end: Any) -> Any:
    """``(raw, more)`` of an attribute's value, see :func:`write_value`."""
    raw = False
    more = 0
    for i in range(start, end):
        b = data[i]
        if b == _AMP or b == _TAB or b == _LF or b == _CR:
            raw = True
        if (b & 0xC0) == 0x80:
            more += 1
    return raw, more


@kernel
def read(data: Any, start: Any, end: Any, text: Any, names: Any, found: Any, scratch: Any, first: Any, at: Any) -> Any:
    """Read a UTF-8 document and find its :class:`Names`.

    With ``first >= 0``, the values of record r go to row ``first + r``, as long as there are rows. Returns ``(checksum,
    records, end of the text)``. The number of records is -1 if the document is malformed, or unusual enough to be left
    to Expat; the caller then discards the output.
    """
    element_starts, element_ends = names.element_starts, names.element_ends
    attribute_starts, attribute_ends = names.attribute_starts, names.attribute_ends
    opened, seen, spans = scratch.open, scratch.seen, scratch.attributes
    refused = 0, -1, at
    last = end - 1
    while last > start and is_class(data, last, SPACE):
        last -= 1
    if last <= start or byte(data, last) != _GT:
        return refused
    i = skip_declaration(data, start, last, text)
    if i < 0:
        return refused
    i = skip_misc(data, i, last)
    if i < 0 or i > last:
        return refused
    checksum = 0
    records = 0
    depth = 0
    before = 0  # the entry in seen of the element that began last
    record_depth = 0  # depth of the current record; 0 outside
    row = -1  # of the current record
    field = -1  # the field whose text begins at text_start
    text_start = 0
    more = 0  # bytes of the field's text that are not the first of a character
    raw = False  # whether the field's text differs from its bytes
    while True:
        mark = byte(data, i + 1)
        if mark == _BANG or mark == _QUESTION:
            i = skip_other(data, i, last, True)
            if i < 0:
                return refused
            raw = True
        else:
            if field >= 0:
                column = names.element_columns[field]
                n, at = write_value(data, text_start, i, raw, more, False, found, at, column, row)
                if n > 0:
                    checksum += n + field
                field = -1
            name = i + 1
            closes = mark == _SLASH
            if closes:
                if depth == 0:
                    return refused
                name += 1
                begin, stop, which = opened[depth - 1, 0], opened[depth - 1, 1], opened[depth - 1, 2]
                i = name + stop - begin
                if i > last or not equal_words(data, begin, name, stop - begin):
                    return refused
                i = skip_space(data, i)
            else:
                # elements mostly occur in turn: try the one that followed this name the last time
                next_one = seen[before, 2]
                begin, stop = seen[next_one, 0], seen[next_one, 1]
                i = name + stop - begin
                if (
                    stop == begin
                    or i > last
                    or not equal_words(data, begin, name, stop - begin)
                    or continues_name(data, i)
                ):
                    i = name_end(data, name)
                    if i == name:
                        return refused
                    next_one = 1 + find_name(data, name, i, names.elements, element_starts, element_ends, True)
                    seen[next_one, 0] = name
                    seen[next_one, 1] = i
                    seen[before, 2] = next_one
                before = next_one
                which = next_one - 1
                if depth == opened.shape[0]:
                    return refused
                opened[depth, 0] = name
                opened[depth, 1] = i
                opened[depth, 2] = which
                depth += 1
                opens = which == 0 and record_depth == 0
                if opens:
                    record_depth = depth
                    if first >= 0 and first + records < found.value_starts.shape[1]:
                        row = first + records
                        found.value_starts[:, row] = -1
                    records += 1
                count = 0
                if byte(data, i) != _GT:
                    i, count = read_attributes(data, i, last, spans)
                    if count < 0:
                        return refused
                if which == 0:
                    for a in range(count):
                        begin, end, value, value_end = spans[a]
                        listed = find_name(data, begin, end, names.attributes, attribute_starts, attribute_ends, False)
                        if listed >= 0:
                            raw, more = measure(data, value, value_end)
                            target = row if opens else -1
                            column = names.attribute_columns[listed]
                            n, at = write_value(data, value, value_end, raw, more, True, found, at, column, target)
                            checksum += n
                if byte(data, i) == _SLASH:
                    closes = True
                    i += 1
                if which > 0:
                    checksum += 4 + which
                    if closes:
                        column = names.element_columns[which]
                        n, at = write_value(data, i, i, False, 0, False, found, at, column, row)
                    else:
                        field = which
                        text_start = i + 1
                        more = 0
                        raw = False
            if byte(data, i) != _GT:
                return refused
            i += 1
            if closes:
                if which == 0:
                    checksum += names.record_length
                if depth == record_depth:
                    record_depth = 0
                    row = -1
                depth -= 1
                if depth == 0:
                    break
        i, differs, n = read_text(data, i, last)
        if i < 0:
            return refused
        raw |= differs
        more += n
    if skip_misc(data, i, last) <= last:
        return refused
    return checksum, records, at


@kernel
def read_all(
    data: Any,
    starts: Any,
    ends: Any,
    todo: Any,
    text: Any,
    names: Any,
    found: Any,
    scratch: Any,
    start: Any,
    row: Any,
    at: Any,
) -> Any:
    """Read documents from ``start`` on; the values of records go to rows from ``row`` on, unless it is -1.

    Returns ``(document, row, end of the text)``: the first document that is left to Expat, or for whose records there
    are not enough rows, and the ends of the output before it.
    """
    for d in range(start, starts.size):
        if not todo[d]:
            continue
        found.checksums[d], found.records[d], until = read(
            data, starts[d], ends[d], text, names, found, scratch, row, at
        )
        if found.records[d] < 0:
            return d, row, at
        if row >= 0:
            if row + found.records[d] > found.value_starts.shape[1]:
                return d, row, at
            row += found.records[d]
            at = until
    return starts.size, row, at
