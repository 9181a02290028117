"""What the syntax of expressions allows, and how it refuses the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.kernels.expressions.syntax import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_EXPONENT,
    MAX_NODES,
    MAX_TEXT,
    parse,
    requirements,
)

REFUSED = {
    "": "the expression is empty",
    "  ": "the expression is empty",
    "value >": "'value >' is not an expression: invalid syntax at character 8",
    "value = 3": "is not an expression",
    "x; y": "is not an expression: invalid syntax at character 2",
    "import os": "is not an expression",
    "a\0b": "is not an expression",
    "a.b > 3": "'a.b' at character 1: attributes are not allowed; for a field of this name write field('a.b')",
    "x and y.upper() == 'A'": "'y.upper()' at character 7: only functions can be called",
    "__import__('os').system('x')": "only functions can be called",
    "1 + a[0]": "'a[0]' at character 5: Subscript is not allowed; allowed are and, or, not,",
    "(lambda: 1)": "Lambda is not allowed",
    "[x for x in y]": "ListComp is not allowed",
    "(x := 3)": "NamedExpr is not allowed",
    "f'{x}'": "JoinedStr is not allowed",
    "{1: 2}": "Dict is not allowed",
    "x @ y": "MatMult is not allowed",
    "x & y": "BitAnd is not allowed",
    "x << 1000000": "LShift is not allowed",
    "~x": "Invert is not allowed",
    "+x": "UAdd is not allowed",
    "await x": "is not an expression | Await is not allowed",
    "print(x)": "there is no function 'print'",
    "ß or absolute(x)": "'absolute(x)' at character 6: there is no function 'absolute'; functions are abs, ceil,",
    "flor(x)": "there is no function 'flor'; did you mean \"floor\"?",
    "abs(x, y)": "abs takes 1 argument, got 2",
    "min(x)": "min takes at least 2 arguments, got 1",
    "round(x, 1, 2)": "round takes 1 or 2 arguments, got 3",
    "abs(x=1)": "abs takes arguments by position alone",
    "min(*x)": "min takes arguments by position alone",
    "round(x, y)": "round takes a constant number of digits, at most 15",
    "round(x, 16)": "round takes a constant number of digits, at most 15",
    "x is 3": "`is` only compares with None",
    "x is y": "`is` only compares with None",
    "x == None": "a comparison with None is never true; write x is None",
    "None != x": "write x is None",
    "x in (1, y)": "'y' at character 10: the values of `in` are constants other than None",
    "x in (1, None)": "the values of `in` are constants other than None",
    "x in ()": "`in` needs at least one constant",
    "x in y": "the text to search for must be a constant; the values of `in` are constants, in parentheses",
    "3 in x": "the text to search for must be a constant",
    "contains('a', x)": "the text to search for must be a constant; it is the last argument",
    "matches(x, '(')": "Invalid regular expression: missing ): (; the syntax is that of RE2",
    "matches(x, r'(a)\\1')": "Invalid regular expression",
    f"matches(x, '{'a' * 1001}')": "a regular expression has at most 1,000 characters",
    "x > 18446744073709551616": "an integer has at most 64 bits; write 1e30",
    "-9223372036854775809": "an integer has at most 64 bits",
    "2 ** 64": "'2 ** 64' at character 1: an integer has at most 64 bits",
    "10**10**10": "a constant exponent is at most 1,024 in size, got 10000000000",
    "x ** -1025": "a constant exponent is at most 1,024 in size",
    "1e999": "the number is not finite",
    "2.0 ** 1024": "the constant has no value",
    "1 / 0": "the constant has no value: division by zero",
    "1 % 0": "the constant has no value",
    "(-8) ** 0.5": "the constant is not a real number",
    "1e308 * 10": "the number is not finite",
    "b'x' == y": "constants are numbers, texts, True, False and None",
    "1j": "constants are numbers, texts",
    "x == ...": "constants are numbers, texts",
    "floor_time(x)": "floor_time takes 2 or 3 arguments, got 1",
    "floor_time(x, 'day', 'Europe/Berln')": "not a time zone of the IANA database, such as 'Europe/Berlin'; did you",
    "floor_time(x, 'day', y)": "the time zone of floor_time is a constant text",
    "floor_time(x, '1d', 'UTC')": "a time zone is for units of the calendar: hour, day, week, month, quarter, year",
    "floor_time(x, y)": "floor_time takes a constant duration longer than 0, as in floor_time(at, '1min')",
    "floor_time(x, '0s')": "floor_time takes a constant duration longer than 0",
    "floor_time(x, 'fortnight')": "'fortnight' is not a duration",
    "field(x)": "field takes a constant text, as in field('a.b')",
    "field('')": "field takes a constant text",
    "time(x)": "time takes a constant text",
    "time('noon')": "time takes ISO 8601, as in time('2024-05-01T12:00Z')",
    "time('0001-01-01T00:00+14:00')": "time takes ISO 8601",
    "duration('1 fortnight')": "'1 fortnight' is not a duration; write numbers with d, h, min",
    "duration(3)": "duration takes a constant text",
    "'\\ud800' == x": "the text is not Unicode text",
    "\ud800": "is not Unicode text",
}


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_other_syntax_is_refused_with_place_and_reason(text):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any(part in str(caught.value) for part in REFUSED[text].split(" | "))


def test_limits_hold():
    parse("x".ljust(MAX_TEXT))
    with pytest.raises(ConfigError, match=r"10,001 characters, at most 10,000 are allowed"):
        parse("x".ljust(MAX_TEXT + 1))
    parse(" and ".join(["x"] * (MAX_NODES - 1)))
    with pytest.raises(ConfigError, match="more than 1,000 parts"):
        parse(" and ".join(["x"] * MAX_NODES))
    parse("abs(" * (MAX_DEPTH - 1) + "x" + ")" * (MAX_DEPTH - 1))
    for deep in (
        "abs(" * MAX_DEPTH + "x" + ")" * MAX_DEPTH,
        "-" * 9_000 + "x",
        "not " * 2_000 + "x",
        "x" + "+x" * 4_000,
    ):
        with pytest.raises(ConfigError, match=r"nested too deeply, at most 64 levels"):
            parse(deep)
    with pytest.raises(ConfigError, match=r"too many nested parentheses|nested too deeply"):
        parse("(" * 4_000 + "x" + ")" * 4_000)
    parse(f"x ** {MAX_EXPONENT}")
    if hasattr(sys, "get_int_max_str_digits"):
        with pytest.raises(ConfigError, match=r"limit|64 bits"):
            parse("9" * 5_000)


def test_names_are_those_of_the_source():
    assert parse("µg > 3").args[0].value == "µg"  # Python's parser makes it a greek letter
    assert parse("ﬁeld").value == "ﬁeld"
    assert parse("field('a.b c')").value == "a.b c"
    assert parse("min > len(max)").args[0].value == "min"
    assert parse("(a\n > b)").args[1].value == "b"


def test_text_may_begin_with_blanks():
    node = parse("\n    value > 3\n")
    assert (node.text, node.at) == ("value > 3", 6)
    with pytest.raises(ConfigError, match="at character 9"):
        parse("\n   x > > 3")
    with pytest.raises(ConfigError, match=r"'foo\(3\)' at character 7"):
        parse("  x > foo(3)")


def test_place_counts_characters():
    with pytest.raises(ConfigError, match=r"'x\[0\]' at character 11"):
        parse("größe and x[0]")
    with pytest.raises(ConfigError, match=r"'y\[0\]' at character 10"):
        parse("(x and\n  y[0])")


def test_constants_are_computed_once():
    assert parse("60 * 60 * 24").value == 86_400
    assert parse("-(2 ** 63)").value == parse("-9223372036854775808").value == -(2**63)
    assert parse("x ** (1 + 1)").args[1].value == 2
    assert parse("2 ** 0.5").value == 2**0.5


def test_escapes_of_regular_expressions_give_no_warning(recwarn):
    assert parse(r"matches(x, '\d+')").args[1].value == r"\d+"
    assert not recwarn


def test_requirements_follow_from_constants_and_operators():
    found = requirements(parse("a > 3 and b == 'x' and c and d < e and hour(f) == 3 and g in ('x', 'y') and h + i > 2"))
    text, number = "text", "exact number"
    assert found == dict(a=number, b=text, c="any", d="any", e="any", f="any", g=text, h=number, i=number)
    found = requirements(parse("t - u > duration('1h') or v / 2 > w * x or is_nan(y) or coalesce(z, 1) == k or -m < n"))
    assert [name for name, wanted in found.items() if wanted == number] == ["v", "w", "x", "y", "z", "k"]
    assert requirements(parse("x > 3 if flag else lower(y) < z")) == dict(flag="any", x=number, y=text, z=text)


def test_functions_are_documented():
    page = (Path(__file__).parents[3] / "docs/howto/expressions.md").read_text(encoding="utf-8")
    assert not [name for name in FUNCTIONS if f"{name}(" not in page]
