"""Errors relative to the latest average of a key, one record at a time."""

import math


def _missing(v):
    return v is None or math.isnan(v)


class Errors:
    def __init__(self):
        self.averages = {}

    def push(self, key, predicted, observed, average):
        """Return a list with the error (or None), or an empty list."""
        if not _missing(average):
            self.averages[key] = average
            if _missing(predicted):
                return []
        if _missing(predicted) or _missing(observed):
            return [None]
        for scale in (self.averages.get(key), observed):
            if scale:
                error = abs(predicted - observed) / abs(scale)
                return [error if math.isfinite(error) else None]
        return [None]
