from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.text import numbers
from tests.search import depth

GRAMMAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
DIGITS = st.text("0123456789", min_size=1, max_size=21)
WRITTEN = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(".".__add__)),
    st.one_of(st.just(""), st.builds("e{}".format, st.integers(-345, 310))),
)
TEXTS = st.one_of(
    WRITTEN,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.3f}"),
    st.text("-+.eE0123456789x ", max_size=12),
    st.integers(-(10**9), 10**9).map(str),
)


def bits(x: float) -> bytes:
    return struct.pack("<d", x)


def data_of(text: str) -> Any:
    return readonly(np.frombuffer(text.encode() + b'9\xff.-e5"}~~~~~~~~~~', np.uint8))


@pytest.mark.long
@given(TEXTS)
@settings(max_examples=depth(1500), deadline=None)
def test_parse_number_equals_float(text: str) -> None:
    with np.errstate(over="ignore"):
        status, value = numbers.parse_number(data_of(text), 0, len(text))
    if not GRAMMAR.fullmatch(text):
        assert status == numbers.NOT_A_NUMBER
    elif status == numbers.NUMBER:
        assert bits(value) == bits(float(text))
    else:
        assert status == numbers.HARD
        digits = re.sub("[eE].*|[^0-9]", "", text).lstrip("0")
        assert len(digits) > 19 or not 1e-300 < abs(float(text)) < 1e308


PLAIN = st.from_regex(r"-?[0-9]{1,9}\.[0-9]{1,9}", fullmatch=True)


@pytest.mark.long
@given(st.one_of(TEXTS, PLAIN))
@settings(max_examples=depth(1500), deadline=None)
def test_plain_number_accepts_a_subset_of_float(text: str) -> None:
    ok, value = numbers.plain_number(data_of(text + " " * 24), 0, len(text))
    if ok:
        assert GRAMMAR.fullmatch(text)
        assert bits(value) == bits(float(text))
    if re.fullmatch(r"-?[1-9][0-9]{1,7}\.[0-9]{1,7}", text) and len(text.lstrip("-")) <= 16:
        assert ok


@pytest.mark.long
@given(st.one_of(TEXTS, st.integers(-(2**64), 2**64).map(str), st.integers(2**63 - 9, 2**63 + 9).map(str)))
@settings(max_examples=depth(1500), deadline=None)
def test_whole_number_accepts_a_subset_of_int(text: str) -> None:
    with np.errstate(over="ignore"):
        ok, value = numbers.whole_number(data_of(text + " " * 25), 0, len(text))
    if ok:
        assert re.fullmatch("-?[0-9]+", text) and value == int(text)
    if re.fullmatch("-?[0-9]{1,19}", text) and abs(int(text)) < 2**63:
        assert ok


@pytest.mark.long
@given(TEXTS.filter(lambda t: len(t) <= 9))
@settings(max_examples=depth(1500), deadline=None)
def test_short_number_accepts_a_subset_of_float(text: str) -> None:
    text = text[:8]
    with np.errstate(over="ignore"):
        ok, value = numbers.short_number(np.uint64(numbers.load8(data_of(text), 0)), len(text))
    plain = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text)
    assert ok == bool(plain)
    if ok:
        assert bits(value) == bits(float(text))


@given(st.one_of(st.integers(-(10**17), 10**17).map(str), st.text("-0123456789. ", max_size=17)))
@settings(max_examples=depth(500), deadline=None)
def test_parse_integer_of_up_to_15_digits(text: str) -> None:
    with np.errstate(over="ignore"):
        ok, value = numbers.parse_integer(data_of(text), 0, len(text))
    assert ok == bool(re.fullmatch(r"-?(0|[1-9][0-9]{0,14})", text))
    if ok:
        assert value == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "9007199254740992.5",
        "1.7976931348623157e308",
        "2.2250738585072014e-308",
        "1e23",
        "8.5e22",
        "1e-22",
        "123456789012345678e-5",
        "0.30000000000000004",
        "-0",
        "-0.0",
        "0e500",
        "18446744073709551615",
        "7.2057594037927933e16",
        "6.02214076e23",
        "1.6e-35",
        "9999999999999999999",
        "4503599627370496.5",
        "3.5e-27",
    ],
)
def test_parse_number_of_known_hard_cases(text: str) -> None:
    with np.errstate(over="ignore"):
        status, value = numbers.parse_number(data_of(text), 0, len(text))
    assert status == numbers.NUMBER or text == "18446744073709551615"
    if status == numbers.NUMBER:
        assert bits(value) == bits(float(text))


def test_trailing_zeros_and_lowest_byte():
    with np.errstate(over="ignore"):
        for k in range(64):
            for above in (0, 1, 0x5A5A5A5A5A5A5A5A):
                w = np.uint64((above << (k + 1) | 1 << k) & (2**64 - 1))
                assert numbers.trailing_zeros(w) == numbers.trailing_zeros.python(w) == k
                assert numbers.lowest_byte(w) == k // 8
        assert numbers.trailing_zeros(np.uint64(0)) == numbers.trailing_zeros.python(np.uint64(0)) == 64
        assert numbers.lowest_byte(np.uint64(0)) == 8
