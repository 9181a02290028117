"""Kernels of the text of TAXI, against Python's formatting."""

import numpy as np

from riot_ops.streams.riotbench.taxi_kernels import taxi_decimals, taxi_ids


def test_ids_are_two_words_in_hexadecimal():
    ids = np.array([[1, 2, 0xABCDEF, 2**64 - 1]], np.uint64)
    out = np.zeros(64, np.uint8)
    taxi_ids(ids, 2, 2, out)
    assert out.tobytes().decode() == 2 * f"{0xABCDEF:016X}{2**64 - 1:016X}"


def test_decimals_are_written_end_to_end():
    out, ends = np.zeros(64, np.uint8), np.zeros(4, np.int64)
    end = int(taxi_decimals(np.array([1250, -5, 0]), 2, out, ends))
    assert out[:end].tobytes() == b"12.50-0.050.00"
    assert ends.tolist() == [0, 5, 10, 14]
