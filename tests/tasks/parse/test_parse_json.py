"""Parsing of JSON lines, against Python's own reader and the figures of the specification."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.samples import expected
from tests.search import depth
from tests.simulated_query import SimulatedQuery

NAMES = ["id", "data", "n", "", "ü", 'q"']
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=12,
)


def read(lines, **options):
    """``(records, [(line, reason)])``."""
    session = t.ParseJSON(**options).session()
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(len(lines)), pa.int64()), "payload": pa.array(lines, pa.binary())}
    )
    return session.push_batch(batch).to_pylist(), [(e["seq"], e["reason"]) for e in session.errors]


def at(value, path):
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


@given(st.lists(values, max_size=6), st.booleans(), st.sampled_from([None, 1]), st.sampled_from(["\n", "", "\r\n "]))
def test_texts_equal_those_of_python(whole, ascii_only, indent, end):
    lines = [(json.dumps(one, ensure_ascii=ascii_only, indent=indent) + end).encode() for one in whole]
    paths = {"a": "data.id", "b": "id", "c": "data.data.n"}
    rows, errors = read(lines, schema={name: (path, "string", None) for name, path in paths.items()})
    good = {row["seq"]: row for row in rows}
    for i, one in enumerate(whole):
        if not isinstance(one, dict):
            assert (i, "not_json") in errors
            continue
        found = {name: at(one, path) for name, path in paths.items()}
        if any(isinstance(value, dict | list) for value in found.values()):
            assert (i, "wrong_type") in errors
            continue
        for name, value in found.items():
            wanted = value if isinstance(value, str) or value is None else json.loads(good[i][name])
            assert wanted == (value if not isinstance(value, str) else good[i][name])
            assert (good[i][name] is None) == (value is None)


@given(
    values,
    st.integers(0, 60),
    st.sampled_from([b"", b"}", b"{", b",", b'"', b"0", b"x", b"]", b":", b"\\"]),
    st.integers(0, 2),
)
def test_lines_invalid_in_python_are_rejected(value, place, put, dropped):
    line = json.dumps(value).encode()
    line = line[:place] + put + line[place + dropped :]
    try:
        reads = isinstance(json.loads(line, parse_constant=lambda _: 1 / 0), dict)
    except (ValueError, ZeroDivisionError):
        reads = False
    _, errors = read([line], schema={"x": ("no.such", "string", None)})
    assert (errors == []) == reads, line


ALIKE = (
    '{{"id": {}, "data": {{"id": {}, "n": 1}}, "n": {}}}',
    '{{"n": {}, "x": [{}, {{"id": {}}}]}}',
    '{{"id": {}, "id": {}, "data": {}}}',
    '{{"data": {}, "data": {{"id": {}}}, "id": {}}}',
    '{{"data": {{"id": {}}}, "data": {}, "id": {}}}\r\n',
)
cells = st.sampled_from(
    ['"a"', '"' + "b" * 9 + '"', '"\\n"', '""', "7", "-0.5", "true", "null", "{}", '{"id": 4}', "tru", "01"]
)


@given(
    st.lists(st.tuples(st.sampled_from(ALIKE[:2]) | st.sampled_from(ALIKE), cells, cells, cells), max_size=8),
    st.none() | st.tuples(st.integers(0, 400), st.sampled_from(['"', "}", " ", "", "\x01"])),
)
def test_line_does_not_depend_on_other_lines(parts, put):
    text = "\0".join(shape.format(*cells) for shape, *cells in parts)
    if put:  # insert, replace or remove a character
        place, what = put
        text = text[:place] + what + text[place + len(text) % 2 :]
    lines = [line.encode() for line in text.split("\0")]
    paths = ("id", "data.id", "n", "x")
    fields = {path.replace(".", "_"): (path, "string", "nothing") for path in paths}
    rows, errors = read(lines, schema=fields)
    good = {row.pop("seq"): row for row in rows}
    for i, line in enumerate(lines):
        alone, wrong = read([line], schema=fields)
        assert [{**row, "seq": 0} for row in [good[i]]] == alone if i in good else not alone
        assert [reason for number, reason in errors if number == i] == [reason for _, reason in wrong]


SHAPES = (
    '{{"id": {}, "data": {{"t": {}, "ok": true}}, "n": {}}}',
    '{{"n": {}, "id": {}, "t": {}}}\n',
    '{{"data": {{"t": {}, "no": "\\\\"}}, "n": {}, "ok": {}}}\r\n',
    "{{ }}",
)
VALUES = st.one_of(
    st.sampled_from(["null", "true", "FALSE", "1", "{}", "[]", '""', "0", "-7", "007", "1.5", "1e3", "9" * 19, "2", "tru"]),
    st.sampled_from(['"true"', '"False"', '"7"', '"-0.25"', '"a"', '"\\u00fc7"', '"ü"', '"12345678.25"', '"\\"', '"\\n7"']),
    st.sampled_from(['"2024-02-29T12:00:01Z"', '"2024-02-29T12:00:01.5Z"', '"2024-02-29 12:00:01"', '"2023-02-29"']),
    st.sampled_from(['"0001-01-01T00:00:00+01:00"', '"2024-02-29T12:00Z"', '"1714564801"', "1714564801000", "253402300800"]),
    st.text(max_size=80).map(json.dumps),
    st.binary(max_size=3),
)  # fmt: skip
TYPED = [
    {"id": ("id", "string", None), "n": ("n", "int64", 7), "t": (("t", "data.t"), "iso", None)},
    {"n": ("n", "double"), "ok": (("data.ok", "ok"), "bool", True), "t": ("t", "ms", None)},
    {
        "s": (("id", "data.t", "n"), "string"),
        "ok": ("ok", "bool", None),
        "t": ("t", "s", None),
        "ns": ("n", "ns", None),
    },
    {"x": ("n", "double", 0.5), "log": ("t", "log", None), "us": ("n", "us", None)},
]


@given(st.lists(st.tuples(st.sampled_from(SHAPES), VALUES, VALUES, VALUES) | st.none(), max_size=20))
def test_fast_path_equals_slow_path(parts):
    lines = [None if one is None else _has_text(*one) for one in parts]
    for fields in TYPED:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(t.ParseJSON, "read_fast", lambda self, text: None)
            wanted = read(lines, schema=fields)
        assert read(lines, schema=fields) == wanted


def _has_text(shape, *given):
    holes = shape.format("\0", "\0", "\0").encode().split(b"\0")
    values = [one if isinstance(one, bytes) else one.encode() for one in given][: len(holes) - 1]
    return b"".join(a + b for a, b in zip(holes, [*values, b""], strict=True))


def test_fast_path_reads_common_lines():
    lines = [
        json.dumps({"data": {"id": f"ü{i}", "at": f"2024-05-01T12:00:{i % 60:02}.250Z"}, "n": i / 8, "ok": i % 2 == 0})
        for i in range(99)
    ]
    fields = {"id": (("id", "data.id"), "string"), "at": ("data.at", "iso"), "n": ("n", "double"), "ok": ("ok", "bool")}
    columns, plain = t.ParseJSON(schema={**fields, "no": ("no", "int64", 3)}).read_fast(pa.array(lines))
    assert plain.all()
    assert columns["id"].to_pylist() == [f"ü{i}" for i in range(99)]
    assert columns["at"].to_pylist() == [datetime(2024, 5, 1, 12, 0, i % 60, 250_000, UTC) for i in range(99)]
    assert columns["n"].to_pylist() == [i / 8 for i in range(99)]
    assert columns["ok"].to_pylist() == [i % 2 == 0 for i in range(99)]
    assert columns["no"].to_pylist() == [3] * 99


def test_fast_path_reads_alternating_layouts():
    shapes = ['{{"id": "{}"}}', '{{"x": {}, "id": "a"}}', '{{"id": "\\u00fc\\n{}", "deep": [{{}}]}}']
    lines = [shapes[i % 3].format(i) for i in range(30)]
    columns, plain = t.ParseJSON(schema={"id": ("id", "string")}).read_fast(pa.array(lines))
    assert plain.all()
    assert columns["id"].to_pylist() == [json.loads(line)["id"] for line in lines]


ESCAPES = ('\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0041", "\\u00fC", "\\u20ac", "\\ud83d\\ude00")


@given(st.lists(st.lists(st.sampled_from((*ESCAPES, "a", "ü", "b" * 9)), max_size=4), min_size=1, max_size=6))
def test_escapes_are_decoded(texts):
    lines = [f'{{"x": "\\n", "id": "{"".join(text)}", "no": ["\\"", "{"".join(text)}"]}}'.encode() for text in texts]
    rows, errors = read(lines, schema={"id": ("id", "string"), "x": ("x", "string")})
    assert [row["id"] for row in rows] == [json.loads(line)["id"] for line in lines]
    assert {row["x"] for row in rows} == {"\n"}
    assert not errors


@pytest.mark.parametrize(
    "wrong", ["\\", "\\x", "\\u", "\\u12", "\\u12g4", "\\u12:4", "\\U0041", "\\ud800", "\\udc00x", "\\n\x01"]
)
def test_invalid_escapes_are_rejected(wrong):
    line = f'{{"id": "a{wrong}"}}'.encode()
    rows, errors = read([b'{"id": "b\\n"}', line, b'{"i\\u0064": "c"}'], schema={"id": ("id", "string")})
    assert [row["id"] for row in rows] == ["b\n", "c"]
    assert errors == [(1, "not_json")]


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "b", "x": [7], "n": 2}', '{"id": "b", "x": [7], "n": 2} 3', '{"id": "b", "x": [7], "n": 2}}',
        '{"id": "b", "x": [7], "n": "2"}', '{"id": "b", "x": [7], "n": tru}', '{"id": "b", "x": [7], "n": null}',
        '{"id": "b", "n": 2}', '{"id": "b", "x": "y", "n": 2}', '{"id": "b", "x": [7], "m": 2}', '{"id": 4, "n": 3}',
        '{"id": "b\\n", "x": [7], "n": 2}', '{"id": "b', "", '{"id": "b", "x": [7], "n": 2',
    ],
)  # fmt: skip
def test_line_similar_to_the_one_before_is_read_in_full(line):
    before = '{"id": "a", "x": [1], "n": 1}'
    fields = {name: (name, "string", "nothing") for name in ("id", "n")}
    for more in ({}, {"x": ("x", "string", "nothing")}):
        alone, wrong = read([line.encode()], schema=fields | more)
        rows, errors = read([before.encode(), before.encode(), line.encode()], schema=fields | more)
        assert [row for row in rows if row["seq"] == 2] == [{**row, "seq": 2} for row in alone]
        assert [reason for number, reason in errors if number == 2] == [reason for _, reason in wrong]


@given(
    st.lists(st.tuples(st.integers(0, 1), cells, cells, cells), min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 150), st.sampled_from([b'"', b"0", b"-", b"x", b"\\", b"\x01", b"\xff"])
        ),
        max_size=12,
    ),
)
def test_lines_differing_in_one_byte_are_distinguished(shapes, changes):
    lines = [('{"pad": "%s", ' % ("p" * 40) + ALIKE[shape].format(*cells)[1:]).encode() for shape, *cells in shapes]
    for which, place, byte in changes:  # change a byte of a name, a quote, a number or an irrelevant value
        line = lines[which % len(lines)]
        lines.append(line[: place % len(line)] + byte + line[place % len(line) + 1 :])
    lines += lines[: len(shapes)]
    fields = {path.replace(".", "_"): (path, "string", "nothing") for path in ("id", "data.id", "n", "x")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(t.ParseJSON, "read_fast", lambda self, text: None)
        wanted = read(lines, schema=fields)
    assert read(lines, schema=fields) == wanted


def test_fast_path_reads_more_layouts_than_it_caches():
    """More layouts than the cache holds, lines too long for a layout, and too many layouts to search for one."""
    random = np.random.default_rng(1)
    lines = []
    for i in range(6000):
        sizes = random.integers(0, 40, 3) if i < 4000 else (3, 3, 3)
        a, b, c = ("x" * n for n in sizes)
        more = (
            ', "more": "%s"' % ("y" * 600) if i % 97 == 0 else ", ".join(["", *(f'"n{k}": {i}' for k in range(i % 19))])
        )
        lines.append(f'{{"a": "{a}", "b": "{b}", "c": "{c}", "n": {i}{more}}}')
    columns, plain = t.ParseJSON(schema={"a": ("a", "string"), "c": ("c", "string"), "n": ("n", "int64")}).read_fast(
        pa.array(lines)
    )
    assert plain.all()
    wanted = [json.loads(line) for line in lines]
    for name in "acn":
        assert columns[name].to_pylist() == [one[name] for one in wanted]


def test_lines_may_have_more_values_than_a_pattern():
    lines = [
        json.dumps({**{f"x{i}": i for i in range(n)}, "n": str(n)}).encode() for n in (63, 63, 64, 64, 65, 200, 200)
    ]
    rows, errors = read(lines, schema={"n": ("n", "string")})
    assert [row["n"] for row in rows] == ["63", "63", "64", "64", "65", "200", "200"]
    assert not errors


def test_examples_by_hand():
    fields = {
        "id": (("data.id", "id"), "string"),
        "n": ("n", "int64", 7),
        "ok": ("ok", "bool", None),
        "at": ("at", "iso", None),
    }
    rows, errors = read(
        [
            b'{"data": {"id": "a", "x": [1, {"id": 2}]}, "id": "no", "n": 3, "ok": true, "at": "2024-05-01T12:00:00Z"}',
            b' {"id" : 5 , "n":"12","ok":"FALSE"} ',
            b'{"id": "", "id": "last", "data": null}',
            b'{"id": ""}',
            b'{"id": "\\u00fc\\n", "n": null}',
            b'{"n": 1}',
            b'{"id": [1]}',
            b'{"id": 1, "n": 1.5}',
            b'{"id": 1, "ok": 2}',
            b"{'id': 1}",
            b"",
            None,
            b'{"id": "\xff"}',
        ],
        schema=fields,
    )
    assert [(r["id"], r["n"], r["ok"]) for r in rows] == [
        ("a", 3, True),
        ("5", 12, False),
        ("last", 7, None),
        ("", 7, None),
        ("ü\n", 7, None),
    ]
    assert rows[0]["at"] == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert sorted(errors) == [
        (5, "missing"),
        (6, "wrong_type"),
        (7, "bad_number"),
        (8, "bad_bool"),
        (9, "not_json"),
        (10, "not_json"),
        (11, "missing"),
        (12, "invalid_utf8"),
    ]


def test_deeply_nested_lines_are_read():
    deep = '{"a": ' + "[" * 200 + "]" * 200 + ', "id": "x"}'
    assert read([deep.encode()], schema={"id": ("id", "string")})[0] == [{"seq": 0, "id": "x"}]
    assert read([b"[" * 100_000], schema={"id": ("id", "string")})[1] == [(0, "not_json")]


def test_record_has_order_kept_and_parsed_fields():
    task = t.ParseJSON(schema={"event_time": ("t", "ms"), "v": ("v", "double")}, field="line", keep=("unit",))
    (record,) = task.session().push({"seq": 5, "event_time": None, "unit": "W", "other": 1, "line": '{"t": 0, "v": 2}'})
    assert record == {"seq": 5, "unit": "W", "event_time": datetime(1970, 1, 1, tzinfo=UTC), "v": 2.0}
    assert t.Task.from_dict(task.to_dict()) == task


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schema": []}, "schema must be"),
        ({"schema": {"x": "a"}}, "'x' must be"),
        ({"schema": {"x": (0, "string")}}, "path of 'x'"),
        ({"schema": {"x": ("a..b", "string")}}, "path of 'x'"),
        ({"schema": {"x": ((), "string")}}, "path of 'x'"),
        ({"schema": {"x": ("a", "text")}}, "kind of 'x' .*quoted,.* tweet,.* got 'text'"),
        ({"schema": {"x": ("a", "double", "b")}}, "default of 'x'"),
        ({"schema": {"x": ("a", "double")}, "keep": ("x",)}, "keep"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        t.ParseJSON(**options)


TWEET = {
    name: ((f"data.{name}", name), kind) for name, kind in (("id", "string"), ("text", "string"), ("created_at", "iso"))
}
MAIL = {"id": ("id", "string"), "message": ("message", "string"), "spam": ("spam", "bool", None)}


@pytest.mark.parametrize(
    ("name", "fields", "papers", "made", "bad"),
    [
        ("tweets.jsonl", {**TWEET, "lang": (("data.lang", "lang"), "string", None)}, 600, 100, 3),
        ("click-stream.jsonl", {name: (name, "string") for name in ("ip", "url", "clientKey")}, 3000, 200, 1),
        ("emails-training.jsonl", MAIL, 400, 55, 0),
        ("emails-analysis.jsonl", MAIL, 200, 30, 0),
    ],
)
def test_files_of_the_benchmark_are_read(sample_data, name, fields, papers, made, bad):
    good = expected(sample_data, made=made, papers=papers)
    lines = (sample_data / "dspbench" / "synthetic" / name).read_bytes().split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    rows, errors = read(lines, schema=fields)
    assert (len(rows), len(errors)) == (good, bad)
    if "lang" in fields:
        assert sum(row["lang"] == "en" for row in rows) == expected(sample_data, made=89, papers=526)
    for row in rows[:50]:
        whole = json.loads(lines[row["seq"]])
        whole = whole.get("data", whole)
        assert all(row[key] == whole[key] for key in fields if key not in ("created_at", "lang") and key in whole)


@pytest.mark.parametrize(
    "more", ["", ', "\\u0078": 1', ', "z": "\U0001f600"', ', "z": "\\ud83d\\ude00"', ', "z": 1e400']
)
@pytest.mark.parametrize("number", ["1.00", "1e5", "-0.0", "12345678901234567890123", "1E-7", "true"])
def test_text_of_numbers_is_kept_by_both_readers(number, more):
    """Names with escapes, and surrogate pairs, are left to the exact reader."""
    rows, errors = read([f'{{"v": {number}{more}}}'.encode()], schema={"v": ("v", "string")})
    assert (rows[0]["v"], errors) == (number, [])


@pytest.mark.parametrize("more", ["", ', "\\u0078": 1'])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"a": {"x": 1}, "a": {"y": 2}%s}', (None, 2.0)),
        ('{"a": {"x": 1, "y": 3}, "a": {"x": 2}%s}', (2.0, None)),
        ('{"a": {"x": 1}, "a": 5%s}', (None, None)),
        ('{"a": 5, "a": {"x": 1}%s}', (1.0, None)),
        ('{"a": {"x": 1, "x": 2}, "b": {"y": 7}%s}', (2.0, None)),
    ],
)
def test_last_of_objects_of_one_name_counts(line, wanted, more):
    fields = {"x": ("a.x", "double", None), "y": ("a.y", "double", None)}
    rows, _ = read([(line % more).encode()] * 3, schema=fields)
    assert [(row["x"], row["y"]) for row in rows] == [wanted] * 3


@pytest.mark.parametrize("line", ['[{"v":1},{"v":2}]', "[]", "5", '"online"', "null", "true", " ", "{} {}"])
def test_non_object_line_is_rejected(line):
    rows, errors = read([line.encode()], schema={"v": ("v", "double", None)})
    assert (rows, errors) == ([], [(0, "not_json")])


@pytest.mark.parametrize(
    ("value", "found"),
    [('"a"', "a"), ('""', ""), ('"\\u00e9"', "é"), ('"12"', "12"), ("12", None), ("1.5", None), ("true", None),
     ("false", None), ("[]", None), ("{}", None), ('["a"]', None)],
)  # fmt: skip
def test_quoted_values_are_strings(value, found):
    for default in ((), (None,), ("x",)):
        fields = {"x": ("a", "quoted", *default), "n": ("n", "int64")}
        for lines in ([value], ['"b"', value, '"b"'], [value, value, value]):
            session = t.ParseJSON(schema=fields).session()
            texts = [f'{{"a": {one}, "n": {i}}}' for i, one in enumerate(lines)]
            rows = session.push_many([{"seq": i, "payload": text} for i, text in enumerate(texts)])
            wanted = {i: found if one == value else "b" for i, one in enumerate(lines)}
            assert {row["seq"]: row["x"] for row in rows} == {i: x for i, x in wanted.items() if x is not None}
            assert {(e["seq"], e["reason"]) for e in session.errors} == {
                (i, "wrong_type") for i, x in wanted.items() if x is None
            }
    session = t.ParseJSON(schema={"x": ("a", "quoted")}).session()
    assert session.push({"payload": '{"a": null}'}) == []
    assert [e["reason"] for e in session.errors] == ["missing"]


OBJECTS = st.fixed_dictionaries({}, optional={"id": st.sampled_from(["1", 2, None]), "n": st.integers(0, 3)})
WRAPPED = st.one_of(
    OBJECTS,
    st.builds(lambda inside, more: {"data": inside, **more}, OBJECTS | st.sampled_from([None, 7, "x", [], [{"id": "9"}]]), OBJECTS),
    st.builds(lambda inside, more: {**more, "data": inside}, OBJECTS, OBJECTS),
)  # fmt: skip


@given(st.lists(WRAPPED, max_size=8))
def test_fields_are_read_from_the_wrapper_or_from_the_line(documents):
    fields = {"id": (("id", "n"), "string"), "n": ("n", "int64", None)}
    session = t.ParseJSON(schema=fields, wrapper="data").session()
    lines = [{"seq": i, "payload": json.dumps(one)} for i, one in enumerate(documents)]
    rows = session.push_many(lines)
    wanted = {}
    for i, document in enumerate(documents):
        holder = document["data"] if isinstance(document.get("data"), dict | list) else document
        holder = holder if isinstance(holder, dict) else {}
        number = holder.get("n") if holder.get("id") is None else holder["id"]
        if number is not None:
            wanted[i] = (str(number), holder.get("n"))
    assert {row["seq"]: (row["id"], row["n"]) for row in rows} == wanted
    assert {e["seq"] for e in session.errors} == {*range(len(documents))} - {*wanted}
    slow = t.ParseJSON(schema=fields, wrapper="data").session()
    escaped = [line | {"payload": line["payload"].replace('"data"', '"d\\u0061ta"')} for line in lines]
    assert slow.push_many(escaped) == rows
    alone = t.ParseJSON(schema=fields, wrapper="data").session()
    assert [row for line in lines for row in alone.push(line)] == rows


def test_wrapper_may_be_nested():
    session = t.ParseJSON(schema={"x": ("a.b", "int64")}, wrapper="d.e").session()
    lines = [
        '{"d": {"e": {"a": {"b": 1}}}, "a": {"b": 2}}',
        '{"d": {}, "a": {"b": 3}}',
        '{"d": {"e": {}}, "a": {"b": 4}}',
    ]
    assert [row["x"] for line in lines for row in session.push({"payload": line})] == [1, 3]
    for name in ("", "a..b", "."):
        with pytest.raises(ConfigError, match="wrapper must be names joined by dots"):
            t.ParseJSON(schema={"x": ("a", "int64")}, wrapper=name)


def test_times_of_tweets_are_read_or_rejected():
    def read(*texts):
        session = t.ParseJSON(schema={"x": ("a", "tweet")}).session()
        rows = session.push_many([{"seq": i, "payload": json.dumps({"a": text})} for i, text in enumerate(texts)])
        found = {row["seq"]: row["x"] for row in rows} | {e["seq"]: e["reason"] for e in session.errors}
        return [found[i] for i in range(len(texts))]

    at = datetime(2018, 10, 10, 20, 19, 24, tzinfo=UTC)
    same = ["Wed Oct 10 20:19:24 +0000 2018", "Thu Oct 11 01:49:24 +0530 2018", "Wed Oct 10 12:19:24 -0800 2018",
            "2018-10-10T20:19:24.000Z", "2018-10-10 20:19:24"]  # fmt: skip
    assert read(*same) == [at] * 5
    assert read("Thu Feb 29 00:00:00 +0000 2024", "Fri Dec 31 23:59:59 +0000 9999", "Mon Jan 01 00:00:00 +0000 0001") == [
        datetime(2024, 2, 29, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)
    ]  # fmt: skip
    wrong = [
        "Tue Oct 10 20:19:24 +0000 2018", "wed Oct 10 20:19:24 +0000 2018", "Wed oct 10 20:19:24 +0000 2018",
        "Wed Oct 10 20:19:24 2018", "Wed Oct 10 20:19:24 +00:00 2018", "Wed Oct 10 20:19:24 Z 2018", "Oct 10 20:19:24 +0000 2018",
        "Wed Oct 10 24:19:24 +0000 2018", "Wed Oct 10 20:19:60 +0000 2018", "Wed Oct 32 20:19:24 +0000 2018",
        "Wed Oct 10 20:19:24 +2400 2018", "Wed Oct 10 20:19:24 +0000 18", "Wed Oct 10 20:19:24 +0000 2018 ", "Wed, Oct 10 20:19:24 +0000 2018",
        "Thu Feb 29 00:00:00 +0000 2023", "Wed-Oct-10-20:19:24-+0000-2018", "Wed Oct 10 20.19.24 +0000 2018", "yesterday", "",
    ]  # fmt: skip
    trimmed = "Wed Oct 10 20:19:24 +0000 2018 "
    assert read(*wrong) == [at if text == trimmed else ("missing" if not text else "bad_time") for text in wrong]


@given(st.datetimes().filter(lambda at: 1 < at.year < 9999), st.integers(-1439, 1439))
def test_any_time_of_a_tweet_equals_that_of_python(moment, ahead):
    moment = moment.replace(microsecond=0)
    text = f"{moment:%a %b %d %H:%M:%S} {'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}{abs(ahead) % 60:02} {moment.year:04}"
    (row,) = t.ParseJSON(schema={"x": ("a", "tweet")}).session().push({"payload": json.dumps({"a": text})})
    assert row["x"] == moment.replace(tzinfo=UTC) - timedelta(minutes=ahead)


KEYS = st.sampled_from(["a", "b", "a.b", "c[0]", 'q"', "ü"])
VALUES = st.none() | st.integers(-9, 9) | st.text('xé\\"', max_size=2)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)),
    max_size=3,
)
STEPS = st.lists(KEYS | st.integers(0, 2), min_size=1, max_size=3).filter(lambda steps: isinstance(steps[0], str))


def spelled(steps):
    """The path of these steps, with quotes where a name needs them."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        name = '"' + step.replace("\\", "\\\\").replace('"', '\\"') + '"' if set(step) & set('."[]') else step
        text += f".{name}" if text else name
    return text


def value_at(document, steps):
    for step in steps:
        if isinstance(step, int):
            document = document[step] if isinstance(document, list) and step < len(document) else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


@given(st.lists(DOCUMENTS, max_size=4), STEPS, STEPS, st.booleans())
@settings(max_examples=depth(150), deadline=None)
def test_paths_with_indexes_and_quotes_equal_python(documents, steps, others, wrapped):
    wrapper = "w" if wrapped else None
    lines = [json.dumps({"w": one} if wrapped else one, ensure_ascii=False) for one in documents]
    task = t.ParseJSON(
        schema={"v": ([spelled(steps), spelled(others)], "string", None)}, wrapper=wrapper, problems="why"
    )
    found = task.session().push_batch(pa.table({"payload": pa.array(lines, pa.string())}))
    wanted = []
    for one in documents:
        value = value_at(one, steps)
        value = value_at(one, others) if value is None else value
        nested = isinstance(value, dict | list)
        why = "wrong_type: v is an object or a list" if nested else None
        wanted.append((None if nested or value is None else str(value), why))
    assert [(row["v"], row["why"]) for row in found.to_pylist()] == wanted


def test_wrapper_may_be_an_item_of_a_list():
    task = t.ParseJSON(schema={"v": ("[1].x", "int64"), "w": ("[0][0]", "string", None)}, wrapper="data[0]")
    session = task.session()
    assert session.push({"payload": '{"data": [[["a"], {"x": 5}]]}'}) == [{"v": 5, "w": "a"}]
    assert session.push({"payload": '{"data": []}'}) == []
    assert [error["reason"] for error in session.errors] == ["missing"]


@pytest.mark.parametrize("path", ["", "a.", "a[", "a[-1]", "a[x]", 'a"b"', '"a', "a..b", "a[0]b", "a[01]"])
def test_malformed_paths_are_refused(path):
    with pytest.raises(ConfigError, match="schema: the path of 'v' must be names joined by dots"):
        t.ParseJSON(schema={"v": (path, "string")})
    with pytest.raises(ConfigError, match="wrapper must be names joined by dots"):
        t.ParseJSON(schema={"v": ("a", "string")}, wrapper=path)


@pytest.mark.parametrize("path", ["n", '"n"'])
def test_bad_optional_values_become_the_default_with_a_reason(path):
    fields = {"id": ("id", "string"), "n": (path, "double", -1.0), "at": ("at", "s", None)}
    lines = [
        '{"id": "a", "n": 2}',
        '{"id": "b", "n": "warm", "at": "noon"}',
        '{"id": "c", "n": {}}',
        '{"n": "warm"}',
        "no JSON",
        '{"id": "d", "n": null, "at": 99999999999999}',
    ]
    table = pa.table({"seq": range(6), "payload": lines})
    task = t.ParseJSON(schema=fields, problems="why")
    session = task.session()
    rows = session.push_batch(table).to_pylist()
    assert [(row["id"], row["n"], row["at"], row["why"]) for row in rows] == [
        ("a", 2.0, None, None),
        ("b", -1.0, None, "bad_number: n: 'warm' is not a valid double; bad_time: at: 'noon' is not a valid s"),
        ("c", -1.0, None, "wrong_type: n is an object or a list"),
        ("d", -1.0, None, "out_of_range: at: '99999999999999' is outside the years 1 to 9999"),
    ]
    assert sorted((error["seq"], error["reason"]) for error in session.errors) == [(3, "missing"), (4, "not_json")]
    plain = t.ParseJSON(schema=fields).session()
    assert [row["id"] for row in plain.push_batch(table).to_pylist()] == ["a"]
    assert len(plain.errors) == 5


def test_field_of_problems_must_be_another():
    for problems in ("n", "kept", ""):
        with pytest.raises(ConfigError, match="problems must name another field than those of schema and keep"):
            t.ParseJSON(schema={"n": ("n", "double", None)}, keep=("kept",), problems=problems)


def test_reasons_of_bad_values_are_kept_by_both_runners():
    flow = ro.Dataflow("parse")
    task = t.ParseJSON(schema={"n": ("a[0].n", "double", None)}, problems="why")
    flow.sink("out", flow.source("lines").to(task, id="parsed"))
    lines = pa.table({"payload": [json.dumps({"a": [{"n": n}]}) for n in (1, "x", 3)], "event_time": pa.nulls(3)})
    wanted = [(1.0, None), (None, "bad_number: n: 'x' is not a valid double"), (3.0, None)]
    staged = SimulatedQuery(flow, ro.MemorySource(lines), random.Random(1), max_records=2)
    for found in (flow.run(lines)["parsed"], staged["parsed"]):
        assert [(row["n"], row["why"]) for row in found.sort_by("seq").to_pylist()] == wanted
