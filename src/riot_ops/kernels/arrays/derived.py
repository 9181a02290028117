"""Records of which several come of one, such as the words of a text, copied only where somebody wants them.

Most of what such records carry they share: the number and the label of their text. To put it beside each of them, and
to find out of it again which belong together, costs as much as what is done with them. So such records are at first
what they share, how many there are of each, and their words, as numbers into a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import carried
from riot_ops.kernels.arrays.arrow import bits_of, int_column, readonly
from riot_ops.kernels.arrays.codes import followed
from riot_ops.kernels.arrays.rows import repeated, spread, taken, taken_rows
from riot_ops.kernels.jit import kernel

__all__ = ["Derived"]


@kernel
def _number(times: Any, places: Any) -> None:
    k = 0
    for i in range(times.size):
        for j in range(times[i]):
            places[np.uint64(k + j)] = j
        k += times[i]


@kernel
def _records(starts: Any, times: Any, rows: Any) -> None:
    k = 0
    for i in range(starts.size):
        for j in range(times[i]):
            rows[np.uint64(k + j)] = starts[i] + j
        k += times[i]


class Derived:
    """Words of texts, which look like a batch of records with a word each.

    Those of one text follow one another. The fields of ``schema`` are the ``word`` and its ``place`` in the text, what
    each record has of its ``own``, what is ``told`` of a word, and what all records of a text share.

    Parameters
    ----------
    schema : schema
        Of the records.
    of : record batch
        What the records of a text share; a row for each text.
    times : array of int64
        How many records come of each text.
    codes : array of int32
        The word of each record, a number into ``words``.
    words : array of text
        The different words, each as it first comes.
    word, place : str
        Their fields.
    own : mapping of str to array
        Values of records.
    headed : bool
        Whether the first record of each text is of the text as a whole: its word is null.
    first : collection of str
        Fields of ``of`` that these have alone.
    told : mapping of str to array of int64, optional
        Values by word, those of :meth:`keys`.

    Examples
    --------
    >>> schema = pa.schema({"seq": pa.int64(), "word": pa.string(), "n": pa.int64(), "ordinal": pa.int64()})
    >>> of, own = pa.record_batch({"seq": [7, 8]}), {"n": pa.array([2, 1, 1])}
    >>> codes, words = np.array([0, 1, 1], np.int32), pa.array(["to", "be"])
    >>> both = Derived(schema, of, np.array([2, 1]), codes, words, "word", "ordinal", own, False)
    >>> [tuple(row.values()) for row in both.whole().to_pylist()]
    [(7, 'to', 2, 0), (7, 'be', 1, 1), (8, 'be', 1, 0)]
    """

    def __init__(
        self, schema: pa.Schema, of: pa.RecordBatch, times: npt.NDArray[np.int64], codes: npt.NDArray[np.int32],
        words: pa.Array, word: str, place: str, own: Mapping[str, pa.Array], headed: bool,
        first: tuple[str, ...] = (), told: Mapping[str, npt.NDArray[np.int64]] | None = None,
    ) -> None:  # fmt: skip
        self.schema = schema
        self.of = of
        self.times = times
        self.codes = codes
        self.words = words
        self.word = word
        self.place = place
        self.own = own
        self.headed = headed
        self.first = first
        self.told = {} if told is None else told
        self.num_rows: int = codes.size
        #: Where the records of each text begin.
        self.starts: npt.NDArray[np.int64] = np.cumsum(times) - times
        self._whole: pa.RecordBatch | None = None

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return list(self.schema.names)

    def shared(self, name: str) -> pa.Array | None:
        """The value that all records of a text have in a field, for each text; None where they may differ."""
        own = {self.word, self.place, *self.own, *self.told, *self.first}
        return None if name in own or name not in self.of.schema.names else self.of.column(name)

    def rises(self) -> bool:
        """Whether the records are in the order of their messages, of which no two have the same number."""
        if carried(self.names) not in (["seq", self.place], ["seq", self.place, "event_time"]):
            return False
        seq = None if (column := self.shared("seq")) is None else int_column(column)
        return seq is not None and bool((seq[1:] > seq[:-1]).all())

    def keys(self) -> pa.Array:
        """The different words in the order in which they come, null ahead of them where there are records without."""
        return pa.concat_arrays([pa.nulls(1, self.words.type), self.words]) if self.headed else self.words

    def telling(self, schema: pa.Schema, told: Mapping[str, npt.NDArray[np.int64]]) -> Derived:
        """The records with more that depends on the word alone."""
        given = (self.of, self.times, self.codes, self.words, self.word, self.place, self.own, self.headed, self.first)
        return Derived(schema, *given, {**self.told, **told})

    def some(self, texts: npt.NDArray[np.int64]) -> Derived:
        """The records of some texts, of which nothing is told yet."""
        times = self.times[texts]
        records = np.empty(int(times.sum()), np.int64)
        _records(self.starts[texts], times, records)
        own = {name: taken(column, records) for name, column in self.own.items()}
        given = (taken_rows(self.of, texts), times, self.codes[records], self.words)
        return Derived(self.schema, *given, self.word, self.place, own, self.headed, self.first)

    def question(self, numbers: npt.NDArray[np.int64]) -> Derived:
        """A text of which some of the :meth:`keys` are the words, in order; all else is as with the first text's."""
        headed = self.headed and bool((numbers[:1] == 0).any())
        texts = np.flatnonzero(self.times)[:1]
        first = np.broadcast_to(self.starts[texts], numbers.size).astype(np.int64)
        words = taken(self.words, numbers[headed:] - self.headed)
        codes = np.arange(-headed, len(words), dtype=np.int32)[: numbers.size].clip(0)
        given = (taken_rows(self.of, texts), np.array([numbers.size]), codes.astype(np.int32), words)
        own = {name: taken(column, first) for name, column in self.own.items()}
        return Derived(self.schema, *given, self.word, self.place, own, headed, self.first)

    def heads(self, texts: npt.NDArray[np.int64], names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The first record of each of some texts, which have one, with all fields or these."""
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays([self._first(field, texts) for field in schema], schema=schema)

    def _first(self, field: pa.Field, texts: npt.NDArray[np.int64]) -> pa.Array:
        """A field of these."""
        name, rows = field.name, self.starts[texts]
        if name == self.place:
            return pa.array(np.zeros(texts.size, np.int64))
        if name == self.word and self.headed:
            return pa.nulls(texts.size, field.type)
        if name == self.word:
            return taken(self.words, self.codes[rows].astype(np.int64)).cast(field.type)
        if name in self.told:
            told = self.told[name]
            return pa.array(np.full(texts.size, told[0]) if self.headed else told[self.codes[rows]])
        return taken(self.own[name], rows) if name in self.own else taken(self.of.column(name), texts)

    def whole(self) -> pa.RecordBatch:
        """A batch of the records."""
        if self._whole is None:
            self._whole = pa.RecordBatch.from_arrays([self._column(f) for f in self.schema], schema=self.schema)
        return self._whole

    def _column(self, field: pa.Field) -> pa.Array:
        name = field.name
        if name == self.word:
            return self._words(field.type)
        if name == self.place:
            places = np.empty(self.num_rows, np.int64)
            _number(readonly(self.times), places)
            return pa.array(places)
        if name in self.told:
            codes = np.where(self._headless(), self.codes + np.int32(1), np.int32(0)) if self.headed else self.codes
            return pa.array(followed(codes, self.told[name]))
        if name in self.own:
            return self.own[name]
        if name in self.first:
            texts = np.flatnonzero(self.times)
            return spread(taken(self.of.column(name), texts), self.starts[texts], self.num_rows)
        return repeated(self.of.column(name), self.times)

    def _headless(self) -> npt.NDArray[np.bool_]:
        """Which records have a word."""
        have = np.ones(self.num_rows, np.bool_)
        if self.headed:
            have[self.starts[np.flatnonzero(self.times)]] = False
        return have

    def _words(self, kind: pa.DataType) -> pa.Array:
        bits = bits_of(self._headless()) if self.headed else None
        codes = pa.Array.from_buffers(pa.int32(), self.num_rows, [bits, pa.py_buffer(self.codes)])
        coded = pa.types.is_dictionary(kind)
        return pa.DictionaryArray.from_arrays(codes, self.words, safe=False) if coded else self.words.take(codes)
