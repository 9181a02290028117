"""Bag of words: the distinct words of a text with their frequencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import byte_spans, chunk_ranges, concat_batches, pack_bits, text_lengths
from riot_ops.kernels.arrays.rows import repeat, repeat_values, scatter, take
from riot_ops.kernels.text.strings import non_utf8
from riot_ops.kernels.text.word_counts import count_words
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register, with_next_ordinal

__all__ = ["BagOfWords"]

CODED = pa.dictionary(pa.int32(), pa.string())


@register
@dataclass(frozen=True, kw_only=True)
class BagOfWords(StatelessTask):
    """Split a text into its distinct words, and emit a record per word with its frequency.

    A word is a run of ASCII letters, digits and underscores. Words are emitted in order of first occurrence.

    Parameters
    ----------
    field : str, default "payload"
        Field with the text.
    output : str, default "word"
        Field for the word.
    count : str, default "count"
        Field for its frequency in the text.
    different : str, default "n_words"
        Field for the number of distinct words in the text.
    lowercase : bool, default True
        Whether to convert words to lower case.
    keep : tuple of str, default ()
        Fields of the input record to carry in the records of its words, besides order and time.
    whole : tuple of str or None, default None
        If given, a record of the whole text precedes its words: it carries these fields, its word is null and its count
        is the number of all words, with repetitions. A text without words has such a record, too.
    coded : bool, default False
        Whether the words are dictionary-encoded (an Arrow dictionary column per batch): the same values, which is
        faster for tasks that process each distinct word once, such as :class:`CountSpamWords` and :class:`BayesScore`.

    Shapes and rates
    ----------------
    text[n] -> text[m], int64[m], int64[m], 1:N; O(bytes) time, no state. A further ``ordinal``
    distinguishes the records of one text.

    Missing values
    --------------
    A null text emits no records. The fields of ``whole`` are null in the records of words.

    Errors
    ------
    ``invalid_utf8``: binary that is not UTF-8.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: spam filter, tokenizer.

    Examples
    --------
    >>> bag = BagOfWords(field="text").session()
    >>> [(out["word"], out["count"], out["n_words"]) for out in bag.push({"text": "To be, or not to be"})]
    [('to', 2, 4), ('be', 2, 4), ('or', 1, 4), ('not', 1, 4)]
    >>> bag = BagOfWords(field="text", whole=("id",)).session()
    >>> [(out["id"], out["word"], out["count"]) for out in bag.push({"id": 7, "text": "so so"})]
    [(7, None, 2), (None, 'so', 2)]
    """

    code: ClassVar[str] = "BOW"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    field: str = "payload"
    output: str = "word"
    count: str = "count"
    different: str = "n_words"
    lowercase: bool = True
    keep: Names = ()
    whole: Names | None = None
    coded: bool = False

    def validate(self) -> None:
        names = [*self._output_fields, *self.keep, *(self.whole or ())]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"output, count, different, keep and whole must not name {name!r} twice")

    @property
    def _output_fields(self) -> tuple[str, str, str]:
        return self.output, self.count, self.different

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys((*self.keep, *(self.whole or ())), "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = dict.fromkeys([*carried_fields(schema.names), *self.keep])
        out = pa.schema([schema.field(name) for name in names if name not in self._output_fields])
        for name in self.whole or ():
            out = out.append(schema.field(name).with_nullable(True))
        word = CODED if self.coded else pa.string()
        for name, dtype in zip(self._output_fields, (word, pa.int64(), pa.int64()), strict=True):
            out = out.append(pa.field(name, dtype))
        return with_next_ordinal(out)

    def writes(self) -> frozenset[str]:
        return frozenset({*self._output_fields, *(self.whole or ())})  # words have nulls in the fields of whole texts

    def expands(self) -> bool:
        return True

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return concat_batches(list(self.batches(batch, errors)))

    def batches(self, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
        invalid = non_utf8(batch.column(self.field))
        if invalid.any():
            errors.reject(batch, invalid, "invalid_utf8", f"{self.field} is not UTF-8")
            batch = batch.filter(pa.array(~invalid))
        for start, stop in chunk_ranges(text_lengths(batch.column(self.field))):
            yield self._counted(batch.slice(start, stop - start))

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records of the words of some texts."""
        column = batch.column(self.field)
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        found = count_words(*byte_spans(column), self.lowercase, self.whole is not None)
        buffers = [None, pa.py_buffer(found.offsets), pa.py_buffer(found.text)]
        words = pa.Array.from_buffers(pa.string(), found.offsets.size - 1, buffers, 0)
        starts, texts = np.cumsum(found.entries) - found.entries, np.flatnonzero(found.entries)
        whole_rows = starts[texts]
        places = np.arange(found.codes.size)
        places -= repeat_values(starts, found.entries)
        own = {
            self.output: self._words(words, found.codes, whole_rows),
            self.count: pa.array(found.counts),
            self.different: repeat(pa.array(found.different), found.entries),
            next_ordinal(batch.schema.names): pa.array(places),
        }
        for name in self.whole or ():
            own[name] = scatter(take(batch.column(name), texts), whole_rows, found.codes.size)
        schema = self.output_schema(batch.schema)
        columns = [own[name] if name in own else repeat(batch.column(name), found.entries) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _words(self, words: pa.Array, codes: npt.NDArray[np.int32], whole_rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return the word of each record; null for whole texts."""
        valid = None
        if self.whole is not None:
            have_word = np.ones(codes.size, np.bool_)
            have_word[whole_rows] = False
            valid = pack_bits(have_word)
        numbers = pa.Array.from_buffers(pa.int32(), codes.size, [valid, pa.py_buffer(codes)])
        return pa.DictionaryArray.from_arrays(numbers, words, safe=False) if self.coded else words.take(numbers)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(6), pa.int64()),
                "key": ["a", "b", None, "", "ü", "a"],
                "text": ["River cloud, river.", "", None, " \t!", "naïve a_1 A_1 na\0na", "x" * 50 + " x"],
            }
        )
        yield Case(cls(field="text", keep=("key",)), batch)
        yield Case(cls(field="text", lowercase=False, whole=("key",), output="text"), batch, "whole texts")
        yield Case(cls(field="text", whole=()), batch, "nothing but counts")
        yield Case(cls(field="text", whole=("key",), coded=True), batch, "as numbers")
