"""Bloom filter: an approximate set with false positives but no false negatives."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.casting import is_text
from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import local_path, write_atomic
from riot_ops.core.secret import Secret, check_secret
from riot_ops.kernels.arrays.arrow import NO_MASK, byte_spans, readonly
from riot_ops.kernels.arrays.hash_key import TAG_BYTES, HashKey
from riot_ops.kernels.arrays.hashing import NO_SECRET, hash_columns, hash_strings
from riot_ops.kernels.stats.bloom import contains_hashes, insert_hashes
from riot_ops.sketches.values import chunks_of

__all__ = ["BloomFilter", "bloom_size", "value_hashes"]

MAGIC = b"RBLM"
FORMAT = 1
#: Of a filter with a secret: the secret's tag follows the header.
KEYED_FORMAT = 2
_HEADER = struct.Struct("<4sHHQdQQ")  # magic, format, k, n, p, m, count
_CHECKSUM = struct.Struct("<I")  # CRC-32 of everything before it


#: Maximum size of a filter.
MAX_BITS = 1 << 33


def bloom_size(capacity: int, error: float) -> tuple[int, int]:
    """Return the number of bits m and of hash functions k of a filter for n values with false positive rate p.

    ``m = ceil(-n ln p / (ln 2)^2);  k = max(1, round(m / n ln 2))``.

    Examples
    --------
    >>> bloom_size(20_000_000, 0.01)
    (191701168, 7)
    """
    most = int(MAX_BITS * math.log(2) ** 2 / -math.log(error))
    if capacity > most:
        raise ConfigError(
            f"capacity must be at most {most:,}, so that the filter takes no more than {MAX_BITS // 8:,} "
            f"bytes, got {capacity:,}"
        )
    m = math.ceil(-capacity * math.log(error) / math.log(2) ** 2)
    return m, max(1, round(m / capacity * math.log(2)))


def value_hashes(
    column: pa.Array, secret: npt.NDArray[np.uint64] = NO_SECRET
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """``(h1, h2, valid)`` of a column; values other than text and binary are hashed as text.

    The hash is keyed by the words of a secret, or is MurmurHash3.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    elif not is_text(column.type):
        column = column.cast(pa.string())
    h1, h2 = hash_columns([column], len(column), secret) if secret.size else hash_strings(column)
    valid = byte_spans(column)[3] if column.null_count else NO_MASK
    return readonly(h1), readonly(h2), valid


class BloomFilter:
    """An approximate set of texts in few bits: members are always found, others sometimes.

    The bits of a value are ``g_i = ((h1 + i h2) mod 2^64) mod m`` for i = 0 … k-1, with ``h1, h2``
    the two little-endian halves of MurmurHash3 x64 128, seed 0, of its UTF-8 bytes. Anyone can compute
    texts that this hash confuses with a member; with a secret, a hash keyed by it takes its place.

    Parameters
    ----------
    capacity : int, >= 1
        Number n of distinct values that the filter is sized for.
    error : float, in (0, 1), default 0.01
        Share p of other values that are found once n values are inserted.
    secret : Secret or None, default None
        Keys the hash; the serialised form is readable only with it. None: the hash is fixed.

    Attributes
    ----------
    m, k : int
        Number of bits and of hash functions, see :func:`bloom_size`.
    count : int
        Number of insertions, repeated values included; after a merge the sum.
    words : uint64[ceil(m / 64)]
        The bits: bit b is bit ``b % 64`` of word ``b // 64``.

    Notes
    -----
    The serialised form is little-endian throughout: magic ``RBLM``, format (uint16, 1), k (uint16),
    n (uint64), p (float64), m (uint64), count (uint64), the words, and the CRC-32 (uint32) of everything before it.
    With a secret, the format is 2, and a tag of 16 bytes follows the count, a digest from which the secret cannot be
    computed unless it can be guessed: use a random text.

    References
    ----------
    .. [1] B. Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 1970.
    .. [2] A. Kirsch, M. Mitzenmacher, *Less hashing, same performance*, ESA 2006, section 3.

    Examples
    --------
    >>> known = BloomFilter.of(["s1", "s2"])
    >>> known.contains(pa.array(["s1", "s3", None])).tolist()
    [True, False, False]
    >>> BloomFilter.from_bytes(known.to_bytes()) == known
    True
    """

    def __init__(self, capacity: int, error: float = 0.01, *, secret: Secret | None = None) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ConfigError(f"capacity must be an integer >= 1, got {capacity!r}")
        if not 0 < error < 1:
            raise ConfigError(f"error must be in (0, 1), got {error!r}")
        self.capacity = capacity
        self.error: float = float(error)
        self.m: int
        self.k: int
        self.m, self.k = bloom_size(capacity, error)
        self.count: int = 0
        self.hash_key: HashKey = HashKey(check_secret("BloomFilter", "secret", secret))
        self.words: npt.NDArray[np.uint64] = np.zeros(-(-self.m // 64), np.uint64)

    @classmethod
    def of(cls, values: Any, error: float = 0.01, *, secret: Secret | None = None) -> Self:
        """Return a filter that contains the given values and is sized for them.

        >>> BloomFilter.of(["a", "b"]).count
        2
        """
        chunks = chunks_of(values, "BloomFilter.of")
        bloom = cls(max(1, sum(map(len, chunks))), error, secret=secret)
        for chunk in chunks:
            bloom.add(chunk)
        return bloom

    def add(self, column: Any) -> None:
        """Insert values: an Arrow array, or a list or the like; nulls are skipped."""
        for chunk in chunks_of(column, "BloomFilter.add"):
            h1, h2, valid = value_hashes(chunk, self.hash_key.words)
            count = np.zeros(1, np.int64)
            insert_hashes(
                h1, h2, valid, readonly(np.zeros(h1.size, np.int64)), self.m, self.k, self.words.reshape(1, -1), count
            )
            self.count += int(count[0])

    def contains(self, column: Any) -> npt.NDArray[np.bool_]:
        """Whether each value of an Arrow array, or of a list or the like, may have been inserted; false for nulls."""
        found = [np.empty(0, np.bool_)]
        for chunk in chunks_of(column, "BloomFilter.contains"):
            h1, h2, valid = value_hashes(chunk, self.hash_key.words)
            found.append(np.empty(h1.size, np.bool_))
            contains_hashes(h1, h2, valid, self.m, self.k, readonly(self.words), found[-1])
        return np.concatenate(found)

    def __contains__(self, value: Any) -> bool:
        return bool(self.contains([value])[0])

    def merge(self, other: BloomFilter) -> Self:
        """Merge two filters, which must have the same n, p and secret, into a filter of the values of both.

        >>> merged = BloomFilter(10).merge(BloomFilter(10))
        >>> merged.count
        0
        """
        if (self.capacity, self.error) != (
            other.capacity,
            other.error,
        ):
            raise ConfigError(f"Bloom filters of different sizes cannot be merged: {self!r}, {other!r}")
        if self.hash_key != other.hash_key:
            raise ConfigError("Bloom filters with different values of secret cannot be merged")
        bloom = type(self)(self.capacity, self.error)
        bloom.hash_key = self.hash_key
        np.bitwise_or(self.words, other.words, out=bloom.words)
        bloom.count = self.count + other.count
        return bloom

    def to_bytes(self) -> bytes:
        """Serialise the filter, see the notes."""
        form = KEYED_FORMAT if self.hash_key.tag else FORMAT
        body = (
            _HEADER.pack(MAGIC, form, self.k, self.capacity, self.error, self.m, self.count)
            + self.hash_key.tag
            + self.words.astype("<u8", copy=False).tobytes()
        )
        return body + _CHECKSUM.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "", *, secret: Secret | None = None) -> Self:
        """Load the data of :meth:`to_bytes`; raise :class:`ConfigError` for anything else, and for another secret.

        ``where`` names the file.
        """
        key = HashKey(check_secret("BloomFilter", "secret", secret))
        if len(data) < _HEADER.size + _CHECKSUM.size or data[:4] != MAGIC:
            raise ConfigError(f"not a Bloom filter{where}: {len(data)} bytes that begin with {bytes(data[:4])!r}")
        if zlib.crc32(memoryview(data)[: -_CHECKSUM.size]) != _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0]:
            raise ConfigError(f"damaged Bloom filter{where}: the checksum does not match its {len(data)} bytes")
        _, form, k, n, p, m, count = _HEADER.unpack_from(data)
        if form not in (FORMAT, KEYED_FORMAT):
            raise ConfigError(f"Bloom filter{where} of format {form}, this version reads {FORMAT} and {KEYED_FORMAT}")
        start = _HEADER.size + (TAG_BYTES if form == KEYED_FORMAT else 0)
        if wrong := key.mismatch(data[_HEADER.size : start]):
            raise ConfigError(f"the Bloom filter{where} {wrong}")
        size = len(data) - start - _CHECKSUM.size
        if n < 1 or not 0 < p < 1 or (m, k) != bloom_size(n, p) or size != -(-m // 64) * 8:
            raise ConfigError(f"damaged Bloom filter{where}: n = {n}, p = {p}, m = {m}, k = {k} in {size} bytes")
        bloom = cls.__new__(cls)
        bloom.hash_key = key
        bloom.capacity, bloom.error, bloom.m, bloom.k, bloom.count = n, p, m, k, count
        bloom.words = np.frombuffer(data, "<u8", size // 8, start).astype(np.uint64)
        return bloom

    def save(self, path: str | Path) -> None:
        """Write the serialised form to a file, atomically."""
        write_atomic(local_path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | Path, *, secret: Secret | None = None) -> Self:
        """Read a file written by :meth:`save`, with the secret that the filter was made with."""
        try:
            data = local_path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"the Bloom filter {path} cannot be read: {error.strerror or error}") from None
        return cls.from_bytes(data, f" in {path}", secret=secret)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BloomFilter) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"BloomFilter(capacity={self.capacity}, "
            f"error={self.error}"
            f"{'' if self.hash_key.secret is None else f', secret={self.hash_key.secret!r}'})"
        )
