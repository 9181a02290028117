"""Records derived from others, such as the words of a text, materialized only when a step needs a batch.

The words of a text share most of their fields, such as its number and its label. Copying these beside each word, and
grouping the words by them again, costs as much as the actual work. So derived records are kept as the shared fields
once per text, the number of words per text, and the words as codes into a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import carried_fields
from riot_ops.kernels.arrays.arrow import int_column, pack_bits, readonly
from riot_ops.kernels.arrays.dictionaries import slots_of_codes
from riot_ops.kernels.arrays.rows import repeat, scatter, take, take_rows
from riot_ops.kernels.jit import kernel

__all__ = ["DerivedRecords"]


@kernel
def _word_places(times: Any, places: Any) -> None:
    k = 0
    for i in range(times.size):
        for j in range(times[i]):
            places[np.uint64(k + j)] = j
        k += times[i]


@kernel
def _record_rows(starts: Any, times: Any, rows: Any) -> None:
    k = 0
    for i in range(starts.size):
        for j in range(times[i]):
            rows[np.uint64(k + j)] = starts[i] + j
        k += times[i]


class DerivedRecords:
    """The words of texts, which stand for a batch with one record per word.

    The records of a text are consecutive. The fields of ``schema`` are the ``word`` and its ``place`` in the text, the
    fields of each record (``own``), its ``word_values``, and the fields shared by a text's records.

    Parameters
    ----------
    schema : schema
        Schema of the records.
    of : record batch
        The fields shared by the records of a text; one row per text.
    times : array of int64
        Number of records of each text.
    codes : array of int32
        The word of each record, an index into ``words``.
    words : array of text
        The distinct words, in order of appearance.
    word, place : str
        Names of the fields of the word and of its place.
    own : mapping of str to array
        Fields with a value for each record.
    has_text_records : bool
        Whether the first record of each text stands for the whole text; its word is null.
    first : collection of str
        Fields of ``of`` that only the first record of a text has.
    word_values : mapping of str to array of int64, optional
        Fields with a value for each of the :meth:`keys`.

    Examples
    --------
    >>> schema = pa.schema({"seq": pa.int64(), "word": pa.string(), "n": pa.int64(), "ordinal": pa.int64()})
    >>> of, own = pa.record_batch({"seq": [7, 8]}), {"n": pa.array([2, 1, 1])}
    >>> codes, words = np.array([0, 1, 1], np.int32), pa.array(["to", "be"])
    >>> both = DerivedRecords(schema, of, np.array([2, 1]), codes, words, "word", "ordinal", own, False)
    >>> [tuple(row.values()) for row in both.materialize().to_pylist()]
    [(7, 'to', 2, 0), (7, 'be', 1, 1), (8, 'be', 1, 0)]
    """

    def __init__(
        self, schema: pa.Schema, of: pa.RecordBatch, times: npt.NDArray[np.int64], codes: npt.NDArray[np.int32],
        words: pa.Array, word: str, place: str, own: Mapping[str, pa.Array], has_text_records: bool,
        first: tuple[str, ...] = (), word_values: Mapping[str, npt.NDArray[np.int64]] | None = None,
    ) -> None:  # fmt: skip
        self.schema = schema
        #: Known key hashes, as of :class:`~riot_ops.kernels.arrays.selection.Selection`.
        self.memo: Any = None
        self.of = of
        self.times = times
        self.codes = codes
        self.words = words
        self.word = word
        self.place = place
        self.own = own
        self.has_text_records = has_text_records
        self.first = first
        self.word_values = {} if word_values is None else word_values
        self.num_rows: int = codes.size
        #: The first record of each text.
        self.starts: npt.NDArray[np.int64] = np.cumsum(times) - times
        self._whole: pa.RecordBatch | None = None

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return list(self.schema.names)

    def shared_column(self, name: str) -> pa.Array | None:
        """Return the value of a field for each text, if all records of a text share it; otherwise None."""
        own = {self.word, self.place, *self.own, *self.word_values, *self.first}
        return None if name in own or name not in self.of.schema.names else self.of.column(name)

    def is_ascending(self) -> bool:
        """Whether the records are in the order of their messages, whose sequence numbers are distinct."""
        if carried_fields(self.names) not in (["seq", self.place], ["seq", self.place, "event_time"]):
            return False
        seq = None if (column := self.shared_column("seq")) is None else int_column(column)
        return seq is not None and bool((seq[1:] > seq[:-1]).all())

    def keys(self) -> pa.Array:
        """Return the distinct words in order of appearance, after a null if there are records without a word."""
        return pa.concat_arrays([pa.nulls(1, self.words.type), self.words]) if self.has_text_records else self.words

    def with_word_values(self, schema: pa.Schema, word_values: Mapping[str, npt.NDArray[np.int64]]) -> DerivedRecords:
        """Return a copy with further fields that depend on the word only."""
        given = (
            self.of,
            self.times,
            self.codes,
            self.words,
            self.word,
            self.place,
            self.own,
            self.has_text_records,
            self.first,
        )
        return DerivedRecords(schema, *given, {**self.word_values, **word_values})

    def select_texts(self, texts: npt.NDArray[np.int64]) -> DerivedRecords:
        """Return the records of some texts, without their values per word."""
        times = self.times[texts]
        records = np.empty(int(times.sum()), np.int64)
        _record_rows(self.starts[texts], times, records)
        own = {name: take(column, records) for name, column in self.own.items()}
        given = (take_rows(self.of, texts), times, self.codes[records], self.words)
        return DerivedRecords(self.schema, *given, self.word, self.place, own, self.has_text_records, self.first)

    def lookup_request(self, numbers: npt.NDArray[np.int64]) -> DerivedRecords:
        """One text whose words are the given :meth:`keys`, in order; its other fields are those of the first text."""
        has_text_records = self.has_text_records and bool((numbers[:1] == 0).any())
        texts = np.flatnonzero(self.times)[:1]
        first = np.broadcast_to(self.starts[texts], numbers.size).astype(np.int64)
        words = take(self.words, numbers[has_text_records:] - self.has_text_records)
        codes = np.arange(-has_text_records, len(words), dtype=np.int32)[: numbers.size].clip(0)
        given = (take_rows(self.of, texts), np.array([numbers.size]), codes.astype(np.int32), words)
        own = {name: take(column, first) for name, column in self.own.items()}
        return DerivedRecords(self.schema, *given, self.word, self.place, own, has_text_records, self.first)

    def first_records(self, texts: npt.NDArray[np.int64], names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the first record of each of the given texts, which must not be empty, with all fields or ``names``."""
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays([self._first(field, texts) for field in schema], schema=schema)

    def _first(self, field: pa.Field, texts: npt.NDArray[np.int64]) -> pa.Array:
        """Return a field of the first record of each of the given texts."""
        name, rows = field.name, self.starts[texts]
        if name == self.place:
            return pa.array(np.zeros(texts.size, np.int64))
        if name == self.word and self.has_text_records:
            return pa.nulls(texts.size, field.type)
        if name == self.word:
            return take(self.words, self.codes[rows].astype(np.int64)).cast(field.type)
        if name in self.word_values:
            word_values = self.word_values[name]
            return pa.array(
                np.full(texts.size, word_values[0]) if self.has_text_records else word_values[self.codes[rows]]
            )
        return take(self.own[name], rows) if name in self.own else take(self.of.column(name), texts)

    def materialize(self) -> pa.RecordBatch:
        """Return the records as a batch."""
        if self._whole is None:
            self._whole = pa.RecordBatch.from_arrays([self._column(f) for f in self.schema], schema=self.schema)
        return self._whole

    def _column(self, field: pa.Field) -> pa.Array:
        name = field.name
        if name == self.word:
            return self._words(field.type)
        if name == self.place:
            places = np.empty(self.num_rows, np.int64)
            _word_places(readonly(self.times), places)
            return pa.array(places)
        if name in self.word_values:
            codes = (
                np.where(self._have_word(), self.codes + np.int32(1), np.int32(0))
                if self.has_text_records
                else self.codes
            )
            return pa.array(slots_of_codes(codes, self.word_values[name]))
        if name in self.own:
            return self.own[name]
        if name in self.first:
            texts = np.flatnonzero(self.times)
            return scatter(take(self.of.column(name), texts), self.starts[texts], self.num_rows)
        return repeat(self.of.column(name), self.times)

    def _have_word(self) -> npt.NDArray[np.bool_]:
        """True for records with a word."""
        have = np.ones(self.num_rows, np.bool_)
        if self.has_text_records:
            have[self.starts[np.flatnonzero(self.times)]] = False
        return have

    def _words(self, dtype: pa.DataType) -> pa.Array:
        bits = pack_bits(self._have_word()) if self.has_text_records else None
        codes = pa.Array.from_buffers(pa.int32(), self.num_rows, [bits, pa.py_buffer(self.codes)])
        coded = pa.types.is_dictionary(dtype)
        return pa.DictionaryArray.from_arrays(codes, self.words, safe=False) if coded else self.words.take(codes)
