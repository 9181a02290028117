"""A column of cells is cast as each of its cells is alone, and bad cells cost little more than good ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from riot_ops.core import casting
from riot_ops.core.casting import can_cast, cast
from riot_ops.core.python_values import from_values
from tests.search import depth

UTC_US = pa.timestamp("us", "UTC")
FLAT = [
    pa.float64(), pa.float32(), pa.float16(), pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.bool_(), pa.decimal128(5, 2),
    pa.decimal128(38, 10), pa.decimal128(4, 0), UTC_US, pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time64("us"), pa.string(), pa.binary(2),
]  # fmt: skip
NUMBERS = [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float64(), pa.float32(), pa.decimal128(12, 3), pa.bool_()]
TIMES = [pa.timestamp("s"), UTC_US, pa.timestamp("ns"), pa.date32(), pa.date64(), pa.time64("ns"), pa.time32("ms")]

#: Texts near the border between numbers or times and other texts.
NUMBER_TEXT = st.from_regex(r"\A ?[+-]?(0x)?[0-9]{0,20}[.,]?[0-9]{0,12}([eE][+-]?[0-9]{1,3})? ?\Z")
ODD_TEXT = st.sampled_from(
    ["", " ", "nan", "NaN(1)", "-inf", "Infinity", "infin", "true", "FALSE", "t", "127", "128", "-128", "-129", "255", "0xff",
     "0x0ff", "00128", "-0", "18446744073709551615", "18446744073709551616", "9223372036854775808", "999.99", "1000", "1e2",
     "1e400", "1e-999", "1_0", "１２", "é", "a\0"]
)  # fmt: skip
TIME_TEXT = st.from_regex(
    r"\A(0000|1500|1900|2000|2023|2024|9999)-(0[0-3]|1[0-3])-(0[01]|2[89]|3[0-2])"
    r"([T ](0[09]|2[34])(:(0[09]|5[9]|60)(:(0[09]|59|60)(\.[0-9]{0,11})?)?)?)?(Z|z|[+-](01|23|24)(:?(00|60))?)?\Z"
)
CLOCK_TEXT = st.from_regex(r"\A(0[09]|2[34])(:(0[09]|60)(:(59|60)(\.[0-9]{0,11})?)?)?\Z")
TEXTS = st.lists(st.none() | NUMBER_TEXT | ODD_TEXT | TIME_TEXT | CLOCK_TEXT | st.text(max_size=4), max_size=12)


def assert_cells_are_cast_alone(column, want):
    result, problems = cast(column, want)
    alone = [cast(column.slice(i, 1), want) for i in range(len(column))]
    assert result.type == want
    together = pa.concat_arrays([pa.nulls(0, want), *(part for part, _ in alone)])
    assert result.equals(together) or str(result) == str(together)  # NaN is not equal to NaN
    assert problems == {i: found[0] for i, (_, found) in enumerate(alone) if found}
    assert all(result[i].as_py() is None for i in problems)


@given(TEXTS, st.sampled_from(FLAT), st.sampled_from([pa.string(), pa.large_string(), pa.binary()]))
@settings(max_examples=depth(300))
def test_texts_are_cast_as_each_alone(texts, want, have):
    assert_cells_are_cast_alone(pa.array([None, *texts], pa.string()).cast(have).slice(1), want)


@given(
    st.lists(st.none() | st.binary(max_size=3) | st.sampled_from([b"1", b"\xff", b"2.5"]), max_size=8),
    st.sampled_from(FLAT),
)
@settings(max_examples=depth(100))
def test_bytes_are_cast_as_each_alone(values, want):
    assert_cells_are_cast_alone(pa.array(values, pa.binary()), want)


def numbers(dtype):
    if pa.types.is_floating(dtype):
        odd = st.sampled_from(
            [0.5, -1.0, 127.0, 128.0, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), float("nan"), float("inf")]
        )
        return odd | st.floats(width=dtype.bit_width)
    if pa.types.is_boolean(dtype):
        return st.booleans()
    if pa.types.is_decimal(dtype):
        return st.decimals(-999_999_999, 999_999_999, places=3) | st.sampled_from([Decimal("127.000"), Decimal(128)])
    signed = pa.types.is_signed_integer(dtype)
    low, high = (
        (-(2 ** (dtype.bit_width - 1)), 2 ** (dtype.bit_width - 1) - 1) if signed else (0, 2**dtype.bit_width - 1)
    )
    near = [v + d for v in (0, 2**7, 2**8, 2**11, 2**24, 2**31, 2**53, 2**63) for d in (-1, 0, 1)]
    return st.sampled_from([v for v in near if low <= v <= high]) | st.integers(low, high)


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(FLAT))
@settings(max_examples=depth(300))
def test_numbers_are_cast_as_each_alone(data, have, want):
    assume(can_cast(have, want))  # a dataflow with another pair is refused when it is built
    values = data.draw(st.lists(st.none() | numbers(have), max_size=8))
    assert_cells_are_cast_alone(pa.array(values, have), want)


@given(st.data(), st.sampled_from(TIMES), st.sampled_from([*TIMES, pa.timestamp("us"), pa.time32("s"), pa.date32()]))
@settings(max_examples=depth(200))
def test_times_are_cast_as_each_alone(data, have, want):
    integer = pa.int32() if have.bit_width == 32 else pa.int64()
    near = [0, 1, -1, 86_400_000, 2**31 - 1, 10**9]
    near += (
        []
        if integer == pa.int32()
        else [86_399_000_000_000, 2**62, -(2**62), 2**63 - 1, -(2**63), 9_223_372_036_854_775_000]
    )
    values = data.draw(st.lists(st.none() | st.sampled_from(near), max_size=8))
    assert_cells_are_cast_alone(pa.array(values, integer).view(have), want)


NESTED = [
    (pa.list_(pa.string()), pa.list_(pa.float64())),
    (pa.list_(pa.string()), pa.large_list(UTC_US)),
    (pa.list_(pa.string()), pa.list_(pa.int8(), 2)),
    (pa.list_(pa.list_(pa.string())), pa.list_(pa.list_(pa.decimal128(5, 2)))),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]), pa.struct([("b", pa.list_(pa.int64())), ("a", pa.float64())])),
    (pa.struct([("a", pa.string()), ("x", pa.string())]), pa.struct([("a", pa.bool_()), ("c", pa.int8())])),
    (pa.struct([("a", pa.string())]), pa.struct([pa.field("a", pa.float64(), nullable=False)])),
    (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.float64())),
]  # fmt: skip


def nested(dtype):
    if pa.types.is_map(dtype):
        return st.none() | st.lists(st.tuples(st.sampled_from("ab"), nested(dtype.item_type)), max_size=3)
    if pa.types.is_list(dtype):
        return st.none() | st.lists(nested(dtype.value_type), max_size=3)
    if pa.types.is_struct(dtype):
        return st.none() | st.fixed_dictionaries({f.name: nested(f.type) for f in dtype})
    return st.none() | ODD_TEXT | st.sampled_from(["1", "2.5", "2024-01-01", "2024-01-01T00:00:00Z"])


@given(st.data(), st.sampled_from(NESTED))
@settings(max_examples=depth(200))
def test_nested_values_are_cast_as_each_alone(data, pair):
    have, want = pair
    values = data.draw(st.lists(nested(have), max_size=6))
    assert_cells_are_cast_alone(pa.array([None, *values], have).slice(1), want)


PYTHON = (
    st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats(width=32) | ODD_TEXT | TIME_TEXT | st.binary(max_size=3)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-9999, max_value=9999, places=2)
    | st.integers(-(2**31), 2**32).map(lambda second: datetime.fromtimestamp(second, UTC))
    | st.sampled_from([object(), "\ud800", {1}, timedelta(1)])
)  # fmt: skip
PYTHON_NESTED = st.recursive(
    PYTHON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
PYTHON_TYPES = [*FLAT, *(want for _, want in NESTED)]


@given(st.lists(PYTHON_NESTED, max_size=8), st.sampled_from(PYTHON_TYPES))
@settings(max_examples=depth(300))
def test_python_values_are_cast_as_each_alone(values, want):
    result, problems = from_values(values, want)
    alone = [from_values([value], want) for value in values]
    assert str(result) == str(pa.concat_arrays([part for part, _ in alone]) if alone else pa.nulls(0, want))
    assert problems == {i: found[0] for i, (_, found) in enumerate(alone) if found}


class Counted:
    """Counts the calls of a function."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


@pytest.mark.parametrize(
    ("value", "want", "text"),
    [
        ("21,5", pa.float64(), "= '21,5' (str) is not of type double"),
        ("01.02.2024 12:00", UTC_US, "= '01.02.2024 12:00' (str) is not of type timestamp[us, tz=UTC]"),
        ("300", pa.int8(), "= '300' (str) is not of type int8"),
        (300, pa.int8(), "= 300 (int) does not fit the type int8"),
        (1.5, pa.int64(), "= 1.5 (float) is not of type int64"),
        ("1.555", pa.decimal128(5, 2), "= '1.555' (str) is not of type decimal128(5, 2)"),
        (["1", "x"], pa.list_(pa.float64()), "= ['1', 'x'] (list) is not of type list<item: double>"),
        ({"a": "x"}, pa.struct([("a", pa.float64())]), "= {'a': 'x'} (dict) is not of type struct<a: double>"),
        (b"\xff", pa.string(), r"= b'\xff' (bytes) is not UTF-8"),
        ("ja", pa.bool_(), "= 'ja' (str) is not of type bool"),
    ],
)
@pytest.mark.parametrize("convert", ["column", "values"])
def test_bad_cells_cost_little_and_name_allowed_values(value, want, text, convert, monkeypatch):
    values = [value] * 8192
    column = pa.array(values)
    monkeypatch.setattr(casting, "_cast_whole", counted := Counted(casting._cast_whole))
    result, problems = cast(column, want) if convert == "column" else from_values(values, want)
    assert len(problems) == len(values) == result.null_count
    assert {problem.text for problem in problems.values()} == {text}
    assert counted.calls <= 20, "not one cell after the other"


def test_surplus_struct_fields_are_ignored_and_missing_ones_null():
    want = pa.struct([("a", pa.float64()), ("b", pa.int64())])
    values = [{"a": 1, "x": object}, {"x": 2, "b": 3}, None]
    assert from_values(values, want)[0].to_pylist() == [{"a": 1.0, "b": None}, {"a": None, "b": 3}, None]
    assert from_values(values, want)[1] == {}
    column = pa.array([{"a": "1", "x": [1]}, {"a": None, "x": None}, None])
    assert cast(column, want)[0].to_pylist() == [{"a": 1.0, "b": None}, {"a": None, "b": None}, None]


def test_numbers_and_times_of_all_widths_are_cast():
    for have in (pa.int8(), pa.int32(), pa.uint64()):
        assert cast(pa.array([5], have), pa.timestamp("s"))[0].to_pylist() == [datetime(1970, 1, 1, 0, 0, 5)]  # noqa: DTZ001
    assert cast(pa.array([5, 1000]), pa.decimal128(5, 2))[0].to_pylist() == [Decimal("5.00"), None]
    assert cast(pa.array(["12:30", "25:00"]), pa.time32("s"))[0].to_pylist()[0].hour == 12
    long = "123456789012345678901234567890123456789012"  # Arrow alone makes another number of it
    assert list(cast(pa.array([long]), pa.decimal128(38, 10))[1]) == [0]
    digits = cast(pa.array(["1969-12-31T23:59:59.9999999999Z"]), UTC_US)[0].to_pylist()
    assert digits == [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)]
