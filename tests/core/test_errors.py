"""Exceptions and the helpers that write their messages."""

from __future__ import annotations

from riot_ops.core.errors import ParseError, excerpt


def test_parse_error_shows_offset_and_excerpt():
    assert str(ParseError("no text")) == "no text"
    error = ParseError("no text", offset=0, text="a" * 1000)
    assert (error.offset, error.reason) == (0, "malformed")
    assert str(error).startswith("no text at offset 0: 'aaa")
    assert len(str(error)) < 300
    assert ParseError("no text", text="x").offset == -1


def test_excerpt_has_at_most_the_given_length():
    assert excerpt("abc" * 100, 6) == "abcab…"
    assert excerpt("abc", 20) == "abc"
