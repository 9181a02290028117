"""The spam filter in plain Python."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from riot_bench.baselines.python.rows import new_rows

__all__ = ["spam_filter"]

_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_words = re.compile(r"[A-Za-z0-9_]+").findall


def _mails(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Parse the lines that are mails with an id and a message."""
    for line in lines:
        try:
            mail = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(mail, dict) and isinstance(mail.get("message"), str) and isinstance(mail.get("id"), str | int):
            yield mail


class _Table:
    """Counts of words in spam and in other mails."""

    def __init__(self, path: str | None) -> None:
        self.bad: Counter[str] = Counter()
        self.good: Counter[str] = Counter()
        self.spam_total = self.ham_total = 0
        if path is not None:
            stored = orjson.loads(Path(path).read_bytes())
            self.spam_total, self.ham_total = stored["spam_total"], stored["ham_total"]
            for word, record in stored["words"].items():
                self.bad[word], self.good[word] = record["count_bad"], record["count_good"]

    def learn(self, lines: Iterable[bytes]) -> None:
        for mail in _mails(lines):
            spam = _TRUTH.get(str(mail.get("spam")).lower())
            if spam is None:
                continue
            words = [word.lower() for word in _words(mail["message"])]
            if spam:
                self.bad.update(words)
                self.spam_total += len(words)
            else:
                self.good.update(words)
                self.ham_total += len(words)

    def rows(self) -> list[tuple[Any, ...]]:
        words = [(word, self.bad[word], self.good[word]) for word in {**self.bad, **self.good}]
        return [(None, self.spam_total, self.ham_total), *words]


def spam_filter(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    table: str | None = None,
    training: bool = True,
    max_words: int = 15,
    threshold: float = 0.9,
    unknown: float = 0.4,
    min_probability: float = 0.01,
    emit_empty: bool = False,
    keep_table: bool = False,
) -> dict[str, list[tuple[Any, ...]]]:
    """``results``: id, spam_probability, is_spam. ``inputs`` has ``training`` and ``analysis``, lines of JSON.

    ``keep_table`` adds ``table``: word, count_bad, count_good; the row of the totals has no word.
    """
    known = _Table(table)
    if training:
        known.learn(inputs["training"])
    # cache by word: negative distance of its spam share from 0.5, the word, and its addend to the log odds
    judged: dict[str, tuple[float, str, float]] = {}

    def judge(word: str) -> tuple[float, str, float]:
        bad, good = known.bad.get(word, 0), known.good.get(word, 0)
        in_spam = bad / known.spam_total if known.spam_total else 0.0
        in_ham = 2 * good / known.ham_total if known.ham_total else 0.0
        share = unknown
        if in_spam + in_ham > 0:
            share = min(max(in_spam / (in_spam + in_ham), min_probability), 1 - min_probability)
        judged[word] = found = (-abs(share - 0.5), word, math.log((1 - share) / share))
        return found

    results = new_rows()
    for mail in _mails(inputs["analysis"]):
        seen = {word.lower() for word in _words(mail["message"])}
        if not seen:
            if emit_empty:
                results.append((str(mail["id"]), 0.5, False))
            continue
        significant = sorted([judged.get(word) or judge(word) for word in seen])[:max_words]
        odds = sum(one[2] for one in significant)
        probability = 1 / (1 + math.exp(odds)) if odds < 700 else 0.0
        results.append((str(mail["id"]), probability, probability > threshold))
    return {"results": results, "table": known.rows()} if keep_table else {"results": results}
