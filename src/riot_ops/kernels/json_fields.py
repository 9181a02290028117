"""Lines of JSON objects to fields: where the wanted values stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.numbers import byte
from riot_ops.kernels.strings import name_table, same_bytes

__all__ = ["ABSENT", "NESTED", "PLAIN", "TEXT", "find_values", "paths_table"]

#: What stands at a path: nothing or null, text, a number or a truth value, an object or a list.
ABSENT, TEXT, PLAIN, NESTED = 0, 1, 2, 3
#: How deep objects and lists may lie in one another; deeper ones are for Python.
DEPTH = 64

_VALUE, _KEY, _BEHIND = 0, 1, 2


@kernel
def _space(data: Any, p: Any, end: Any) -> Any:
    """Behind white space."""
    while p < end and (byte(data, p) == 32 or (byte(data, p) <= 13 and byte(data, p) in (9, 10, 13))):
        p += 1
    return p


@kernel
def _text(data: Any, p: Any, end: Any) -> Any:
    """The end of the text that begins behind the quote before p; -1 where it is for Python, or none."""
    while p < end:
        b = byte(data, p)
        if b == 34:
            return p
        if b == 92 or b < 32:
            return -1
        p += 1
    return -1


@kernel
def _digits(data: Any, p: Any, end: Any) -> Any:
    while p < end and byte(data, p) >= 48 and byte(data, p) <= 57:
        p += 1
    return p


@kernel
def _number(data: Any, p: Any, end: Any) -> Any:
    """The end of the number at p, -1 where there is none."""
    if p < end and byte(data, p) == 45:
        p += 1
    q = _digits(data, p, end)
    if q == p or (q > p + 1 and byte(data, p) == 48):
        return -1
    p = q
    if p < end and byte(data, p) == 46:
        q = _digits(data, p + 1, end)
        if q == p + 1:
            return -1
        p = q
    if p < end and (byte(data, p) | 32) == 101:
        p += 1
        if p < end and (byte(data, p) == 43 or byte(data, p) == 45):
            p += 1
        q = _digits(data, p, end)
        if q == p:
            return -1
        p = q
    return p


@kernel
def _word(data: Any, p: Any, end: Any) -> Any:
    """The end of ``true``, ``false`` or ``null`` at p, -1 where there is none."""
    size = 5 if byte(data, p) == 102 else 4
    if p + size > end:
        return -1
    word = 0
    for i in range(size):
        word = word << 8 | byte(data, p + i)
    return p + size if word == 0x74727565 or word == 0x66616C7365 or word == 0x6E756C6C else -1


@kernel
def find_values(
    data: Any, starts: Any, ends: Any, valid: Any, names: Any, name_starts: Any, name_ends: Any, above: Any,
    lists: Any, nodes: Any,
    at_starts: Any, at_ends: Any, kinds: Any, good: Any,
) -> None:  # fmt: skip
    """Where in each line the value of each node is, see :func:`paths_table`; of several of one name the last counts.

    ``good`` says which lines were read to their end: the others may have escapes, or be no JSON.
    ``lists`` (1: a list, 0: an object) and ``nodes`` are room for what is open, as deep as it may be.
    """
    for i in range(starts.size):
        good[i] = False
        for n in range(above.size):
            kinds[n, i] = ABSENT
        if valid.size > 0 and not valid[i]:
            continue
        end = ends[i]
        p = _space(data, starts[i], end)
        depth = 0
        node = 0
        state = _VALUE
        while p <= end:
            if state == _BEHIND:
                p = _space(data, p, end)
                if depth == 0:
                    good[i] = p == end
                    break
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
                q = _text(data, p + 1, end)
                if q < 0:
                    break
                holder = nodes[depth - 1]
                node = -1
                if holder >= 0:
                    for n in range(1, above.size):
                        if above[n] == holder and same_bytes(data, p + 1, q, names, name_starts[n], name_ends[n]):
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
                        kinds[node, i] = NESTED
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
                    stop = _text(data, begin, end)
                    p = stop + 1
                    kind = TEXT
                elif b == 116 or b == 102 or b == 110:
                    stop = _word(data, p, end)
                    p = stop
                    kind = ABSENT if b == 110 else PLAIN
                else:
                    stop = _number(data, p, end)
                    p = stop
                if stop < 0:
                    break
                if node > 0:
                    at_starts[node, i] = begin
                    at_ends[node, i] = stop
                    kinds[node, i] = kind
                state = _BEHIND


def paths_table(paths: Iterable[str]) -> tuple[Any, npt.NDArray[np.int64], dict[str, int]]:
    """``(names, above, nodes)`` of dotted paths: a node for each name in each of them, 0 is the whole line.

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
