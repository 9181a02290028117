"""Spam filter, one message at a time."""

from __future__ import annotations

import json
import math
import re
from collections import Counter


def tokens(message):
    return Counter(re.findall(r"[A-Za-z0-9_]+", message.lower(), re.ASCII))


def records(lines, *names):
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and all(one.get(name) is not None for name in names):
            yield one


class Table:
    """Return the counts of words."""

    def __init__(self):
        self.bad, self.good = Counter(), Counter()

    def train(self, lines):
        for one in records(lines, "id", "message", "spam"):
            (self.bad if one["spam"] else self.good).update(tokens(one["message"]))
        return self

    def share(self, word, unknown=0.4, min_probability=0.01):
        spam, ham = sum(self.bad.values()), sum(self.good.values())
        r_bad = self.bad[word] / spam if spam else 0.0
        r_good = 2 * self.good[word] / ham if ham else 0.0
        if r_bad + r_good == 0:
            return unknown
        return min(max(r_bad / (r_bad + r_good), min_probability), 1 - min_probability)


def spam_filter(training, analysis, *, max_words=15, threshold=0.9, emit_empty=False, **options):
    """Return ``(id, P, is spam)`` of each message, in order."""
    table = Table().train(training)
    for one in records(analysis, "id", "message"):
        shares = [(table.share(word, **options), word) for word in tokens(one["message"])]
        if not shares:
            if emit_empty:
                yield one["id"], 0.5, False
            continue
        chosen = [p for p, _ in sorted(shares, key=lambda s: (-abs(s[0] - 0.5), s[1]))[:max_words]]
        odds = sum(math.log((1 - p) / p) for p in chosen)
        probability = 1 / (1 + math.exp(odds)) if odds < 700 else 0.0
        yield one["id"], probability, probability > threshold
