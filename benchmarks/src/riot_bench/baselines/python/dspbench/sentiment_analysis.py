"""Sentiment analysis in plain Python."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from riot_bench.baselines.python.rows import new_rows

__all__ = ["sentiment_analysis", "tweets"]

_BREAKS = str.maketrans(dict.fromkeys(string.punctuation + string.whitespace + "\0", " "))
Lexicon = dict[str, float]


def tweets(lines: Iterable[bytes]) -> Iterator[tuple[str, datetime, str, str | None]]:
    """Yield id, time, text and language of each tweet that has the first three, all at top level or all in ``data``."""
    for line in lines:
        try:
            whole = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(whole, dict):
            continue
        inner = whole.get("data")
        tweet = inner if isinstance(inner, dict) else whole
        try:
            created = tweet["created_at"]
            if created[:1].isalpha():
                at = datetime.strptime(created, "%a %b %d %H:%M:%S %z %Y")
            else:
                at = datetime.fromisoformat(created)
            number, text = tweet["id"], tweet["text"]
        except (KeyError, TypeError, ValueError):
            continue
        if number is not None and isinstance(text, str):
            yield str(number), at, text, tweet.get("lang")


def _lexicon(path: str | None) -> Lexicon:
    if path is None:
        from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import VALENCES

        return dict(VALENCES)
    rows = (line.split("\t") for line in Path(path).read_text(encoding="utf-8-sig").splitlines() if line.strip())
    return {row[0].strip().lower(): float(row[1]) for row in rows}


def _stop_words(given: str | Sequence[str] | None, mode: str) -> frozenset[str]:
    if given is None:
        from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import STOP_WORDS

        return frozenset(STOP_WORDS if mode == "counts" else ())
    if isinstance(given, str):
        lines = Path(given).read_text(encoding="utf-8-sig").splitlines()
        given = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return frozenset(word.lower() for word in given)


def _values(lexicon: Lexicon, phrases: bool) -> Callable[[list[str]], list[float]]:
    """Return a function for the valences of words, or of the longest phrases that begin with each."""
    if not phrases:
        return lambda words: [lexicon[word] for word in words if word in lexicon]
    terms: dict[str, list[tuple[list[str], float]]] = {}
    for term, value in lexicon.items():
        parts = term.translate(_BREAKS).split()
        if parts:
            terms.setdefault(parts[0], []).append((parts, value))
    for known in terms.values():
        known.sort(key=lambda one: -len(one[0]))

    def values(words: list[str]) -> list[float]:
        found, at = [], 0
        while at < len(words):
            for parts, value in terms.get(words[at], ()):
                if words[at : at + len(parts)] == parts:
                    found.append(value)
                    at += len(parts) - 1
                    break
            at += 1
        return found

    return values


def sentiment_analysis(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    lexicon: str | None = None,
    mode: str = "basic",
    phrases: bool = False,
    stop_words: str | Sequence[str] | None = None,
    neutral: bool = False,
    languages: Sequence[str] | None = ("en",),
    keep_unknown: bool = True,
) -> dict[str, list[tuple[Any, ...]]]:
    """``sentiment``: id, sentiment, score. ``inputs`` has ``tweets``."""
    values = _values(_lexicon(lexicon), phrases)
    stop = _stop_words(stop_words, mode)
    wanted = None if languages is None else set(languages)
    judged = new_rows()
    for number, _, text, language in tweets(inputs["tweets"]):
        if wanted is not None and not (keep_unknown if language is None else language in wanted):
            continue
        words = text.translate(_BREAKS).lower().split(" ")
        if stop or phrases:
            words = [word for word in words if word and word not in stop]
        worth = values(words)
        if mode == "counts":
            worth = [1.0 if v > 0 else -1.0 for v in worth if v]
        score = float(sum(worth))
        equal = "Neutral" if mode == "basic" or neutral else "Negative"
        label = "Positive" if score > 0 else "Negative" if score < 0 else equal
        judged.append((number, label, score))
    return {"sentiment": judged}
