"""Displays as text and HTML: what is from outside stays text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser

import pytest

from riot_ops import tasks as t
from riot_ops.core.display import (
    WIDTH,
    Markup,
    cell_html,
    cell_text,
    fields_text,
    html_display,
    html_table,
    operator_text,
    text_table,
    wrapped,
)

HOSTILE = '<script>alert("1")</script>\'&\x1b[31m\u202e\n'


class Elements(HTMLParser):
    """The elements and the text of a document."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_hostile_text_is_text_in_html():
    document = html_display(html_table([[HOSTILE]], [HOSTILE], caption=HOSTILE), HOSTILE)
    found = Elements(document)
    assert set(found.tags) == {"div", "style", "table", "caption", "tr", "th", "td", "p"}
    shown = '<script>alert("1")</script>\'&\\x1b[31m\\u202e\\n'
    assert [text for text in found.texts if not text.startswith(".riot-ops")] == [shown] * 4
    assert "http" not in document.lower()


def test_escapes_of_html():
    assert cell_html("<b>\"x\"&'y'</b>") == "&lt;b&gt;&quot;x&quot;&amp;&#x27;y&#x27;&lt;/b&gt;"
    assert cell_html(Markup("<b>")) == "<b>"
    assert html_table([["a", "<1>"]], ["n", "m"], numbers=[1]) == (
        '<table><tr><th>n</th><th class="n">m</th></tr><tr><td>a</td><td class="n">&lt;1&gt;</td></tr></table>'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "True"),
        (7, "7"),
        (0.1, "0.1"),
        (1 / 3, "0.333333"),
        (1e300, "1e+300"),
        (float("nan"), "nan"),
        (datetime(2024, 5, 1, 12, tzinfo=UTC), "2024-05-01 12:00:00"),
        (datetime(2024, 5, 1, 12), "2024-05-01 12:00:00"),  # noqa: DTZ001
        (date(2024, 5, 1), "2024-05-01"),
        (timedelta(minutes=1), "0:01:00"),
        ("a\tb", "a\\tb"),
        (b"a\nb", "a\\nb"),
        (b"\xff", "b'\\xff'"),
        (list(range(9)), "[0, 1, 2, 3, 4, …]"),
        ({"a": [1], "b": None}, "{a: [1], b: null}"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_values_are_shown_on_one_line(value, shown):
    assert cell_text(value) == shown


def test_fields_have_names_and_short_values():
    assert fields_text({"a\n": "x" * 50, "b": 1}) == f"a\\n={'x' * 39}…  b=1"


def test_operator_is_shown_without_its_defaults():
    assert operator_text(t.Filter("value > 3")) == "Filter(condition='value > 3')"
    window = t.Window(by=("a", "b"), frame="1min", aggregates={"n": "count"})
    assert operator_text(window, 200) == (
        "Window(by=('a', 'b'), frame=Tumbling(size=0:01:00), aggregates={'n': 'count'}, emit='final')"
    )
    assert len(operator_text(window, 20)) == 20
    bounds = t.RangeFilter(bounds={"a": (0, 1.5)})
    assert operator_text(bounds) == "RangeFilter(bounds=(('a', 0.0, 1.5),), by='obs_type')"


def test_table_of_text_fits_the_width():
    lines = text_table([["x" * 90, "1,000", "y" * 50]], ["name", "read", "task"], numbers=[1])
    assert max(map(len, lines)) == WIDTH
    assert "1,000" in lines[1]
    assert text_table([]) == []


def test_long_text_breaks_into_lines():
    lines = wrapped(" ".join(["word"] * 200), "    ", "step  ")
    assert len(lines) == 4
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("step  word")
    assert lines[1].startswith("    word")
    assert lines[-1].endswith(" …")
    assert wrapped("", "", "step  ") == ["step"]
