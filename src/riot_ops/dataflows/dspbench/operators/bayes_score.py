"""Bayes score: classify messages as spam by the spam counts of their words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names, Positive, Probability
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import count_column
from riot_ops.kernels.arrays.dictionaries import dictionary_codes
from riot_ops.kernels.arrays.ordering import are_sorted, dense_ranks
from riot_ops.kernels.arrays.rows import take
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, PooledTask, Requirement, State, StateField, register

__all__ = ["BayesScore"]

OUTPUTS = ("spam_probability", "is_spam")
#: Status of a message; above 0: the number of missing words.
COMPLETE, GIVEN_UP, NO_MESSAGE = 0, -1, -2
#: Words compared per vectorised loop, and minimum capacity of the selection buffer.
TOGETHER, MIN_CHOSEN = 16, 64
#: Padding: greater than the number of any word.
NO_WORD = np.int32(np.iinfo(np.int32).max)


@kernel
def _gather(slots: Any, whole: Any, different: Any, current: Any, entry: Any, head: Any, last: Any, status: Any) -> Any:
    """Assign rows to messages (entries); return the number of entries. A word before its whole message gets none.

    For each entry, ``head`` is the row of the whole message, ``last`` the last row, and ``status`` COMPLETE, GIVEN_UP
    or the number of missing words while it is open. ``current`` is scratch space for the open entry of each key (-1:
    none).
    """
    n = 0
    for i in range(slots.size):
        e = current[slots[i]]
        if whole[i]:
            if e >= 0:
                status[e] = GIVEN_UP
            e = n
            n += 1
            head[e] = i
            status[e] = different[i]
            current[slots[i]] = e
        elif e >= 0:
            status[e] -= 1
        entry[i] = e
        if e >= 0:
            last[e] = i
            if status[e] == COMPLETE:
                current[slots[i]] = -1
    return n


@kernel
def _share(bad: Any, good: Any, bad_total: Any, good_total: Any, unknown: Any, least: Any, ham_weight: Any) -> Any:
    r_bad = bad / bad_total if bad_total > 0 else 0.0
    r_good = ham_weight * good / good_total if good_total > 0 else 0.0
    if r_bad + r_good > 0.0:
        return min(max(r_bad / (r_bad + r_good), least), 1.0 - least)
    return unknown


@kernel
def _weigh(
    entry: Any, codes: Any, bad: Any, good: Any, head: Any, status: Any, unknown: Any, least: Any, ham_weight: Any,
    newest: Any, counts: Any, shares: Any, known: Any, begins: Any, grouped: Any,
) -> Any:  # fmt: skip
    """Compute the spam probability of each word of the complete messages; return the number of distinct results.

    A result, ``shares`` and the word's code ``known``, is reused while neither the word's ``counts`` nor those of all
    words change: ``newest`` has the latest result of each code (-1: none). The results of message s are written to
    ``grouped`` from ``begins[s]`` on, which advances.
    """
    n = 0
    for i in range(entry.size):
        s = entry[i]
        if s < 0 or status[s] != COMPLETE or head[s] == i:
            continue
        h = np.uint64(head[s])
        c = np.uint64(codes[i])
        e = newest[c]
        u = np.uint64(e)
        if (
            e < 0
            or counts[u, 0] != bad[i]
            or counts[u, 1] != good[i]
            or counts[u, 2] != bad[h]
            or counts[u, 3] != good[h]
        ):
            p = _share(bad[i], good[i], bad[h], good[h], unknown, least, ham_weight)
            e = n
            n += 1
            newest[c] = e
            counts[e, 0] = bad[i]
            counts[e, 1] = good[i]
            counts[e, 2] = bad[h]
            counts[e, 3] = good[h]
            shares[e] = p
            known[e] = codes[i]
        grouped[np.uint64(begins[s])] = e
        begins[s] += 1
    return n


@kernel
def _smallest(n: Any, most: Any, chosen: Any, room: Any) -> Any:
    """Move the ``most`` smallest of n numbers to the front, sorted; return how many there are.

    The position of each number is the count of smaller ones. Counting has no unpredictable branches and is therefore
    faster than sorting. ``chosen`` has capacity for padding to whole loops; ``room`` is scratch space of the same size.
    """
    padded = (n + TOGETHER - 1) // TOGETHER * TOGETHER
    for k in range(n, padded):
        chosen[np.uint64(k)] = NO_WORD
    for k in range(n):
        room[np.uint64(k)] = -1
    for k in range(n):
        number = chosen[np.uint64(k)]
        place = np.int32(0)
        for j in range(padded):
            place = np.int32(place + (chosen[np.uint64(j)] < number))
        room[np.uint64(place)] = number
    n = min(n, most)
    for k in range(n):
        if room[np.uint64(k)] < 0:  # after a repeated number
            room[np.uint64(k)] = room[np.uint64(k - 1)]
        chosen[np.uint64(k)] = room[np.uint64(k)]
    return n


@kernel
def _score(
    size: Any, begins: Any, grouped: Any, numbers: Any, against: Any, most: Any, chosen: Any, room: Any, odds: Any
) -> None:
    """Compute the log odds against spam of each message from its most significant words, in order.

    ``numbers`` has the rank of each word by significance, ``against`` the term that the word of each rank adds.
    """
    full = chosen.size - TOGETHER
    for s in range(size.size):
        n = 0
        for at in range(begins[s], begins[s] + size[s]):
            chosen[np.uint64(n)] = numbers[np.uint64(grouped[np.uint64(at)])]
            n += 1
            if n == full:
                n = _smallest(n, most, chosen, room)
        n = _smallest(n, most, chosen, room)
        odds[s] = 0.0
        for k in range(n):
            odds[s] += against[np.uint64(chosen[np.uint64(k)])]


@kernel
def _logs(shares: Any, against: Any) -> None:
    for i in range(shares.size):
        against[i] = math.log((1.0 - shares[i]) / shares[i])


@register
@dataclass(frozen=True, kw_only=True)
class BayesScore(PooledTask):
    """Score each message by its most significant words, with P. Graham's variant of naive Bayes.

    With the counts B and G of the record of the whole message, ``r_bad = bad / B``, ``r_good = 2 good / G`` and
    ``p = r_bad / (r_bad + r_good)``, clipped to [0.01, 0.99]; 0.4 for an unknown word. Over the 15 words with the
    largest ``|p - 0.5|`` (ties by their bytes), ``P = prod p / (prod p + prod (1 - p))``; the message is spam if P
    exceeds 0.9.

    The record of the whole message comes first and has the number of distinct words; the last word completes the
    message, see :class:`BagOfWords` and :class:`CountSpamWords`.

    Parameters
    ----------
    keep : tuple of str, default ("id",)
        Fields of the record of the whole message that its result carries, besides order and time.
    max_words : int, 1 to 4096, default 15
        Maximum number of words that count.
    threshold : float, in (0, 1), default 0.9
        A message is spam if P exceeds the threshold.
    unknown : float, in (0, 1), default 0.4
        p of an unknown word.
    min_probability : float, in (0, 0.5), default 0.01
        Minimum p of a known word; the maximum is ``1 - min_probability``.
    ham_weight : float > 0, default 2.0
        Weight of the counts in other messages, relative to those in spam.
    emit_empty : bool, default False
        Whether a message without words has a result, P = 0.5 and not spam; else it goes to the errors stream.
    word, different : str, default "word" and "n_words"
        Fields with the word (null: the whole message), and with the number of distinct words.
    by : tuple of str, default ("seq",)
        Fields that identify a message.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    record[n] -> float64[m] in ``spam_probability``, bool[m] in ``is_spam``, N:1; O(words) time per record. The state is
    the records of incomplete messages.

    Missing values
    --------------
    Null counts are 0.

    Errors
    ------
    ``no_words`` (a message without words), ``incomplete`` (a record of a message that lacks words when the same message
    starts again, or at the end of the stream), ``no_message`` (a word before the record of its whole message).

    References
    ----------
    .. [1] P. Graham, *A plan for spam*, 2002.
    .. [2] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: spam filter, Bayes rule.

    Examples
    --------
    >>> score = BayesScore().session()
    >>> rows = [(None, 10, 10), ("win", 3, 0), ("the", 1, 1)]
    >>> for word, bad, good in rows:
    ...     event = {"id": "a", "word": word, "n_words": 2, "count_bad": bad, "count_good": good}
    ...     out = score.push({"seq": 7, **event})
    >>> out[0]["id"], round(out[0]["spam_probability"], 6), out[0]["is_spam"]
    ('a', 0.980198, True)
    """

    code: ClassVar[str] = "BAY"
    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "N:1"

    keep: Names = ("id",)
    max_words: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 15
    threshold: Probability = 0.9
    unknown: Probability = 0.4
    min_probability: Annotated[float, msgspec.Meta(gt=0, lt=0.5)] = 0.01
    ham_weight: Positive = 2.0
    emit_empty: bool = False
    word: str = "word"
    different: str = "n_words"
    by: Names = ("seq",)

    def validate(self) -> None:
        if self.ttl is not None:
            raise ConfigError(f"bayes_score does not support ttl, got {self.ttl!r}")
        if not self.by:
            raise ConfigError("by must name the fields that identify a message, got ()")
        if both := {*OUTPUTS} & {*self.keep, *self.by}:
            raise ConfigError(f"keep and by must not name {min(both)!r}, an output of bayes_score")

    def requires(self) -> Mapping[str, Requirement]:
        numbers: dict[str, Requirement] = dict.fromkeys((self.different, "count_bad", "count_good"), "number")
        return {**super().requires(), **dict.fromkeys(self.keep, "any"), self.word: "text", **numbers}

    def writes(self) -> frozenset[str]:
        return frozenset(OUTPUTS)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = dict.fromkeys([*carried_fields(schema.names), *self.by, *self.keep])
        added = [pa.field(OUTPUTS[0], pa.float64()), pa.field(OUTPUTS[1], pa.bool_())]
        return pa.schema([*(schema.field(name) for name in names), *added])

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        codes, words = dictionary_codes(batch.column(self.word))
        different, bad, good = (count_column(batch.column(n)) for n in (self.different, "count_bad", "count_good"))
        current = np.full(int(slots.max(initial=-1)) + 1, -1)
        entry, head, last, status = (np.empty(slots.size, np.int64) for _ in range(4))
        n = int(_gather(slots, codes < 0, different, current, entry, head, last, status))
        head, last, status = head[:n], last[:n], status[:n]
        size = np.where(status == COMPLETE, different[head], 0)
        begins, grouped = np.cumsum(size) - size, np.empty(int(size.sum()), np.int64)
        newest, counts = np.full(len(words), -1), np.empty((slots.size, 4), np.int64)
        shares, known = np.empty(slots.size), np.empty(slots.size, np.int64)
        rule: tuple[Any, ...] = (self.unknown, self.min_probability, self.ham_weight)
        found: tuple[Any, ...] = (newest, counts, shares, known, begins.copy(), grouped)
        judged = _weigh(*(entry, codes, bad, good, head, status, *rule, *found))
        odds = self._odds(begins, size, grouped, shares[:judged], dense_ranks(words)[known[:judged]])
        done = status == COMPLETE
        state["held"][0] = None
        if n + grouped.size < slots.size or not done.all():  # some rows belong to no complete message
            of_row = np.append(status, NO_MESSAGE)[entry]
            errors.reject(
                batch, of_row == NO_MESSAGE, "no_message", "the record of the whole message has not arrived yet"
            )
            errors.reject(
                batch, of_row == GIVEN_UP, "incomplete", "the message started again before all its words had arrived"
            )
            rest = np.flatnonzero(of_row > COMPLETE)
            state["held"][0] = batch.take(pa.array(rest)) if rest.size else None
        if not self.emit_empty and (empty := done & (size == 0)).any():
            errors.reject(batch, head[empty], "no_words", "the message has no words")
            done &= ~empty
        order = np.flatnonzero(done)
        if not are_sorted([last[order]], order.size):
            order = order[np.argsort(last[order])]
        heads = head[order]
        schema = self.output_schema(batch.schema)
        carried = [take(batch.column(name), heads) for name in schema.names[:-2]]
        return self._results(schema, carried, odds[order], size[order] > 0)

    def _odds(
        self,
        begins: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        grouped: npt.NDArray[Any],
        shares: npt.NDArray[np.float64],
        ranks: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Compute the log odds against spam of each message from the spam probabilities of its words."""
        order = np.lexsort((ranks, -np.abs(shares - 0.5)))
        numbers, against, odds = np.empty(order.size, np.int32), np.empty(order.size), np.empty(size.size)
        numbers[order] = np.arange(order.size, dtype=np.int32)
        _logs(shares[order], against)
        chosen = np.empty(self.max_words + max(self.max_words, MIN_CHOSEN) + TOGETHER, np.int32)
        _score(size, begins, grouped, numbers, against, self.max_words, chosen, np.empty_like(chosen), odds)
        return odds

    def _results(
        self,
        schema: pa.Schema,
        carried: list[pa.Array],
        odds: npt.NDArray[np.float64],
        worded: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        """Build the results of messages from the carried fields of their whole records."""
        with np.errstate(over="ignore"):
            share = 1.0 / (1.0 + np.exp(odds))
        spam = (share > self.threshold) & worded
        return pa.RecordBatch.from_arrays([*carried, pa.array(share), pa.array(spam)], schema=schema)

    def flush_held(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch | None:
        errors.reject(held, np.arange(held.num_rows), "incomplete", "words of the message are missing")
        return None

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([0, 0, 0, 1, 2, 2, 3, 4, 4], pa.int64()),
                "id": ["a", None, None, "b", "ü", None, None, None, "d"],
                "word": [None, "win", "the", None, None, "ü", "lost", "late", None],
                "n_words": [2, 2, 2, 0, 1, 1, 1, 1, 1],
                "count_bad": pa.array([10, 3, 1, 10, 10, None, 3, 1, 0], pa.int64()),
                "count_good": [10, 0, 1, 10, 10, 0, 5, 1, 0],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(emit_empty=True, max_words=1, threshold=0.3, keep=("id", "n_words")), batch, "one word")
