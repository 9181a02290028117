"""Markov chains over named states: training, text form, and how unlikely transitions are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.arrow import readonly

__all__ = ["PURCHASE_SHARES", "MarkovModel", "load_model", "purchase_model"]

#: Maximum size of a file.
MAX_BYTES = 64 * 2**20
#: Tolerance of the sum of a row, because files have rounded probabilities.
SUM_TOLERANCE = 1e-4

#: Properties of a purchase by card, each with the letters of a state's name and their shares: the amount (low, medium,
#: high), whether the basket has an expensive item (normal, high), and the time since the last purchase (large, normal,
#: small).
PURCHASE_SHARES: tuple[dict[str, float], ...] = (
    {"L": 0.35, "M": 0.53, "H": 0.12},
    {"N": 0.85, "H": 0.15},
    {"L": 0.35, "N": 0.45, "S": 0.20},
)
#: Customers that the default model is trained on, and purchases of each.
CUSTOMERS, ROUNDS = 5_000, 15


@dataclass(frozen=True, eq=False)
class MarkovModel:
    """Transition probabilities between named states.

    Parameters
    ----------
    states : sequence of str
        Distinct names of the states, not empty and without commas.
    matrix : array of float64, shape (states, states)
        Row i has the probabilities of the states that follow state i; it sums to 1 (within 0.0001).

    Examples
    --------
    >>> weather = MarkovModel.train(["sun", "rain"], ["a", "b", "a", "a", "b"], ["sun", "sun", "sun", "rain", "rain"])
    >>> print(weather.to_text())
    sun,rain
    0.3333333333333333,0.6666666666666666
    0.5,0.5
    """

    states: tuple[str, ...]
    matrix: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(self.states))
        n = len(self.states)
        named = all(isinstance(state, str) and _is_name(state) for state in self.states)
        if not (n and named and len(set(self.states)) == n):
            raise ConfigError(
                "states must be different names without commas, line breaks and blanks at their ends, got "
                f"{excerpt(str(self.states))}"
            )
        matrix = np.array(self.matrix, np.float64)
        if matrix.shape != (n, n):
            raise ConfigError(f"matrix must have {n} rows and columns, one per state, got {matrix.shape}")
        # negated, so that NaN is refused as well
        wrong = np.flatnonzero(~((matrix >= 0).all(axis=1) & (np.abs(matrix.sum(axis=1) - 1) <= SUM_TOLERANCE)))
        if wrong.size:
            raise ConfigError(f"the row of the state {self.states[wrong[0]]!r} must be probabilities that sum to 1")
        object.__setattr__(self, "matrix", readonly(matrix))

    @classmethod
    def train(cls, states: Sequence[str], keys: Any, seen: Any) -> Self:
        """Train a model on observations: record i has the state ``seen[i]`` and belongs to the chain ``keys[i]``.

        The transitions of a chain are counted in the order of its records. If a transition never occurs, all counts of
        its row are incremented (Laplace), so that no transition is impossible. Keys and states are Arrow arrays or
        lists; an unknown state raises :class:`ConfigError`.
        """
        n = len(states)
        codes = pc.index_in(_array(seen).cast(pa.string()), pa.array(list(states), pa.string()))
        if codes.null_count:
            unknown = _array(seen).filter(codes.is_null())[0].as_py()
            raise ConfigError(f"seen has the state {unknown!r}, the model {excerpt(', '.join(states))}")
        chains = _array(keys).dictionary_encode().indices.to_numpy(zero_copy_only=False)
        order = np.argsort(chains, kind="stable")
        ordered, at = chains[order], codes.to_numpy(zero_copy_only=False)[order]
        follows = ordered[1:] == ordered[:-1]
        counts = np.bincount(at[:-1][follows] * np.int64(n) + at[1:][follows], minlength=n * n).reshape(n, n)
        counts = counts + (counts == 0).any(axis=1, keepdims=True)
        return cls(tuple(states), counts / counts.sum(axis=1, keepdims=True))

    def to_text(self) -> str:
        """Return the model as lines: the states, then a row of probabilities for each state."""
        return "\n".join([",".join(self.states), *(",".join(map(repr, row)) for row in self.matrix.tolist())])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of :meth:`to_text`; raise :class:`ConfigError` if it is not a model."""
        names, *rows = [line.strip() for line in text.strip().split("\n")]
        states = [name.strip() for name in names.split(",")]
        try:
            matrix = [[float(cell) for cell in row.split(",")] for row in rows]
        except ValueError:  # whose text shows the content of the file
            raise ConfigError("a row of probabilities must be numbers") from None
        if [len(row) for row in matrix] != [len(states)] * len(states):
            raise ConfigError(f"{len(states)} states need as many rows and columns, got rows of {[*map(len, matrix)]}")
        return cls(tuple(states), np.array(matrix))

    def costs(self, metric: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the contribution of a transition to a score and, by its first state, to the divisor of the score."""
        p = self.matrix
        unit = readonly(np.ones(len(self.states)))
        if metric == "miss_probability":
            return readonly(1 - p), unit
        if metric == "miss_rate":
            return readonly(1.0 - (np.arange(len(p)) == p.argmax(axis=1)[:, None])), unit
        h = -p * np.log(np.where(p > 0, p, 1.0))
        whole = h.sum(axis=1)
        return readonly(whole[:, None] - h), readonly(whole)


@functools.cache
def purchase_model() -> MarkovModel:
    """Return the default model: trained on 75,000 card purchases of 5,000 customers, see :data:`PURCHASE_SHARES`."""
    parts = []
    for place, shares in enumerate(PURCHASE_SHARES):
        cut = np.cumsum(list(shares.values()))[:-1]
        parts.append(np.array(list(shares))[np.searchsorted(cut, _noise(place, CUSTOMERS * ROUNDS), side="right")])
    seen = functools.reduce(np.char.add, parts)
    names = [a + b + c for a in PURCHASE_SHARES[0] for b in PURCHASE_SHARES[1] for c in PURCHASE_SHARES[2]]
    return MarkovModel.train(names, np.arange(CUSTOMERS * ROUNDS) % CUSTOMERS, seen)


def load_model(path: str) -> MarkovModel:
    """Load the model in a file, once per process and version of the file."""
    where = local_path(path, "model")
    try:
        status = where.stat()
        if status.st_size > MAX_BYTES:
            raise ConfigError(f"the model {path} has {status.st_size} bytes, more than the allowed {MAX_BYTES}")
        return _read(where, status.st_mtime_ns, status.st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the model {path} cannot be read: {error}") from None


@functools.lru_cache(maxsize=16)
def _read(path: Path, modified: int, size: int) -> MarkovModel:
    try:
        return MarkovModel.from_text(path.read_text(encoding="utf-8-sig"))
    except ConfigError as error:
        raise ConfigError(f"the model {path}: {error}") from None


def _is_name(state: str) -> bool:
    return bool(state) and state == state.strip() and not {",", "\n", "\r"} & set(state)


def _array(values: Any) -> pa.Array:
    values = values if isinstance(values, pa.Array) else pa.array(values)
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _noise(stream: int, n: int) -> npt.NDArray[np.float64]:
    """Random numbers in [0, 1) that do not depend on the release of NumPy: splitmix64 of their indexes."""
    x = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(stream << 32)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
