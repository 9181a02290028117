"""Reading XML: one walk over a document known to be well-formed."""

from __future__ import annotations

from typing import Any, NamedTuple

from riot_ops.kernels.jit import kernel

__all__ = ["Names", "walk_all"]

_LT, _GT, _SLASH, _BANG, _WHAT, _EQUALS = 60, 62, 47, 33, 63, 61
_AMP, _CR = 38, 13


class Names(NamedTuple):
    """What to look for: bytes one after the other with starts and ends, and where values go."""

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
        if b in (_AMP, _CR):
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
def walk(data: Any, start: Any, end: Any, names: Any, first: Any, value_starts: Any, value_ends: Any) -> Any:
    """Walk a well-formed UTF-8 document without DOCTYPE, looking for :class:`Names`.

    With ``first >= 0``, the spans of the values of record r go to row ``first + r`` of value_starts
    and value_ends (-1: absent), as far as these reach. Returns ``(checksum, records, depth,
    plain)``; not plain where a value is not what its bytes are.
    """
    elements, element_starts, element_ends = names.elements, names.element_starts, names.element_ends
    checksum = 0
    records = 0
    depth = 0
    deepest = 0
    record_depth = 0  # of the record at hand; 0 outside
    row = -1  # where the values of the record at hand go
    field = -1  # whose text begins at text_start
    text_start = 0
    record_bytes = element_ends[0] - element_starts[0]
    i = start
    while i < end:
        if data[i] != _LT:
            i += 1
            continue
        mark = data[i + 1]
        if mark in (_WHAT, _BANG):
            if field >= 0:
                return checksum, records, deepest, False
            if mark == _WHAT:
                i += 2
                while not (data[i] == _WHAT and data[i + 1] == _GT):
                    i += 1
                i += 2
            elif data[i + 2] == 45:  # <!-- -->
                i += 4
                while not (data[i] == 45 and data[i + 1] == 45 and data[i + 2] == _GT):
                    i += 1
                i += 3
            else:  # <![CDATA[ ]]>
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
            column = names.element_columns[field]
            if row >= 0 and value_starts[row, column] < 0:
                value_starts[row, column] = text_start
                value_ends[row, column] = i
            if mark == _SLASH:  # its own end tag
                i += element_ends[field] - element_starts[field]
            field = -1
        closes = mark == _SLASH
        if closes:
            i += 2
            name = i
            while data[i] != _GT and data[i] > 32:
                i += 1
            found = -1
            if i - name == record_bytes:
                found = find_name(data, name, i, elements, element_starts, element_ends, True)
            while data[i] != _GT:
                i += 1
            i += 1
        else:
            i += 1
            name = i
            while data[i] != _GT and data[i] != _SLASH and data[i] > 32:
                i += 1
            found = find_name(data, name, i, elements, element_starts, element_ends, True)
            depth += 1
            deepest = max(deepest, depth)
            opens = found == 0 and record_depth == 0
            if opens:
                record_depth = depth
                if first >= 0 and first + records < value_starts.shape[0]:
                    row = first + records
                    value_starts[row] = -1
                records += 1
            while True:  # attributes
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
                    a = find_name(
                        data,
                        attribute,
                        attribute_end,
                        names.attributes,
                        names.attribute_starts,
                        names.attribute_ends,
                        False,
                    )
                    if a >= 0:
                        n = measure_value(data, value, i)
                        if n < 0:
                            return checksum, records, deepest, False
                        checksum += n
                        if opens and row >= 0:
                            value_starts[row, names.attribute_columns[a]] = value
                            value_ends[row, names.attribute_columns[a]] = i
                i += 1
            closes = data[i] == _SLASH
            i += 2 if closes else 1
            if found > 0:
                checksum += 4 + found
                column = names.element_columns[found]
                if not closes:
                    field = found
                    text_start = i
                elif row >= 0 and value_starts[row, column] < 0:
                    value_starts[row, column] = i
                    value_ends[row, column] = i
        if closes:
            if found == 0:
                checksum += names.record_length
            if depth == record_depth:
                record_depth = 0
                row = -1
            depth -= 1
    return checksum, records, deepest, True


@kernel
def walk_all(
    data: Any,
    starts: Any,
    ends: Any,
    todo: Any,
    names: Any,
    start: Any,
    row: Any,
    limit: Any,
    value_starts: Any,
    value_ends: Any,
    checksums: Any,
    records: Any,
    depths: Any,
    plain: Any,
) -> Any:
    """Walk documents from ``start`` on; record values go to rows from ``row`` on, -1 for nowhere.

    Returns the document reached (before the last where the rows are full) and the next row.
    A document with over ``limit`` records keeps no row.
    """
    for d in range(start, starts.size):
        if not todo[d]:
            continue
        checksums[d], records[d], depths[d], plain[d] = walk(
            data, starts[d], ends[d], names, row, value_starts, value_ends
        )
        if row >= 0 and plain[d] and records[d] <= limit:
            if row + records[d] > value_starts.shape[0]:
                return d, row
            row += records[d]
    return starts.size, row
