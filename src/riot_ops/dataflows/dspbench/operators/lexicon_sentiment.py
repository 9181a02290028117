"""Lexicon sentiment: how a text feels, by what its words are worth."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, short
from riot_ops.dataflows.dspbench.operators.lexicons import (
    STOP_WORDS,
    VALENCES,
    given_valences,
    stored_valences,
    stored_words,
)
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.lexicon import Lexicon, lexicon, rate
from riot_ops.kernels.text.strings import not_ascii, not_utf8
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["LexiconSentiment"]

LABELS = ("Negative", "Neutral", "Positive")
BETWEEN = re.compile(f"[{re.escape(string.punctuation + string.whitespace)}\0]+")
Entries = tuple[tuple[str, float], ...]


@register
@dataclass(frozen=True, kw_only=True)
class LexiconSentiment(StatelessTask):
    """Tell whether a text is positive or negative by a lexicon of words and what they are worth.

    A word is a run of anything but ASCII punctuation and white space, in lower case. ``basic``: the score is the sum
    of what the words are worth; positive above 0, negative below. ``counts``: the score is the number of words that
    are worth more than 0 less the number of those that are worth less; positive above 0, else negative.

    Parameters
    ----------
    field : str, default "text"
        Field with the text.
    mode : "basic" or "counts", default "basic"
        How words make a score.
    lexicon : str or mapping of str to float, optional
        Path of a UTF-8 file of lines ``term<TAB>value``, as AFINN comes, or the value of each term; by default a list
        of a hundred words of this library's own.
    phrases : bool, default False
        Whether terms of several words count as well ("not good", "can't stand"; of those that begin with a word the
        longest). Else a term with white space or punctuation in it is found nowhere.
    stop_words : str or sequence of str, optional
        Path of a file with a word a line, or words, that are left out of the text before it is judged; by default none
        with ``basic``, and with ``counts`` a list of this library's own.
    neutral : bool, default False
        With ``counts``: whether a score of 0 is neutral, as it is with ``basic``.

    Shapes and rates
    ----------------
    text[n] -> text[n] in ``sentiment`` (Positive, Negative or Neutral), float64[n] in ``score``, 1:1; O(bytes) time, no
    state. A file is read once per process and version of it.

    Missing values
    --------------
    Null in both for a null text.

    Errors
    ------
    ``invalid_utf8``: binary that is no text. A file that cannot be read is a configuration error.

    References
    ----------
    .. [1] F. Å. Nielsen, *A new ANEW: evaluation of a word list for sentiment analysis in microblogs*, 2011.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: sentiment analysis.

    Examples
    --------
    >>> values = {"great": 3, "waste": -1, "good": 3, "not good": -2}
    >>> judge = LexiconSentiment(lexicon=values).session()
    >>> [judge.push({"text": t})[0]["score"] for t in ("A great phone!", "not good", "a waste")]
    [3.0, 3.0, -1.0]
    >>> judge = LexiconSentiment(lexicon=values, phrases=True).session()
    >>> judge.push({"text": "Not good"})
    [{'text': 'Not good', 'sentiment': 'Negative', 'score': -2.0}]
    """

    code: ClassVar[str] = "LEX"
    category: ClassVar[str] = "Predictive"

    field: str = "text"
    mode: Literal["basic", "counts"] = "basic"
    lexicon: Any = None
    phrases: bool = False
    stop_words: Any = None
    neutral: bool = False

    def validate(self) -> None:
        if self.lexicon is not None and not isinstance(self.lexicon, str):
            object.__setattr__(self, "lexicon", given_valences(self.lexicon))
        if self.stop_words is not None and not isinstance(self.stop_words, str):
            words = tuple(self.stop_words) if isinstance(self.stop_words, Iterable) else (None,)
            if not all(isinstance(word, str) and word.strip() for word in words):
                raise ConfigError(f"stop_words must be a path or a list of words, got {short(self.stop_words)}")
            object.__setattr__(self, "stop_words", tuple(sorted(set(words))))
        if self.neutral and self.mode != "counts":
            raise ConfigError(f"neutral is for mode='counts', got {self.mode!r}, where a score of 0 is always neutral")
        self._words  # noqa: B018 (so that a file that cannot be read is told now)

    @property
    def _words(self) -> Lexicon:
        entries = self.lexicon if self.lexicon is not None else tuple(VALENCES.items())
        stop = self.stop_words if self.stop_words is not None else STOP_WORDS if self.mode == "counts" else ()
        return _tables(
            stored_valences(entries) if isinstance(entries, str) else entries,
            stored_words(stop) if isinstance(stop, str) else stop,
            self.phrases,
        )

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({"sentiment", "score"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(with_field(schema, pa.field("sentiment", pa.string())), pa.field("score", pa.float64()))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        spoiled = not_utf8(batch.column(self.field))
        if spoiled.any():
            dead.reject(batch, spoiled, "invalid_utf8", f"{self.field} is no UTF-8")
            batch = batch.filter(pa.array(~spoiled))
        column = batch.column(self.field)
        total, above, below = self._rated(column)
        if self.mode == "counts":
            total = above - below
        label = np.sign(total) + 1
        if self.mode == "counts" and not self.neutral:
            label[total == 0] = 0
        null = np.asarray(column.is_null())
        batch = replace_column(batch, "sentiment", pa.array(LABELS).take(pa.array(label.astype(np.int8), mask=null)))
        return replace_column(batch, "score", pa.array(total, pa.float64(), mask=null if null.any() else None))

    def _rated(self, column: pa.Array) -> tuple[npt.NDArray[np.float64], ...]:
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        found = self._worth(column)
        odd = np.flatnonzero(not_ascii(column))
        if odd.size:  # where there may be capitals beyond ASCII
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            texts = pc.utf8_lower(plain.take(pa.array(odd)).cast(pa.large_string()))
            for values, again in zip(found, self._worth(texts), strict=True):
                values[odd] = again
        return found

    def _worth(self, column: pa.Array) -> tuple[npt.NDArray[np.float64], ...]:
        """What texts are worth, whose only capitals are of ASCII."""
        data, starts, ends, _ = byte_spans(column)
        total, above, below = (np.empty(starts.size) for _ in range(3))
        rate(data, starts, ends, _bytes(), *self._words, total, above, below)
        return total, above, below

    @classmethod
    def cases(cls) -> Iterable[Case]:
        texts = ["So happy, GREAT!", "", None, "not good", "it's a waste; awful\0hate", "ÜBEL, NOT  Good\n", "x" * 99]
        batch = pa.RecordBatch.from_pydict({"text": texts, "score": [1] * 7})
        yield Case(cls(), batch)
        values = {"übel": -2.5, "not good": -1, "good": 2, "not": 0}
        yield Case(cls(lexicon=values, phrases=True, stop_words=("a", "it")), batch, "phrases")
        yield Case(cls(mode="counts", neutral=True), batch, "counts")


@functools.cache
def _bytes() -> npt.NDArray[np.uint8]:
    """What each byte of a text becomes: nothing between words, else lower case."""
    table = np.arange(256, dtype=np.uint8)
    table[list((string.punctuation + string.whitespace + "\0").encode())] = 0
    upper = np.frombuffer(string.ascii_uppercase.encode(), np.uint8)
    table[upper] = upper + 32
    return readonly(table)


@functools.lru_cache(maxsize=32)
def _tables(entries: Entries, stop: tuple[str, ...], phrases: bool) -> Lexicon:
    found: dict[tuple[bytes, ...], float] = {}
    for term, value in entries:
        words = tuple(word.encode() for word in BETWEEN.split(term.lower()) if word)
        whole = words == (term.lower().encode(),)
        if whole or (phrases and words):
            # where two terms have the same words, the one that is these words counts
            found[words] = value if whole else found.get(words, value)
    return lexicon(found, (word.lower().encode() for word in stop))
