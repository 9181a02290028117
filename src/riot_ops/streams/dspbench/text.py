"""Lines of text, as the word count of DSPBench reads them from books."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.streams.parameters import Count
from riot_ops.streams.text_lines import Numbers, TextLineSource

__all__ = ["TextSource"]

SYLLABLES = ("ka", "lo", "mi", "ren", "ta", "so", "vi", "del", "pa", "nor", "e", "gu", "shi", "bra", "ul", "fen")
#: Minimum and maximum number of words of a line.
MIN_WORDS, MAX_WORDS = 4, 16


class TextSource(TextLineSource):
    """Sentences of made-up words: few are frequent and most are rare, as in natural language.

    The frequency of the word of rank r is proportional to 1/r (Zipf). The first word of a sentence has a capital; a
    sentence may contain a comma, and ends with a full stop.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    vocabulary : int, >= 1, default 10,000
        Number of words.
    dirt : bool, default True
        2 % of the lines are blank, half of these with white space.

    Shapes and rates
    ----------------
    A line has 4 to 16 words, 10 on average, and about 57 bytes.

    Examples
    --------
    >>> source = TextSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'Shimi pasopa mi norfennor.'
    """

    stream: ClassVar[str] = "text"
    domain: ClassVar[str] = "sentences of books"

    vocabulary: Count = 10_000

    def lines(self, numbers: Numbers) -> pa.Array:
        words, capitals = _lexicon(self.vocabulary)
        lengths = MIN_WORDS + (self.random_words(1, numbers) % np.uint64(MAX_WORDS - MIN_WORDS + 1)).astype(np.int64)
        if self.dirt:
            blank = self.uniforms(2, numbers)
            lengths[blank < 0.02] = 0
        ends = np.cumsum(lengths)
        starts = ends - lengths
        within = np.arange(ends[-1] if ends.size else 0) - np.repeat(starts, lengths)
        places = np.repeat(numbers * (MAX_WORDS + 1), lengths) + within
        chosen = self.choices(3, places, 1.0 / np.arange(1, self.vocabulary + 1))
        text = pc.if_else(pa.array(within == 0), capitals.take(pa.array(chosen)), words.take(pa.array(chosen)))
        comma = (self.uniforms(4, places) < 0.08) & (within < np.repeat(lengths, lengths) - 1)
        text = pc.if_else(pa.array(comma), pc.binary_join_element_wise(text, ",", ""), text)
        lists = pa.ListArray.from_arrays(pa.array(np.append(starts, ends[-1:]).astype(np.int32)), text)
        lines = pc.binary_join(lists, " ")
        stop = pa.array(np.where(lengths > 0, ".", ""))
        lines = pc.binary_join_element_wise(lines, stop, "")
        return pc.if_else(pa.array(blank < 0.01), "  \t", lines) if self.dirt else lines


@functools.lru_cache(maxsize=4)
def _lexicon(vocabulary: int) -> tuple[pa.Array, pa.Array]:
    """Return the words by rank, in lower case and with a capital."""
    ranks = np.arange(vocabulary)
    parts = []
    for i in range(4):
        digits = (ranks // len(SYLLABLES) ** i) % len(SYLLABLES)
        shown = (ranks >= len(SYLLABLES) ** i) | (i == 0)
        parts.append(pa.array(np.where(shown, np.array(SYLLABLES)[digits], "")))
    words = pc.binary_join_element_wise(*parts, "")
    return words, pc.utf8_capitalize(words)
