"""The fields of a key's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["StateField"]


@dataclass(frozen=True)
class StateField:
    """One field of a key's state.

    Parameters
    ----------
    dtype : str
        NumPy type such as ``float64``; or ``json`` (any JSON value) and ``rows`` (a record batch or
        None), which are kept as a list with one Python object per key.
    shape : int
        Length of the field; 0 for a scalar.
    initial : number or object
        Value for a new key.
    grows : bool, default False
        Whether the task may put a longer array in place of the field's, see :meth:`widened`; ``shape`` is its length at
        first.
    """

    dtype: str
    shape: int = 0
    initial: Any = 0
    grows: bool = False

    @property
    def is_object(self) -> bool:
        return self.dtype in ("json", "rows")

    def empty(self, n: int, like: Any = None) -> Any:
        """The field for n new keys; of one that grows with the length of an array of it."""
        if self.is_object:
            return [self.initial] * n
        shape = like.shape[1] if self.grows and like is not None else self.shape
        room = (n, shape) if shape else n
        # of zeros the system gives no memory before they are written to
        return np.full(room, self.initial, self.dtype) if self.initial else np.zeros(room, self.dtype)

    def widened(self, array: Any, least: int) -> Any:
        """An array of a field that grows, twice as long until it has room for so many values of each key."""
        width = array.shape[1]
        while width < least:
            width *= 2
        if width == array.shape[1]:
            return array
        grown = self.empty(len(array), np.empty((0, width)))
        grown[:, : array.shape[1]] = array
        return grown

    def bytes_of(self, array: Any) -> int:
        """Bytes that a key takes in an array; of an object, about."""
        return 64 if self.is_object else array.itemsize * (array.shape[1] if array.ndim > 1 else 1)
