"""The fields of a key's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["StateField"]


@dataclass(frozen=True)
class StateField:
    """One field of a key's state.

    Parameters
    ----------
    dtype : str
        NumPy type such as ``float64``; or ``json`` (any JSON value) and ``rows`` (a record batch or None), which are
        stored as a list with one Python object per key.
    shape : int, default 0
        Length of the field; 0 for a scalar.
    initial : number or object, default 0
        Value for a new key.
    growable : bool, default False
        Whether the task may replace the field's array by a longer one, see :meth:`widen`; ``shape`` is the initial
        length.
    pack, unpack : functions, optional
        Of a ``json`` or ``rows`` field: convert the object to a JSON value or a record batch, and back. A key without
        rows (None) gets the initial object back.
    """

    dtype: str
    shape: int = 0
    initial: Any = 0
    growable: bool = False
    pack: Callable[[Any], Any] | None = field(default=None, compare=False)
    unpack: Callable[[Any], Any] | None = field(default=None, compare=False)

    @property
    def is_object(self) -> bool:
        return self.dtype in ("json", "rows")

    def empty(self, n: int, like: Any = None) -> Any:
        """Return the field for n new keys; a growable field gets the length of ``like``, an existing array of it."""
        if self.is_object:
            return [self.initial] * n
        shape = like.shape[1] if self.growable and like is not None else self.shape
        room = (n, shape) if shape else n
        # the operating system allocates zeroed memory only when it is written
        return np.full(room, self.initial, self.dtype) if self.initial else np.zeros(room, self.dtype)

    def widen(self, array: Any, min_width: int) -> Any:
        """Double the length of a growable field until it has room for ``min_width`` values per key."""
        width = array.shape[1]
        while width < min_width:
            width *= 2
        if width == array.shape[1]:
            return array
        grown = self.empty(len(array), np.empty((0, width)))
        grown[:, : array.shape[1]] = array
        return grown
