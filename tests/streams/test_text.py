"""Text written into arrays, against Python's formatting."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.streams import text


def written(write_bytes, *arguments):
    out = np.zeros(64, np.uint8)
    end = write_bytes(out, 1, *arguments)
    assert out[0] == 0 and not out[int(end) + 8 :].any(), "only zeros that were trimmed stand after the end"
    return out[1 : int(end)].tobytes().decode()


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5))
def test_packed_texts_are_read_by_their_edges(texts):
    data, edges = text.pack(texts)
    assert data.tobytes() == "".join(texts).encode()
    assert [data[a:b].tobytes().decode() for a, b in pairwise(edges)] == texts
    assert [written(text.write_part, data, edges, i) for i in range(len(texts))] == texts


@given(st.integers(0, 10**15), st.integers(1, 12))
def test_digits_are_padded_with_zeros(value, width):
    assert written(text.write_digits, value, width) == f"{value:0{width}}"


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_decimals_equal_those_of_decimal(scaled, decimals):
    exact = f"{Decimal(scaled).scaleb(-decimals):.{decimals}f}"
    assert written(text.write_decimal, scaled, decimals, False) == exact


@given(st.integers(-(10**12), 10**12), st.integers(1, 6))
def test_trimmed_decimals_have_the_value_and_no_trailing_zero(scaled, decimals):
    short = written(text.write_decimal, scaled, decimals, True)
    assert Decimal(short) == Decimal(scaled).scaleb(-decimals)
    fraction = short.partition(".")[2]
    assert fraction == "" or len(fraction) == 1 or fraction[-1] != "0"


@given(st.integers(0, 2**64 - 1))
def test_hexadecimal_numbers_have_sixteen_digits(word):
    assert written(text.write_hex, np.uint64(word)) == f"{word:016X}"
