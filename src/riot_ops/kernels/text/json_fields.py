"""Lines of JSON objects to fields: the spans of the values at wanted paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.json_escapes import escape_end
from riot_ops.kernels.text.numbers import HIGH, byte, digits_end, load8, lowest_byte, zero_bytes
from riot_ops.kernels.text.strings import equal_bytes, name_table

__all__ = [
    "ABSENT",
    "DEPTH",
    "ESCAPED",
    "NESTED",
    "PIECES",
    "PLAIN",
    "TEXT",
    "find_values",
    "new_line_buffers",
    "number_end",
    "paths_table",
    "read_line",
    "scalar_end",
]

#: Kinds of values: absent or null, string, number or boolean, object or array, string with escapes.
ABSENT, TEXT, PLAIN, NESTED, ESCAPED = 0, 1, 2, 3, 4
#: Maximum nesting of objects and arrays; deeper lines are left to Python.
DEPTH = 64
#: Maximum number of pieces of a pattern: a piece is the text between two values.
PIECES = 65

_VALUE, _KEY, _BEHIND = 0, 1, 2
_NOUGHT = np.uint64(0)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS = np.uint64(0x2020202020202020)


@kernel
def _space(data: Any, p: Any, end: Any) -> Any:
    """Skip white space."""
    while p < end and (byte(data, p) == 32 or (byte(data, p) <= 13 and byte(data, p) in (9, 10, 13))):
        p += 1
    return p


@kernel
def _string(data: Any, p: Any, end: Any) -> Any:
    """``(kind, end)`` of the string whose opening quote is before p; the end is -1 if it is left to Python."""
    kind = TEXT
    last = min(end, data.size - 7)
    while p >= 0 and p < end:
        if p < last:
            w = load8(data, p)
            special = zero_bytes(w ^ _QUOTES) | zero_bytes(w ^ _BACKSLASHES) | ((w - _BLANKS) & ~w & HIGH)
            if special == _NOUGHT:
                p += 8
                continue
            p += lowest_byte(special)
            if p >= end:
                break
        b = byte(data, p)
        if b == 34:
            return kind, p
        if b < 32:
            break
        if b == 92:
            kind = ESCAPED
            p = escape_end(data, p, end)
        else:
            p += 1
    return kind, -1


@kernel
def number_end(data: Any, p: Any, end: Any) -> Any:
    """Return the end of the number at p, -1 if there is none."""
    if p < end and byte(data, p) == 45:
        p += 1
    q = digits_end(data, p, end)
    if q == p or (q > p + 1 and byte(data, p) == 48):
        return -1
    p = q
    if p < end and byte(data, p) == 46:
        q = digits_end(data, p + 1, end)
        if q == p + 1:
            return -1
        p = q
    if p < end and (byte(data, p) | 32) == 101:
        p += 1
        if p < end and (byte(data, p) == 43 or byte(data, p) == 45):
            p += 1
        q = digits_end(data, p, end)
        if q == p:
            return -1
        p = q
    return p


@kernel
def _word(data: Any, p: Any, end: Any) -> Any:
    """Return the end of ``true``, ``false`` or ``null`` at p, -1 if there is none."""
    size = 5 if byte(data, p) == 102 else 4
    if p + size > end:
        return -1
    word = 0
    for i in range(size):
        word = word << 8 | byte(data, p + i)
    return p + size if word == 0x74727565 or word == 0x66616C7365 or word == 0x6E756C6C else -1


@kernel
def scalar_end(data: Any, p: Any, end: Any) -> Any:
    """``(kind, end)`` of the number, boolean or null at p; the end is -1 if there is none."""
    b = byte(data, p)
    if b == 116 or b == 102 or b == 110:
        return ABSENT if b == 110 else PLAIN, _word(data, p, end)
    return PLAIN, number_end(data, p, end)


@kernel
def _clear_below(node: Any, above: Any, begins: Any, stops: Any, kinds: Any) -> None:
    """Forget the values in an object whose name occurs again; a node has a higher number than the one above it."""
    for n in range(node + 1, above.size):
        a = above[n]
        while a > node:
            a = above[a]
        if a == node:
            begins[n] = 0
            stops[n] = 0
            kinds[n] = ABSENT


@kernel
def read_line(
    data: Any, start: Any, end: Any, names: Any, name_starts: Any, name_ends: Any, above: Any, lists: Any, nodes: Any,
    begins: Any, stops: Any, kinds: Any, pieces: Any,
) -> Any:  # fmt: skip
    """Find the value of each node of a line, see :func:`paths_table`; of duplicate names the last counts.

    Returns whether the line was read to its end (otherwise it has names with escapes, or is not JSON), and the number
    of its pieces, 0 if they cannot serve as a pattern. ``lists`` (1: array, 0: object) and ``nodes`` are the stack of
    open containers. ``pieces`` gets the start and end of the text between values, and the node and kind of the value
    after it.
    """
    for n in range(above.size):
        begins[n] = 0
        stops[n] = 0
        kinds[n] = ABSENT
    p = _space(data, start, end)
    if p >= end or byte(data, p) != 123:  # no object
        return False, 0
    depth = 0
    node = 0
    state = _VALUE
    piece = start
    count = 0
    once = True  # whether no wanted name occurred twice
    while p <= end:
        if state == _BEHIND:
            p = _space(data, p, end)
            if depth == 0:
                if p != end:
                    break
                pieces[0, count] = piece
                pieces[1, count] = end
                return True, count + 1 if once else 0
            if p >= end:
                break
            b = byte(data, p)
            p += 1
            if b == 44:
                p = _space(data, p, end)
                state = _VALUE if lists[depth - 1] else _KEY
                node = -1
            elif b == (93 if lists[depth - 1] else 125):
                depth -= 1
            else:
                break
        elif state == _KEY:
            if p >= end or byte(data, p) != 34:
                break
            kind, q = _string(data, p + 1, end)
            if q < 0 or kind == ESCAPED:
                break
            holder = nodes[depth - 1]
            node = -1
            if holder >= 0:
                for n in range(1, above.size):
                    if above[n] == holder and equal_bytes(data, p + 1, q, names, name_starts[n], name_ends[n]):
                        node = n
            p = _space(data, q + 1, end)
            if p >= end or byte(data, p) != 58:
                break
            p = _space(data, p + 1, end)
            state = _VALUE
        else:
            if p >= end:
                break
            b = byte(data, p)
            begin = p
            kind = PLAIN
            if b == 123 or b == 91:
                if depth == nodes.size:
                    break
                if node >= 0:
                    if kinds[node] != ABSENT or stops[node] != 0:
                        once = False
                        _clear_below(node, above, begins, stops, kinds)
                    kinds[node] = NESTED
                lists[depth] = 1 if b == 91 else 0
                nodes[depth] = node if b == 123 else -1
                depth += 1
                p = _space(data, p + 1, end)
                if p < end and byte(data, p) == (93 if b == 91 else 125):
                    depth -= 1
                    p += 1
                    state = _BEHIND
                else:
                    state = _VALUE if b == 91 else _KEY
                    node = -1
                continue
            if b == 34:
                begin += 1
                kind, stop = _string(data, begin, end)
                p = stop + 1
            else:
                kind, stop = scalar_end(data, p, end)
                p = stop
            if stop < 0:
                break
            if count < PIECES - 1:
                pieces[0, count] = piece
                pieces[1, count] = begin
                pieces[2, count] = node
                pieces[3, count] = TEXT if kind == ESCAPED else kind
                piece = stop
                count += 1
            else:
                once = False
            if node > 0:
                if kinds[node] != ABSENT or stops[node] != 0:
                    once = False
                    _clear_below(node, above, begins, stops, kinds)
                begins[node] = begin
                stops[node] = stop
                kinds[node] = kind
            state = _BEHIND
    return False, 0


@kernel
def find_values(
    data: Any, starts: Any, ends: Any, valid: Any, names: Any, name_starts: Any, name_ends: Any, above: Any,
    lists: Any, nodes: Any, begins: Any, stops: Any, found: Any, pieces: Any,
    at_starts: Any, at_ends: Any, kinds: Any, good: Any,
) -> None:  # fmt: skip
    """Like :func:`read_line` for many lines; ``good`` gets which were read to their end."""
    for i in range(starts.size):
        good[i] = False
        if valid.size > 0 and not valid[i]:
            continue
        good[i], _ = read_line(
            data, starts[i], ends[i], names, name_starts, name_ends, above, lists, nodes, begins, stops, found, pieces
        )  # fmt: skip
        for n in range(above.size):
            at_starts[n, i] = begins[n]
            at_ends[n, i] = stops[n]
            kinds[n, i] = found[n]


def paths_table(paths: Iterable[str]) -> tuple[Any, npt.NDArray[np.int64], dict[str, int]]:
    """``(names, above, nodes)`` of dotted paths: a tree with a node for each name, whose root 0 is the whole line.

    >>> _, above, nodes = paths_table(["data.id", "data.text", "id"])
    >>> above.tolist(), nodes
    ([-1, 0, 1, 1, 0], {'': 0, 'data': 1, 'data.id': 2, 'data.text': 3, 'id': 4})
    """
    nodes, names, above = {"": 0}, [""], [-1]
    for path in paths:
        holder = ""
        for name in path.split("."):
            here = f"{holder}.{name}" if holder else name
            if here not in nodes:
                nodes[here] = len(names)
                names.append(name)
                above.append(nodes[holder])
            holder = here
    return name_table(names), np.array(above, np.int64), nodes


def new_line_buffers(nodes: int) -> tuple[npt.NDArray[Any], ...]:
    """Allocate the arrays that :func:`read_line` fills: the stack, start, end and kind of each node, and pieces."""
    return (
        *np.empty((2, DEPTH), np.int64),
        *np.zeros((2, nodes), np.int64),
        np.zeros(nodes, np.int8),
        np.empty((4, PIECES), np.int64),
    )
