"""The reference reader of XML documents, by Expat: it decides whether a document is well-formed, and its content.

It reads the few documents that the compiled reader leaves to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.parsers import expat

from riot_ops.core.errors import RecordError, excerpt

__all__ = ["ExpatReader", "fold"]

#: Encodings that a document may declare. For any other name Python would search its modules, and cache for ever that
#: there is no such codec.
ENCODINGS = frozenset(
    [
        *("utf-8", "utf8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "ascii", "latin-1", "latin1"),
        *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
        *(f"{family}{page}" for family in ("windows-", "cp") for page in (874, *range(1250, 1259))),
        *("cp437", "ibm437", "cp850", "ibm850", "cp866", "ibm866", "koi8-r", "koi8-u", "macintosh", "tis-620"),
    ]
)

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """Convert the ASCII letters of a name to lower case.

    >>> fold("FirstName")
    'firstname'
    """
    return name.translate(_LOWER)


class ExpatReader:
    """Reads a document by the events of Expat.

    Parameters
    ----------
    record : str
    elements, attributes : sequence of str
        Names of the wanted elements and attributes, the latter without ``@``.
    max_depth : int
        Maximum nesting of elements.

    Attributes
    ----------
    checksum : int
        Sum of the lengths and numbers of the elements found.
    records : list of dict
        Values by name for each record: ``@name`` for attributes, ``name`` for elements.
    """

    def __init__(self, record: str, elements: Sequence[str], attributes: Sequence[str], max_depth: int) -> None:
        self.elements, self.attributes, self.max_depth = elements, attributes, max_depth
        self.names = [fold(name) for name in (record, *elements)]
        self.checksum = 0
        self.records: list[dict[str, str]] = []
        self._depth = 0
        self._record = 0  # depth of the current record; 0 outside
        self._field = 0
        self._text: list[str] = []

    def read(self, document: memoryview, encoding: str | None) -> None:
        """Read a document in ``encoding``; None: its declared one.

        Raises
        ------
        RecordError
            With the reason ``malformed``, ``forbidden_doctype`` or ``too_deep``.
        """
        self._parse(document, encoding, False)  # most are malformed, which is found faster without handlers
        self._parse(document, encoding, True)

    def _parse(self, document: memoryview, encoding: str | None, listen: bool) -> None:
        parser = expat.ParserCreate(encoding)
        parser.StartDoctypeDeclHandler = self._doctype
        if encoding is None:
            parser.XmlDeclHandler = self._declaration
        if listen:
            parser.buffer_text = True
            parser.StartElementHandler = self._start
            parser.EndElementHandler = self._end
            parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(document, True)
        except RecordError:  # raised by a handler; it is a ValueError as well
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:  # the latter two: unknown encodings
            raise RecordError(str(error), reason="malformed") from None

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and fold(encoding) not in ENCODINGS:
            raise RecordError(f"the encoding {excerpt(encoding, 40)!r} is not accepted", reason="malformed")

    def _doctype(self, *_: Any) -> None:
        raise RecordError("the document has a DOCTYPE, which is not accepted", reason="forbidden_doctype")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._finish()
        self._depth += 1
        if self._depth > self.max_depth:
            raise RecordError(f"elements nest deeper than {self.max_depth}", reason="too_deep")
        found = self.names.index(fold(name)) if fold(name) in self.names else -1
        if found == 0:
            values = {"@" + a: value for a, value in attributes.items() if a in self.attributes}
            self.checksum += sum(map(len, values.values()))
            if self._record == 0:
                self._record = self._depth
                self.records.append(values)
        elif found > 0:
            self.checksum += 4 + found
            self._field = found

    def _characters(self, text: str) -> None:
        if self._field:
            self._text.append(text)

    def _finish(self) -> None:
        """Finish the text of a field."""
        if self._field:
            text = "".join(self._text)
            self._text.clear()
            if text:
                self.checksum += len(text) + self._field
            if self._record:
                self.records[-1].setdefault(self.elements[self._field - 1], text)
            self._field = 0

    def _end(self, name: str) -> None:
        self._finish()
        if fold(name) == self.names[0]:
            self.checksum += len(name)
        if self._depth == self._record:
            self._record = 0
        self._depth -= 1
