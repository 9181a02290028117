"""Sentiment analysis, one tweet at a time."""

from __future__ import annotations

import json
import string


def tokens(text):
    for mark in string.punctuation + string.whitespace + "\0":
        text = text.replace(mark, " ")
    return [word for word in text.lower().split(" ") if word]


def entries(lexicon, phrases):
    """Return the terms of a lexicon as ``(words, value)``; plain words take precedence over terms with punctuation."""
    found = {}
    for term, value in sorted(lexicon.items()):
        words = tuple(tokens(term))
        if words == (term.lower(),) or (phrases and words and words not in found):
            found[words] = value
    return found


def values(text, lexicon, phrases, stop_words):
    """Return the value of each term found in a text."""
    words = [word for word in tokens(text) if word not in stop_words]
    terms = entries(lexicon, phrases)
    i = 0
    while i < len(words):
        for size in range(len(words) - i, 0, -1):
            if tuple(words[i : i + size]) in terms:
                yield terms[tuple(words[i : i + size])]
                i += size
                break
        else:
            i += 1


def judge(text, lexicon, mode="basic", phrases=False, stop_words=(), neutral=False):
    """Return ``(label, score)``."""
    found = list(values(text, lexicon, phrases, stop_words))
    if mode == "basic":
        score, neutral = sum(found), True
    else:
        score = len([v for v in found if v > 0]) - len([v for v in found if v < 0])
    if score == 0 and neutral:
        return "Neutral", score
    return ("Positive" if score > 0 else "Negative"), score


def sentiment_analysis(lines, lexicon, *, languages=("en",), keep_unknown=True, **options):
    """Return ``(line, id, label, score)`` of each classified tweet, in order."""
    for number, line in enumerate(lines):
        try:
            tweet = json.loads(line)
        except ValueError:
            continue
        if not isinstance(tweet, dict):
            continue
        if isinstance(tweet.get("data"), list):
            continue
        whole = tweet["data"] if isinstance(tweet.get("data"), dict) else tweet
        one = {name: whole.get(name) for name in ("id", "created_at", "text", "lang")}
        if one["id"] is None or not isinstance(one["text"], str) or not isinstance(one["created_at"], str):
            continue
        if not (one["lang"] is None or isinstance(one["lang"], str)):
            continue
        if languages is not None and not (keep_unknown if one["lang"] is None else one["lang"] in languages):
            continue
        yield number, one["id"], *judge(one["text"], lexicon, **options)
