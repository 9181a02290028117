"""XML documents read one by one by parsers that nobody listens to: no work with what they find."""

from __future__ import annotations

import xml.sax
from collections.abc import Iterable
from xml.parsers import expat

__all__ = ["expat_alone", "sax_alone"]


def expat_alone(documents: Iterable[str]) -> None:
    """Expat without handlers: it checks the document, and Python is never called."""
    for document in documents:
        expat.ParserCreate().Parse(document, True)


def sax_alone(documents: Iterable[str]) -> None:
    """``xml.sax`` with a handler that does nothing."""
    handler = xml.sax.ContentHandler()
    for document in documents:
        xml.sax.parseString(document, handler)  # noqa: S317 (documents of our own)
