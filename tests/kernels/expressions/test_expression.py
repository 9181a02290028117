"""Expressions against Python's evaluation of the same text, and against SQL of Polars."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.lazy_rows import Rows
from riot_ops.kernels.expressions.expression import Expression
from tests.reference.expression import Bad, value_of
from tests.search import depth

INF, NAN = math.inf, math.nan
TYPES = {"i": "int", "u": "uint", "f": "float", "s": "str", "k": "str", "b": "bool", "at": "time", "j": "int"}
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("k", pa.string()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("j", pa.int16()),
    ]
)
INTEGERS = [0, 1, -1, 2, 3, -7, 10, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
UNSIGNED = [0, 1, 5, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1025, 2**64 - 1]
FLOATS = [0.0, -0.0, 1.0, 2.5, -3.0, 0.5, 2.675, 1e-300, 2.0**53, 2.0**53 + 2, 2.0**63, 2.0**64, 1e308, -1e308]
TEXTS = ["", "a", "ab", "Temp", " x ", "ü", "日本", "a.b"]
TIMES = [
    datetime(2024, 5, 1, 12, 34, 56, 789, UTC),
    datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.sampled_from(INTEGERS),
            "u": st.none() | st.sampled_from(UNSIGNED),
            "f": st.none() | st.sampled_from([*FLOATS, INF, -INF, NAN]),
            "s": st.none() | st.sampled_from(TEXTS),
            "k": st.none() | st.sampled_from(TEXTS),
            "b": st.none() | st.booleans(),
            "at": st.none() | st.sampled_from(TIMES),
            "j": st.none() | st.sampled_from([0, 1, -1, 300, -(2**15)]),
        }
    ),
    min_size=1,
    max_size=6,
)


def called(name, *args):
    return st.builds(lambda *given: f"{name}({', '.join(given)})", *args)


def joined(template, *args):
    return st.builds(template.format, *args)


def expressions():
    """Strategies of numbers, conditions and texts, each over the others."""
    number = st.deferred(lambda: numbers)
    condition = st.deferred(lambda: conditions)
    text = st.deferred(lambda: texts)
    moment = st.sampled_from(["at", "time('2024-05-01T12:34:56.000789Z')", "time('1969-12-31')"])
    length = st.sampled_from(["'7us'", "'90s'", "'1h'", "'7d'"])
    when = st.one_of(moment, moment, called("floor_time", moment, length))
    simple = st.sampled_from(
        ["i", "u", "f", "j", "i", "f", "2", "-3", "0", "2.5", "-0.5", "9007199254740993", str(2**63)]
    )
    comparison = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    exponent = st.sampled_from(["0", "1", "2", "3", "7", "0.5", "-1"])
    numbers = st.one_of(
        simple,
        simple,
        joined("({} {} {})", number, st.sampled_from(["+", "-", "*", "/", "//", "%"]), number),
        joined("({} ** {})", number, exponent),
        joined("(-{})", number),
        *(called(name, number) for name in ("abs", "round", "floor", "ceil", "sqrt", "log", "exp", "sin", "cos")),
        *(called(name, number, number) for name in ("min", "max", "coalesce")),
        joined("({} if {} else {})", number, condition, number),
        called("len", text),
        *(called(name, when) for name in ("hour", "minute", "day", "weekday", "month", "year")),
    )
    constant_text = st.sampled_from(["'a'", "'ab'", "''", "'ü'", "'Temp'"])
    texts = st.one_of(
        st.sampled_from(["s", "k", "'a'", "'Temp'"]),
        *(called(name, text) for name in ("lower", "upper", "strip")),
        joined("({} if {} else {})", text, condition, text),
        called("coalesce", text, text),
    )
    conditions = st.one_of(
        st.sampled_from(["b", "True", "False"]),
        joined("({} {} {})", number, comparison, number),
        joined("({} {} {})", number, comparison, number),
        joined("({} {} {} {} {})", number, comparison, number, comparison, number),
        joined("({} {} {})", text, comparison, text),
        joined("({} {} {})", when, comparison, when),
        joined("({} {} ({}, {}))", number, st.sampled_from(["in", "not in"]), simple_constants(), simple_constants()),
        joined("({} {} ({}, {}))", text, st.sampled_from(["in", "not in"]), constant_text, constant_text),
        joined("({} {} {})", constant_text, st.sampled_from(["in", "not in"]), text),
        *(called(name, text, constant_text) for name in ("startswith", "endswith", "contains", "matches")),
        joined("({} {} {})", condition, st.sampled_from(["and", "or", "=="]), condition),
        joined("(not {})", condition),
        joined("({} {} None)", st.one_of(number, text, condition), st.sampled_from(["is", "is not"])),
        called("is_nan", number),
    )
    return conditions | numbers | texts


def simple_constants():
    return st.sampled_from(["0", "1", "-1", "2.5", "9007199254740993", "18446744073709551615", "1e308"])


def batch_of(rows, schema=SCHEMA):
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def normal(value):
    """NaN, which is missing in results, as None; -0.0 as 0.0."""
    return None if isinstance(value, float) and math.isnan(value) else value


def outcome(text, row):
    try:
        return normal(value_of(text, row, TYPES))
    except Bad as error:
        return str(error)


def results(text, batch):
    bound = Expression(text).bind(batch.schema)
    bad = np.broadcast_to(0 if (column := bound.column(batch)).bad is None else column.bad, batch.num_rows)
    values = bound.evaluate(batch).to_pylist()
    return [bound.errors[code - 1][0] if code else value for code, value in zip(bad.tolist(), values, strict=True)]


@pytest.mark.long
@settings(deadline=None, max_examples=depth(2000, 250))
@given(expressions(), ROWS)
def test_random_expression_equals_python(text, rows):
    batch = batch_of(rows) if len(rows) % 2 else batch_of([*rows[:1], *rows]).slice(1)
    try:
        found = results(text, batch)
    except ConfigError as error:
        assert any(part in str(error) for part in ("the constant", "has at most 64 bits", "not finite")), error
        assume(False)
    assert found == [outcome(text, row) for row in rows], text


# -- decided cases ---------------------------------------------------------------------------------

NULLS = {"t": True, "f": False, "n": None}


@pytest.mark.parametrize("left", NULLS)
@pytest.mark.parametrize("right", NULLS)
def test_logic_has_three_values(left, right):
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([NULLS[left]], pa.bool_()), "b": pa.array([NULLS[right]], pa.bool_())}
    )
    values = {NULLS[left], NULLS[right]}
    both = False if False in values else None if None in values else True
    either = True if True in values else None if None in values else False
    assert results("a and b", batch) == results("b and a", batch) == [both]
    assert results("a or b", batch) == results("b or a", batch) == [either]
    assert results("not a", batch) == [None if NULLS[left] is None else not NULLS[left]]


@st.composite
def polars_conditions(draw, depth=3):
    """A condition in Python's syntax and in SQL's."""
    if depth == 0 or draw(st.booleans()):
        name, constant = draw(st.sampled_from("ij")), draw(st.integers(-2, 2))
        kind = draw(st.sampled_from(["==", "!=", "<", "<=", "is None", "in"]))
        if kind == "is None":
            return f"{name} is None", f"{name} IS NULL"
        if kind == "in":
            return f"{name} in ({constant}, 1)", f"{name} IN ({constant}, 1)"
        return (
            f"{name} + j {kind} {constant}",
            f"{name} + j {dict([('==', '='), ('!=', '<>')]).get(kind, kind)} {constant}",
        )
    one, other = draw(polars_conditions(depth=depth - 1)), draw(polars_conditions(depth=depth - 1))
    form = draw(st.sampled_from(["({} and {})", "({} or {})", "(not {})"]))
    return form.format(one[0], other[0]), form.upper().format(one[1], other[1])


@settings(deadline=None, max_examples=depth(200, 20))
@given(polars_conditions(), st.lists(st.tuples(*[st.none() | st.integers(-2, 2)] * 2), min_size=1, max_size=9))
def test_condition_equals_sql_of_polars(texts, rows):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"i": [i for i, _ in rows], "j": [j for _, j in rows]}, schema={"i": pl.Int64, "j": pl.Int64})
    (batch,) = frame.to_arrow().to_batches()
    assert results(texts[0], batch) == frame.select(pl.sql_expr(texts[1]).alias("x"))["x"].to_list()


def test_integers_compare_exactly():
    big = 2**53
    batch = pa.RecordBatch.from_pydict(
        {
            "i": pa.array([big + 1, -1, 2**63 - 1], pa.int64()),
            "u": pa.array([big, 2**64 - 1, 2**63], pa.uint64()),
            "f": [float(big), 0.0, 2.0**63],
            "f32": pa.array([0.1, 16777216.0, 1.0], pa.float32()),
        }
    )
    assert results("i == f", batch) == results("i == u", batch) == [False] * 3
    assert results("i > u", batch) == results("u < i", batch) == [True, False, False]
    assert results("i < f", batch) == [False, True, True]
    assert results("u >= f", batch) == [True, True, True]
    assert results("i == 9007199254740993", batch) == [True, False, False]
    assert results("i > 9007199254740992.0", batch) == [True, False, True]
    assert results("u in (9007199254740992, 18446744073709551615, 3)", batch) == [True, True, False]
    assert results("i in (9007199254740992, 1, 2, 3, 4, 5, 6, 7, 8, -1.0, 2.5)", batch) == [False, True, False]
    assert results("f32 == 0.1", batch) == [False] * 3, "a float32 is compared with all its digits"
    assert results("f32 == 16777217", batch) == [False] * 3


def test_record_without_result_is_named_and_others_have_theirs():
    batch = pa.RecordBatch.from_pydict({"i": [1, 0, None, 2**62, -(2**63)], "f": [1.0, 0.0, -1.0, 1e308, 0.0]})
    zero, beyond = "division_by_zero", "out_of_range"
    assert results("6 / i", batch) == [6.0, zero, None, 6 / 2**62, 6 / -(2**63)]
    assert results("6 // i", batch) == [6, zero, None, 0, -1]
    assert results("7 % i", batch) == [0, zero, None, 7, 7 - 2**63]
    assert results("1.5 % f", batch) == [0.5, zero, -0.5, 1.5, zero]
    assert results("i * 4", batch) == [4, 0, None, beyond, beyond]
    assert results("-i", batch) == results("0 - i", batch) == [-1, 0, None, -(2**62), beyond]
    assert results("abs(i)", batch) == [1, 0, None, 2**62, beyond]
    assert results("i ** 2", batch) == [1, 0, None, beyond, beyond]
    assert results("f ** -1", batch) == [1.0, zero, -1.0, 1e-308, zero]
    assert results("sqrt(f) >= 0", batch) == [True, True, beyond, True, True]
    assert results("log(f) < 0", batch) == [False, beyond, beyond, False, beyond]
    assert results("exp(f) > 0", batch) == [True, True, True, beyond, True]
    assert results("f * 1e308", batch) == [1e308, 0.0, -1e308, INF, 0.0], "as in Python, a product may be infinite"


def test_part_that_decides_nothing_raises_no_error():
    batch = pa.RecordBatch.from_pydict({"n": [0, 2, None]})
    assert results("n != 0 and 4 / n > 1", batch) == [False, True, None]
    assert results("n == 0 or 4 / n > 1", batch) == [True, True, None]
    assert results("4 / n > 1 and n != 0", batch) == ["division_by_zero", True, None]
    assert results("4 / n if n != 0 else -1", batch) == [-1.0, 2.0, -1.0]
    assert results("coalesce(n, 1 / 0.5 / n)", batch) == [0.0, 2.0, None]
    assert results("n < 1 < 4 / n", batch) == ["division_by_zero", False, None]
    assert results("0 < n < 4 / n", batch) == [False, False, None]


def test_message_names_the_part():
    bound = Expression("i > 0 and value / (i - 1) > 2").bind(pa.schema({"i": pa.int64(), "value": pa.float64()}))
    assert ("division_by_zero", "division by zero in value / (i - 1)") in bound.errors


def test_nan_compares_false_but_unequal():
    batch = pa.RecordBatch.from_pydict({"f": [NAN, 1.0, None], "i": [1, 1, 1]})
    assert results("f == f", batch) == results("f <= 1", batch) == results("f == i", batch) == [False, True, None]
    assert results("f != f", batch) == [True, False, None]
    assert results("not f > 0", batch) == [True, False, None]
    assert results("f in (1, 2)", batch) == [False, True, None]
    assert results("is_nan(f)", batch) == [True, False, None]
    assert results("is_nan(i)", batch) == [False] * 3
    assert results("min(f, 0)", batch) == [None, 0.0, None]


@pytest.mark.parametrize(
    "dtype", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()], ids=str
)
def test_text_functions_of_each_type(dtype):
    texts = ["Temp", "", None, " ü ", "日本a"]
    column = pa.array(texts).cast(dtype)
    for batch in (
        pa.RecordBatch.from_pydict({"s": column}),
        pa.RecordBatch.from_pydict({"s": pa.concat_arrays([column, column])}).slice(5),
    ):
        assert results("lower(s)", batch) == ["temp", "", None, " ü ", "日本a"]
        assert results("upper(strip(s))", batch) == ["TEMP", "", None, "Ü", "日本A"]
        assert results("len(s)", batch) == [4, 0, None, 3, 3]
        assert results("s == 'Temp' or 'a' == s", batch) == [True, False, None, False, False]
        assert results("s != 'Temp'", batch) == [False, True, None, True, True]
        assert results("s > 'T'", batch) == [True, False, None, False, True]
        assert results("startswith(s, 'T')", batch) == [True, False, None, False, False]
        assert results("endswith(s, 'a')", batch) == [False, False, None, False, True]
        assert results("'m' in s", batch) == results("contains(s, 'm')", batch) == [True, False, None, False, False]
        assert results("'m' not in s", batch) == [False, True, None, True, True]
        assert results("matches(s, '^[A-Z]')", batch) == [True, False, None, False, False]
        assert results("s in ('Temp', '')", batch) == [True, True, None, False, False]
        assert results(f"s in {('日本a', *'bcdefghij')}", batch) == [False, False, None, False, True]
        assert results("s is None", batch) == [False, False, True, False, False]
        assert results("coalesce(s, 'none')", batch) == ["Temp", "", "none", " ü ", "日本a"]
        assert results("s if len(s) > 3 else 'short'", batch) == ["Temp", "short", "short", "short", "short"]


def test_bytes_that_are_no_text_are_an_error():
    batch = pa.RecordBatch.from_pydict({"s": pa.array([b"a", b"\xff", None], pa.binary()), "n": [1, 2, 3]})
    assert results("s == 'a'", batch) == [True, "invalid_utf8", None]
    assert results("n == 1 or s == 'b'", batch) == [True, "invalid_utf8", None]
    large = batch.set_column(0, "s", batch["s"].cast(pa.large_binary()))
    for rows in (batch, large, large.slice(1)):
        first = 3 - rows.num_rows
        assert results("'a' in s", rows) == results("startswith(s, 'a')", rows) == [True, False, None][first:]
        assert results("'b' not in s", rows) == [True, True, None][first:]
        assert results("endswith(s, 'b')", rows) == [False, False, None][first:]
    assert results("matches(s, 'a')", batch) == [True, "invalid_utf8", None]
    coded = pa.RecordBatch.from_pydict({"s": pa.array(["x", "y", None, "x"]).dictionary_encode()})
    assert results("s == 'x'", coded) == [True, False, None, True]


def test_times_of_all_units_compare_and_compute():
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    micros = int(noon.timestamp()) * 1_000_000
    batch = pa.RecordBatch.from_pydict(
        {
            "s": pa.array([micros // 1_000_000, None], pa.timestamp("s")),
            "us": pa.array([micros + 1, micros], pa.timestamp("us", "Europe/Berlin")),
            "ns": pa.array([micros * 1_000 + 1, micros * 1_000], pa.timestamp("ns", "UTC")),
            "day": pa.array([noon.date(), None], pa.date32()),
            "long": pa.array([3_600_000, None], pa.duration("ms")),
        }
    )
    assert results("s < ns", batch) == [True, None]
    assert results("ns < us", batch) == [True, False]
    assert results("us > ns", batch) == [True, False]
    assert results("us == ns", batch) == [False, True]
    assert results("s == time('2024-05-01T14:00+02:00')", batch) == [True, None]
    assert results("day == time('2024-05-01')", batch) == [True, None]
    assert results("us in (time('2024-05-01T12:00'), time('2025-01-01'))", batch) == [False, True]
    assert results("hour(us) + minute(us)", batch) == [12, 12]
    assert results("weekday(day)", batch) == [noon.weekday(), None]
    assert results("s - day", batch) == [noon - noon.replace(hour=0), None]
    assert results("s + long", batch) == results("long + s", batch) == [noon.replace(hour=13), None]
    assert results("us - duration('1us') == s", batch) == [True, None]
    assert results("long / duration('1s')", batch) == [3600.0, None]
    assert results("abs(-long) + long > duration('1h')", batch) == [True, None]
    assert results("s - duration('2024d20min') > time('2018-01-01')", batch) == [True, None]
    assert results("us + duration('3000000d')", batch) == ["out_of_range"] * 2
    assert results("max(s, ns) == ns", batch) == [True, None]


@given(
    st.datetimes(datetime(1650, 1, 1), datetime(2250, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.integers(1, 10**12),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_floor_of_a_time_and_time_of_day_equal_datetime(moment, length, unit):
    every, per = timedelta(microseconds=length), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    batch = pa.RecordBatch.from_pydict({"at": pa.array([micros * per // 10**6, None], pa.timestamp(unit, "UTC"))})
    (at,) = results("at - time('1970-01-01')", batch)[:1]
    floor, nothing = results(f"floor_time(at, '{length}us') - time('1970-01-01')", batch)
    assert floor <= at < floor + every
    assert not floor % every
    assert nothing is None
    midnight = timedelta(days=at // timedelta(days=1))
    assert results("time_of_day(at)", batch) == [at - midnight, None]
    assert results("time_of_day(at) / duration('1h')", batch) == [(at - midnight) / timedelta(hours=1), None]


@given(
    st.datetimes(datetime(1972, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"]),
    st.sampled_from(["s", "us", "ns"]),
)
def test_start_of_a_local_day_or_month_equals_zoneinfo(moment, zone, unit):
    per = {"s": 1, "us": 10**6, "ns": 10**9}[unit]
    moment = moment.replace(microsecond=0)
    batch = pa.RecordBatch.from_pydict({"at": pa.array([int(moment.timestamp()) * per, None], pa.timestamp(unit))})
    local = moment.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0)
    for begin, part in ((local, "day"), (local.replace(day=1), "month"), (local.replace(month=1, day=1), "year")):
        assert results(f"floor_time(at, '{part}', '{zone}')", batch) == [begin.astimezone(UTC), None]


def test_interval_before_the_first_time_is_an_error():
    batch = pa.RecordBatch.from_pydict(
        {
            "at": [datetime(1, 1, 3, tzinfo=UTC), datetime(1, 1, 4, tzinfo=UTC)],
            "ns": pa.array([-(2**63), 0], pa.timestamp("ns")),
        }
    )
    assert results("floor_time(at, '7d')", batch) == ["out_of_range", datetime(1, 1, 4, tzinfo=UTC)]
    assert results("floor_time(ns, '1s') is None", batch) == ["out_of_range", False]
    assert results("floor_time(None, '1s')", batch) == results("floor_time(None, 'day')", batch) == [None, None]
    assert results("floor_time(at, 'day', 'Europe/Berlin') < at", batch) == [True, True]
    first = pa.RecordBatch.from_pydict({"at": [datetime(1, 1, 1, tzinfo=UTC)]})
    assert results("floor_time(at, 'day', 'Europe/Berlin')", first) == ["out_of_range"]
    last = pa.RecordBatch.from_pydict({"at": [datetime(9999, 12, 31, 23, 30, tzinfo=UTC)]})
    for zone, begin in (("UTC", (31, 0)), ("Europe/Berlin", (31, 23)), ("America/New_York", (31, 5))):
        assert results(f"floor_time(at, 'day', '{zone}')", last) == [datetime(9999, 12, *begin, tzinfo=UTC)]
    assert results("floor_time(at, 'day')", first) == [datetime(1, 1, 1, tzinfo=UTC)]
    assert results("floor_time(time('2024-05-01T12:00'), 'month')", first) == [datetime(2024, 5, 1, tzinfo=UTC)]
    assert results("floor_time(time('2024-05-05T12:00'), 'week')", first) == [datetime(2024, 4, 29, tzinfo=UTC)]
    with pytest.raises(ConfigError, match="shorter than 292 years"):
        Expression("floor_time(ns, '110000d')").bind(batch.schema)


def test_week_and_hours_of_examples():
    """1 February 2015 was a Sunday."""
    at = [datetime(2015, 2, 1, 0, 45, 36, tzinfo=UTC) + n * timedelta(hours=30) for n in range(7)]
    batch = pa.RecordBatch.from_pydict({"at": [*at, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]})
    assert results("weekday(at)", batch) == [6, 0, 1, 2, 4, 5, 6, 2]
    assert results("floor(weekday(at) / 5)", batch) == [1, 0, 0, 0, 0, 1, 1, 0]
    assert results("time_of_day(at) / duration('1h')", batch)[:4] == [0.76, 6.76, 12.76, 18.76]
    assert results("hour(at)", batch) == [0, 6, 12, 18, 0, 6, 12, 23]
    assert results("minute(at)", batch) == [45] * 7 + [59]


TYPE_ERRORS = {
    "kind > 3": "cannot compare text with number: kind > 3; the field 'kind' is string",
    "3 == flag": "cannot compare boolean with number: 3 == flag; the field 'flag' is bool",
    "at > 3": "cannot compare time with number",
    "flag < flag": "booleans have no order for <",
    "value in (1, 'a')": "cannot compare number with text",
    "value and flag": "and takes conditions, not a number: value; the field 'value' is double",
    "not kind": "not takes conditions, not a text",
    "1 if value else 2": "if takes conditions, not a number",
    "kind + 'x'": r"\+ does not take text",
    "kind * 2": r"\* does not take text and number",
    "at + at": r"\+ does not take time",
    "at * 2": r"\* does not take time and number",
    "flag + 1": r"\+ does not take boolean and number",
    "-kind": "- does not take a text",
    "abs(at)": "abs takes a number or a duration, not a time",
    "sqrt(kind)": "sqrt takes a number, not a text",
    "round(flag)": "round takes a number, not a boolean",
    "round(3 + j, -1)": "integers are not rounded to tens",
    "lower(value)": "lower takes a text, not a number",
    "hour(value)": "hour takes a time, not a number",
    "floor_time(value, '1h')": "floor_time takes a time, not a number",
    "time_of_day(kind)": "time_of_day takes a time, not a text",
    "sin(kind)": "sin takes a number, not a text",
    "min(value, kind)": "the values must be of one kind, not number and text",
    "max(kind, 'a')": "max takes numbers, times or durations, not a text",
    "coalesce(at, 0)": "the values must be of one kind, not time and number",
    "vlue > 3": "reads the field 'vlue', which its input lacks; fields are kind, .*; did you mean \"value\"",
    "price + 1": r"\+ does not take decimal and number",
    "price > value": "cannot compare decimal with number, other than a constant",
    "'a' == price": "cannot compare decimal with text",
    "price > 1e300": "the comparison needs more than 76 digits",
    "abs(price)": "abs takes a number or a duration, not a decimal",
    "max(price, price)": "max takes numbers, times or durations, not a decimal",
    "coalesce(price, 0)": "the values must be of one kind, not decimal and number",
    "tags is None": "the field 'tags' is list<item: int64>, which expressions do not read",
}
TYPED = pa.schema(
    {
        "kind": pa.string(),
        "value": pa.float64(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us"),
        "j": pa.int16(),
        "price": pa.decimal128(9, 2),
        "tags": pa.list_(pa.int64()),
    }
)


@pytest.mark.parametrize("text", TYPE_ERRORS)
def test_types_that_do_not_fit_are_refused_when_bound(text):
    with pytest.raises(ConfigError, match=TYPE_ERRORS[text]):
        Expression(text).bind(TYPED)


def test_types_of_results():
    schema = pa.schema(
        {"i": pa.int8(), "u": pa.uint64(), "f": pa.float32(), "s": pa.binary(), "d": pa.date32(), "n": pa.null()}
    )
    found = {
        "i": pa.int64(),
        "u": pa.uint64(),
        "u + 1": pa.uint64(),
        "u - 1": pa.int64(),
        "u + i": pa.int64(),
        "u // 2": pa.uint64(),
        "f": pa.float64(),
        "i / 2": pa.float64(),
        "i ** 2": pa.int64(),
        "i ** -1": pa.float64(),
        "i ** i": pa.float64(),
        "s": pa.string(),
        "d": pa.timestamp("s", "UTC"),
        "d - d": pa.duration("s"),
        "d + duration('1us')": pa.timestamp("us", "UTC"),
        "n": pa.float64(),
        "n + 1": pa.float64(),
        "n - d": pa.duration("s"),
        "coalesce(n, i)": pa.int64(),
        "len(s)": pa.int64(),
        "n > 1": pa.bool_(),
    }
    assert {text: Expression(text).bind(schema).arrow_type for text in found} == found


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.float16(), pa.float32()], ids=str)
def test_small_types_do_not_overflow(dtype):
    batch = pa.RecordBatch.from_pydict(
        {"x": pa.array([np.float16(100), None, np.float16(3)], pa.float16()).cast(pa.float32()).cast(dtype)}
    )
    assert results("x * x * x", batch) == [1_000_000, None, 27]


def test_fields_of_nulls_give_null():
    batch = pa.RecordBatch.from_pydict({"n": pa.nulls(2), "b": [True, False]})
    for text in (
        "n > 3",
        "n == 'a'",
        "n in (1, 2)",
        "n in ('a', 'b')",
        "lower(n)",
        "hour(n)",
        "n + 1",
        "-n",
        "n and True",
    ):
        assert results(text, batch) == [None, None], text
    assert results("n is None", batch) == [True, True]
    assert results("n and b", batch) == [None, False]


def test_selection_of_rows_gives_the_same():
    batch = batch_of(
        [{"i": n, "f": n / 2, "s": f"s{n}", "b": n % 2 == 0, "u": n, "k": None, "at": None, "j": n} for n in range(9)]
    )
    some = Rows(batch, np.array([1, 4, 8]))
    for text in ("i + f", "lower(s)", "b and i > 3", "u * 2", "k is None", "'4' in s"):
        bound = Expression(text).bind(batch.schema)
        assert bound.evaluate(some).to_pylist() == [bound.evaluate(batch).to_pylist()[n] for n in (1, 4, 8)], text


def test_empty_batch_and_constants():
    batch = batch_of([])
    for text in (
        "i > 3",
        "lower(s)",
        "round(f, 1)",
        "i ** 2",
        "i / u",
        "at > time('2024-05-01')",
        "exp(f)",
        "'x'",
        "3",
    ):
        assert results(text, batch) == [], text
    two = pa.RecordBatch.from_pydict({"i": [1, 2]})
    assert results("3", two) == [3, 3] and results("'x'", two) == ["x", "x"] and results("len('ab')", two) == [2, 2]
    assert results("'a' in 'ab'", two) == results("'a' in ('a', 'b')", two) == results("'a' < 'b'", two) == [True, True]
    assert results("hour(time('2024-05-01T07:00'))", two) == [7, 7]


@pytest.mark.parametrize(
    "dtype", [pa.decimal128(9, 2), pa.decimal128(38, 2), pa.decimal256(76, 40), pa.decimal128(5, 1)], ids=str
)
def test_decimals_compare_digit_by_digit(dtype):
    prices = [Decimal("0.1"), Decimal(-3), None, Decimal("999.9")]
    batch = pa.RecordBatch.from_pydict(
        {"p": pa.array(prices, dtype), "q": pa.array([Decimal("0.1"), None, None, Decimal(1000)], pa.decimal128(6, 2))}
    )
    for text in (
        "p == 0.1",
        "0.1 == p",
        "p != 3",
        "p < 0.10000000000000002",
        "p >= 999.9",
        "p in (0.1, -3, 7)",
        "2 < p",
    ):
        exact = re.sub(r"-?[0-9][0-9.]*", r"D('\g<0>')", text)
        wanted = [None if p is None else eval(exact, {"p": p, "D": Decimal}) for p in prices]
        assert results(text, batch) == wanted, text
    assert results("p == q", batch) == [True, None, None, False]
    assert results("p < q", batch) == [False, None, None, True]
    assert results("p is None", batch) == [False, False, True, False]
    assert results("coalesce(q, p)", batch) == [Decimal("0.1"), -3, None, 1000]
    assert results("p if p > 0 else None", batch) == [Decimal("0.1"), None, None, Decimal("999.9")]
    assert results("p", batch) == prices


@settings(deadline=None, max_examples=depth(200, 40))
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-99_999, 99_999).map(lambda n: n / 1000),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([0, 1, 2, 3, 15, -1, -2, -3, -15]),
)
def test_rounding_to_digits_equals_python(values, digits):
    batch = pa.RecordBatch.from_pydict({"f": values})
    assert results(f"round(f, {digits})", batch) == [round(value, digits) for value in values]
    assert results("round(f)", batch) == [round(value) for value in values]


def test_long_lists_hold_each_integer_exactly():
    more = ", ".join(map(str, range(1, 9)))
    extremes = pa.RecordBatch.from_pydict(
        {
            "i": pa.array([2**63 - 1, -(2**63), 2**62, -1], pa.int64()),
            "u": pa.array([2**64 - 1, 2**63, 0, 2**63 - 1], pa.uint64()),
        }
    )
    assert results(f"i in (9223372036854775807, -9223372036854775808, {more})", extremes) == [True, True, False, False]
    assert results(f"u in (18446744073709551615, -1, 9223372036854775808, 0.0, {more})", extremes) == [True] * 3 + [
        False
    ]
    assert results(f"i in (9223372036854775808, 9.3e18, 0.5, -1.0, {more})", extremes) == [False] * 3 + [True]


def test_values_of_both_integer_types_meet_in_int64():
    batch = pa.RecordBatch.from_pydict(
        {
            "b": [True, True, False, None],
            "i": pa.array([-1, 5, -7, None], pa.int64()),
            "u": pa.array([2**63, 2**63 - 1, 2**64 - 1, None], pa.uint64()),
        }
    )
    assert results("u if b else i", batch) == ["out_of_range", 2**63 - 1, -7, None]
    assert results("i if b else u", batch) == [-1, 5, "out_of_range", None]
    assert results("max(i, u)", batch) == ["out_of_range", 2**63 - 1, "out_of_range", None]
    assert results("coalesce(i, u)", batch) == [-1, 5, -7, None]
    assert results("max(u, 3)", batch) == [2**63, 2**63 - 1, 2**64 - 1, None], "3 is no negative number"
    assert Expression("u if b else i % 3").bind(batch.schema).arrow_type == pa.int64()


def test_times_beyond_their_unit_are_errors_and_nulls_are_none():
    late = 253_402_300_799  # the last second of 9999
    batch = pa.RecordBatch.from_pydict(
        {
            "s": pa.array([0, None, late, 2**40], pa.timestamp("s")),
            "ns": pa.array([1, 1, None, 2**62], pa.timestamp("ns")),
            "long": pa.array([2**63 - 1, 2**63 - 1, 1, None], pa.duration("us")),
        }
    )
    assert results("s - ns < duration('1h')", batch) == [True, None, "out_of_range", "out_of_range"]
    assert results("long + long > duration('1h')", batch) == ["out_of_range", "out_of_range", False, None]
    assert results("s + duration('1s') > s", batch) == [True, None, "out_of_range", "out_of_range"]
    assert results("s - duration('1s') < s", batch) == [True, None, True, "out_of_range"]
    assert results("-long < long", batch) == [True, True, True, None]
