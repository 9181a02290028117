"""Changes of fields, against a dict."""

from __future__ import annotations

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
    with pytest.raises(ConfigError, match="needs numbers or booleans in 'a'"):
        t.ChangeDetector(fields="a").session().push({"a": "on"})
