"""Predictions with models that are replaced, one record at a time."""

import math


class Switching:
    """Applies the model in use to observations; an update with a known name replaces it."""

    def __init__(self, models, initial=None):
        self.models = models
        self.current = dict.fromkeys([None], initial)
        self.initial = initial

    def push(self, key, update, inputs):
        """Return the prediction, "update", "bad_model", "no_model", or None for a missing input."""
        if update is not None:
            if update not in self.models:
                return "bad_model"
            self.current[key] = update
            return "update"
        name = self.current.get(key, self.initial)
        if name is None:
            return "no_model"
        if any(v is None or math.isnan(v) for v in inputs):
            return None
        return self.models[name](*inputs)
