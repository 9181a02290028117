"""Numbers and times in files as people write them, compared with pandas and with Python's datetime."""

from __future__ import annotations

import gzip
import io
import logging
import math
import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.notation import Notation
from tests.search import depth
from tests.simulated_query import SimulatedQuery

BERLIN = ZoneInfo("Europe/Berlin")
UTC_MICROS = pa.timestamp("us", "UTC")

NUMBERS = """Export of "plant 7
made by hand
# units: °C
id;value;count
01;21,5;1
# pause
02;-1,25e3;2
03;22.5;3
04;"";4
05;-;5
06;1.000,5;6
07;"#7
";7
"""


def read_back(path, schema, **options):
    """The records and the errors of a run over files, as both runners read them."""
    flow = ro.Dataflow("read")
    flow.sink("out", flow.source("rows", schema=schema))
    source = ro.read(path, **options)
    result = flow.run(source)
    staged = SimulatedQuery(flow, ro.read(path, **options), random.Random(3), max_records=2)
    rows = result["rows"].to_pylist()
    assert sorted(map(repr, staged["rows"].to_pylist())) == sorted(map(repr, rows))
    assert sorted(map(repr, staged["errors"].to_pylist())) == sorted(map(repr, result.errors.to_pylist()))
    return rows, sorted(result.errors.to_pylist(), key=lambda error: error["seq"])


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text(NUMBERS, encoding="utf-8")
    return path


OPTIONS = {"delimiter": ";", "skip_rows": 2, "comment": "#", "decimal": ",", "null_values": ["", "-"]}


@pytest.mark.parametrize("quoted_nulls", [False, True])
def test_decimal_commas_lines_before_the_header_and_comments_are_read_as_pandas_does(export, quoted_nulls):
    schema = {"id": "string", "value": "double", "count": "int64"}
    rows, errors = read_back(export, schema, quoted_nulls=quoted_nulls, **OPTIONS)
    text = "".join(line for line in NUMBERS.splitlines(True)[2:] if not line.startswith("#"))
    wanted = pd.read_csv(io.StringIO(text), sep=";", dtype=str, keep_default_na=False)
    plain = wanted["value"].str.replace(",", ".").where(~wanted["value"].str.contains(".", regex=False))
    numbers = pd.to_numeric(plain, errors="coerce")
    assert [(row["id"], row["value"]) for row in rows if row["value"] is not None] == [
        (one, value) for one, value in zip(wanted["id"], numbers, strict=True) if not math.isnan(value)
    ]
    assert [row["id"] for row in rows if row["value"] is None] == (["04", "05"] if quoted_nulls else ["05"])
    bad = ["22.5", "1.000,5", "#7\n"] if quoted_nulls else ["22.5", "", "1.000,5", "#7\n"]
    assert [error["message"] for error in errors] == [f"value = {one!r} (str) is not of type double" for one in bad]
    assert {error["reason"] for error in errors} == {"wrong_type"}


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_lines_before_the_header_and_comments_may_have_any_line_break(tmp_path, line_break, encoding):
    path = tmp_path / "lines.csv"
    path.write_bytes(line_break.join(["Größe", "n;text", "#1;x", "1;é", '2;"#"', "#"]).encode(encoding))
    options = {"delimiter": ";", "skip_rows": 1, "comment": "#", "encoding": encoding}
    rows, errors = read_back(path, {"n": "int64", "text": "string"}, **options)
    assert ([(row["n"], row["text"]) for row in rows], errors) == ([(1, "é"), (2, "#")], [])


@pytest.mark.parametrize("option", ["skip_rows", "comment", "decimal"])
def test_each_option_of_numbers_decides(export, option):
    whole, _ = read_back(export, {"value": "double"}, header=["id", "value", "count"], **OPTIONS)
    rest = {name: value for name, value in OPTIONS.items() if name != option}
    less, _ = read_back(export, {"value": "double"}, header=["id", "value", "count"], **rest)
    assert len(less) != len(whole) or less != whole


def test_decimals_are_read_with_a_comma_and_whole_numbers_and_texts_are_left(tmp_path):
    path = tmp_path / "prices.csv"
    schema = pa.schema([("price", pa.decimal128(5, 2)), ("name", pa.string()), ("n", pa.int64())])
    path.write_text('price,name,n\n"1,50","1,50",7\n"1.5","1.5",7\n')
    rows, errors = read_back(path, schema, decimal=",")
    assert [(str(row["price"]), row["name"], row["n"]) for row in rows] == [("1.50", "1,50", 7)]
    assert [error["seq"] for error in errors] == [1]


LOCAL = st.integers(-(2**31), 2**32).map(lambda s: datetime(1970, 1, 1) + timedelta(seconds=s))  # noqa: DTZ001
CHANGES = st.sampled_from([datetime(2024, 3, 31, 2), datetime(2024, 10, 27, 2), datetime(2024, 10, 27, 3)])  # noqa: DTZ001
NEAR = st.tuples(CHANGES, st.integers(-90, 90)).map(lambda pair: pair[0] + timedelta(minutes=pair[1]))


def meaning(local, ambiguous):
    """The instants that a local time in Berlin may mean, by Python."""
    found = {
        one
        for fold in (0, 1)
        for one in [local.replace(tzinfo=BERLIN, fold=fold).astimezone(UTC)]
        if one.astimezone(BERLIN).replace(tzinfo=None) == local
    }
    if len(found) > 1 and ambiguous == "reject":
        return "ambiguous_time"
    return {0: "no_such_time"}.get(len(found)) or (max(found) if ambiguous == "latest" else min(found))


@given(
    st.lists(st.none() | LOCAL | NEAR, max_size=8),
    st.sampled_from(["reject", "earliest", "latest"]),
    st.sampled_from([None, "%d.%m.%Y %H:%M:%S", "%d/%b/%y %I:%M:%S %p"]),
)
@settings(max_examples=depth(200), deadline=None)
def test_local_times_equal_python(times, ambiguous, form):
    notation = Notation(time_format=form, tz="Europe/Berlin", ambiguous=ambiguous)
    if form is not None and "%y" in form:
        times = [time for time in times if time is None or 1969 <= time.year < 2069]
    texts = [None if one is None else one.strftime(form) if form else one.isoformat(" ") for one in times]
    column, problems = notation.convert(pa.array(texts, pa.string()), UTC_MICROS)
    wanted = [None if time is None else meaning(time, ambiguous) for time in times]
    assert column.to_pylist() == [None if isinstance(one, str) else one for one in wanted]
    assert {i: p.reason for i, p in problems.items()} == {i: w for i, w in enumerate(wanted) if isinstance(w, str)}


FORM = "%d.%m.%Y %H:%M"
FORMATTED = st.from_regex(r"\A ?([0-3]?[0-9])\.([01]?[0-9])\.(1[89]|20)[0-9]{2} [0-2]?[0-9]:[0-6]?[0-9] ?\Z") | st.text(
    max_size=6
)


@given(st.lists(st.none() | FORMATTED, max_size=8), st.sampled_from([UTC_MICROS, pa.timestamp("s"), pa.date32()]))
@settings(max_examples=depth(200), deadline=None)
def test_formatted_times_are_read_as_by_strptime(texts, dtype):
    column, problems = Notation(time_format=FORM).convert(pa.array(texts, pa.string()), dtype)
    wanted = []
    for text in texts:
        try:
            wanted.append(text and datetime.strptime(text.strip(), FORM).replace(tzinfo=UTC))
        except ValueError:
            wanted.append("bad")
    bad = [i for i, one in enumerate(wanted) if one == "bad" or (one == "" and texts[i] == "")]
    assert sorted(problems) == bad
    assert {p.reason for p in problems.values()} <= {"wrong_type"}
    found = [None if one in ("bad", "", None) else one for one in wanted]
    if dtype == pa.date32():
        assert column.to_pylist() == [one and one.date() for one in found]
    else:
        assert column.cast(UTC_MICROS).to_pylist() == found


def test_times_with_a_zone_keep_it(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("at,day\n2024-05-01T12:00:00+05:00,2024-05-01\n2024-05-01T12:00,2024-05-02\n")
    rows, _ = read_back(path, {"event_time": UTC_MICROS, "day": "date32[day]"}, time="at", tz="Europe/Berlin")
    assert [row["event_time"].hour for row in rows] == [7, 10]
    assert [row["day"] for row in rows] == [date(2024, 5, 1), date(2024, 5, 2)]
    path.write_text("at\n01.05.2024 12 +0500\n")
    rows, _ = read_back(path, {"at": UTC_MICROS}, time_format="%d.%m.%Y %H %z", tz="Europe/Berlin")
    assert rows[0]["at"] == datetime(2024, 5, 1, 7, tzinfo=UTC)


def test_local_times_keep_their_digits_and_fields_without_a_zone_their_clock():
    texts = pa.array(["2024-05-01 12:00:00.123456789", "1500-01-01"])
    notation = Notation(tz="Europe/Berlin")
    column, problems = notation.convert(texts, pa.timestamp("ns", "UTC"))
    assert column[0].value == 1_714_557_600_123_456_789
    assert list(problems) == [1]  # before the first nanosecond
    assert notation.convert(texts, pa.timestamp("s", "UTC"))[0][0].value == 1_714_557_600
    assert not notation.concerns(pa.timestamp("us"))
    form = Notation(tz="Europe/Berlin", time_format="%d.%m.%Y %H")
    assert form.convert(pa.array(["01.05.2024 12"]), pa.timestamp("us"))[0][0].as_py().hour == 12


def test_only_non_utf8_cells_are_rejected(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes(b"value;at\n1,5;1.5.2024\n\xff;1.5.2024\n2,5;\xff\n")
    schema = {"value": "double", "at": UTC_MICROS}
    rows, errors = read_back(path, schema, delimiter=";", decimal=",", time_format="%d.%m.%Y")
    assert [row["value"] for row in rows] == [1.5]
    assert [(e["seq"], e["reason"]) for e in errors] == [(1, "wrong_type"), (2, "wrong_type")]


def test_types_are_inferred_and_their_rows_logged(tmp_path, caplog):
    path = tmp_path / "any.csv"
    path.write_text("at;n;x;zip;ok;day;empty;word\n2024-05-01 12:00;1;1,5;01234;true;2024-05-01;;1\n;-2;;1;False;;;b\n")
    with caplog.at_level(logging.INFO, "riot_ops"):
        source = ro.read(path, delimiter=";", decimal=",")
        assert not caplog.text  # a dataflow that declares the types does not need them
        schema = source.schema
    wanted = {
        "at": UTC_MICROS, "n": pa.int64(), "x": pa.float64(), "zip": pa.string(), "ok": pa.bool_(), "day": UTC_MICROS,
        "empty": pa.string(), "word": pa.string(),
    }  # fmt: skip
    assert {f.name: f.type for f in schema if f.name != "seq"} == wanted
    assert "types inferred from 2 rows: at timestamp[us, tz=UTC], n int64, x double, zip string" in caplog.text
    rows, errors = read_back(path, schema, delimiter=";", decimal=",")
    assert errors == []
    assert [row["x"] for row in rows] == [1.5, None]
    assert [row["n"] for row in rows] == pd.read_csv(path, sep=";", decimal=",")["n"].tolist()
    timed = ro.read(path, delimiter=";", time="at").schema
    assert timed.field("event_time").type == UTC_MICROS


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "jsonl"])
def test_folders_with_fields_in_their_names_are_read_as_arrow_reads_them(tmp_path, kind):
    for site in ("a b", "__HIVE_DEFAULT_PARTITION__"):
        for day in (1, 2):
            folder = tmp_path / f"day={day}" / f"site={site.replace(' ', '%20')}"
            folder.mkdir(parents=True)
            table = pa.table({"n": [day, day + 10]})
            if kind == "parquet":
                pq.write_table(table, folder / "x.parquet")
            else:
                lines = ["n", f"{day}", f"{day + 10}"] if "csv" in kind else [f'{{"n": {day}}}', f'{{"n": {day + 10}}}']
                data = ("\n".join(lines) + "\n").encode()
                (folder / f"x.{kind}").write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    (tmp_path / "_SUCCESS").touch()
    rows, errors = read_back(tmp_path, {"n": "int64", "day": "int64", "site": "string"})
    assert errors == []
    found = [(row["n"], row["day"], row["site"]) for row in rows]
    if kind == "parquet":
        wanted = dataset.dataset(tmp_path, format="parquet", partitioning="hive").to_table().to_pylist()
        assert sorted(found, key=str) == sorted(((row["n"], row["day"], row["site"]) for row in wanted), key=str)
    sites = (None, "a b")  # in the order of the folders
    assert found == [(n, day, site) for day in (1, 2) for site in sites for n in (day, day + 10)]
    assert [row["day"] for row in read_back(tmp_path, {"day": "int64"})[0]] == [one[1] for one in found]


def test_folders_of_other_fields_are_refused_by_name(tmp_path):
    for folder in ("day=1", "site=a"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("n\n1\n")
    with pytest.raises(ConfigError, match=r"day=1.x\.csv has day and .*site=a.x\.csv has site"):
        ro.read(tmp_path)
    (tmp_path / "site=a" / "x.csv").unlink()
    (tmp_path / "day=1" / "x.csv").write_text("day\n1\n")
    with pytest.raises(ConfigError, match="has a column 'day', which its folder also names"):
        ro.read(tmp_path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"decimal": ";"}, r"decimal must be '\.' or ',', got ';'"),
        ({"thousands": "."}, r"thousands must be one character .*, got '\.'"),
        ({"thousands": "7"}, r"thousands must be one character .*, got '7'"),
        ({"thousands": ""}, r"thousands must be one character .*, got ''"),
        ({"tz": "Mars/Base"}, "tz must be the IANA name of a time zone, got 'Mars/Base'"),
        ({"ambiguous": "latest"}, "ambiguous is for local times; give their tz as well"),
        ({"ambiguous": "first", "tz": "UTC"}, "ambiguous must be 'reject', 'earliest' or 'latest', got 'first'"),
        ({"time_format": "%Q"}, "time_format must be a format of datetime.strptime"),
        ({"skip_rows": -1}, "skip_rows must be a whole number >= 0, got -1"),
        ({"comment": '"'}, "comment must be one ASCII character other than a quote"),
        ({"comment": ";", "delimiter": ";"}, "comment must be one ASCII character"),
        ({"quoted_nulls": 1}, "quoted_nulls must be True or False, got 1"),
    ],
)
def test_wrong_options_are_refused(export, options, text):
    with pytest.raises(ConfigError, match=text):
        ro.read(export, **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("decimal", ","),
        ("thousands", " "),
        ("tz", "UTC"),
        ("time_format", "%d"),
        ("skip_rows", 1),
        ("comment", "#"),
        ("quoted_nulls", True),
    ],
)
def test_options_of_csv_are_refused_for_other_formats(tmp_path, option, value):
    (tmp_path / "x.jsonl").write_text('{"n": 1}\n')
    with pytest.raises(ConfigError, match=f"{option} applies to CSV only, the files are jsonl"):
        ro.read(tmp_path / "x.jsonl", **{option: value})


@pytest.mark.parametrize(("thousands", "decimal"), [(".", ","), (",", "."), (" ", ","), ("'", ".")])
def test_separated_thousands_are_read_as_pandas_does(thousands, decimal, tmp_path):
    lines = ["1,234;1,234.5", "12;0.5", "-1,234,567;-12,345.25", "1,23,456;1,000e2", "7;7"]
    text = "\n".join(["n;x", *lines, ""]).translate({ord(","): thousands, ord("."): decimal})
    path = tmp_path / "a.csv"
    path.write_text(text)
    source = ro.read(path, delimiter=";", decimal=decimal, thousands=thousands)
    assert source.schema.field("n").type == pa.int64()
    rows, errors = read_back(path, source.schema, delimiter=";", decimal=decimal, thousands=thousands)
    wanted = pd.read_csv(path, sep=";", decimal=decimal, thousands=thousands)
    assert errors == []
    assert [(row["n"], row["x"]) for row in rows] == list(wanted.itertuples(index=False, name=None))


@pytest.mark.parametrize(
    "cell", ["1.5", "1.2345", ".123", "123.", "0.123", "1..234", "1234.567", "1,5.000", "1.234,5.6"]
)
def test_misplaced_separators_of_thousands_are_rejected(cell, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"n;x\n1.234;2,5\n1;{cell}\n")
    schema = pa.schema([("n", pa.int32()), ("x", pa.decimal128(9, 1))])
    rows, errors = read_back(path, schema, delimiter=";", decimal=",", thousands=".")
    assert [row["n"] for row in rows] == [1234]
    assert len(errors) == 1


def test_no_break_space_may_separate_thousands():
    column, problems = Notation(decimal=",", thousands="\u00a0").convert(pa.array(["1\u00a0234,5", None]), pa.float64())
    assert (column.to_pylist(), problems) == ([1234.5, None], {})
