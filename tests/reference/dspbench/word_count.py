"""Word count, one line at a time."""

from __future__ import annotations

import re


def word_count(lines, *, lowercase=False, unicode=False):
    """Return ``(line, word, count)`` for each word of the lines, in order."""
    seen = {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        for word in re.findall(r"\w+" if unicode else r"[A-Za-z0-9_]+", line):
            key = word.lower() if lowercase else word
            seen[key] = seen.get(key, 0) + 1
            yield number, key, seen[key]
