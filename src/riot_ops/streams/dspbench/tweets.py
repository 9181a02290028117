"""Tweets, as the sentiment analysis and the trending topics of DSPBench read them."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Count, Positive, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_times, join_cells, zipf_weights

__all__ = ["TweetsSource"]

GOOD = "amazing beautiful best brilliant calm enjoy fantastic fun glad good great happy love nice perfect proud win"
BAD = "angry awful bad broken delayed disaster fail hate late lost noisy sad slow terrible useless worst wrong"
PLAIN = (
    "the a to is in and for on data city sensor road new from at train report meeting platform game bus river house "
    "morning phone today week street market music team light again every when they people water"
)
#: Languages, their shares, and words of each without sentiment; some have letters beyond ASCII.
LANGUAGES = {
    "en": (0.88, PLAIN),
    "pt": (0.08, "o a de que não cidade hoje água dados uma você manhã estação para com novo rio casa"),
    "de": (0.04, "der die und heute Straße schön neue Daten für grün Fluss über ist mit zwei Haus"),
}
TOPICS = "spark storm iot flink python stream energy traffic weather news sports music kafka arrow numba edge"
#: Minimum and maximum number of words of a tweet.
MIN_WORDS, MAX_WORDS = 4, 14
#: Share of the words with a positive and with a negative sentiment.
FEELING = (0.09, 0.07)
#: Maximum number of tags of a tweet, and the share of tweets with 0, 1, 2 and 3.
TAGS = (0.3, 0.35, 0.24, 0.11)
#: Number of tweets after which the trending topic changes.
CHANGE = 20_000


class TweetsSource(TextLineSource):
    """Tweets as JSON: author, time, text, id and language, within ``data``.

    9 % of the words are positive and 7 % negative; a tweet ends with up to three hash tags, 1.16 on average, whose
    frequencies follow Zipf's law. After 20,000 tweets the next topic becomes the most frequent one. 88 % are in
    English, 8 % in Portuguese, 4 % in German; 1 % name no language. One tweet in fifty is not within ``data``, one has
    quotes or line breaks, and so backslashes in its JSON.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    topics : int, >= 1, default 50
        Number of hash tags.
    rate : float, > 0, default 100
        Tweets per second of stream time.
    late : float, 0 to 1, default 0.02
        Share of the tweets whose time is up to 5 s earlier.
    dirt : bool, default True
        0.5 % of the lines are bad: no JSON, empty, or without text and time.

    Shapes and rates
    ----------------
    186 bytes a line.

    Examples
    --------
    >>> source = TweetsSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()[:100]
    b'{"data": {"author_id": "7743", "created_at": "2020-11-20T04:30:00.010Z", "text": "is light street se'
    """

    stream: ClassVar[str] = "tweets"
    domain: ClassVar[str] = "tweets with hash tags"
    line_time: ClassVar[LineTime | None] = LineTime(
        r'(?P<before>.*"created_at": ")(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<after>.*)',
        "%Y-%m-%dT%H:%M:%S",
    )
    start_ms = 1_605_846_600_000  # 2020-11-20 04:30

    topics: Count = 50
    rate: Positive = 100.0
    late: Share = 0.02

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return 1000 / self.rate

    def lines(self, numbers: Numbers) -> pa.Array:
        language = self.choices(1, numbers, [share for share, _ in LANGUAGES.values()])
        back = np.where(self.uniforms(2, numbers) < self.late, self.random_words(3, numbers) % np.uint64(5000), 0)
        time = self.times(numbers) - back.astype(np.int64)
        text = self._texts(numbers, language)
        author = 1000 + (self.uniforms(4, numbers) ** 3 * 9000).astype(np.int64)
        number = (9_000_000 + numbers).astype(np.int64)

        language_fields = join_cells('", "lang": "', pa.array([*LANGUAGES]).take(pa.array(language)), separator="")
        language_fields = pc.if_else(pa.array(self.uniforms(5, numbers) < 0.01), "", language_fields)
        tweets = join_cells(
            '{"author_id": "', author, '", "created_at": "', format_times(time, "ms"), 'Z", "text": "', text,
            '", "id": "', number, language_fields, '"}', separator="",
        )  # fmt: skip
        wrapped = join_cells('{"data": ', tweets, "}", separator="")
        lines = pc.if_else(pa.array(self.uniforms(6, numbers) < 0.02), tweets, wrapped)
        empty = join_cells('{"data": {"id": "', number, '"}}', separator="")
        return self.with_dirt(numbers, lines, 0.005, ["tweet", "", empty])

    def _texts(self, numbers: Numbers, language: Numbers) -> pa.Array:
        words, firsts, sizes = _words()
        lengths = MIN_WORDS + (self.random_words(7, numbers) % np.uint64(MAX_WORDS - MIN_WORDS + 1)).astype(np.int64)
        tags = self.choices(8, numbers, TAGS)
        every = lengths + tags
        ends = np.cumsum(every)
        starts = ends - every
        position = np.arange(ends[-1] if ends.size else 0) - np.repeat(starts, every)
        places = np.repeat(numbers * (MAX_WORDS + len(TAGS)), every) + position

        feeling = self.uniforms(9, places)
        kind = np.where(feeling < FEELING[0], 0, np.where(feeling < sum(FEELING), 1, 2 + np.repeat(language, every)))
        chosen = firsts[kind] + (self.random_words(10, places) % sizes[kind].astype(np.uint64)).astype(np.int64)
        tag = position >= np.repeat(lengths, every)
        rank = self.choices(11, places[tag], zipf_weights(self.topics))
        chosen[tag] = len(words) + (rank + np.repeat(numbers // CHANGE, every)[tag]) % self.topics
        texts = pa.concat_arrays([words, _tags(self.topics)]).take(pa.array(chosen))
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends).astype(np.int32)), texts)
        joined = pc.binary_join(lists, " ")
        escaped = pc.binary_join_element_wise('so \\"', joined, '\\"\\nindeed', "")
        return pc.if_else(pa.array(self.uniforms(12, numbers) < 0.02), escaped, joined)


@functools.cache
def _words() -> tuple[pa.Array, Numbers, Numbers]:
    """All words, and where those of each kind begin and how many they are: good, bad, and plain ones by language."""
    kinds = [words.split() for words in (GOOD, BAD, *(words for _, words in LANGUAGES.values()))]
    # some have capitals or trailing punctuation, as in tweets
    kinds[0] += [f"{word}!" for word in kinds[0][:6]] + [kinds[0][8].capitalize(), kinds[0][13].upper()]
    kinds[1] += [f"{word}," for word in kinds[1][:6]] + [kinds[1][2].upper()]
    sizes = np.array([len(words) for words in kinds])
    return pa.array([word for words in kinds for word in words]), np.cumsum(sizes) - sizes, sizes


@functools.lru_cache(maxsize=4)
def _tags(topics: int) -> pa.Array:
    names = TOPICS.split()
    n = len(names)
    return pa.array([f"#{names[i % n]}{i // n or ''}" for i in range(topics)])
