"""Lines of a web server's access log, cut into their parts."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.line_fields import is_escaped, line_end
from riot_ops.kernels.text.numbers import byte, digits_end

__all__ = [
    "METHOD",
    "NO_NAMES",
    "NO_REQUEST",
    "NO_STATUS",
    "NO_TIME",
    "PARTS",
    "REFERRER",
    "SIZE",
    "cut_access_logs",
    "cut_words",
    "end_of_size",
]

#: The parts of a line, by their numbers in the kernels.
PARTS = (
    "host", "ident", "user", "time", "request", "status", "size", "referrer", "agent",
    "method", "resource", "protocol", "client",
)  # fmt: skip
_REQUEST, _STATUS, SIZE, REFERRER, METHOD, _CLIENT = 4, 5, 6, 7, 9, 12
#: Why a line is no line of an access log: its first missing part, in the order of the line.
NO_NAMES, NO_TIME, NO_REQUEST, NO_STATUS = 1, 2, 3, 4


@kernel
def _blank(data: Any, p: Any, end: Any) -> Any:
    """Return the position of the next blank, or the end."""
    while p < end and byte(data, p) != 32:
        p += 1
    return p


@kernel
def end_of_size(data: Any, q: Any, end: Any) -> Any:
    """Return the end of the size if a quote at q is followed by a status of three digits and a size; else -1."""
    p = q + 6
    if p >= end or byte(data, q + 1) != 32 or byte(data, q + 5) != 32 or digits_end(data, q + 2, end) != q + 5:
        return -1
    stop = p + 1 if byte(data, p) == 45 else digits_end(data, p, end)
    return stop if stop > p and (stop == end or byte(data, stop) == 32) else -1


@kernel
def _is_dash(data: Any, start: Any, end: Any) -> Any:
    return end - start == 1 and byte(data, start) == 45


@kernel
def _is_http(data: Any, p: Any) -> Any:
    """Whether the text at p begins with ``HTTP/``."""
    return (
        byte(data, p) == 72
        and byte(data, p + 1) == 84
        and byte(data, p + 2) == 84
        and byte(data, p + 3) == 80
        and byte(data, p + 4) == 47
    )


@kernel
def cut_words(data: Any, begins: Any, stops: Any) -> None:
    """Write the spans of the parts that others contain: the words of the request, and the client.

    The method is the first word, the protocol the last one if it is HTTP, the resource the part between.
    """
    client = 2 if stops[2] > begins[2] else 0
    begins[_CLIENT], stops[_CLIENT] = begins[client], stops[client]
    p, end = begins[_REQUEST], stops[_REQUEST]
    for part in range(METHOD, METHOD + 3):
        begins[part] = stops[part] = p
    if _is_dash(data, p, end):
        return
    while p < end and byte(data, p) == 32:
        p += 1
    q = _blank(data, p, end)
    begins[METHOD], stops[METHOD] = p, q
    p = q
    while p < end and byte(data, p) == 32:
        p += 1
    while end > p and byte(data, end - 1) == 32:
        end -= 1
    q = end
    while q > p and byte(data, q - 1) != 32:
        q -= 1
    if end - q >= 5 and _is_http(data, q):
        begins[METHOD + 2], stops[METHOD + 2] = q, end
        end = q
        while end > p and byte(data, end - 1) == 32:
            end -= 1
    begins[METHOD + 1], stops[METHOD + 1] = p, end


@kernel
def _cut_access_log(data: Any, start: Any, end: Any, begins: Any, stops: Any) -> Any:
    """Write the spans of the parts of a line without its line break; returns 0, or why it is no line of a log.

    The request ends at the first quote that a status and a size follow; one after a backslash only counts if no other
    does. A part that is absent or ``-`` is empty, except for host and request.
    """
    for part in range(stops.size):
        begins[part] = start
        stops[part] = start
    p = start
    for part in range(3):
        q = _blank(data, p, end)
        if q == p or q == end:
            return NO_NAMES
        begins[part] = p
        stops[part] = p if part > 0 and _is_dash(data, p, q) else q
        p = q + 1
    if p >= end or byte(data, p) != 91:
        return NO_NAMES
    begins[3] = p + 1
    while p < end and byte(data, p) != 93:
        p += 1
    stops[3] = p
    if p + 1 >= end or byte(data, p + 1) != 32:
        return NO_TIME
    p += 2
    if p >= end or byte(data, p) != 34:
        return NO_REQUEST
    begin = p + 1
    close, after = -1, -1
    for q in range(begin, end):
        if byte(data, q) == 34:
            found = end_of_size(data, q, end)
            if found >= 0:
                escaped = is_escaped(data, begin, q)
                if close < 0 or not escaped:
                    close, after = q, found
                if not escaped:
                    break
    if close < 0:
        return NO_STATUS
    begins[_REQUEST], stops[_REQUEST] = begin, close
    begins[_STATUS], stops[_STATUS] = close + 2, close + 5
    begins[SIZE], stops[SIZE] = close + 6, after
    if _is_dash(data, close + 6, after):
        stops[SIZE] = close + 6
    p = after + 1
    for part in range(REFERRER, REFERRER + 2):
        if p >= end or byte(data, p) != 34:
            break
        q = p + 1
        while q < end and (
            byte(data, q) != 34 or (q + 1 < end and byte(data, q + 1) != 32) or is_escaped(data, p + 1, q)
        ):
            q += 1
        if not _is_dash(data, p + 1, q):
            begins[part], stops[part] = p + 1, q
        p = q + 2
    cut_words(data, begins, stops)
    return 0


@kernel
def cut_access_logs(data: Any, starts: Any, ends: Any, valid: Any, begins: Any, stops: Any, faults: Any) -> None:
    """Write the spans of the parts of lines by ``_cut_access_log``, and return its result; a line break is ignored."""
    for i in range(starts.size):
        faults[i] = 0
        if valid.size > 0 and not valid[i]:
            continue
        faults[i] = _cut_access_log(data, starts[i], line_end(data, starts[i], ends[i]), begins[:, i], stops[:, i])
