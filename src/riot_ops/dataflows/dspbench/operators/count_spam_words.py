"""Spam counts: occurrences of each word in spam and in other messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import count_column, truth_codes
from riot_ops.kernels.arrays.dictionaries import decode_dictionaries
from riot_ops.kernels.jit import kernel
from riot_ops.models.word_table import WordTable
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["CountSpamWords"]

OUTPUTS = ("count_bad", "count_good")


@kernel
def _learn(slots: Any, labels: Any, counts: Any, bad: Any, good: Any, found_bad: Any, found_good: Any) -> None:
    """Add the counts of labelled rows (1: spam, 0: not spam, -1: no label), and write the counts after each row.

    If there is no room for them, the counts are not written.
    """
    wanted = found_bad.size > 0
    for i in range(slots.size):
        s = slots[i]
        if labels[i] == 1:
            bad[s] += counts[i]
        elif labels[i] == 0:
            good[s] += counts[i]
        if wanted:
            found_bad[i] = bad[s]
            found_good[i] = good[s]


@register
@dataclass(frozen=True, kw_only=True)
class CountSpamWords(KeyedTask):
    """Count the occurrences of each word in spam and in other messages, and add the counts to unlabelled records.

    A labelled record adds its count to its word's counts and is not emitted; an unlabelled record receives the counts
    so far. The record of a whole message, whose word is null (see :class:`BagOfWords`), is counted like a word, so that
    the null key has the totals.

    Parameters
    ----------
    flag : str, default "spam"
        Field with whether the message is spam; null: unlabelled.
    count : str, default "count"
        Field with the frequency of the word in the message, a whole number; other numbers are read as float64 and
        truncated.
    table : str, optional
        Path of an initial table of words, see :class:`riot_ops.models.WordTable`.
    emit : "each" or "final", default "each"
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

    flag: str = "spam"
    count: str = "count"
    table: str | None = None
    emit: Literal["each", "final"] = "each"
    by: Names = ("word",)

    def validate(self) -> None:
        if len(self.by) != 1:
            raise ConfigError(f"by must name the field with the word, got {self.by!r}")
        if self.table is not None:
            WordTable.load(self.table)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.by[0]: "text", self.flag: "any", self.count: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = schema.field(self.flag).type
        if not pa.types.is_boolean(dtype) and not pa.types.is_null(dtype):
            raise ConfigError(f"{self.name()} needs booleans in the field {self.flag!r}, its input has {dtype}")
        if self.emit == "final":
            word = schema.field(self.by[0])
            if pa.types.is_dictionary(word.type):  # the state holds words
                word = word.with_type(word.type.value_type)
            schema = pa.schema([*(schema.field(name) for name in carried_fields(schema.names)), word])
        for name in OUTPUTS:
            schema = with_field(schema, pa.field(name, pa.int64()))
        return schema

    def writes(self) -> frozenset[str]:
        return frozenset(OUTPUTS)

    def state_fields(self) -> Mapping[str, StateField]:
        known = {} if self.table is None else {"known": StateField("bool", initial=False)}
        return {"bad": StateField("int64"), "good": StateField("int64"), **known}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        if self.table is not None:
            self._load_from_table(batch.column(self.by[0]), slots, state, WordTable.load(self.table))
        labels = truth_codes(batch.column(self.flag))
        unlabelled = labels < 0 if self.emit == "each" else np.zeros(slots.size, np.bool_)
        found = [np.empty(slots.size if unlabelled.any() else 0, np.int64) for _ in OUTPUTS]
        _learn(slots, labels, count_column(batch.column(self.count)), state["bad"], state["good"], *found)
        schema = self.output_schema(batch.schema)
        if not unlabelled.any():
            batch = batch.slice(0, 0)
        elif not unlabelled.all():
            batch, found = batch.filter(pa.array(unlabelled)), [one[unlabelled] for one in found]
        for name, values in zip(OUTPUTS, found, strict=True):
            batch = replace_column(batch, name, pa.array(values))
        return batch if self.emit == "each" else decode_dictionaries(batch.select(schema.names))

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

    def merge_states(self, state: State, other: State) -> State | None:
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
        yield Case(cls(emit="final"), batch, "at the end")
