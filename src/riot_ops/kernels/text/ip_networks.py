"""IP addresses in text, and the networks that contain them."""

from __future__ import annotations

import bisect
import ipaddress
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.arrays.byte_masks import low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, byte, digits_of, load8, lowest_byte

__all__ = ["Networks"]

NOWHERE = -1
#: Not an IPv4 address, but possibly an IPv6 one.
MAYBE_IPV6 = -2
#: More ranges than this below a 16-bit, or 24-bit, prefix get a table of their own; fewer are searched.
FEW_PER_16, FEW_PER_24 = 4, 16
#: Binary logarithm of the maximum number of addresses of a column that are cached by their text.
CACHE_BITS = 13
#: Lookups before the hit rate of the cache is checked.
TRIED = 1024

_ZEROS = np.uint64(0x3030303030303030)
_NOUGHT, _U8, _U16, _U32, _U56, _BYTE = (np.uint64(n) for n in (0, 8, 16, 32, 56, 255))
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _ipv4(data: Any, start: Any, end: Any) -> Any:
    """Parse an IPv4 address; -1 if it is none, -2 if it has a colon."""
    address = 0
    octet: Any = 0
    digits = 0
    dots = 0
    good = True
    for i in range(start, end):
        c: Any = np.int64(data[np.uint64(i)])
        if c == 58:
            return MAYBE_IPV6
        if 48 <= c <= 57:
            good = good and not (digits > 0 and octet == 0)  # some readers take 010 for octal
            octet = octet * 10 + (c - 48)
            digits += 1
            good = good and octet <= 255
        elif c == 46:
            good = good and digits > 0 and dots < 3
            address = address << 8 | octet
            octet = 0
            digits = 0
            dots += 1
        else:
            good = False
        if not good:  # go on: there may be a colon
            address = 0
            octet = 0
    if not good or dots < 3 or digits == 0:
        return NOWHERE
    return address << 8 | octet


@kernel
def _plain_ipv4(data: Any, p: Any, end: Any) -> Any:
    """Parse a plain IPv4 address, -1 if it has to be read byte by byte; 24 bytes must be readable."""
    address: Any = 0
    for part in range(4):
        digits = load8(data, p) ^ _ZEROS
        n = min(lowest_byte(digits_of(digits) & HIGH), end - p)
        if n < 1 or n > 3 or (n > 1 and digits & _BYTE == _NOUGHT):
            return NOWHERE
        digits = digits << np.uint64(8 * (3 - n))
        octet = 100 * (digits & _BYTE) + 10 * (digits >> _U8 & _BYTE) + (digits >> _U16 & _BYTE)
        p += n
        if octet > _BYTE or (part < 3 and (p >= end or byte(data, p) != 46)):
            return NOWHERE
        p += 1
        address = address << 8 | np.int64(octet)
    return address if p == end + 1 else NOWHERE


@kernel
def _range_of(address: Any, before: Any, pages: Any, inner: Any, leaves: Any, upto: Any, begins: Any) -> Any:
    """Return the number of ranges that begin at an address or before.

    ``before[p]`` is the number of ranges that begin before the addresses whose upper 16 bits are p. If many begin
    among these, ``inner[pages[p]]`` has the same numbers by the next eight bits; if many begin among those,
    ``upto[leaves[pages[p]]]`` has the number of ranges that begin at an address or before, by its last eight bits.
    """
    upper = np.uint64(address >> 16)
    low = np.int64(before[upper])
    left = before[upper + np.uint64(1)] - low
    page = pages[upper]
    if page >= 0:
        next8 = address >> 8 & 255
        low = np.int64(inner[page, next8])
        left = inner[page, next8 + 1] - low
        if left > FEW_PER_24:
            return np.int64(upto[leaves[page, next8], address & 255])
    # binary search without branches, as they cannot be predicted
    half = (left + 1) >> 1
    low += half * np.int64(begins[low + half - 1] <= address)
    left -= half
    while left > 0:
        half = (left + 1) >> 1
        low += half * np.int64(begins[low + half - 1] <= address)
        left -= half
    return low


@kernel
def _locate(
    data: Any, starts: Any, ends: Any, valid: Any, before: Any, pages: Any, inner: Any, leaves: Any, upto: Any,
    begins: Any, places: Any, texts: Any, known: Any, out: Any,
) -> None:  # fmt: skip
    """The place of each address, see :func:`_range_of`.

    Most addresses occur again: ``texts`` and ``known`` cache texts of up to 15 bytes, as two words with the length in
    the highest byte, and their places. The cache is empty at first; on a collision the later entry wins.
    """
    mask = np.uint64(known.size - 1)
    missed = 0
    for i in range(out.size):
        out[i] = NOWHERE
        if valid.size > 0 and not valid[i]:
            continue
        p = starts[i]
        n = ends[i] - p
        near = p + 24 <= data.size
        short = near and 0 < n < 16 and 2 * missed < i + TRIED  # without enough hits the cache is not used
        first_word = _NOUGHT
        second_word = _NOUGHT
        e = _NOUGHT
        if short:
            first_word = load8(data, p) & low_bits(8 * n)
            second_word = (load8(data, p + 8) & low_bits(max(8 * n - 64, 0))) | np.uint64(n) << _U56
            e = ((first_word ^ second_word * _FACTOR) * _FACTOR >> _U32) & mask
            if texts[e, 0] == first_word and texts[e, 1] == second_word:
                out[i] = known[e]
                continue
        address = _plain_ipv4(data, p, ends[i]) if near else NOWHERE
        if address < 0:
            address = _ipv4(data, p, ends[i])
        if address < 0:
            out[i] = address
        else:
            k = _range_of(address, before, pages, inner, leaves, upto, begins)
            if k > 0:
                out[i] = places[k - 1]
        if short:
            missed += 1
            texts[e, 0] = first_word
            texts[e, 1] = second_word
            known[e] = out[i]


Range = tuple[int, int]


class Networks:
    """Find the network that contains an address; of nested networks the smallest.

    Parameters
    ----------
    networks : iterable of (str, int)
        Networks such as ``192.0.2.0/24`` or ``2001:db8::/32``, and a number >= 0 for each. If a network is given twice
        the last number counts.

    >>> some = Networks([("192.0.2.0/24", 0), ("192.0.2.8/29", 1), ("2001:db8::/32", 2)])
    >>> some.find(pa.array(["192.0.2.7", "192.0.2.9", "2001:db8::1", "192.0.3.1", "host", None])).tolist()
    [0, 1, 2, -1, -1, -1]
    """

    def __init__(self, networks: Iterable[tuple[str, int]]) -> None:
        found: dict[int, dict[Range, int]] = {4: {}, 6: {}}
        for text, place in networks:
            net = ipaddress.ip_network(text)
            found[net.version][int(net.network_address), int(net.broadcast_address) + 1] = place
        begins, places = _disjoint(found[4])
        begins, places = [*begins, 1 << 32], [*places, NOWHERE]  # so that there is at least one range
        self._begins = readonly(np.array(begins, np.int64))
        self._places = readonly(np.array(places, np.int64))
        before = np.searchsorted(self._begins, np.arange(65537) << 16)
        many = np.flatnonzero(np.diff(before) > FEW_PER_16)
        pages = np.full(65536, -1)
        pages[many] = np.arange(many.size)
        inner = np.searchsorted(self._begins, (many[:, np.newaxis] << 16) + (np.arange(257) << 8))
        page, next8 = np.nonzero(np.diff(inner) > FEW_PER_24)
        leaves = np.full((many.size, 256), -1)
        leaves[page, next8] = np.arange(page.size)
        ends = ((many[page] << 16) + (next8 << 8))[:, np.newaxis] + np.arange(256)
        upto = np.searchsorted(self._begins, ends, side="right")
        tables = (before, pages, inner, leaves, upto)
        self._tables = [readonly(table.astype(np.int32)) for table in tables]
        self._begins6, self._places6 = _disjoint(found[6])

    def find(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the number of the network of each address; -1 if it is in none, or is not an address."""
        out = np.empty(len(column), np.int64)
        if pa.types.is_null(column.type):
            out[:] = NOWHERE
            return out
        room = 1 << min(CACHE_BITS, len(column).bit_length())
        cache = np.zeros((room, 2), np.uint64), np.empty(room, np.int64)
        _locate(*byte_spans(column), *(*self._tables, self._begins, self._places, *cache, out))
        rest = np.flatnonzero(out == MAYBE_IPV6)
        if rest.size:
            texts = column.take(pa.array(rest)).to_pylist()
            known = {text: self._place6(text) for text in set(texts)} if self._begins6 else {}
            out[rest] = [known.get(text, NOWHERE) for text in texts]
        return out

    def _place6(self, text: str | bytes) -> int:
        try:
            address = int(ipaddress.IPv6Address(text if isinstance(text, str) else text.decode()))
        except ValueError:
            return NOWHERE
        at = bisect.bisect_right(self._begins6, address)
        return self._places6[at - 1] if at else NOWHERE


def _disjoint(networks: dict[Range, int]) -> tuple[list[int], list[int]]:
    """Split nested networks into disjoint ranges: where they begin, in order, and their numbers; -1 is no network."""
    begins: list[int] = []
    places: list[int] = []

    def begin(at: int, place: int) -> None:
        if begins and begins[-1] == at:
            places[-1] = place
        else:
            begins.append(at)
            places.append(place)

    around: list[tuple[int, int]] = []  # enclosing networks: end and number
    for (start, end), place in sorted(networks.items(), key=lambda one: (one[0][0], -one[0][1])):
        while around and around[-1][0] <= start:
            left, _ = around.pop()
            begin(left, around[-1][1] if around else NOWHERE)
        begin(start, place)
        around.append((end, place))
    while around:
        left, _ = around.pop()
        begin(left, around[-1][1] if around else NOWHERE)
    return begins, places
