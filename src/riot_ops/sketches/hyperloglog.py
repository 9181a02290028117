"""HyperLogLog: the number of distinct values, estimated in about a kilobyte."""

from __future__ import annotations

import math
from typing import Any, Self

import mmh3
import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError, MissingExtraError, StateError
from riot_ops.core.secret import Secret, check_secret
from riot_ops.kernels.arrays.hash_key import TAG_BYTES, HashKey
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.hyperloglog import alpha, estimate, hash_values, insert, linear_counts
from riot_ops.sketches.values import chunks_of

__all__ = ["HyperLogLog", "murmur3_64"]

_MAGIC = b"RHLL\x01"
_KEYED_MAGIC = b"RHLL\x02"


def murmur3_64(data: bytes) -> int:
    """Return the hash function of :class:`HyperLogLog`: the first half of MurmurHash3 x64 128 with seed 0.

    Pass it to ``datasketch.HyperLogLogPlusPlus(hashfunc=...)`` to continue with an exported sketch.

    >>> murmur3_64(b"riot") == mmh3.hash64(b"riot", signed=False)[0]
    True
    """
    return int(mmh3.hash64(data, signed=False)[0])


@kernel
def _insert_all(hashes: Any, present: Any, registers: Any, precision: Any) -> None:
    for i in range(hashes.size):
        if present[i]:
            insert(registers, hashes[i], precision)


class HyperLogLog:
    """Estimate the number of distinct values of a stream.

    A 64-bit hash chooses one of ``m = 2^precision`` registers by its low bits; the register keeps
    the largest rank (leading zeros of the other bits, plus 1). ``n ≈ α m² / Σ 2^-M[j]``, or
    ``m ln(m / V)`` while that is at most ``2.5 m`` and V > 0 registers are empty. The standard
    error is ``1.04 / √m`` of the estimate: 3.25 % by default, with 1 KiB of memory.

    Parameters
    ----------
    precision : int, 4 to 16, default 10
        Number of bits that choose the register.
    secret : Secret or None, default None
        Keys the hash, so that no one can choose values that raise the estimate or do not count; the serialised form
        is readable only with it. None: the hash is fixed.

    References
    ----------
    .. [1] P. Flajolet, É. Fusy, O. Gandouet, F. Meunier, *HyperLogLog*, AofA 2007, fig. 3.
    .. [2] S. Heule, M. Nunkesser, A. Hall, *HyperLogLog in Practice*, EDBT 2013, section 4
       (64-bit hash).

    Examples
    --------
    >>> morning, evening = HyperLogLog(), HyperLogLog()
    >>> morning.add(["a", "b", "c", "a"])
    >>> evening.add(["c", "d"])
    >>> round(morning.estimate()), round(morning.merge(evening).estimate())
    (3, 4)
    """

    def __init__(self, precision: int = 10, *, secret: Secret | None = None) -> None:
        if not isinstance(precision, int) or not 4 <= precision <= 16:
            raise ConfigError(f"precision must be a whole number from 4 to 16, got {precision!r}")
        self.precision = precision
        self.hash_key: HashKey = HashKey(check_secret("HyperLogLog", "secret", secret))
        self.registers: npt.NDArray[np.uint8] = np.zeros(1 << precision, np.uint8)

    def add(self, column: Any) -> None:
        """Add values: an Arrow array, or a list or the like; nulls and NaN do not count."""
        for chunk in chunks_of(column, "HyperLogLog.add"):
            hashes, present = hash_values(chunk, self.hash_key.words)
            _insert_all(hashes, present, self.registers, self.precision)

    def estimate(self) -> float:
        """Return the estimated number of distinct values added."""
        return float(estimate(*self._sums(), self.precision, alpha(self.precision), linear_counts(self.precision)))

    def _sums(self) -> tuple[int, np.uint64]:
        ranks = np.bincount(self.registers, minlength=1)
        weight = sum(int(n) << (65 - self.precision - r) for r, n in enumerate(ranks) if r)
        return int(ranks[0]), np.uint64(weight % 2**64)

    @property
    def standard_error(self) -> float:
        """Relative standard error ``1.04 / √m``."""
        return 1.04 / math.sqrt(self.registers.size)

    def merge(self, other: HyperLogLog) -> HyperLogLog:
        """Merge two sketches; the result equals one sketch of all values."""
        if other.precision != self.precision:
            raise ConfigError(f"sketches of precision {self.precision} and {other.precision} cannot be merged")
        if self.hash_key != other.hash_key:
            raise ConfigError("sketches with different values of secret cannot be merged")
        merged = HyperLogLog(self.precision)
        merged.hash_key = self.hash_key
        np.maximum(self.registers, other.registers, out=merged.registers)
        return merged

    def to_bytes(self) -> bytes:
        """Serialise the sketch, the same on every machine: format, tag of the secret if any, precision, registers."""
        return (
            (_KEYED_MAGIC if self.hash_key.tag else _MAGIC)
            + self.hash_key.tag
            + bytes([self.precision])
            + self.registers.tobytes()
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, secret: Secret | None = None) -> Self:
        """Load the data of :meth:`to_bytes`; raise :class:`StateError` for anything else, and for another secret.

        >>> sketch = HyperLogLog(4)
        >>> sketch.add([1, 2, 3])
        >>> HyperLogLog.from_bytes(sketch.to_bytes()) == sketch
        True
        """
        key = HashKey(check_secret("HyperLogLog", "secret", secret))
        keyed = data[: len(_MAGIC)] == _KEYED_MAGIC
        head = len(_MAGIC) + (TAG_BYTES if keyed else 0)
        if not (keyed or data[:head] == _MAGIC) or len(data) <= head or not 4 <= data[head] <= 16:
            raise StateError("these bytes are not a HyperLogLog of riot_ops (version 1 or 2)")
        if wrong := key.mismatch(data[len(_MAGIC) : head]):
            raise StateError(f"the HyperLogLog {wrong}")
        sketch = cls._of(data[head], np.frombuffer(data, np.uint8, offset=head + 1))
        sketch.hash_key = key
        return sketch

    @classmethod
    def _of(cls, precision: int, registers: npt.NDArray[np.uint8]) -> Self:
        sketch = cls(precision)
        if registers.size != sketch.registers.size or registers.max() > 65 - precision:
            raise StateError(
                f"a HyperLogLog of precision {precision} has {sketch.registers.size} registers "
                f"up to {65 - precision}, got {registers.size} up to {registers.max(initial=0)}"
            )
        sketch.registers[:] = registers
        return sketch

    def to_datasketch(self) -> Any:
        """Convert to a ``datasketch.HyperLogLogPlusPlus`` with the same registers and hash function.

        A sketch with a secret is refused: its hash function is not one of datasketch.
        """
        if self.hash_key.tag:
            raise ConfigError("a HyperLogLog with a secret has no hash function for datasketch")
        try:
            from datasketch import HyperLogLogPlusPlus
        except ImportError:
            raise MissingExtraError("exchange with datasketch", "sketch") from None
        return HyperLogLogPlusPlus(reg=self.registers.astype(np.int8), hashfunc=murmur3_64)

    @classmethod
    def from_datasketch(cls, sketch: Any) -> Self:
        """Convert a ``datasketch.HyperLogLogPlusPlus`` that uses :func:`murmur3_64`."""
        if sketch.hashfunc is not murmur3_64:
            raise ConfigError(
                "only a HyperLogLogPlusPlus with hashfunc=murmur3_64 can be converted: with "
                "another hash function its values would count twice"
            )
        return cls._of(sketch.p, sketch.reg.astype(np.uint8))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HyperLogLog)
            and self.precision == other.precision
            and self.hash_key == other.hash_key
            and bool(np.array_equal(self.registers, other.registers))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        key = "" if self.hash_key.secret is None else f", secret={self.hash_key.secret!r}"
        return f"HyperLogLog(precision={self.precision}{key})  # about {self.estimate():.0f} distinct values"
