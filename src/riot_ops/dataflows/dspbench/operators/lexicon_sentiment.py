"""Lexicon sentiment: classify texts as positive or negative by the values of their words."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import OWN_CHECK
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import (
    STOP_WORDS,
    VALENCES,
    normalise_valences,
    read_valences,
    read_words,
)
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.lexicon import Lexicon, build_lexicon, score_texts
from riot_ops.kernels.text.strings import non_ascii, non_utf8
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field

__all__ = ["LexiconSentiment"]

LABELS = ("Negative", "Neutral", "Positive")
BETWEEN = re.compile(f"[{re.escape(string.punctuation + string.whitespace)}\0]+")
Entries = tuple[tuple[str, float], ...]


@register
@dataclass(frozen=True, kw_only=True)
class LexiconSentiment(StatelessTask):
    """Classify texts as positive or negative with a lexicon of word values.

    A word is a run of anything but ASCII punctuation and white space, in lower case. ``basic``: the score is the sum of
    the words' values; positive above 0, negative below. ``counts``: the score is the number of words with a value above
    0 minus the number of words with a value below 0; positive above 0, else negative.

    Parameters
    ----------
    field : str, default "text"
        Field with the text.
    mode : "basic" or "counts", default "basic"
        How words make a score.
    lexicon : str or mapping of str to float, optional
        Path of a UTF-8 file of lines ``term<TAB>value``, like AFINN, or the value of each term; by default the
        library's list of about a hundred words.
    phrases : bool, default False
        Whether terms of several words count ("not good", "can't stand"; the longest term that begins with a word wins).
        Else a term with white space or punctuation never matches.
    stop_words : str or sequence of str, optional
        Words to remove from the text, or the path of a file with a word per line; by default none with ``basic``, and
        the library's list with ``counts``.
    neutral : bool, default False
        With ``counts``: whether a score of 0 is neutral, as it is with ``basic``.

    Shapes and rates
    ----------------
    text[n] -> text[n] in ``sentiment`` (Positive, Negative or Neutral), float64[n] in ``score``, 1:1; O(bytes) time, no
    state. A file is read once per process and version.

    Missing values
    --------------
    Both outputs are null for a null text.

    Errors
    ------
    ``invalid_utf8``: binary that is not UTF-8. A file that cannot be read is a configuration error.

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
    lexicon: Annotated[str | Mapping[str, float] | None, OWN_CHECK] = None
    phrases: bool = False
    stop_words: Annotated[str | Sequence[str] | None, OWN_CHECK] = None
    neutral: bool = False

    def validate(self) -> None:
        if self.lexicon is not None and not isinstance(self.lexicon, str):
            object.__setattr__(self, "lexicon", normalise_valences(self.lexicon))
        if self.stop_words is not None and not isinstance(self.stop_words, str):
            words = tuple(self.stop_words) if isinstance(self.stop_words, Iterable) else (None,)
            if not all(isinstance(word, str) and word.strip() for word in words):
                raise ConfigError(f"stop_words must be a path or a list of words, got {value_text(self.stop_words)}")
            object.__setattr__(self, "stop_words", tuple(sorted(set(words))))
        if self.neutral and self.mode != "counts":
            raise ConfigError(f"neutral needs mode='counts', got {self.mode!r}, where a score of 0 is always neutral")
        self._lexicon  # noqa: B018 (so that an unreadable file raises at once)

    @property
    def _lexicon(self) -> Lexicon:
        entries = self.lexicon if self.lexicon is not None else tuple(VALENCES.items())
        stop = self.stop_words if self.stop_words is not None else STOP_WORDS if self.mode == "counts" else ()
        return _compiled_lexicon(
            read_valences(entries) if isinstance(entries, str) else entries,
            read_words(stop) if isinstance(stop, str) else stop,
            self.phrases,
        )

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({"sentiment", "score"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(with_field(schema, pa.field("sentiment", pa.string())), pa.field("score", pa.float64()))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        invalid = non_utf8(batch.column(self.field))
        if invalid.any():
            errors.reject(batch, invalid, "invalid_utf8", f"{self.field} is not UTF-8")
            batch = batch.filter(pa.array(~invalid))
        column = batch.column(self.field)
        total, above, below = self._rate(column)
        if self.mode == "counts":
            total = above - below
        label = np.sign(total) + 1
        if self.mode == "counts" and not self.neutral:
            label[total == 0] = 0
        null = np.asarray(column.is_null())
        batch = replace_column(batch, "sentiment", pa.array(LABELS).take(pa.array(label.astype(np.int8), mask=null)))
        return replace_column(batch, "score", pa.array(total, pa.float64(), mask=null if null.any() else None))

    def _rate(self, column: pa.Array) -> tuple[npt.NDArray[np.float64], ...]:
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        found = self._rate_ascii(column)
        odd = np.flatnonzero(non_ascii(column))
        if odd.size:  # texts that may have capitals beyond ASCII
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            texts = pc.utf8_lower(plain.take(pa.array(odd)).cast(pa.large_string()))
            for values, again in zip(found, self._rate_ascii(texts), strict=True):
                values[odd] = again
        return found

    def _rate_ascii(self, column: pa.Array) -> tuple[npt.NDArray[np.float64], ...]:
        """Rate texts whose capitals are all ASCII."""
        data, starts, ends, _ = byte_spans(column)
        total, above, below = (np.empty(starts.size) for _ in range(3))
        score_texts(data, starts, ends, _normalised_bytes(), *self._lexicon, total, above, below)
        return total, above, below

    @classmethod
    def cases(cls) -> Iterable[Case]:
        texts = ["So happy, GREAT!", "", None, "not good", "it's a waste; awful\0hate", "ÜBEL, NOT  Good\n", "x" * 99]
        batch = pa.RecordBatch.from_pydict({"text": texts, "other": [1] * 7})
        yield Case(cls(), batch)
        values = {"übel": -2.5, "not good": -1, "good": 2, "not": 0}
        yield Case(cls(lexicon=values, phrases=True, stop_words=("a", "it")), batch, "phrases")
        yield Case(cls(mode="counts", neutral=True), batch, "counts")


@functools.cache
def _normalised_bytes() -> npt.NDArray[np.uint8]:
    """Return the table that maps each byte to lower case, and separators to 0."""
    table = np.arange(256, dtype=np.uint8)
    table[list((string.punctuation + string.whitespace + "\0").encode())] = 0
    upper = np.frombuffer(string.ascii_uppercase.encode(), np.uint8)
    table[upper] = upper + 32
    return readonly(table)


@functools.lru_cache(maxsize=32)
def _compiled_lexicon(entries: Entries, stop: tuple[str, ...], phrases: bool) -> Lexicon:
    found: dict[tuple[bytes, ...], float] = {}
    for term, value in entries:
        words = tuple(word.encode() for word in BETWEEN.split(term.lower()) if word)
        whole = words == (term.lower().encode(),)
        if whole or (phrases and words):
            # of two terms with the same words, the term without punctuation wins
            found[words] = value if whole else found.get(words, value)
    return build_lexicon(found, (word.lower().encode() for word in stop))
