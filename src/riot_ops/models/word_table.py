"""Word counts in spam and in other messages."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, excerpt, value_text
from riot_ops.core.paths import local_path

__all__ = ["WordTable", "spam_share"]


def spam_share(
    bad: float, good: float, spam_total: float, ham_total: float, *, unknown: float = 0.4, min_share: float = 0.01
) -> float:
    """Return the probability that a message with a word is spam, after P. Graham.

    ``r_bad = bad / spam_total``, ``r_good = 2 good / ham_total``, ``p = r_bad / (r_bad + r_good)``, limited to
    ``min_share`` and ``1 - min_share``; ``unknown`` for a word that never occurred.

    >>> spam_share(3, 1, 10, 10), spam_share(3, 0, 10, 10), spam_share(0, 0, 10, 10)
    (0.6, 0.99, 0.4)
    """
    r_bad = bad / spam_total if spam_total else 0.0
    r_good = 2 * good / ham_total if ham_total else 0.0
    if r_bad + r_good == 0:
        return unknown
    return min(max(r_bad / (r_bad + r_good), min_share), 1 - min_share)


@dataclass(frozen=True)
class WordTable:
    """Occurrences of words in spam (bad) and in other messages (good).

    Attributes
    ----------
    counts : dict of str to (int, int)
        Occurrences of each word in spam and in other messages.
    spam_total, ham_total : int
        Number of words in all messages of each class.

    Examples
    --------
    >>> table = WordTable({"prize": (8, 1), "meeting": (0, 6)}, spam_total=100, ham_total=200)
    >>> table.counts["prize"]
    (8, 1)
    """

    counts: dict[str, tuple[int, int]]
    spam_total: int
    ham_total: int

    @classmethod
    def of(cls, rows: Iterable[Any]) -> WordTable:
        """Return the table of records ``word``, ``count_bad``, ``count_good``; a record without a word has the totals.

        Records of the same word are added up.

        >>> table = WordTable.of([{"word": "win", "count_bad": 2, "count_good": 1}])
        >>> table.counts, table.spam_total
        ({'win': (2, 1)}, 2)
        """
        counts: dict[str | None, tuple[int, int]] = {}
        for row in rows:
            bad, good = counts.get(row["word"], (0, 0))
            counts[row["word"]] = bad + row["count_bad"], good + row["count_good"]
        words = {word: both for word, both in counts.items() if word is not None}
        spam, ham = counts.get(None) or (sum(bad for bad, _ in words.values()), sum(good for _, good in words.values()))
        return cls(words, spam, ham)

    def save(self, path: str) -> None:
        """Write the table as JSON: ``{"words": {word: {…}}, "spam_total", "ham_total"}``.

        Each word has ``word``, ``count_bad``, ``count_good``, ``r_bad``, ``r_good`` and ``p_spam``.
        """
        totals = self.spam_total, self.ham_total
        words = {
            word: {
                "word": word,
                "count_bad": bad,
                "count_good": good,
                "r_bad": bad / totals[0] if totals[0] else 0.0,
                "r_good": 2 * good / totals[1] if totals[1] else 0.0,
                "p_spam": spam_share(bad, good, *totals),
            }
            for word, (bad, good) in sorted(self.counts.items())
        }
        data = {"words": words, "spam_total": totals[0], "ham_total": totals[1]}
        local_path(path).write_bytes(msgspec.json.encode(data))

    @classmethod
    def load(cls, path: str) -> WordTable:
        """Load the table in a file, once per process and version of the file.

        Raises
        ------
        ConfigError
            If the file cannot be read or is not such a table.
        """
        file = local_path(path)
        try:
            status = file.stat()
            return _load(str(file), status.st_mtime_ns, status.st_size)
        except OSError as error:
            raise ConfigError(f"the word table {path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ConfigError(f"the word table {path}: {error}") from None


@functools.lru_cache(maxsize=4)
def _load(path: str, modified: int, size: int) -> WordTable:
    data = msgspec.json.decode(Path(path).read_bytes())
    entries = data.get("words") if isinstance(data, dict) else None
    if not isinstance(entries, dict):
        raise ValueError("it must be a JSON object with words, spam_total and ham_total")
    words = {}
    for word, entry in entries.items():
        if not isinstance(entry, dict):
            raise ValueError(f"the word {excerpt(word)!r} must be an object, got {value_text(entry)}")
        words[word] = _count(entry, "count_bad", word), _count(entry, "count_good", word)
    return WordTable(words, _count(data, "spam_total"), _count(data, "ham_total"))


def _count(of: dict[str, Any], name: str, word: str | None = None) -> int:
    value = of.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        where = "" if word is None else f" of the word {excerpt(word)!r}"
        raise ValueError(f"{name}{where} must be a whole number >= 0, got {value_text(value)}")
    return value
