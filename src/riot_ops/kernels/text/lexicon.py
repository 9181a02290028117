"""Scoring texts by a lexicon of words and phrases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["Lexicon", "build_lexicon", "score_texts"]

_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF, _BYTE, _NOUGHT = np.uint64(32), np.uint64(8), np.uint64(0)
#: In place of a word: one that is not in the lexicon, and the end of the text.
UNKNOWN, NONE = -1, -2


class Lexicon(NamedTuple):
    """The tables of :func:`score_texts`. Node w below the number of words is word w, the other nodes are phrases.

    Attributes
    ----------
    places, hashes, text, edges
        Open-addressing table of words by hash; hash and bytes of each word.
    stop : array of bool
        Stop words, which are skipped.
    steps, next_nodes
        Open-addressing table from ``node << 32 | word`` to the node of the longer phrase; -1: empty.
    worth, ends, deeper
        Value of a node, whether it has one, and whether longer phrases begin with it.
    """

    places: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    text: npt.NDArray[np.uint8]
    edges: npt.NDArray[np.int64]
    stop: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    next_nodes: npt.NDArray[np.int64]
    worth: npt.NDArray[np.float64]
    ends: npt.NDArray[np.bool_]
    deeper: npt.NDArray[np.bool_]


@kernel
def _place(h: Any, size: Any) -> Any:
    """Return the first entry to probe for a hash."""
    return np.int64((h ^ (h >> _HALF)) & np.uint64(size - 1))


@kernel
def _step_hash(node: Any, word: Any) -> Any:
    return (np.uint64(node) * _PRIME + np.uint64(word)) * _START


@kernel(inline=True)
def _word(data: Any, p: Any, end: Any, table: Any, places: Any, hashes: Any, text: Any, edges: Any, stop: Any) -> Any:
    """Return the next word from p on that is not a stop word, and where it ends."""
    while True:
        while p < end and table[data[np.uint64(p)]] == 0:
            p += 1
        if p >= end:
            return NONE, p
        begin = p
        h = _NOUGHT
        last = _NOUGHT  # the last eight bytes, the whole of most words
        b = table[data[np.uint64(p)]]
        while b != 0:
            last = last << _BYTE | np.uint64(b)
            p += 1
            if (p - begin) & 7 == 0:
                h = (h ^ last) * _ODD
            if p >= end:
                break
            b = table[data[np.uint64(p)]]
        h = (h ^ last) * _ODD
        at = _place(h, places.size)
        found = UNKNOWN
        while places[at] >= 0:
            w = places[at]
            if hashes[w] == h and edges[w + 1] - edges[w] == p - begin:
                same = True
                for j in range(p - begin):
                    if table[data[np.uint64(begin + j)]] != text[edges[w] + j]:
                        same = False
                        break
                if same:
                    found = w
                    break
            at = at + 1 if at + 1 < places.size else 0
        if found < 0 or not stop[found]:
            return found, p


@kernel
def score_texts(
    data: Any, starts: Any, ends: Any, table: Any,
    places: Any, hashes: Any, text: Any, edges: Any, stop: Any,
    steps: Any, next_nodes: Any, worth: Any, is_end: Any, deeper: Any,
    total: Any, above: Any, below: Any,
) -> None:  # fmt: skip
    """Write the sum of the values of the entries in each text, and the numbers of positive and negative ones.

    ``table`` maps each byte to the byte of a word, 0 for separators. At each word the longest entry counts, and the
    search continues after it.
    """
    for i in range(starts.size):
        p = starts[i]
        end = ends[i]
        score = 0.0
        good = 0
        bad = 0
        while True:
            word, p = _word(data, p, end, table, places, hashes, text, edges, stop)
            if word == NONE:
                break
            if word < 0:
                continue
            found = word if is_end[word] else -1
            node = word
            q = p
            while deeper[node]:
                word, q = _word(data, q, end, table, places, hashes, text, edges, stop)
                if word < 0:
                    break
                step = node << 32 | word
                at = _place(_step_hash(node, word), steps.size)
                while steps[at] >= 0 and steps[at] != step:
                    at = at + 1 if at + 1 < steps.size else 0
                if steps[at] < 0:
                    break
                node = next_nodes[at]
                if is_end[node]:
                    found = node
                    p = q
            if found >= 0:
                score += worth[found]
                good += worth[found] > 0
                bad += worth[found] < 0
        total[i] = score
        above[i] = good
        below[i] = bad


@kernel
def _hash(text: Any, edges: Any, out: Any) -> None:
    """Hash words as :func:`_word` does."""
    for w in range(out.size):
        h = _NOUGHT
        last = _NOUGHT
        for j in range(edges[w], edges[w + 1]):
            last = last << _BYTE | np.uint64(text[j])
            if (j + 1 - edges[w]) & 7 == 0:
                h = (h ^ last) * _ODD
        out[w] = (h ^ last) * _ODD


@kernel
def _enter_words(hashes: Any, places: Any) -> None:
    for w in range(hashes.size):
        at = _place(hashes[w], places.size)
        while places[at] >= 0:
            at = at + 1 if at + 1 < places.size else 0
        places[at] = w


@kernel
def _enter_steps(given: Any, nodes: Any, steps: Any, next_nodes: Any) -> None:
    for i in range(given.size):
        at = _place(_step_hash(given[i] >> 32, given[i] & 0xFFFFFFFF), steps.size)
        while steps[at] >= 0:
            at = at + 1 if at + 1 < steps.size else 0
        steps[at] = given[i]
        next_nodes[at] = nodes[i]


def _empty_table(n: int) -> npt.NDArray[np.int64]:
    """Return an empty table for n entries, with a load factor of at most a quarter."""
    return np.full(1 << max(2, (4 * n).bit_length()), -1, np.int64)


def build_lexicon(entries: Mapping[tuple[bytes, ...], float], stop: Iterable[bytes]) -> Lexicon:
    """Build the tables for entries of one or more words, and for stop words."""
    stops = set(stop)
    words = sorted({word for entry in entries for word in entry} | stops)
    number = {word: w for w, word in enumerate(words)}
    worth, ends, deeper = [0.0] * len(words), [False] * len(words), [False] * len(words)
    nodes_of_steps: dict[int, int] = {}
    for entry, value in entries.items():
        node = number[entry[0]]
        for word in entry[1:]:
            deeper[node] = True
            step = node << 32 | number[word]
            if step not in nodes_of_steps:
                nodes_of_steps[step] = len(worth)
                worth, ends, deeper = [*worth, 0.0], [*ends, False], [*deeper, False]
            node = nodes_of_steps[step]
        worth[node], ends[node] = value, True
    text = np.frombuffer(b"".join(words), np.uint8)
    edges = np.cumsum([0, *map(len, words)]).astype(np.int64)
    hashes, places = np.empty(len(words), np.uint64), _empty_table(len(words))
    steps, next_nodes = _empty_table(len(nodes_of_steps)), _empty_table(len(nodes_of_steps))
    _hash(text, edges, hashes)
    _enter_words(hashes, places)
    _enter_steps(
        np.array([*nodes_of_steps], np.int64), np.array([*nodes_of_steps.values()], np.int64), steps, next_nodes
    )
    return Lexicon(
        readonly(places), readonly(hashes), readonly(text), readonly(edges),
        readonly(np.array([word in stops for word in words], np.bool_)), readonly(steps), readonly(next_nodes),
        readonly(np.array(worth, np.float64)), readonly(np.array(ends, np.bool_)), readonly(np.array(deeper, np.bool_)),
    )  # fmt: skip
