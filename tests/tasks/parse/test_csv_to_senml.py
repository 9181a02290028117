"""CSV lines to SenML: quoting, numbers, times, and rejected lines."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import CITY, StreamSchema
from riot_ops.task import Task
from riot_ops.tasks.parse.csv_to_senml import CSVToSenML
from tests.reference import csv_to_senml as reference
from tests.reference.splits import run
from tests.search import depth

SCHEMA = StreamSchema(
    "test",
    ("id", "when", "größe", "note"),
    ("string", "time", "°C", 'quo"te'),
    ("sv", "sv", "v", "sv"),
    "id",
    "when",
    ("id", "when"),
)
NUMBERS = st.one_of(
    st.floats(allow_nan=True).map(repr),
    st.integers().map(str),
    st.from_regex(r"[+-]?0{0,3}[0-9]{0,3}\.?[0-9]{0,4}([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.sampled_from(
        [
            "",
            "null",
            " 5 ",
            "-",
            ".",
            "+.5",
            "1.",
            "007",
            "1e308",
            "1e307",
            "99e307",
            "0.0001e312",
            "0e999",
            "1e-999",
            "0x10",
            "1_0",
            "NaN",
            "inf",
            "nul",
            "nulll",
            "−1",
            "٣",
        ]
    ),
)
TIMES = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda d: d.isoformat()[:19] + "Z"),
    st.from_regex(
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?"
        r"(Z|[+-][0-2][0-9]:[0-6][0-9])?",
        fullmatch=True,
    ),
    st.sampled_from(
        [
            "",
            "null",
            "2000-02-29",
            "1900-02-29",
            "2000-02-30",
            "0000-01-01",
            "9999-12-31",
            "1e3",
            "-",
            "1422748800000 ",
            "2000-01-01T",
            "2000-01-01T00",
            "2000-01-01T00:00:00.",
            "1" * 19,
        ]
    ),
)
TEXTS = st.one_of(
    st.sampled_from(["", "null", " null ", 'a"b', "\\", "\t", "x,y", "line\r\nline", "\x00\x1f\x7f"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)


def line_of(fields: list[str], delimiter: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerow(fields)
    return out.getvalue().removesuffix("\r\n")


@settings(deadline=None, max_examples=depth(150))
@given(
    st.lists(
        st.one_of(st.tuples(TEXTS, TIMES, NUMBERS, TEXTS), st.lists(TEXTS, min_size=1, max_size=6)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
    st.lists(st.integers(0, 6), max_size=2),
)
def test_equals_reference_on_lines_of_the_csv_module(rows, delimiter, binary, cuts):
    lines = [line_of(list(row), delimiter) for row in rows]
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(rows)), pa.int64()),
            "payload": pa.array(lines, pa.string()).cast(pa.binary() if binary else pa.string()),
        }
    )
    out, errors = run(CSVToSenML(schema=SCHEMA, delimiter=delimiter), batch, cuts)
    expected = [reference.message(list(row), SCHEMA.columns, SCHEMA.units, SCHEMA.kinds, "when") for row in rows]
    assert [(r["seq"], json.loads(r["payload"], parse_int=Decimal, parse_float=Decimal)) for r in out] == [
        (i, m) for i, m in enumerate(expected) if isinstance(m, dict)
    ]
    assert sorted((e["seq"], e["reason"]) for e in errors) == [
        (i, m) for i, m in enumerate(expected) if isinstance(m, str)
    ]


def test_numbers_keep_their_digits():
    session = CSVToSenML(schema="grid").session()
    digits = [
        session.push({"payload": f"m,1,{text}"})[0]["payload"].split('"v":')[1].split("}")[0]
        for text in ("29.00", "+007.50", ".5", "1.", "-0", "6.02E+23", "12345678901234567890123")
    ]
    assert digits == ["29.00", "7.50", "0.5", "1", "-0", "6.02e23", "12345678901234567890123"]


@pytest.mark.parametrize(
    ("line", "reason", "text"),
    [
        ("m,1", "wrong_columns", "2 columns, the schema grid has 3"),
        ("m,1,2,", "wrong_columns", "4 columns"),
        ("", "wrong_columns", "1 columns"),
        ('"m,1,2', "malformed", "quote"),
        ("m\nx,1,2", "malformed", "more than one line"),
        ("m,soon,2", "bad_time", "timestamp"),
        ("m,,2", "bad_time", "timestamp"),
        (None, "missing", "payload is null"),
        (b"m,1,\xff", "malformed", "UTF-8"),
    ],
)
def test_bad_lines_are_rejected_with_a_reason(line, reason, text):
    session = CSVToSenML(schema="grid").session()
    assert session.push({"payload": line}) == []
    (error,) = session.errors
    assert error["reason"] == reason
    assert text in error["message"]
    if isinstance(line, str):
        assert error["raw"] == line


@pytest.mark.parametrize(
    ("line", "expected"), [("m,1,2\n", 2), ("m,1,2\r\n", 2), ('"m",1,"2"', 2), ('m,1, "2"', ' "2"')]
)
def test_lenient_forms_are_accepted(line, expected):
    out = json.loads(CSVToSenML(schema="grid").session().push({"payload": line})[0]["payload"])
    assert next(e.get("v", e.get("sv")) for e in out["e"] if e["n"] == "energyconsumed") == expected
    assert out["bt"] == 1


def test_field_names_the_line():
    task = CSVToSenML(schema="grid", field="line")
    (row,) = task.session().push({"payload": "x", "line": "m1,1000,2.5"})
    assert row["payload"] == "x"
    assert json.loads(row["line"])["e"][1]["v"] == 2.5
    assert task.writes() == {"line"}
    with pytest.raises(ConfigError, match="reads the field 'line'"):
        task.output_schema(pa.schema({"payload": pa.string()}))


def test_other_fields_are_kept():
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "payload": ["m,1,2", "m"], "b": ["x", "y"]})
    out = CSVToSenML(schema="grid").session().push_batch(batch)
    assert out.select(["a", "b"]).to_pylist() == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    "wrong",
    [{"schema": "citi"}, {"delimiter": ""}, {"delimiter": '"'}, {"delimiter": "é"}, {"delimiter": ",,"}, {"schema": 3}],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ConfigError):
        CSVToSenML(**wrong)


def test_descriptor_restores_the_task():
    for task in (CSVToSenML(), CSVToSenML(schema=SCHEMA, delimiter=";")):
        assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
        hash(task)


def test_messages_of_the_sample_data_parse_to_the_same_values(sample_data):
    lines, times = [], []
    for line in (sample_data / "riotbench" / "SYS_sample_data_senml.csv").read_text().splitlines():
        message = json.loads(line.split(",", 1)[1])
        values = {e["n"]: e.get("v", e.get("sv")) for e in message["e"]}
        lines.append(",".join([str(message["bt"]), *(values[c] for c in CITY.columns[1:])]))
        times.append(message["bt"])
    out = CSVToSenML().session().push_batch(pa.RecordBatch.from_pydict({"payload": lines}))
    for text, line, time in zip(out["payload"].to_pylist(), lines, times, strict=True):
        message = json.loads(text)
        assert message["bt"] == time
        assert [e["n"] for e in message["e"]] == list(CITY.columns[1:])
        assert message["e"][0]["sv"] == line.split(",")[1]
        assert [e["v"] for e in message["e"][1:]] == [float(v) for v in line.split(",")[2:]]


def test_lines_of_another_encoding_are_converted():
    lines = ["é,1000,2.5".encode("latin-1"), b"m,1000,2.5", b"\x81,1000,2.5", None]
    batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(4), pa.int64()), "payload": pa.array(lines, pa.binary())})
    session = CSVToSenML(schema="grid", encoding="cp1252").session()
    found = session.push_batch(batch)["payload"].to_pylist()
    assert [json.loads(message)["e"][0]["sv"] for message in found] == ["é", "m"]
    assert sorted((e["seq"], e["reason"]) for e in session.errors) == [(2, "invalid_encoding"), (3, "missing")]
    usual = CSVToSenML(schema="grid").session()
    assert len(usual.push_batch(batch)) == 1
    assert sorted((e["seq"], e["reason"]) for e in usual.errors) == [(0, "malformed"), (2, "malformed"), (3, "missing")]
    with pytest.raises(ConfigError, match="encoding must be"):
        CSVToSenML(schema="grid", encoding="utf-9")
