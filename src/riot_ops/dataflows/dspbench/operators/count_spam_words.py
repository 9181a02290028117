"""Spam counts: how often each word has been in spam and in other messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.kernels.arrays.arrow import count_column, truths
from riot_ops.kernels.arrays.codes import decoded
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.rows import taken_or_null
from riot_ops.kernels.jit import kernel
from riot_ops.models.word_table import WordTable
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["CountSpamWords"]

OUTPUTS = ("count_bad", "count_good")


@kernel
def _learn(slots: Any, labels: Any, counts: Any, bad: Any, good: Any, found_bad: Any, found_good: Any) -> None:
    """Add the counts of rows with a label (1: spam, 0: none, -1: unknown); what is known goes to all."""
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
    times: Any, labels: Any, codes: Any, counts: Any, headed: Any, slots: Any, bad: Any, good: Any
) -> None:  # fmt: skip
    """The same of the words of texts that have one label, where nobody asks; the first of each may be of the whole."""
    begin = 0
    for text in range(times.size):
        end = begin + times[text]
        label = labels[text]
        for i in range(begin, end):
            word = np.int64(codes[i]) + headed
            if headed and i == begin:
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
    """Keep how often each word has been in spam and in other messages; tell it of words that are yet to be judged.

    A record with a label adds its count to those of its word and goes no further; one without gets the counts so far.
    The record of a whole message, whose word is null (see :class:`BagOfWords`), is treated like one of a word: so the
    key null has the totals.

    Parameters
    ----------
    label : str, default "spam"
        Field that says whether the message is spam; null: that is to be found out.
    count : str, default "count"
        Field with how often the word is in the message.
    table : str, optional
        Path of a table of words that is there from the beginning, see :class:`riot_ops.models.WordTable`.
    emit : "each" or "end", default "each"
        Whether records without a label get what is known; or nothing comes out but, at the end of a bounded stream,
        all that has been learned, a record a word: of these ``WordTable.of`` makes a table. Of a ``table`` that was
        there only the words that have come are among them.
    by : tuple of str, default ("word",)
        Field with the word.
    ttl
        See :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> int64[m], int64[m] in ``count_bad`` and ``count_good``, 1:0/1; O(1) time, 16 bytes of state per word
    that has come (17 with a table).

    Missing values
    --------------
    A null count counts as 0.

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
    by: tuple[str, ...] = ("word",)

    def validate(self) -> None:
        if len(self.by) != 1:
            raise ConfigError(f"by must name the field with the word, got {self.by!r}")
        if self.table is not None:
            WordTable.load(self.table)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.by[0]: "text", self.label: "any", self.count: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        kind = schema.field(self.label).type
        if not pa.types.is_boolean(kind) and not pa.types.is_null(kind):
            raise ConfigError(f"{self.name()} needs a truth value in the field {self.label!r}, its input has {kind}")
        if self.emit == "end":
            word = schema.field(self.by[0])
            if pa.types.is_dictionary(word.type):  # the state holds words
                word = word.with_type(word.type.value_type)
            schema = pa.schema([*(schema.field(name) for name in carried(schema.names)), word])
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
            self._recall(batch.column(self.by[0]), slots, state, WordTable.load(self.table))
        labels = truths(batch.column(self.label))
        found = [np.empty(slots.size, np.int64) for _ in OUTPUTS]
        _learn(slots, labels, count_column(batch.column(self.count)), state["bad"], state["good"], *found)
        schema = self.output_schema(batch.schema)
        asked = labels < 0 if self.emit == "each" else np.zeros(slots.size, np.bool_)
        if not asked.any():
            batch, found = batch.slice(0, 0), [one[:0] for one in found]
        elif not asked.all():
            batch, found = batch.filter(pa.array(asked)), [one[asked] for one in found]
        for name, values in zip(OUTPUTS, found, strict=True):
            batch = replace_column(batch, name, pa.array(values))
        return batch if self.emit == "each" else decoded(batch.select(schema.names))

    def update_derived(
        self, rows: Derived, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch | Derived | None:
        label, counts = rows.shared(self.label), rows.own.get(self.count)
        if label is None or counts is None:
            return None
        labels = truths(label)
        asked = self.emit == "each" and bool((labels < 0).all())
        if self.emit == "each" and not asked and (labels < 0).any():
            return None
        if self.table is not None:
            self._recall(rows.keys(), slots, state, WordTable.load(self.table))
        schema = self.output_schema(rows.schema)
        if asked:
            return rows.telling(schema, {n: state[n.removeprefix("count_")][slots] for n in OUTPUTS})
        given = (rows.times, labels, rows.codes, count_column(counts), int(rows.headed))
        _learn_words(*given, slots, state["bad"], state["good"])
        return pa.RecordBatch.from_pylist([], schema)

    def condensed_derived(self, rows: Derived) -> pa.RecordBatch | None:
        label, counts = rows.shared(self.label), rows.own.get(self.count)
        texts = np.flatnonzero(rows.times)[:1]
        if label is None or counts is None or not texts.size or ((labels := truths(label)) < 0).any():
            return None
        keys = rows.keys()
        bad, good = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        given = (rows.times, labels, rows.codes, count_column(counts), int(rows.headed))
        _learn_words(*given, np.arange(len(keys)), bad, good)
        in_spam, elsewhere = np.flatnonzero((bad != 0) | (good == 0)), np.flatnonzero(good)  # no word is left out
        found = np.concatenate([in_spam, elsewhere])
        made = rows.heads(np.repeat(texts, found.size))
        values = {
            rows.word: taken_or_null(rows.words, found - rows.headed, found >= rows.headed),
            self.count: pa.array(np.concatenate([bad[in_spam], good[elsewhere]])),
            self.label: pa.array(np.arange(found.size) < in_spam.size),
            rows.place: pa.array(np.arange(found.size)),
        }
        for name, column in values.items():
            made = replace_column(made, name, column)
        return made

    def only_tells(self, rows: Derived) -> bool:
        label = rows.shared(self.label)
        return self.emit == "each" and label is not None and self.count in rows.own and bool((truths(label) < 0).all())

    def _recall(self, words: pa.Array, slots: npt.NDArray[np.int64], state: State, table: WordTable) -> None:
        """What the table says of words that come for the first time."""
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
