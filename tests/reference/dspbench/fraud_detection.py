"""Fraud detection, one purchase at a time."""

from __future__ import annotations

import itertools
import math


def read_model(path):
    names, *rows = path.read_text().split("\n")
    return names.strip().split(","), [[float(cell) for cell in row.split(",")] for row in rows if row.strip()]


def score(chain, names, matrix, metric):
    """Return the score of a sequence of states."""
    places = [names.index(state) for state in chain]
    top = bottom = 0.0
    for a, b in itertools.pairwise(places):
        row = matrix[a]
        if metric == "miss_probability":
            top, bottom = top + 1 - row[b], bottom + 1
        elif metric == "miss_rate":
            top, bottom = top + (b != row.index(max(row))), bottom + 1
        else:
            h = [-p * math.log(p) if p else 0.0 for p in row]
            top, bottom = top + sum(h) - h[b], bottom + sum(h)
    return top / bottom if bottom else 0.0


def fraud_detection(lines, names, matrix, *, metric="miss_probability", window=5, local=True, threshold=0.96, column=1):
    """Return ``(line, customer, score, states)`` of each outlier, and the rejected lines by reason."""
    chains, found, bad = {}, [], []
    for number, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) < column + 2 or (column == 1 and len(cells) > 3):
            bad.append((number, "wrong_cells"))
        elif not cells[0] or not cells[1 + column]:
            bad.append((number, "missing"))
        elif cells[1 + column] not in names:
            bad.append((number, "unknown_state"))
        else:
            chain = chains.setdefault(cells[0], [])
            chain.append(cells[1 + column])
            if len(chain) < (window if local else 2):
                continue
            value = score(chain[-window:] if local else chain, names, matrix, metric)
            if value > threshold:
                found.append((number, cells[0], value, ",".join(chain[-window:])))
    return found, bad
