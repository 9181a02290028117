"""Bayes score: whether a message is spam, by what is known of its words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.core.parameters import Count, Positive, Probability
from riot_ops.kernels.arrow import byte_spans, count_column
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.masks import first, reversed_bytes
from riot_ops.kernels.numbers import load8
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register

__all__ = ["BayesScore"]

MADE = ("spam_probability", "is_spam")
#: What becomes of a message; above 0: so many words are missing.
COMPLETE, GIVEN_UP, NO_MESSAGE = 0, -1, -2
#: Words that are compared at once, and rows that are looked at together at least.
TOGETHER, LEAST_CHOSEN = 16, 64
_NOUGHT, _ONE = np.uint64(0), np.uint64(1)


@kernel
def _gather(slots: Any, whole: Any, different: Any, current: Any, entry: Any, head: Any, last: Any, status: Any) -> Any:
    """The message of each row, an entry; returns how many there are. A word without the whole before it is in none.

    Of each entry there are the row of the whole, the last row, and whether it is open, complete or given up.
    ``current`` is room for the open entry of each key, -1: none; in ``status`` stands how many words are missing while
    it is open.
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
def _lead(data: Any, start: Any, end: Any) -> Any:
    """The first eight bytes of a word but their last bit, as a number: words in order of it are so by their bytes."""
    w = _NOUGHT
    if start + 8 <= data.size:
        w = load8(data, start) & first(8 * (end - start))
    else:
        for i in range(min(end - start, 8)):
            w |= np.uint64(data[np.uint64(start + i)]) << np.uint64(8 * i)
    return np.int64(reversed_bytes(w) >> _ONE)


@kernel
def _weigh(
    entry: Any, bad: Any, good: Any, head: Any, status: Any, data: Any, starts: Any, ends: Any,
    unknown: Any, least: Any, ham_weight: Any, shares: Any, leads: Any, size: Any, begins: Any, grouped: Any,
) -> None:  # fmt: skip
    """How much each word of a message that is complete speaks for spam, and how it begins; and such rows by message.

    Those of message s are the ``size[s]`` before ``begins[s]`` in ``grouped``.
    """
    for i in range(entry.size):
        s = entry[i]
        if s < 0 or status[s] != COMPLETE or head[s] == i:
            continue
        h = np.uint64(head[s])
        r_bad = bad[i] / bad[h] if bad[h] > 0 else 0.0
        r_good = ham_weight * good[i] / good[h] if good[h] > 0 else 0.0
        p = unknown
        if r_bad + r_good > 0.0:
            p = min(max(r_bad / (r_bad + r_good), least), 1.0 - least)
        shares[i] = p
        leads[i] = _lead(data, starts[i], ends[i])
        size[s] += 1
    at = 0
    for s in range(head.size):
        begins[s] = at
        at += size[s]
    for i in range(entry.size):
        s = entry[i]
        if s >= 0 and status[s] == COMPLETE and head[s] != i:
            grouped[np.uint64(begins[s])] = i
            begins[s] += 1


@kernel
def _before(a: Any, b: Any, data: Any, starts: Any, ends: Any) -> Any:
    """Whether a word comes before another by its bytes."""
    p = starts[a]
    q = starts[b]
    while p < ends[a] and q < ends[b]:
        if data[p] != data[q]:
            return data[p] < data[q]
        p += 1
        q += 1
    return p >= ends[a] and q < ends[b]


@kernel
def _best(
    n: Any, most: Any, chosen: Any, told: Any, begun: Any, room: Any, leads: Any, shares: Any, data: Any, starts: Any,
    ends: Any,
) -> Any:  # fmt: skip
    """Bring the first of n chosen rows to the front, in order; returns how many these are.

    The place of each is the number of those before it. To count them takes no branch, and so less than sorting.
    ``told`` has how much each says and ``begun`` its lead, with room for so many that the loop over them has no rest;
    ``room`` is room.
    """
    padded = (n + TOGETHER - 1) // TOGETHER * TOGETHER
    for k in range(n, padded):
        told[np.uint64(k)] = -1.0
    for k in range(n):
        much = told[np.uint64(k)]
        lead = begun[np.uint64(k)]
        place = 0
        same = 0
        for j in range(padded):
            u = np.uint64(j)
            place += (told[u] > much) | ((told[u] == much) & (begun[u] < lead))
            same += (told[u] == much) & (begun[u] == lead)
        row = chosen[np.uint64(k)]
        if same > 1:
            for j in range(n):
                alike = told[j] == much and begun[j] == lead
                if j != k and alike and _before(chosen[j], row, data, starts, ends):
                    place += 1
        if place < most:
            room[np.uint64(place)] = row
    n = min(n, most)
    for k in range(n):
        row = np.uint64(room[np.uint64(k)])
        chosen[np.uint64(k)] = np.int64(row)
        told[np.uint64(k)] = abs(shares[row] - 0.5)
        begun[np.uint64(k)] = leads[row]
    return n


@kernel
def _score(
    size: Any, begins: Any, grouped: Any, shares: Any, leads: Any, data: Any, starts: Any, ends: Any, most: Any,
    chosen: Any, told: Any, begun: Any, room: Any, odds: Any,
) -> None:  # fmt: skip
    """The logarithm of the odds against spam of each message, by its most interesting words, the first one first."""
    last = 0.5
    against = 0.0
    for s in range(size.size):
        n = 0
        for at in range(begins[s] - size[s], begins[s]):
            i = np.uint64(grouped[np.uint64(at)])
            chosen[np.uint64(n)] = np.int64(i)
            told[np.uint64(n)] = abs(shares[i] - 0.5)
            begun[np.uint64(n)] = leads[i]
            n += 1
            if n == chosen.size:
                n = _best(n, most, chosen, told, begun, room, leads, shares, data, starts, ends)
        n = _best(n, most, chosen, told, begun, room, leads, shares, data, starts, ends)
        odds[s] = 0.0
        for k in range(n):
            share = shares[np.uint64(chosen[np.uint64(k)])]
            if share != last:  # the logarithm takes longer than the rest
                last = share
                against = math.log((1.0 - share) / share)
            odds[s] += against


@register
@dataclass(frozen=True, kw_only=True)
class BayesScore(KeyedTask):
    """Judge each message by the words that say most, with P. Graham's form of naive Bayes.

    With the counts B and G of the record of the whole message ``r_bad = bad / B``, ``r_good = 2 good / G``,
    ``p = r_bad / (r_bad + r_good)`` within 0.01 and 0.99; 0.4 for a word that has never been there. Of the 15 words
    with the largest ``|p - 0.5|`` (equal ones by their bytes) ``P = prod p / (prod p + prod (1 - p))``; spam if it is
    above 0.9.

    The record of the whole message comes first, and says how many words there are; with the last of them the message is
    judged, see :class:`BagOfWords` and :class:`SpamCounts`.

    Parameters
    ----------
    keep : tuple of str, default ("id",)
        Fields of the record of the whole message that its result carries, besides order and time.
    words : int >= 1, default 15
        Most words that count.
    threshold : float, in (0, 1), default 0.9
        A message is spam above it.
    unknown : float, in (0, 1), default 0.4
        p of a word that has never been there.
    least : float, in (0, 0.5), default 0.01
        Smallest p of another one; the greatest is as far below 1.
    ham_weight : float > 0, default 2.0
        How much more a word in a message that is no spam counts.
    emit_empty : bool, default False
        Whether a message without a word has a result, P = 0.5 and no spam; else it goes to the errors stream.
    word, different : str, default "word" and "n_words"
        Fields with the word (null: the whole message), and with the number of different words.
    by : tuple of str, default ("seq",)
        Fields that identify a message.
    ttl
        Has no use here.

    Shapes and rates
    ----------------
    record[n] -> float64[m] in ``spam_probability``, bool[m] in ``is_spam``, N:1; O(words) time per record. State is the
    records of messages that are not complete, no more.

    Missing values
    --------------
    Null counts are 0.

    Errors
    ------
    ``no_words`` (a message without a word), ``incomplete`` (a record of a message of which words are missing when it
    begins anew, or at the end of the stream), ``no_message`` (a word whose message has not begun).

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
    pooled: ClassVar[bool] = True

    keep: tuple[str, ...] = ("id",)
    words: Count = 15
    threshold: Probability = 0.9
    unknown: Probability = 0.4
    least: Annotated[float, msgspec.Meta(gt=0, lt=0.5)] = 0.01
    ham_weight: Positive = 2.0
    emit_empty: bool = False
    word: str = "word"
    different: str = "n_words"
    by: tuple[str, ...] = ("seq",)

    def validate(self) -> None:
        if self.ttl is not None:
            raise ConfigError(f"bayes_score has no use for ttl, got {self.ttl!r}")
        if not self.by:
            raise ConfigError("by must name the fields that identify a message, got ()")
        if both := {*MADE} & {*self.keep, *self.by}:
            raise ConfigError(f"keep and by must not have {min(both)!r}, which is made here")

    def requires(self) -> Mapping[str, Requirement]:
        numbers: dict[str, Requirement] = dict.fromkeys((self.different, "count_bad", "count_good"), "number")
        return {**super().requires(), **dict.fromkeys(self.keep, "any"), self.word: "text", **numbers}

    def writes(self) -> frozenset[str] | None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        names = dict.fromkeys([*carried(schema.names), *self.by, *self.keep])
        made = [pa.field(MADE[0], pa.float64()), pa.field(MADE[1], pa.bool_())]
        return pa.schema([*(schema.field(name) for name in names), *made])

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        words = batch.column(self.word)
        if pa.types.is_null(words.type):
            words = words.cast(pa.string())
        whole = np.asarray(words.is_null())
        different, bad, good = (count_column(batch.column(n)) for n in (self.different, "count_bad", "count_good"))
        current = np.full(int(slots.max(initial=-1)) + 1, -1)
        entry, head, last, status = (np.empty(slots.size, np.int64) for _ in range(4))
        n = int(_gather(slots, whole, different, current, entry, head, last, status))
        head, last, status = head[:n], last[:n], status[:n]
        odds, size, begins = np.empty(n), np.zeros(n, np.int64), np.empty(n, np.int64)
        shares, leads, grouped = np.empty(slots.size), np.empty(slots.size, np.int64), np.empty(slots.size, np.int64)
        spans, options = byte_spans(words)[:3], (self.unknown, self.least, self.ham_weight)
        found: tuple[Any, ...] = (shares, leads, size, begins, grouped)
        _weigh(*(entry, bad, good, head, status, *spans, *options, *found))
        chosen = np.empty(self.words + max(self.words, LEAST_CHOSEN), np.int64)
        wide = chosen.size + TOGETHER
        room = np.empty(wide), np.empty(wide, np.int64), np.empty(self.words, np.int64)
        _score(*(size, begins, grouped, shares, leads, *spans, self.words, chosen, *room, odds))
        of_row = np.append(status, NO_MESSAGE)[entry]
        dead.reject(batch, of_row == NO_MESSAGE, "no_message", "the record of the whole message has not come before")
        dead.reject(batch, of_row == GIVEN_UP, "incomplete", "the message began anew before all its words had come")
        rest = np.flatnonzero(of_row > COMPLETE)
        state["held"][0] = batch.take(pa.array(rest)) if rest.size else None
        done = status == COMPLETE
        if not self.emit_empty and (empty := done & (size == 0)).any():
            dead.reject(batch, head[empty], "no_words", "the message has no word")
            done &= ~empty
        order = np.flatnonzero(done)
        order = order[np.argsort(last[order])]
        return self._judged(batch, head[order], odds[order], size[order] > 0)

    def _judged(
        self,
        batch: pa.RecordBatch,
        heads: npt.NDArray[np.int64],
        odds: npt.NDArray[np.float64],
        worded: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        """The results of messages, given their records of the whole."""
        schema = self.output_schema(batch.schema)
        with np.errstate(over="ignore"):
            share = 1.0 / (1.0 + np.exp(odds))
        taken = pa.array(heads)
        columns = [batch.column(name).take(taken) for name in schema.names[:-2]]
        spam = (share > self.threshold) & worded
        return pa.RecordBatch.from_arrays([*columns, pa.array(share), pa.array(spam)], schema=schema)

    def end(
        self, held: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch | None:
        dead.reject(held, np.arange(held.num_rows), "incomplete", "words of the message are missing")
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
        yield Case(cls(emit_empty=True, words=1, threshold=0.3, keep=("id", "n_words")), batch, "one word")
