"""Changes of fields, against a dict."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

values = st.sampled_from([True, False, None])


@given(st.lists(st.tuples(st.sampled_from("ab"), values, values), max_size=20))
def test_changes_equal_a_dict(stream):
    session = t.ChangeDetector(fields=("on", "open"), by="key", keep=("n",)).session()
    last = {}
    for n, (key, on, opened) in enumerate(stream):
        wanted = []
        for name, value in (("on", on), ("open", opened)):
            before = last.get((key, name))
            if value is not None:
                last[key, name] = value
                if before is not None and before != value:
                    wanted.append({"key": key, "n": n, "field": name, "value": value, "ordinal": len(wanted)})
        assert session.push({"key": key, "on": on, "open": opened, "n": n}) == wanted


def test_numbers_and_other_names():
    session = t.ChangeDetector(fields=("level", "on"), output="what", value="new").session()
    rows = [(1.5, True), (1.5, False), (float("nan"), False), (2.0, True)]
    found = [session.push({"level": level, "on": on}) for level, on in rows]
    assert [[(row["what"], row["new"]) for row in one] for one in found] == [
        [],
        [("on", 0.0)],
        [],
        [("level", 2.0), ("on", 1.0)],
    ]


@pytest.mark.parametrize(
    ("parameters", "error_text"),
    [
        ({"fields": ()}, "at least one"),
        ({"fields": ("a", "a")}, "none twice"),
        ({"fields": ("a",), "keep": ("field",)}, "twice"),
        ({"fields": ("a",), "by": "value"}, "twice"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, error_text):
    with pytest.raises(ConfigError, match=error_text):
        t.ChangeDetector(**parameters)


@pytest.mark.parametrize(
    "dtypes",
    [
        {"a": pa.string()},
        {"a": pa.decimal128(38, 2)},
        {"a": pa.int64(), "b": pa.float64()},
        {"b": pa.int32(), "a": pa.uint64()},
        {"a": pa.timestamp("us"), "b": pa.int64()},
    ],
    ids=str,
)
def test_types_with_rounding_are_refused(dtypes):
    schema = pa.schema(list(dtypes.items()))
    with pytest.raises(ConfigError, match=f"'a'.*{str(dtypes['a']).split('[')[0].split('(')[0]}"):
        t.ChangeDetector(fields=tuple(dtypes)).output_schema(schema)


@pytest.mark.parametrize(
    ("dtypes", "wanted"),
    [
        ((pa.bool_(), pa.bool_()), pa.bool_()),
        ((pa.int64(), pa.int64()), pa.int64()),
        ((pa.int64(), pa.bool_()), pa.int64()),
        ((pa.uint8(), pa.int32()), pa.int64()),
        ((pa.float32(), pa.int32()), pa.float64()),
        ((pa.null(), pa.date32()), pa.date32()),
        ((pa.null(), pa.null()), pa.float64()),
    ],
    ids=str,
)
def test_type_of_changes_holds_the_values_of_all_fields(dtypes, wanted):
    schema = pa.schema([("a", dtypes[0]), ("b", dtypes[1])])
    assert t.ChangeDetector(fields=("a", "b")).output_schema(schema).field("value").type == wanted
