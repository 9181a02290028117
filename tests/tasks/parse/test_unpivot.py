"""Unpivoted records, against loops."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError


@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from(["z", None])), max_size=9))
def test_unpivoted_records(rows):
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(rows)), pa.int64()),
            "a": pa.array([a for a, _ in rows], pa.string()),
            "b": pa.array([b for _, b in rows], pa.string()),
        }
    )
    out = t.Unpivot(fields=("b", "a"), labels=(2, 1), variable_name="which", value_name="text", keep=("a",))
    out = out.session().push_batch(batch)
    assert out.to_pylist() == [
        {"seq": i, "a": a, "which": which, "text": text, "ordinal": place}
        for i, (a, b) in enumerate(rows)
        for place, (which, text) in enumerate(((2, b), (1, a)))
    ]
    named = t.Unpivot(fields=("a", "b")).session().push_batch(batch).to_pylist()
    assert [(row["name"], row["value"]) for row in named] == [(n, x) for a, b in rows for n, x in (("a", a), ("b", b))]


def test_unpivot_is_checked():
    for wrong, text in (
        ({"fields": ()}, "fields"),
        ({"fields": ("a", "a")}, "fields must name at least one field, none twice"),
        ({"fields": ("a", "b"), "labels": (1, "x")}, "labels must be texts, booleans or numbers only"),
        ({"fields": ("a", "b"), "labels": (1, True)}, "labels must be texts, booleans or numbers only"),
        ({"fields": "a", "labels": "x"}, "labels must be texts, booleans or numbers only"),
        ({"fields": ("a", "b"), "labels": (1,)}, "labels must be 2, one per field"),
        ({"fields": "a", "labels": ()}, "labels must be"),
        ({"fields": ("a",), "variable_name": "value"}, "twice"),
        ({"fields": ("a",), "keep": ("name",)}, "twice"),
    ):
        with pytest.raises(ConfigError, match=text):
            t.Unpivot(**wrong)
    with pytest.raises(ConfigError, match="one type"):
        t.Unpivot(fields=("a", "b")).output_schema(pa.schema({"a": pa.string(), "b": pa.int64()}))
