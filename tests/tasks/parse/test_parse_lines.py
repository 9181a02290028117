"""Parsing of text lines, against Python's own readers and the figures of the specification."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.tasks.parse.line_cells import MAX_PYTHON_MESSAGES
from tests.samples import expected

DATA = "dspbench"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE = {"x": (0, "string", None)}


def read(lines, **options):
    """``(records, [(line, reason)])``."""
    session = t.ParseLines(**options).session()
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(len(lines)), pa.int64()), "payload": pa.array(lines, pa.binary())}
    )
    rows = session.push_batch(batch).to_pylist()
    return rows, [(e["seq"], e["reason"]) for e in session.errors]


def values(kind, *cells, **options):
    """The values of cells of a kind, or the reason for each rejected one."""
    rows, errors = read([cell.encode() for cell in cells], schema={"x": (0, kind)}, delimiter="|", **options)
    found = {row["seq"]: row["x"] for row in rows} | dict(errors)
    return [found[i] for i in range(len(cells))]


# -- kinds of cells --------------------------------------------------------------------------------


def test_numbers_are_read_or_rejected():
    assert values("int64", "7", "-12", "+3", "007", "999999999999999999", "1512564818844372492") == [
        7,
        -12,
        3,
        7,
        999999999999999999,
        1512564818844372492,
    ]
    assert values("int64", "-9223372036854775808", "9223372036854775808", "1.0", "-", "1e3", "٣", "1_0", "1 2") == [
        -(2**63),
        *["bad_number"] * 7,
    ]
    assert values("double", "1.5", "-0.25e-3", ".5", "5.", "+2", "1e308", "3", "123456789012345678901234567890") == [
        1.5,
        -0.25e-3,
        0.5,
        5.0,
        2.0,
        1e308,
        3.0,
        123456789012345678901234567890.0,
    ]
    assert values("double", "nan", "inf", "1e999", "0x10", "1_0", "1,5", "--1", "e5") == ["bad_number"] * 8


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        ("int64", "-12", -12),
        ("double", "2.5", 2.5),
        ("bool", "true", True),
        ("s", "1377986400", datetime(2013, 8, 31, 22, tzinfo=UTC)),
        ("iso", "2013-08-31 22:00", datetime(2013, 8, 31, 22, tzinfo=UTC)),
        ("log", "31/Aug/2013:22:00:00 +0000", datetime(2013, 8, 31, 22, tzinfo=UTC)),
    ],
)
def test_blanks_around_values_are_ignored_except_in_strings(kind, cell, value):
    assert values(kind, cell, f" {cell}", f"{cell}  ", f"\t {cell} \t") == [value] * 4
    assert values(kind, " ", "\t \t") == ["missing"] * 2
    assert (
        values(kind, f"\xa0{cell}", f"{cell}\x0b")
        == ["bad_number" if kind in ("int64", "double") else f"bad_{'bool' if kind == 'bool' else 'time'}"] * 2
    )
    rows, _ = read([b" ,x", b"1, x "], schema={"a": (0, "int64", 7), "b": (1, "string")})
    assert [(row["a"], row["b"]) for row in rows] == [(7, "x"), (1, " x ")], "strings keep their blanks"


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1))
def test_any_number_round_trips(value, whole):
    assert values("double", repr(value), f"{value:.17e}", f"{value:.3f}") == [value, value, float(f"{value:.3f}")]
    assert values("int64", str(whole), f"{whole:+d}", f"{whole:025d}") == [whole] * 3


def test_booleans_are_read_or_rejected():
    assert values("bool", "true", "FALSE", "True", "1", "0") == [True, False, True, True, False]
    assert values("bool", "yes", "2", "tru", "falsy", "trues", "T") == ["bad_bool"] * 6


def test_epoch_times_are_read_or_rejected():
    at = datetime(2013, 8, 31, 22, tzinfo=UTC)
    assert values("s", "1377986400", "-1") == [at, EPOCH - timedelta(seconds=1)]
    assert values("ms", "1377986400250") == [at + timedelta(milliseconds=250)]
    assert values("us", "1377986400000001") == [at + timedelta(microseconds=1)]
    assert values("ns", "1377986400000001999", "-1") == [
        at + timedelta(microseconds=1),
        EPOCH - timedelta(microseconds=1),
    ]
    assert values("s", "253402300799", "253402300800", "-62135596800", "-62135596801") == [
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "out_of_range",
        datetime(1, 1, 1, tzinfo=UTC),
        "out_of_range",
    ]
    assert values("ms", "1,5", "x", "1.", ".5", "1.5e3", "1.5.5", "-", "+", "", "1 5", "0x1") == [
        *["bad_time"] * 8, "missing", *["bad_time"] * 2
    ]  # fmt: skip


def test_fractions_of_epochs_are_exact():
    def micros(kind, *texts):
        return [(at - EPOCH) // timedelta(microseconds=1) for at in values(kind, *texts)]

    assert micros("s", "1714564860.123456", "1714564860.5", "1.000001", "-0.000001", "-1.5", "+2.25", "0.1234569") == [
        1714564860123456, 1714564860500000, 1000001, -1, -1500000, 2250000, 123456
    ]  # fmt: skip
    assert micros("s", "253402300799.999999", "-62135596800.0", "1.00000000000000000000000009") == [
        253402300799999999, -62135596800000000, 1000000
    ]  # fmt: skip
    assert micros("ms", "1.5", "1714564860123.4567", "-0.0001", "-0.001", "-1.0") == [
        1500,
        1714564860123456,
        -1,
        -1,
        -1000,
    ]
    assert micros("us", "7.9", "-7.0", "-7.1") == [7, -7, -8]
    assert micros("ns", "1999.9", "-1.0", "-1000.0", "-1000.1", "-0.0") == [1, -1, -1, -2, 0]
    assert values("s", "253402300800.0", "-62135596800.1", "9" * 30 + ".5", "-" + "9" * 30) == ["out_of_range"] * 4
    assert values("ns", "9223372036854775808", "9" * 25 + ".0") == ["bad_time"] * 2


@given(st.decimals(-(10**11), 10**11, places=9, allow_nan=False), st.sampled_from(["s", "ms", "us", "ns"]))
def test_any_decimal_epoch_is_rounded_down(number, kind):
    unit = {"s": 10**6, "ms": 10**3, "us": 1, "ns": Decimal("0.001")}[kind]
    wanted = (number * unit).to_integral_value(ROUND_FLOOR)
    (at,) = values(kind, f"{number:f}")
    if at == "out_of_range":
        assert not -62135596800 * 10**6 <= wanted < 253402300800 * 10**6
    else:
        assert (at - EPOCH) // timedelta(microseconds=1) == wanted


def test_instants_are_times_or_nanoseconds():
    ns = 1_329_929_188_967_032_000
    texts = ["2012-02-22T16:46:28.9670320+00:00", "2012-02-22T17:46:28.967032+01", str(ns), "2012-02-22 16:46:28.967032",
             f"{ns + 999}", "2012-02-22T16:46:28.967032999Z", "2012-02-22T16:46:28.9670329999Z"]  # fmt: skip
    assert values("instant_ns", *texts) == [ns] * 4 + [ns + 999] * 3
    at = EPOCH + timedelta(microseconds=ns // 1000)
    assert values("instant", *texts) == [at] * 7
    assert values("instant_ns", "-1", "1969-12-31T23:59:59.999999999", "-9223372036854775808", "9223372036854775807") == [
        -1, -1, -(2**63), 2**63 - 1
    ]  # fmt: skip
    assert values("instant_ns", "1677-09-21T00:12:43.145224192Z", "2262-04-11T23:47:16.854775807Z") == [
        -(2**63),
        2**63 - 1,
    ]
    wrong = ["1677-09-21T00:12:43.145224191Z", "2262-04-11T23:47:16.854775808Z", "9999-12-31", "0001-01-01", "-9223372036854775809",
             "9223372036854775808", "1.5", "x", "1329929188967032000Z", "2012-02-30", "1e9", "--1", "+"]  # fmt: skip
    for kind in ("instant", "instant_ns"):
        assert values(kind, *wrong) == ["bad_time"] * len(wrong)


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["", "Z", "+0530", "-08"]))
def test_any_instant_equals_its_nanoseconds(ns, zone):
    at = EPOCH + timedelta(microseconds=ns // 1000)
    shifted = (
        at + {"": timedelta(0), "Z": timedelta(0), "+0530": timedelta(minutes=330), "-08": timedelta(hours=-8)}[zone]
    )
    text = f"{shifted:%Y-%m-%dT%H:%M:%S}.{shifted.microsecond:06}{ns % 1000:03}{zone}"
    assert values("instant_ns", text, str(ns)) == [ns, ns]
    assert values("instant", text, str(ns)) == [at, at]


@given(
    st.datetimes().filter(lambda d: 1 < d.year < 9999),
    st.sampled_from(["T", "t", " "]),
    st.sampled_from(["hours", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from([None, 0, 90, -345, 1439, 60, -720]),
)
def test_any_iso_time_equals_that_of_python(moment, mark, spec, ahead):
    text = moment.isoformat(mark, timespec=spec)
    wanted = datetime.fromisoformat(text.replace("t", "T")).replace(tzinfo=UTC)
    if ahead is not None:
        sign, (h, m) = "-" if ahead < 0 else "+", divmod(abs(ahead), 60)
        wanted -= timedelta(minutes=ahead)
        assert values("iso", f"{text}{sign}{h:02}{m:02}", f"{text}{sign}{h:02}:{m:02}") == [wanted] * 2
        if m == 0:
            assert values("iso", f"{text}{sign}{h:02}") == [wanted]
    else:
        assert values("iso", text, text + "Z", text.replace(".", ",") + "z", text[:10]) == [
            wanted,
            wanted,
            wanted,
            wanted.replace(hour=0, minute=0, second=0, microsecond=0),
        ]


def test_digits_below_a_microsecond_are_cut_off():
    assert values("iso", "2024-05-01T00:00:00.123456999", "1969-12-31 23:59:59.9999999", "2024-05-01 00:00:00,5") == [
        datetime(2024, 5, 1, 0, 0, 0, 123456, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(2024, 5, 1, 0, 0, 0, 500000, UTC),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30",
        "2023-02-29",
        "1900-02-29",
        "2024-13-01",
        "2024-00-01",
        "2024-01-00",
        "0000-01-01",
        "2024-1-1",
        "2024/01/01",
        "20240101",
        "2024-01-01T",
        "2024-01-01T1",
        "2024-01-01T12:",
        "2024-01-01T12:0",
        "2024-01-01T12:00:",
        "2024-01-01T12,5",
        "2024-01-01T12:00,5",
        "2024-01-01Z",
        "2024-01-01T12+1:00",
        "2024-01-01T12:00+01:0",
        "2024-01-01T12:00+01:60",
        "10000-01-01",
        "+10000-01-01",
        "2024-01-01T24:00",
        "2024-01-01T23:60",
        "2024-01-01T23:59:60",
        "2024-01-01T23:59:5",
        "2024-01-01T23:59:59.",
        "2024-01-01T23:59+24:00",
        "2024-01-01T23:59+1",
        "2024-01-01T23:59X",
        "2024-01-01x23:59",
        "12",
    ],
)
def test_invalid_times_are_rejected(text):
    assert values("iso", text) == ["bad_time"]


def test_leap_days_are_valid():
    assert values("iso", "2024-02-29", "2000-02-29") == [datetime(y, 2, 29, tzinfo=UTC) for y in (2024, 2000)]


def test_times_outside_the_years_1_to_9999_are_rejected():
    assert values("iso", "0001-01-01T00:00+05:00", "9999-12-31T23:00-05:00") == ["out_of_range"] * 2


def test_log_times_are_read_or_rejected():
    assert values("log", "10/Jun/1998:12:00:01 +0000", "01/Dec/2024:00:00:00 -0130", "29/Feb/2024:01:02:03 +0000") == [
        datetime(1998, 6, 10, 12, 0, 1, tzinfo=UTC),
        datetime(2024, 12, 1, 1, 30, tzinfo=UTC),
        datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
    ]
    wrong = [
        "10/Jux/1998:12:00:01 +0000",
        "10/jun/1998:12:00:01 +0000",
        "1/Jun/1998:12:00:01 +0000",
        "31/Jun/1998:12:00:01 +0000",
        "10-Jun-1998:12:00:01 +0000",
        "10/Jun/1998 12:00:01 +0000",
        "10/Jun/1998:24:00:01 +0000",
        "10/Jun/98:12:00:01 +0000",
        "10/Jun/1998:12:00:01",
        "10/Jun/1998:12:00:01+0000",
        "10/Jun/1998:12:00:01 +00",
        "10/Jun/1998:12:00:01 +00:00",
        "10/Jun/1998:12:00:01 Z",
        "10/Jun/1998:12:00:01Z     ",
    ]
    assert values("log", *wrong) == ["bad_time"] * len(wrong)


# -- cells -----------------------------------------------------------------------------------------

cell = st.text("ab1ü .", max_size=4)


@given(st.lists(st.lists(cell, min_size=1, max_size=6), max_size=8), st.sampled_from(["", "\n", "\r\n"]))
def test_delimited_cells_equal_those_of_split(rows, end):
    lines = [(",".join(row) + end).encode() for row in rows]
    found, errors = read(lines, schema={"a": (1, "string", None), "b": (3, "string", None)})
    assert errors == []
    for row, record in zip(rows, found, strict=True):
        assert record["a"] == ((row[1] or None) if len(row) > 1 else None)
        assert record["b"] == ((row[3] or None) if len(row) > 3 else None)
    exact, errors = read(lines, schema=ONE, cells=3)
    assert [r["seq"] for r in exact] == [i for i, row in enumerate(rows) if len(row) == 3]
    assert errors == [(i, "wrong_cells") for i, row in enumerate(rows) if len(row) != 3]


@given(st.lists(st.text("ab \t", max_size=12), max_size=8))
def test_spaced_cells_equal_those_of_split(lines):
    found, _ = read(
        [line.encode() for line in lines], schema={"a": (0, "string", None), "b": (2, "string", None)}, format="spaces"
    )
    for line, record in zip(lines, found, strict=True):
        cells = line.split() + [None] * 3
        assert (record["a"], record["b"]) == (cells[0], cells[2])


@given(st.lists(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 70)), max_size=6), min_size=1, max_size=8))
def test_spaced_cells_of_any_length_equal_those_of_split(lines):
    """The kernel reads 64 bytes at a time: blocks begin and end inside cells and inside runs of blanks."""
    texts = [" " * bool(line) + "".join("x" * size + " " * gap for size, gap in line) for line in lines]
    found, errors = read(
        [text.encode() for text in texts], schema={"a": (1, "string"), "b": (3, "string")}, format="spaces", cells=4
    )
    wanted = {i: cells for i, text in enumerate(texts) if len(cells := text.split()) == 4}
    assert {row["seq"]: (row["a"], row["b"]) for row in found} == {i: (c[1], c[3]) for i, c in wanted.items()}
    assert errors == [(i, "wrong_cells") for i in range(len(lines)) if i not in wanted]


def test_cells_of_a_log_may_be_quoted_or_bracketed():
    lines = [b'h - "a b" [1 2] "x [y] \xc3\xbc" end', b'"" [] - "say "so", now" z', b'h "open', b"h [open",
             b'"a\\" b" "c\\\\" "d\\" "e\\"" f', b'"a" "b\\" c "d\\" e"\n', b'"\\" "\\" \\" "x" - "y\\"']  # fmt: skip
    fields = {name: (i, "string", None) for i, name in enumerate("abcde")}
    rows, errors = read(lines, schema=fields, format="log")
    assert [rows[0][n] for n in "abcde"] == ["h", "-", "a b", "1 2", "x [y] ü"]
    assert [rows[1][n] for n in "abcde"] == [None, None, "-", 'say "so", now', "z"]
    assert errors == [(2, "wrong_cells"), (3, "wrong_cells")]
    escaped = [[row[n] for n in "abcde"] for row in rows[2:]]
    assert escaped == [
        ['a\\" b', "c\\\\", 'd\\" "e\\"', "f", None],
        ["a", 'b\\" c "d\\" e', None, None, None],
        ['\\" "\\" \\" "x', "-", "y\\", None, None],
    ], "a quote after a backslash ends a cell if no other does"


def test_several_delimiters_and_values_over_several_cells():
    line = b"19798972429,11653427507,2020-01-01T09:00:02,19798972429;11653427507;2020-01-01T09:00:02;79;true"
    rows, _ = read(
        [line],
        schema={"day": ((2, 2), "iso"), "n": (6, "int64"), "ok": (7, "bool"), "two": ((5, 6), "string")},
        delimiter=",;",
        cells=8,
    )
    assert (rows[0]["n"], rows[0]["ok"], rows[0]["two"]) == (79, True, "2020-01-01T09:00:02;79")
    rows, _ = read([b"2004-03-01 00:00:31.390913 0"], schema={"at": ((0, 1), "iso")}, format="spaces")
    assert rows[0]["at"] == datetime(2004, 3, 1, 0, 0, 31, 390913, UTC)


def test_number_of_cells_is_checked():
    lines = [b"1,2", b"1,2,", b"1,2,3", b"1,2,,", b"1", b""]

    def taken(**options):
        return [row["seq"] for row in read(lines, schema={"x": (0, "int64")}, **options)[0]]

    assert taken() == [0, 1, 2, 3, 4]
    assert taken(cells=2) == [0]
    assert taken(cells=2, trailing=True) == [0, 1]
    assert taken(cells=2, more=True) == [0, 1, 2, 3]
    assert taken(cells=3, trailing=True) == [1, 2, 3]
    assert read([b"1,2,\r\n"], schema={"x": (0, "int64")}, cells=2, trailing=True)[1] == []
    for line in (b"1 2 3 ", b"1 2 3\t", b" 1 2 3 \n"):
        assert read([line], schema={"x": (0, "int64")}, format="spaces", cells=2, trailing=True)[1] == [
            (0, "wrong_cells")
        ]
    spaced = read([b"1 2", b"1 2 ", b" 1\t2 \r\n"], schema={"x": (0, "int64")}, format="spaces", cells=2, trailing=True)
    assert [row["x"] for row in spaced[0]] == [1, 1, 1]
    for line in (b"1,2,3", b"1,2,3,", b"1,2,,", b"1,2, ,", b"1,2,3\n", b"1,2, "):
        for lines in ([line], [b"1,2"] * 3 + [line, "ü,2".encode()]):
            _, errors = read(lines, schema={"x": (0, "string")}, cells=2, trailing=True)
            assert errors == [(lines.index(line), "wrong_cells")], line
    for line in (b'1 "2" 3', b"1 [2] 3 ", b'1 "2"  '):
        assert read([line], schema={"x": (0, "int64")}, format="log", cells=2, trailing=True)[1] == [(0, "wrong_cells")]
    assert read([b'1 "2" '], schema={"x": (0, "int64")}, format="log", cells=2, trailing=True)[1] == []


def test_empty_cells_and_null_texts_are_missing():
    fields = {"n": (0, "int64"), "m": (1, "int64", 0), "s": (2, "string", None), "at": (3, "s", None)}
    assert read([b"1,,,"], schema=fields)[0][0] | {"seq": 0} == {"seq": 0, "n": 1, "m": 0, "s": None, "at": None}
    assert read([b"1"], schema=fields)[0][0]["m"] == 0
    assert sorted(read([b",1", b"-,1", b"1,-,-", b"1,--"], schema=fields)[1]) == [
        (0, "missing"),
        (1, "bad_number"),
        (2, "bad_number"),
        (3, "bad_number"),
    ]
    rows, errors = read([b"-,1", b"1,-,-", b"1,NA,NA", b"1,na"], schema=fields, null_values=("-", "NA"))
    assert errors == [(0, "missing"), (3, "bad_number")]
    assert [(r["m"], r["s"]) for r in rows] == [(0, None), (0, None)]


def test_skipped_lines_give_no_records_and_null_lines_are_errors():
    lines = [b"Symbol,DATE,Open", b"A,2018-08-15,1", b"date,x,1", None, b"B,\xff,2", b"C,2018-08-16,3"]
    rows, errors = read(lines, schema={"s": (0, "string"), "d": (1, "iso")}, skip={1: "date"})
    assert [row["s"] for row in rows] == ["A", "C"]
    assert errors == [(3, "missing"), (4, "invalid_utf8"), (2, "bad_time")]


def test_messages_name_field_and_cell():
    session = t.ParseLines(schema={"price": (0, "double"), "at": (1, "s")}, cells=2).session()
    for line in ("x,1", "1", "1,99999999999999", ",1", "1,x"):
        session.push({"payload": line})
    assert [error["message"] for error in session.errors] == [
        "price: 'x' is not a valid double",
        "1 cells, 2 expected",
        "at: '99999999999999' is outside the years 1 to 9999",
        "price is missing",
        "at: 'x' is not a valid s",
    ]
    assert session.errors[0]["raw"] is not None


@pytest.mark.parametrize("text", ["x", "it's", 'say "x"', "back\\slash", "\x01", "\x7f", "ü", "x" * 200, "x" * 201])
def test_messages_quote_a_cell_like_python(text):
    session = t.ParseLines(schema={"price": (0, "double")}).session()
    session.push_many([{"payload": text}, {"payload": "y"}])
    quoted = text if len(text) <= 200 else text[:199] + "…"
    assert [e["message"] for e in session.errors] == [
        f"price: {quoted!r} is not a valid double",
        "price: 'y' is not a valid double",
    ]


def test_record_has_order_kept_and_parsed_fields():
    task = t.ParseLines(schema={"event_time": (0, "ms"), "n": (1, "int64")}, field="line", keep=("unit",))
    row = {"seq": 5, "ordinal": 1, "event_time": None, "unit": "W", "other": 1, "line": "1000,7"}
    (record,) = task.session().push(row)
    assert record == {"seq": 5, "ordinal": 1, "unit": "W", "event_time": EPOCH + timedelta(seconds=1), "n": 7}


def test_descriptor_restores_the_task():
    task = t.ParseLines(
        schema={"at": ((0, 1), "iso"), "n": (2, "int64", 0)}, format="spaces", skip={2: "n"}, null_values=("-",)
    )
    assert t.Task.from_dict(task.to_dict()) == task


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schema": {}}, "schema must be"),
        ({"schema": {"x": 1}}, "'x' must be"),
        ({"schema": {"x": (-1, "string")}}, "cell of 'x'"),
        ({"schema": {"x": ((2, 1), "string")}}, "cell of 'x'"),
        ({"schema": {"x": (0, "integer")}}, "kind of 'x'"),
        ({"schema": {"x": (0, "int64", "many")}}, "default of 'x'"),
        ({"schema": ONE, "format": "json"}, "format"),
        ({"schema": ONE, "delimiter": ""}, "delimiter"),
        ({"schema": ONE, "delimiter": "\n"}, "delimiter"),
        ({"schema": ONE, "format": "spaces", "delimiter": ";"}, "delimiter"),
        ({"schema": {"x": (3, "string")}, "cells": 3}, "cells = 3"),
        ({"schema": ONE, "cells": 65_537}, "cells = 65537.* <= 65536"),
        ({"schema": {"x": (65_536, "string")}}, "cell of 'x' .* from 0 to 65,535 .* got 65536"),
        ({"schema": {"x": ((0, 10**9), "string")}}, "cell of 'x' .* from 0 to 65,535 .* got \\(0, 1000000000\\)"),
        ({"schema": ONE, "skip": {65_536: "b"}}, "skip .* 0 to 65,535"),
        ({"schema": ONE, "skip": {"²": "b"}}, "skip"),
        ({"schema": ONE, "skip": {"a": "b"}}, "skip"),
        ({"schema": ONE, "keep": ("x",)}, "keep"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        t.ParseLines(**options)


def test_cell_65535_can_be_read():
    fields = {"x": (65_535, "string"), "rest": ((65_534, 65_535), "string")}
    for text in ("," * 65_534 + "ä,x", ",".join(["q"] * 65_534) + ',"ä,x'):
        session = t.ParseLines(schema=fields, cells=65_536, skip={65_535: "y"}).session()
        assert [row["x"] for row in session.push({"payload": text})] == ["x"]
        assert session.push({"payload": text[:-1] + "y"}) == session.errors == []


# -- files of the benchmark ------------------------------------------------------------------------

SECONDS = {"event_time": (1, "s")}
FILES = [
    (
        "machine-usage.csv",
        {"schema": {"machine": (0, "string"), **SECONDS, "cpu": (2, "double")}, "cells": 9},
        1013,
        180,
        0,
    ),
    (
        "synthetic/http-server.log",
        {
            "schema": {
                "ip": (0, "string"),
                "event_time": (3, "log"),
                "request": (4, "string"),
                "status": (5, "int64"),
                "bytes": (6, "int64", 0),
            },
            "format": "log",
            "cells": 7,
            "more": True,
            "null_values": ("-",),
        },
        3000,
        180,
        2,
    ),
    (
        "synthetic/sensors.dat",
        {
            "schema": {"event_time": ((0, 1), "iso"), "mote": (3, "string"), "value": (4, "double")},
            "format": "spaces",
            "cells": 8,
        },
        6000,
        259,
        2,
    ),
    (
        "stocks.csv",
        {
            "schema": {
                "stock": (0, "string"),
                "event_time": (1, "iso"),
                "close": (5, "double"),
                "volume": (7, "double"),
            },
            "cells": 8,
            "trailing": True,
            "skip": {1: "date"},
        },
        410,
        150,
        0,
    ),
    (
        "synthetic/smart-grid.csv",
        {"schema": {**SECONDS, "value": (2, "double"), "house": (6, "int64")}, "cells": 7},
        4752,
        480,
        0,
    ),
    (
        "synthetic/voip-cdr.csv",
        {
            "schema": {"caller": (0, "string"), "duration": (6, "int64"), "established": (7, "bool")},
            "delimiter": ",;",
            "cells": 8,
        },
        6000,
        200,
        0,
    ),
    (
        "synthetic/ad-clicks.tsv",
        {
            "schema": {"clicks": (0, "int64"), "url": (2, "int64"), "user": (11, "int64")},
            "delimiter": "\t",
            "cells": 12,
        },
        2000,
        160,
        1,
    ),
]


@pytest.mark.parametrize(("name", "options", "papers", "made", "bad"), FILES, ids=[name for name, *_ in FILES])
def test_files_of_the_benchmark_are_read(sample_data: Path, name, options, papers, made, bad):
    lines = (sample_data / DATA / name).read_bytes().split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    rows, errors = read(lines, **options)
    assert (len(rows), len(errors)) == (expected(sample_data, made=made, papers=papers), bad)
    if name.endswith("ad-clicks.tsv"):
        assert (sum(r["clicks"] for r in rows), rows[0]["url"]) == expected(
            sample_data, made=(17, 5816078184837378282), papers=(195, 1512564818844372492)
        )
    if name.endswith("voip-cdr.csv"):
        assert sum(r["established"] for r in rows) == expected(sample_data, made=194, papers=5708)
    if name.endswith(".log"):
        by_status = [sum(r["status"] == s for r in rows) for s in (200, 206, 304, 404, 500)]
        assert by_status == expected(sample_data, made=[148, 4, 17, 9, 2], papers=[2420, 53, 348, 158, 21])
        assert {len(re.findall(" ", r["request"])) for r in rows} == {2}
    assert all(math.isfinite(v) for r in rows for v in r.values() if isinstance(v, float))


def test_any_white_space_may_separate_date_and_time():
    lines = [b"2024-05-01\t12:00:01", b" 2024-05-01  12:00:01  10/Jun/1998:12:00:01 \t +0100", b"2024-05-01 \t 25:00"]
    rows, errors = read(lines, schema={"t": ((0, 1), "iso"), "u": ((2, 3), "log", None)}, format="spaces")
    assert [f"{row['t']:%d %H:%M:%S}" for row in rows] == ["01 12:00:01"] * 2
    assert f"{rows[1]['u']:%H:%M:%S}" == "11:00:01"
    assert errors == [(2, "bad_time")]


# -- the fast path ---------------------------------------------------------------------------------

CELLS = st.one_of(
    st.sampled_from(["", "0", "-7", "+7", "007", "1.5", "-0.25", "1e3", "12345678", "123456789.25", "1" * 18, "9" * 19]),
    st.sampled_from(["2024-02-29", "2023-02-29", "0001-01-01", "12:00:01", "12:00:01.5", "23:59:59.123456", "24:00:00"]),
    st.sampled_from(["12:00:01.1234567", "12:00:01,5", "12:00", "12:00:01Z", "2024-05-01T12:00:01+05:00", "2024-05-01x1"]),
    st.sampled_from(["a", "eight888", "nine99999", "a longer text than eight", "ü", "x\ty", "\r", "1714564801", "-62135596801"]),
    st.text("0123456789-:.T ", max_size=27),
)  # fmt: skip


@given(st.lists(st.one_of(st.lists(CELLS, min_size=3, max_size=8), st.none()), max_size=30), st.sampled_from(" ,"))
def test_fast_path_equals_slow_path(rows, delimiter):
    lines = [None if cells is None else delimiter.join(cells).encode() + b"\n" * (len(cells) % 2) for cells in rows]
    tables = [
        {"s": (0, "string"), "n": (1, "int64"), "x": (2, "double"), "last": (4, "string", "none")},
        {"t": (0, "iso"), "u": ((1, 2), "iso"), "e": (1, "s"), "both": ((0, 2), "string")},
        {"u": ((0, 1), "iso"), "x": (2, "double", None), "ms": (3, "ms", 0)},
    ]
    for fields in tables:
        for cells in (None, 5):
            options = {"format": "spaces" if delimiter == " " else "delimited", "schema": fields, "cells": cells}
            wanted, bad = read_slowly(lines, **options)
            assert read(lines, **options) == (wanted, bad)


def read_slowly(lines, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(t.ParseLines, "read_fast", lambda self, text: None)
        rows, errors = read(lines, **options)
    return rows, errors


@pytest.mark.parametrize("fraction", ["", ".5", ".123456"])
def test_fast_path_reads_common_lines(fraction):
    lines = [f"2024-05-{1 + i % 31:02} 12:00:{i % 60:02}{fraction} {i} mote-{i} {i / 8} x".encode() for i in range(99)]
    fields = {"t": ((0, 1), "iso"), "i": (2, "int64"), "m": (3, "string"), "v": (4, "double")}
    task = t.ParseLines(schema=fields, format="spaces", cells=6)
    columns, plain = task.read_fast(pa.array(lines))
    assert plain.all()
    micros = int(f"{fraction[1:]:0<6}")
    assert columns["t"].to_pylist() == [datetime(2024, 5, 1 + i % 31, 12, 0, i % 60, micros, UTC) for i in range(99)]
    assert columns["m"].to_pylist() == [f"mote-{i}" for i in range(99)]
    assert columns["v"].to_pylist() == [i / 8 for i in range(99)]
    assert read_slowly(lines, schema=fields, format="spaces")[0] == read(lines, schema=fields, format="spaces")[0]


def test_parameters_outside_the_fast_path_disable_it():
    for other in ({"skip": {0: "id"}}, {"null_values": ("-", "NA")}):
        assert t.ParseLines(schema={"x": (0, "string")}, **other).read_fast(pa.array(["a"])) is None
    for skip in ({0: "id"}, {1: "1"}):  # the fast path could not distinguish a header from a valid line
        fields = {"s": (0, "string"), "n": (1, "int64")}
        assert t.ParseLines(schema=fields, skip=skip).read_fast(pa.array(["a,1"])) is None


LOGGED = st.one_of(
    st.sampled_from(["-", '"-"', '""', '"', "[", "]", "[]", "[a b]", '"a b"', '"a "b" c"', 'a"b c', "[a] b]", "", "7", "200", "1e3"]),
    st.sampled_from(["[10/Jun/1998:12:00:01 +0000]", "[29/Feb/2023:12:00:01 +0000]", "[10/Jun/1998:24:00:01 +0000]"]),
    st.sampled_from(["[10/Jun/1998:12:00:01 -0130]", "[01/Dec/0001:00:00:00 +0100]", "[10/Jun/1998:12:0x:01 +0000]"]),
    st.text('"[] -a', max_size=9),
)  # fmt: skip


@pytest.mark.long
@given(st.lists(st.tuples(st.lists(LOGGED, max_size=6), st.sampled_from(["", "\n", "\r\n", " ", "ü"])), max_size=20))
def test_fast_path_of_logs_equals_slow_path(rows):
    lines = [(" ".join(cells) + end).encode() for cells, end in rows]
    tables = [
        {"a": (0, "string"), "t": (1, "log"), "n": (2, "int64", 7)},
        {
            "a": (0, "string", None),
            "b": (1, "string", "none"),
            "both": ((0, 2), "string", None),
            "x": (3, "double", None),
        },
    ]
    for fields in tables:
        for cells, more, trailing in ((None, False, False), (4, False, True), (4, True, False)):
            for nulls in ((), ("-",), ("-", "a")):
                options = {"schema": fields, "format": "log", "cells": cells, "more": more, "null_values": nulls}
                options["trailing"] = trailing
                assert read(lines, **options) == read_slowly(lines, **options)


def test_fast_path_reads_common_log_lines():
    lines = [
        f'h{i} - - [{1 + i % 30:02}/Jun/1998:12:00:{i % 60:02} +0000] "GET /{i} HTTP/1.0" 200 {i or "-"}\n'.encode()
        for i in range(99)
    ]
    fields = {
        "t": (3, "log"),
        "ok": (5, "int64"),
        "n": (6, "int64", 0),
        "q": (4, "string"),
        "none": (2, "string", None),
    }
    columns, plain = t.ParseLines(schema=fields, format="log", cells=7, null_values=("-",)).read_fast(pa.array(lines))
    assert plain.all()
    assert columns["t"].to_pylist() == [datetime(1998, 6, 1 + i % 30, 12, 0, i % 60, tzinfo=UTC) for i in range(99)]
    assert columns["n"].to_pylist() == list(range(99))
    assert columns["q"].to_pylist() == [f"GET /{i} HTTP/1.0" for i in range(99)]
    assert columns["none"].null_count == 99


FLAGS = st.sampled_from(["0", "1", "true", "FALSE", "True", "tru", "false0", "2", "", "9" * 20, "-" + "9" * 19, "1e3"])
LONG = st.from_regex(r"-?[0-9]{0,10}\.?[0-9]{0,10}", fullmatch=True)
WHOLE = st.one_of(st.integers(-(2**63) - 2, 2**63 + 2), st.sampled_from([2**63 - 1, 2**63, -(2**63), 10**18])).map(str)


@pytest.mark.long
@given(
    st.lists(st.tuples(st.lists(st.one_of(FLAGS, LONG, WHOLE), min_size=70, max_size=72), st.booleans()), max_size=8),
    st.sampled_from([",;", ",;"[::-1]]),
)
def test_fast_path_with_many_cells_and_delimiters_equals_slow_path(rows, delimiter):
    lines = [",".join(c[:9]) + ";" + ";".join(c[9:]) + ";" * more for c, more in rows]
    lines += ["A," + ",".join(["0"] * 69), "NAME," * 70]
    fields = {"b": (0, "bool"), "n": (3, "int64"), "ns": (3, "ns"), "x": (5, "double"), "last": (69, "double"),
              "again": (3, "int64"), "s": (6, "string")}  # fmt: skip
    for options in ({"cells": 70, "trailing": True}, {"cells": 71}, {}, {"skip": {5: "name"}, "trailing": True}):
        options |= {"schema": fields, "delimiter": delimiter}
        assert read(lines, **options) == read_slowly(lines, **options)


def test_fast_path_reads_lines_of_the_benchmark():
    calls = [f"11847,12152,2020-01-01T00:00:5{i},11847;12152;2020-01-01T00:00:5{i};{i + 1}8.5;true" for i in range(9)]
    fields = {"caller": (0, "string"), "at": (2, "iso"), "also": (2, "iso"), "for": (6, "double"), "ok": (7, "bool")}
    columns, plain = t.ParseLines(schema=fields, delimiter=",;", cells=8).read_fast(pa.array(calls))
    assert plain.all() and columns["ok"].to_pylist() == [True] * 9
    assert columns["at"].to_pylist() == columns["also"].to_pylist()
    assert columns["at"][4].as_py() == datetime(2020, 1, 1, 0, 0, 54, tzinfo=UTC)
    bars = ["AAB,2018-01-01,46.271978,152000,", "Symbol,Date,Open,Volume", "AAC,2018-02-28,5.200081,80400"]
    fields = {"stock": (0, "string"), "day": (1, "iso"), "price": (2, "double"), "volume": (3, "double")}
    columns, plain = t.ParseLines(schema=fields, cells=4, trailing=True, skip={1: "date"}).read_fast(pa.array(bars))
    assert plain.tolist() == [True, False, True]
    assert columns["day"][1].as_py() == datetime(2018, 2, 28, tzinfo=UTC)
    assert columns["price"][0].as_py() == 46.271978


@given(st.lists(st.tuples(st.integers(2003, 2004), st.integers(0, 13), st.integers(0, 32)), min_size=2, max_size=40))
def test_cached_day_is_not_used_for_another_day(days):
    lines = [f"{y:04}-{m:02}-{d:02} 12:00:01".encode() for y, m, d in days]
    rows, errors = read(lines * 2, schema={"t": ((0, 1), "iso")}, format="spaces")
    assert (rows, errors) == read_slowly(lines * 2, schema={"t": ((0, 1), "iso")}, format="spaces")


MINUTES = st.sampled_from(
    [
        "2004-03-01 00:00",
        "2004-03-01T00:00",
        "2004-03-01 00:01",
        "2004-02-29 23:59",
        "2003-02-29 23:59",
        "1969-12-31 23:59",
    ]
)
SECONDS = st.sampled_from(["00", "01", "59", "60", "6", "x1"])
FRACTIONS = st.sampled_from(["", ".", ".5", ".123456", ".1234567", ".x"])


@given(st.lists(st.one_of(st.tuples(MINUTES, SECONDS, FRACTIONS), st.just(("2004-03-01",))), min_size=2, max_size=40))
def test_cached_minute_is_not_used_for_another_minute(times):
    texts = [time[0] if len(time) == 1 else f"{time[0]}:{time[1]}{time[2]}" for time in times]
    assert values("iso", *texts) == [_moment(text) for text in texts]


def _moment(text):
    """The time by a pattern and Python's calendar; digits below a microsecond are cut off."""
    parts = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?", text)
    try:
        *whole, fraction = parts.groups("0") if parts else (0, 0, 0, "")
        return datetime(*map(int, whole), int(fraction.ljust(6, "0")[:6]), tzinfo=UTC)
    except ValueError:
        return "bad_time"


def test_empty_cache_of_times_is_not_used():
    assert values("iso", "0000-00-00T00:00:00", "2004-03-01 00:00:00")[0] == "bad_time"
    assert values("iso", "\0" * 16 + ":00", "2004-03-01 00:00:00")[0] == "bad_time"
    assert values("log", "\0" * 12 + "00:00:00 +0000", "01/Mar/2004:00:00:00 +0000")[0] == "bad_time"


def test_invalid_date_after_a_similar_valid_one_is_rejected():
    lines = [f"2004-{day} 12:00:01".encode() for day in ["03-10", "02-30", "03-10", "03-11"] * 9]
    rows, errors = read(lines, schema={"t": ((0, 1), "iso")}, format="spaces")
    assert [f"{row['t']:%m-%d}" for row in rows] == ["03-10", "03-10", "03-11"] * 9
    assert {reason for _, reason in errors} == {"bad_time"}


@given(st.lists(st.sampled_from(["x", "1,y", "1,'", "1,", "1,2", "1,2,3", '1,"', "1,ü", "1,\\", "1," + "z" * 200])))
@settings(max_examples=30)
def test_messages_of_many_lines_equal_those_of_each(lines):
    """Few messages are formatted in Python, many by Arrow."""
    each = [text for line in lines for text in _error_texts([line])]
    assert sorted(_error_texts(lines)) == sorted(each)
    often = 1 + MAX_PYTHON_MESSAGES // max(1, len(each))
    assert sorted(_error_texts(lines * often)) == sorted(each * often)


def _error_texts(lines):
    rejects = RejectedRecords("parse")
    task = t.ParseLines(schema={"a": (0, "int64"), "b": (1, "int64")}, cells=2)
    task.apply(pa.RecordBatch.from_pydict({"seq": [0] * len(lines), "payload": pa.array(lines, pa.string())}), rejects)
    return [(row["raw"], row["reason"], row["message"]) for batch in rejects.take() for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()])
def test_byte_order_mark_before_a_line_is_skipped(kind):
    lines = pa.array(["\ufeffa,1", "b,2", "\ufeff", "\ufeffc,x", None]).cast(kind)
    batch = pa.RecordBatch.from_arrays([pa.array(range(5)), lines], ["seq", "payload"])
    session = t.ParseLines(schema={"dev": (0, "string"), "v": (1, "double")}).session()
    out = session.push_batch(batch)
    assert [(row["dev"], row["v"]) for row in out.to_pylist()] == [("a", 1.0), ("b", 2.0)]
    assert sorted(e["seq"] for e in session.errors) == [2, 3, 4]


PARSERS = {
    "lines": (lambda **more: t.ParseLines(schema={"x": (0, "string"), "n": (1, "int64")}, **more), "{},{}"),
    "json": (lambda **more: t.ParseJSON(schema={"x": ("x", "string"), "n": ("n", "int64")}, **more), '{{"x":"{}","n":{}}}'),
    "log": (
        lambda **more: t.ParseAccessLog(schema={"x": ("resource", "string"), "n": ("size", "int64")}, **more),
        'h - - [10/Jun/1998:12:00:01 +0000] "GET {}" 200 {}',
    ),
    "table": (lambda **more: t.ParseLines(schema={"x": ("é", "string"), "n": ("n", "int64")}, header=("é", "n"), **more), "{},{}"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_lines_of_another_encoding_are_read(name):
    make, form = PARSERS[name]
    texts = [form.format(x, n) for x, n in (("é", 1), ("tea", 2), ("€", 3), ("é", "x"))]
    lines = [*(text.encode("cp1252") for text in texts), form.format("\x81", 4).encode("latin-1"), None]
    batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(6), pa.int64()), "payload": pa.array(lines, pa.binary())})
    session = make(encoding="cp1252").session()
    rows = [(row["seq"], row["x"], row["n"]) for row in session.push_batch(batch).to_pylist()]
    assert rows == [(0, "é", 1), (1, "tea", 2), (2, "€", 3)]
    errors = {e["seq"]: (e["reason"], e["message"]) for e in session.errors}
    assert errors.pop(4) == ("invalid_encoding", "the line is not cp1252")
    assert {seq: reason for seq, (reason, _) in errors.items()} == {
        3: {"json": "not_json", "log": "malformed"}.get(name, "bad_number"),
        5: "missing",
    }
    usual = make().session()
    assert [row["x"] for row in usual.push_batch(batch).to_pylist()] == ["tea"]
    assert {e["reason"] for e in usual.errors} == {"invalid_utf8", "missing"}
    assert make(encoding="ascii").session().push({"payload": texts[0]})[0]["x"] == "é", "text has no encoding"
    with pytest.raises(ConfigError, match=r"encoding must be one of text .* got 'utf-9'"):
        make(encoding="utf-9")
    assert t.Task.from_dict(make(encoding="cp1252").to_dict()) == make(encoding="cp1252")


def test_headers_of_another_encoding_are_found():
    session = t.ParseLines(schema={"x": ("é", "string")}, header=("a", "é"), encoding="utf-16").session()
    lines = ["1,x", "é,a", "y,2"]
    rows = session.push_many([{"payload": line.encode("utf-16")} for line in lines])
    assert [row["x"] for row in rows] == ["x", "y"]
    assert session.errors == []


def test_bad_optional_cells_become_the_default_with_a_reason():
    task = t.ParseLines(schema={"id": (0, "string"), "n": (1, "int64", 0)}, delimiter=",", problems="why")
    rows = [task.session().push({"payload": line}) for line in ("a,1", "b,x", "c")]
    assert rows[:2] == [
        [{"id": "a", "n": 1, "why": None}],
        [{"id": "b", "n": 0, "why": "bad_number: n: 'x' is not a valid int64"}],
    ]
