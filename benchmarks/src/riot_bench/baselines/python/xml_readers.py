"""XML parsing without handlers: the parsers' cost alone."""

from __future__ import annotations

import xml.sax
from collections.abc import Iterable
from xml.parsers import expat

__all__ = ["parse_with_expat", "parse_with_sax"]


def parse_with_expat(documents: Iterable[str]) -> None:
    """Parse with Expat without handlers: it checks the document and never calls Python."""
    for document in documents:
        expat.ParserCreate().Parse(document, True)


def parse_with_sax(documents: Iterable[str]) -> None:
    """Parse with ``xml.sax`` and a handler that does nothing."""
    handler = xml.sax.ContentHandler()
    for document in documents:
        xml.sax.parseString(document, handler)  # noqa: S317 (documents of our own)
