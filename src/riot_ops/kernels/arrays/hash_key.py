"""Keys of the hashes in sketches: none, or derived from a secret, the same in every process that has the secret."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.secret import Secret
from riot_ops.kernels.arrays.hashing import NO_SECRET
from riot_ops.kernels.arrays.keyed_hashing import WORDS, new_secret

__all__ = ["TAG_BYTES", "HashKey"]

TAG_BYTES = 16
_PART = 64


class HashKey:
    """The key of a sketch's hash, and the tag by which kept state recognises it.

    Both are digests of the secret by BLAKE2b, with different purposes, so that a tag reveals nothing of the key.

    Parameters
    ----------
    secret : Secret or None
        Read once, here. None: the hash is fixed, and the tag is empty.

    Examples
    --------
    >>> HashKey(None).tag, HashKey(Secret("a")) == HashKey(Secret("a")), HashKey(Secret("a")) == HashKey(Secret("b"))
    (b'', True, False)
    """

    __slots__ = ("secret", "tag", "words")

    def __init__(self, secret: Secret | None) -> None:
        self.secret = secret
        self.tag = b""
        self.words: npt.NDArray[np.uint64] = NO_SECRET
        if secret is not None:
            text = secret.reveal().encode("utf-8", "surrogatepass")
            parts = range(8 * WORDS // _PART)
            self.words = new_secret(b"".join(_digest(text, b"riot_ops hash", part, _PART) for part in parts))
            self.tag = _digest(text, b"riot_ops tag", 0, TAG_BYTES)

    def mismatch(self, tag: bytes) -> str:
        """Say how the secret differs from that of a tag; empty if it is the same.

        >>> HashKey(None).mismatch(HashKey(Secret("a")).tag)
        'was made with a secret; give it as secret='
        """
        if tag == self.tag:
            return ""
        if not tag:
            return "was made without a secret; leave out secret="
        return f"was made with {'another' if self.tag else 'a'} secret; give {'that' if self.tag else 'it'} as secret="

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashKey) and self.tag == other.tag

    def __hash__(self) -> int:
        return hash(self.tag)

    def __repr__(self) -> str:
        return f"HashKey({self.secret!r})"

    def __reduce__(self) -> tuple[Any, ...]:  # no pickle holds the derived key
        return HashKey, (self.secret,)


def _digest(text: bytes, purpose: bytes, part: int, size: int) -> bytes:
    return hashlib.blake2b(text, digest_size=size, person=purpose, salt=bytes([part])).digest()
