"""Expressions against Python's evaluation of the same text."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings

from riot_ops.core.errors import ConfigError
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
    when = st.sampled_from(["at", "time('2024-05-01T12:34:56.000789Z')", "time('1969-12-31')"])
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
        *(called(name, number) for name in ("abs", "round", "floor", "ceil", "sqrt", "log", "exp")),
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


@settings(deadline=None, max_examples=depth(2000, 250))
@given(expressions(), ROWS)
def test_random_expression_equals_python(text, rows):
    try:
        found = results(text, batch_of(rows))
    except ConfigError as error:
        assert any(part in str(error) for part in ("the constant", "has at most 64 bits", "not finite")), error
        assume(False)
    assert found == [outcome(text, row) for row in rows], text
