"""Spam counts: occurrences of each word in spam and in other messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.kernels.arrays.arrow import count_column, truth_codes
from riot_ops.kernels.arrays.derived import DerivedRecords
from riot_ops.kernels.arrays.dictionaries import decode_dictionaries
from riot_ops.kernels.arrays.rows import take_or_null
from riot_ops.kernels.jit import kernel
from riot_ops.models.word_table import WordTable
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["CountSpamWords"]

OUTPUTS = ("count_bad", "count_good")


@kernel
def _learn(slots: Any, labels: Any, counts: Any, bad: Any, good: Any, found_bad: Any, found_good: Any) -> None:
    """Add the counts of labelled rows (1: spam, 0: not spam, -1: no label), and write the counts after each row."""
    for i in range(slots.size):
        s = slots[i]
        if labels[i] == 1:
            bad[s] += counts[i]
        elif labels[i] == 0:
            good[s] += counts[i]
        found_bad[i] = bad[s]
        found_good[i] = good[s]


@kernel
def _learn_words(
    times: Any, labels: Any, codes: Any, counts: Any, has_text_records: Any, slots: Any, bad: Any, good: Any
) -> None:  # fmt: skip
    """Add the counts of labelled texts without writing results; the first row of a text may be its whole record."""
    begin = 0
    for text in range(times.size):
        end = begin + times[text]
        label = labels[text]
        for i in range(begin, end):
            word = np.int64(codes[i]) + has_text_records
            if has_text_records and i == begin:
                word = 0
            s = slots[np.uint64(word)]
            if label == 1:
                bad[s] += counts[i]
            elif label == 0:
                good[s] += counts[i]
        begin = end


@register
@dataclass(frozen=True, kw_only=True)
class CountSpamWords(KeyedTask):
    """Count the occurrences of each word in spam and in other messages, and add the counts to unlabelled records.

    A labelled record adds its count to its word's counts and is not emitted; an unlabelled record receives the counts
    so far. The record of a whole message, whose word is null (see :class:`BagOfWords`), is counted like a word, so that
    the null key has the totals.

    Parameters
    ----------
    label : str, default "spam"
        Field with whether the message is spam; null: unlabelled.
    count : str, default "count"
        Field with the frequency of the word in the message, a whole number; other numbers are read as float64 and
        truncated.
    table : str, optional
        Path of an initial table of words, see :class:`riot_ops.models.WordTable`.
    emit : "each" or "end", default "each"
        Emit unlabelled records with the counts so far; or emit only, at the end of a bounded stream, the counts of all
        words, a record per word, from which ``WordTable.of`` builds a table. Words of an initial ``table`` are emitted
        only if they have occurred.
    by : tuple of str, default ("word",)
        Field with the word.
    ttl
        See :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> int64[m], int64[m] in ``count_bad`` and ``count_good``, 1:0/1; O(1) time, 16 bytes of state per word
    that has occurred (17 with a table).

    Missing values
    --------------
    A null count is 0.

    Errors
    ------
    None. A table that cannot be read is a configuration error.

    References
    ----------
    .. [1] P. Graham, *A plan for spam*, 2002.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: spam filter, word probability.

    Examples
    --------
    >>> counts = CountSpamWords().session()
    >>> seen = [("win", 2, True), ("win", 1, False), ("win", 3, True), ("win", 1, None)]
    >>> [counts.push({"word": word, "count": n, "spam": spam}) for word, n, spam in seen][-1]
    [{'word': 'win', 'count': 1.0, 'spam': None, 'count_bad': 5, 'count_good': 1}]
    """

    code: ClassVar[str] = "SPC"
    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "1:0/1"

    label: str = "spam"
    count: str = "count"
    table: str | None = None
    emit: Literal["each", "end"] = "each"
    by: Names = ("word",)

    def validate(self) -> None:
        if len(self.by) != 1:
            raise ConfigError(f"by must name the field with the word, got {self.by!r}")
        if self.table is not None:
            WordTable.load(self.table)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.by[0]: "text", self.label: "any", self.count: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = schema.field(self.label).type
        if not pa.types.is_boolean(dtype) and not pa.types.is_null(dtype):
            raise ConfigError(f"{self.name()} needs booleans in the field {self.label!r}, its input has {dtype}")
        if self.emit == "end":
            word = schema.field(self.by[0])
            if pa.types.is_dictionary(word.type):  # the state holds words
                word = word.with_type(word.type.value_type)
            schema = pa.schema([*(schema.field(name) for name in carried_fields(schema.names)), word])
        for name in OUTPUTS:
            schema = with_field(schema, pa.field(name, pa.int64()))
        return schema

    def writes(self) -> frozenset[str] | None:
        return frozenset(OUTPUTS) if self.emit == "each" else None

    def state_fields(self) -> Mapping[str, StateField]:
        known = {} if self.table is None else {"known": StateField("bool", initial=False)}
        return {"bad": StateField("int64"), "good": StateField("int64"), **known}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        if self.table is not None:
            self._load_from_table(batch.column(self.by[0]), slots, state, WordTable.load(self.table))
        labels = truth_codes(batch.column(self.label))
        found = [np.empty(slots.size, np.int64) for _ in OUTPUTS]
        _learn(slots, labels, count_column(batch.column(self.count)), state["bad"], state["good"], *found)
        schema = self.output_schema(batch.schema)
        unlabelled = labels < 0 if self.emit == "each" else np.zeros(slots.size, np.bool_)
        if not unlabelled.any():
            batch, found = batch.slice(0, 0), [one[:0] for one in found]
        elif not unlabelled.all():
            batch, found = batch.filter(pa.array(unlabelled)), [one[unlabelled] for one in found]
        for name, values in zip(OUTPUTS, found, strict=True):
            batch = replace_column(batch, name, pa.array(values))
        return batch if self.emit == "each" else decode_dictionaries(batch.select(schema.names))

    def update_derived(
        self, rows: DerivedRecords, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch | DerivedRecords | None:
        label, counts = rows.shared_column(self.label), rows.own.get(self.count)
        if label is None or counts is None:
            return None
        labels = truth_codes(label)
        unlabelled = self.emit == "each" and bool((labels < 0).all())
        if self.emit == "each" and not unlabelled and (labels < 0).any():
            return None
        if self.table is not None:
            self._load_from_table(rows.keys(), slots, state, WordTable.load(self.table))
        schema = self.output_schema(rows.schema)
        if unlabelled:
            return rows.with_word_values(schema, {n: state[n.removeprefix("count_")][slots] for n in OUTPUTS})
        arguments = (rows.times, labels, rows.codes, count_column(counts), int(rows.has_text_records))
        _learn_words(*arguments, slots, state["bad"], state["good"])
        return pa.RecordBatch.from_pylist([], schema)

    def precombine_derived(self, rows: DerivedRecords) -> pa.RecordBatch | None:
        label, counts = rows.shared_column(self.label), rows.own.get(self.count)
        texts = np.flatnonzero(rows.times)[:1]
        if label is None or counts is None or not texts.size or ((labels := truth_codes(label)) < 0).any():
            return None
        keys = rows.keys()
        bad, good = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        arguments = (rows.times, labels, rows.codes, count_column(counts), int(rows.has_text_records))
        _learn_words(*arguments, np.arange(len(keys)), bad, good)
        in_spam, elsewhere = np.flatnonzero((bad != 0) | (good == 0)), np.flatnonzero(good)  # every word is represented
        found = np.concatenate([in_spam, elsewhere])
        representatives = rows.first_records(np.repeat(texts, found.size))
        values = {
            rows.word: take_or_null(rows.words, found - rows.has_text_records, found >= rows.has_text_records),
            self.count: pa.array(np.concatenate([bad[in_spam], good[elsewhere]])),
            self.label: pa.array(np.arange(found.size) < in_spam.size),
            rows.place: pa.array(np.arange(found.size)),
        }
        for name, column in values.items():
            representatives = replace_column(representatives, name, column)
        return representatives

    def is_lookup_only(self, rows: DerivedRecords) -> bool:
        label = rows.shared_column(self.label)
        return (
            self.emit == "each"
            and label is not None
            and self.count in rows.own
            and bool((truth_codes(label) < 0).all())
        )

    def _load_from_table(self, words: pa.Array, slots: npt.NDArray[np.int64], state: State, table: WordTable) -> None:
        """Load the counts of words that occur for the first time from the table."""
        new = np.flatnonzero(~state["known"][slots])
        if not new.size:
            return
        for slot, word in zip(slots[new].tolist(), words.take(pa.array(new)).to_pylist(), strict=True):
            if not state["known"][slot]:
                text = word.decode() if isinstance(word, bytes) else word
                totals = (table.spam_total, table.ham_total)
                state["bad"][slot], state["good"][slot] = totals if text is None else table.counts.get(text, (0, 0))
                state["known"][slot] = True

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        if self.emit == "each":
            return None
        found = {name: pa.array(state[name.removeprefix("count_")]) for name in OUTPUTS}
        return pa.RecordBatch.from_pydict({self.by[0]: keys.column(self.by[0]), **found})

    def merge(self, state: State, other: State) -> State | None:
        if self.table is not None:
            return None
        return {name: state[name] + other[name] for name in ("bad", "good")}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([0, 0, 1, 1, 2, 3, 3, 4], pa.int64()),
                "word": ["win", None, "win", "ü", "win", "", None, "x"],
                "count": pa.array([2, 3, 1, 1, 1, None, 4, 1], pa.int64()),
                "spam": [True, True, None, None, False, None, None, False],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(emit="end"), batch, "at the end")
