"""The log of a search engine, as the programs of StreamBench on text read it."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.streambench.cyclic import CyclicSource
from riot_ops.streams.text_lines import Numbers, choices, format_times, join_cells, normals, random_words

__all__ = ["SearchesSource"]

#: Different users, words and hosts.
USERS, WORDS, HOSTS = 3_250, 5_000, 2_000
#: Weights of users and words by rank; an exponent a little above 1, as searches have it.
USER_WEIGHTS: npt.NDArray[np.float64] = np.power(np.arange(1, USERS + 1, dtype=np.float64), -1.1)
WORD_WEIGHTS: npt.NDArray[np.float64] = np.power(np.arange(1, WORDS + 1, dtype=np.float64), -1.05)
#: Weights of queries of one to six words: geometric, with a mean of 2.6.
QUERY_WEIGHTS: npt.NDArray[np.float64] = np.power(0.719927, np.arange(6, dtype=np.float64))
#: Share of the searches after which nothing was clicked.
UNCLICKED = 0.45
MAX_RANK = 500
#: Mean and deviation of the length of a word, from 2 to 10; the mean makes the mean line 60 bytes.
LENGTH, SPREAD = 5.4, 1.9
#: 2006-03-01, and three months in seconds.
BEGIN, SPAN = 1_141_171_200, 92 * 86_400
#: How frequent letters are in a word.
CONSONANTS, VOWELS = np.linspace(2.0, 0.5, 18), (3, 4, 3, 3, 1)
#: Seed of the vocabulary, which all streams share.
VOCABULARY = 26


class SearchesSource(CyclicSource):
    """Searches of the users of a search engine, in the format of a well-known log: five cells between tabs.

    They are the number of the user, the query, the time, and, if one was clicked, the rank of the result and its
    address. 3,250 users and 5,000 words have frequencies by Zipf's law, with exponents of 1.1 and 1.05; the vocabulary
    is the same for all seeds. 45 % of the searches have no click, their last two cells are empty. Times cover three
    months.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    records : int, >= 1, default 10,000
        Size of the seed set: line k is line k mod ``records`` of it.
    dirt : bool, default False
        0.5 % of the lines are bad: blank, cut off within the query, or the number of a user alone. (The programs of the
        benchmark read them without an error.)

    Shapes and rates
    ----------------
    59 bytes a line, 60 with the line break.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> source = SearchesSource(messages=20_000)
    >>> [next(source.read({"start": i, "end": i + 1}))["payload"][0].as_py()[9:24] for i in (0, 10_000)]
    [b'donidoc ivosife', b'donidoc ivosife']
    """

    stream: ClassVar[str] = "searches"
    domain: ClassVar[str] = "searches and clicks"
    line_time: ClassVar[LineTime | None] = LineTime(
        r"(?P<before>[^\t]*\t[^\t]*\t)(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<after>.*)",
        "%Y-%m-%d %H:%M:%S",
    )
    start_ms = BEGIN * 1000

    def seed_lines(self) -> pa.Array:
        numbers = np.arange(self.records)
        users = _users(self.seed).take(pa.array(self.choices(1, numbers, USER_WEIGHTS)))
        queries = self._queries(numbers)
        within = (numbers + self.uniforms(2, numbers)) / self.records
        times = format_times(BEGIN + (within * SPAN).astype(np.int64), "s", " ")
        rank = np.minimum(1 + np.floor(-np.log2(1 - self.uniforms(3, numbers))), MAX_RANK).astype(np.int64)
        host = _words().take(pa.array(self.choices(4, numbers, WORD_WEIGHTS[:HOSTS])))
        clicked = pa.array(self.uniforms(5, numbers) >= UNCLICKED)
        clicks = join_cells(pa.array(rank), join_cells("http://www.", host, ".com", separator=""), separator="\t")
        lines = join_cells(users, queries, times, pc.if_else(clicked, clicks, "\t"), separator="\t")
        cut = join_cells(users, pc.utf8_slice_codeunits(queries, 0, 3), separator="\t")
        return self.with_dirt(numbers, lines, 0.005, ["", cut, users])

    def _queries(self, numbers: Numbers) -> pa.Array:
        sizes = 1 + self.choices(6, numbers, QUERY_WEIGHTS)
        ends = np.cumsum(sizes)
        places = np.repeat(numbers * QUERY_WEIGHTS.size - (ends - sizes), sizes) + np.arange(ends[-1])
        chosen = _words().take(pa.array(self.choices(7, places, WORD_WEIGHTS)))
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(np.append(0, ends).astype(np.int32)), chosen), " ")


@functools.lru_cache(maxsize=4)
def _users(seed: int) -> pa.Array:
    """Return the number of each user; those of frequent ones are as large as others."""
    # different, for each is in a stretch of its own; in another order than that of their ranks
    numbers = np.arange(USERS)
    stretch = 25_000_000 // USERS
    found = numbers * stretch + (random_words(seed, 50, numbers) % np.uint64(stretch)).astype(np.int64)
    return pa.array(found[np.argsort(random_words(seed, 51, numbers))]).cast(pa.string())


@functools.cache
def _words() -> pa.Array:
    """Return the vocabulary, by rank: different words of two to ten letters."""
    numbers = np.arange(WORDS)
    wanted = np.clip(np.rint(LENGTH + SPREAD * normals(VOCABULARY, 1, numbers)), 2, 10).astype(np.int64)
    drawn = choices(VOCABULARY, 2, np.arange(WORDS * 10), CONSONANTS).reshape(WORDS, 10)
    sung = choices(VOCABULARY, 3, np.arange(WORDS * 10), VOWELS).reshape(WORDS, 10)
    first = random_words(VOCABULARY, 4, numbers) % np.uint64(5) == 0  # whether it begins with a vowel
    found: dict[str, None] = {}
    for rank, size in enumerate(wanted.tolist()):
        sounds = [(i + first[rank]) % 2 for i in range(size)]
        word = "".join(
            "aeiou"[sung[rank, i]] if s else "bcdfghjklmnprstvwz"[drawn[rank, i]] for i, s in enumerate(sounds)
        )
        while word in found:  # short ones run out
            word += "aeiou"[len(found) % 5]
        found[word] = None
    return pa.array(list(found))
