"""Mails, as the spam filter of DSPBench reads them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.checks import check_count
from riot_ops.streams.dspbench.text import SYLLABLES
from riot_ops.streams.parameters import Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells

__all__ = ["MailsSource", "TrainingMailsSource"]

#: The most frequent words of any mail, of spam, and of others.
ALL = ("the", "to", "and", "you", "we", "in", "for", "is", "on", "your", "this", "please")
SPAM = (
    "free",
    "cash",
    "offer",
    "click",
    "winner",
    "money",
    "cheap",
    "prize",
    "credit",
    "limited",
    "guarantee",
    "pills",
)
HAM = (
    "meeting",
    "report",
    "project",
    "contract",
    "schedule",
    "review",
    "thanks",
    "team",
    "regards",
    "attached",
    "energy",
    "gas",
)
#: Share of a mail's words that any mail has, and share of its own kind; the rest is of the other kind.
COMMON, OWN = 0.55, 0.44
#: Minimum and maximum number of words of a mail.
MIN_WORDS, MAX_WORDS = 16, 45
#: Words that one random number of 64 bits chooses, and the maximum of such numbers for a mail.
PER_DRAW = 4
DRAWS = -(-MAX_WORDS // PER_DRAW)
#: Frequencies are multiples of one part in this number.
PARTS = 1 << 16


class MailsSource(TextLineSource):
    """Mails as JSON, some of them spam: ``{"id": "a00001", "message": "we meet at noon.", "spam": false}``.

    Of the words of a mail 55 % are of any mail, 44 % of its own kind and 1 % of the other. Of each of these three
    vocabularies the frequency of the word of rank r is proportional to 1/r (Zipf).

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    spam : float, 0 to 1, default 0.4
        Share of the mails that are spam.
    vocabulary : int, 1 to 5000, default 1000
        Words in each of the three.
    dirt : bool, default True
        0.6 % of the lines are bad: cut off, without a message, without an id, or with a message without words.

    Shapes and rates
    ----------------
    A mail has 16 to 45 words; a line has about 270 bytes.

    Examples
    --------
    >>> next(MailsSource(messages=1).read({"start": 0, "end": 1}))["payload"][0].as_py()[:60]
    b'{"id": "a00000", "message": "lolobraka is kakakaka kalololo '
    """

    stream: ClassVar[str] = "mails"
    domain: ClassVar[str] = "mails, some of them spam"
    #: Prefix of ids, and offset of the uses of random numbers: no mail is in both streams.
    letter: ClassVar[str] = "a"
    first_use: ClassVar[int] = 0

    spam: Share = 0.4
    vocabulary: Annotated[int, functools.partial(check_count, 1, 5000)] = 1000

    def lines(self, numbers: Numbers) -> pa.Array:
        use = self.first_use
        spam = self.uniforms(use + 1, numbers) < self.spam
        lengths = MIN_WORDS + (self.random_words(use + 2, numbers) % np.uint64(MAX_WORDS - MIN_WORDS + 1)).astype(
            np.int64
        )
        places = (numbers[:, None] * DRAWS + np.arange(DRAWS)).ravel()
        parts = self.random_words(use + 3, places).astype("<u8").view("<u2").reshape(numbers.size, -1)
        words, by_kind = _lexicon(self.vocabulary)
        chosen = by_kind[np.repeat(spam.astype(np.int64), lengths), parts[np.arange(parts.shape[1]) < lengths[:, None]]]
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
        message = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(chosen))), " ")
        name = join_cells(
            f'{{"id": "{self.letter}',
            pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=5, padding="0"),
            separator="",
        )
        tail = pa.array(['.", "spam": false}', '.", "spam": true}']).take(pa.array(spam.astype(np.int8)))

        def bad(*cells: pa.Array | str) -> Callable[[Numbers], pa.Array]:
            return lambda rows: join_cells(
                *(cell if isinstance(cell, str) else cell.take(pa.array(rows)) for cell in cells), "", separator=""
            )

        lines = join_cells(name, '", "message": "', message, tail, separator="")
        kinds = [
            bad(name, '", "message": "', message),
            bad(name, '", "spam": true}'),
            bad('{"message": "', message, tail),
            bad(name, '", "message": "?!', tail),
        ]
        return self.with_dirt(numbers, lines, 0.006, kinds)


class TrainingMailsSource(MailsSource):
    """Mails to train a spam filter, different from those of the stream ``mails``; ids begin with t.

    Its parameters are those of ``mails``: messages, seed, spam, vocabulary, dirt.

    Examples
    --------
    >>> next(TrainingMailsSource(messages=1).read({"start": 0, "end": 1}))["payload"][0].as_py()[:60]
    b'{"id": "t00000", "message": "the on kakaviren click lobraull'
    """

    stream: ClassVar[str] = "mails_training"
    domain: ClassVar[str] = "mails to learn spam from"
    letter: ClassVar[str] = "t"
    first_use: ClassVar[int] = 10


@functools.lru_cache(maxsize=4)
def _lexicon(vocabulary: int) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Return all words; and by kind of mail (0: no spam) the word of each part of the frequencies."""
    made = np.array([a + b + c + d for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES for d in SYLLABLES[:4]])
    lists = [(*known, *made[i::3])[:vocabulary] for i, known in enumerate((ALL, HAM, SPAM))]
    zipf = 1.0 / np.arange(1, vocabulary + 1)
    zipf /= zipf.sum()
    tables = []
    for shares in ((COMMON, OWN, 1 - COMMON - OWN), (COMMON, 1 - COMMON - OWN, OWN)):
        edges = np.cumsum(np.outer(shares, zipf).ravel())
        tables.append(np.searchsorted(edges / edges[-1], (np.arange(PARTS) + 0.5) / PARTS))
    return pa.array(np.concatenate(lists)), np.array(tables, np.int32)
