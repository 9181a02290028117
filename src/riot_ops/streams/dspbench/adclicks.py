"""Impressions and clicks of advertisements, as the ads analytics of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.streams.parameters import Count
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells, random_words, zipf_weights

__all__ = ["AdclicksSource"]

#: Share of the records with 1, 2, 3 and 4 impressions.
IMPRESSIONS = (0.58, 0.27, 0.12, 0.03)
#: Range of the click probability of an ad.
RATES = (0.02, 0.10)
USERS = 4000


class AdclicksSource(TextLineSource):
    r"""Records of advertisements beside the results of searches, in the format of the KDD Cup 2012, track 2.

    Of 12 cells with tabs between: clicks, impressions, hash of the URL, ad, advertiser, depth, position, query,
    keyword, title, description, user. Queries and ads have frequencies by Zipf's law. A record has 1.6 impressions on
    average; each is clicked with the probability of its ad, from 2 to 10 %.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    queries : int, >= 1, default 1,000
    ads : int, >= 1, default 500
    dirt : bool, default True
        0.1 % of the lines are bad: too short, or with text in place of a number.

    Shapes and rates
    ----------------
    57 bytes a line.

    Examples
    --------
    >>> next(AdclicksSource(messages=2).read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'0\t2\t5294610262412829688\t240\t540\t1\t1\t3\t1003\t2240\t3240\t2513'
    """

    stream: ClassVar[str] = "adclicks"
    domain: ClassVar[str] = "impressions and clicks of advertisements"

    queries: Count = 1_000
    ads: Count = 500

    def lines(self, numbers: Numbers) -> pa.Array:
        query = self.choices(1, numbers, zipf_weights(self.queries))
        ad = self.choices(2, numbers, zipf_weights(self.ads))
        impressions = 1 + self.choices(3, numbers, IMPRESSIONS)
        rate = RATES[0] + (RATES[1] - RATES[0]) * ((100 + ad) * 37 % 101) / 100
        clicks = np.zeros(numbers.size, np.int64)
        for shown in range(len(IMPRESSIONS)):
            clicks += (self.uniforms(4 + shown, numbers) < rate) & (shown < impressions)
        depth = 1 + (self.random_words(10, numbers) % np.uint64(3)).astype(np.int64)
        position = 1 + (self.random_words(11, numbers) % depth.astype(np.uint64)).astype(np.int64)
        user = (self.random_words(12, numbers) % np.uint64(USERS)).astype(np.int64)

        begins, ends = _ads(self.ads, self.seed)
        begin, end = begins.take(pa.array(ad)), ends.take(pa.array(ad))
        asked = _queries(self.queries).take(pa.array(query))
        counts = _pairs(len(IMPRESSIONS) + 1).take(pa.array(clicks * (len(IMPRESSIONS) + 1) + impressions))
        place = _pairs(4).take(pa.array(depth * 4 + position))
        users = _names(USERS).take(pa.array(user))
        lines = join_cells(counts, begin, place, asked, end, users, separator="\t")
        short = join_cells(counts, begin, place, asked, users, separator="\t")
        odd = join_cells("NA\tNA", begin, place, asked, end, users, separator="\t")
        return self.with_dirt(numbers, lines, 0.001, [short, odd])


@functools.lru_cache(maxsize=4)
def _ads(n: int, seed: int) -> tuple[pa.Array, pa.Array]:
    """Return the cells of an ad: URL, ad and advertiser; title and description."""
    ad = 100 + np.arange(n)
    url = random_words(seed, 50, ad) >> np.uint64(1)
    begin = join_cells(url, ad, 500 + ad % 50, separator="\t")
    return begin, join_cells(2000 + ad, 3000 + ad, separator="\t")


@functools.lru_cache(maxsize=4)
def _queries(n: int) -> pa.Array:
    query = 1 + np.arange(n)
    return join_cells(query, 1000 + query, separator="\t")


@functools.cache
def _pairs(n: int) -> pa.Array:
    """Two numbers below n, the first in larger steps."""
    every = np.arange(n * n)
    return join_cells(every // n, every % n, separator="\t")


@functools.cache
def _names(n: int) -> pa.Array:
    return pa.array(np.arange(n)).cast(pa.string())
