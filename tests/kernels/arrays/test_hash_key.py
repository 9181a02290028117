"""Keys of hashes: derived from a secret by BLAKE2b."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pyarrow as pa

from riot_ops import Secret
from riot_ops.kernels.arrays.hash_key import HashKey
from riot_ops.kernels.arrays.hashing import hash_columns


def test_key_and_tag_are_digests_of_the_secret():
    key = HashKey(Secret("pässword"))

    def digest(purpose, part, size):
        salted = hashlib.blake2b(digest_size=size, person=purpose, salt=bytes([part]))
        salted.update("pässword".encode())
        return salted.digest()

    words = np.frombuffer(digest(b"riot_ops hash", 0, 64) + digest(b"riot_ops hash", 1, 64), "<u8").copy()
    words[2:8] |= np.uint64(1)
    assert key.words.tolist() == words.tolist()
    assert key.tag == digest(b"riot_ops tag", 0, 16)


def test_no_secret_gives_the_fixed_hash():
    column = pa.array(["a", None, "b" * 40])
    key = HashKey(None)
    assert [part.tolist() for part in hash_columns([column], 3, key.words)] == [
        part.tolist() for part in hash_columns([column], 3)
    ]


def test_pickle_holds_the_name_of_a_variable_only(monkeypatch):
    monkeypatch.setenv("RIOT_OPS_TEST_HASH_SECRET", "pa55word")
    key = HashKey(Secret.env("RIOT_OPS_TEST_HASH_SECRET"))
    data = pickle.dumps(key)
    assert b"pa55word" not in data and key.words.tobytes() not in data
    assert pickle.loads(data) == key
    assert "pa55word" not in repr(key) and repr(HashKey(Secret("pa55word"))) == "HashKey(Secret('***'))"
