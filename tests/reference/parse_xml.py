"""Checksum and records of an XML document, from a tree in memory."""

from __future__ import annotations

import string
from xml.etree import ElementTree as ET
from xml.parsers import expat

LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def tree(text: str | bytes) -> ET.Element:
    """Return the root of a document; prefixes are part of names, declared or not."""
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(text, True)
    return builder.close()


def read(text: str | bytes, record: str, fields: tuple[str, ...]) -> tuple[int, list[dict[str, str | None]], int]:
    """Return ``(checksum, records, depth)``."""
    elements = [f.translate(LOWER) for f in fields if not f.startswith("@")]
    checksum = 0
    records: list[dict[str, str | None]] = []
    deepest = 0

    def visit(node: ET.Element, depth: int, inside: dict[str, str | None] | None) -> None:
        nonlocal checksum, deepest
        deepest = max(deepest, depth)
        name = node.tag.translate(LOWER)
        if name == record.translate(LOWER):
            values = {f[1:]: node.get(f[1:]) for f in fields if f.startswith("@")}
            checksum += len(record) + sum(len(v) for v in values.values() if v is not None)
            if inside is None:
                inside = {f.removeprefix("@"): values.get(f[1:]) if f.startswith("@") else None for f in fields}
                records.append(inside)
        elif name in elements:
            j = elements.index(name) + 1
            checksum += 4 + j + (len(node.text) + j if node.text else 0)
            field = [f for f in fields if not f.startswith("@")][j - 1]
            if inside is not None and inside[field] is None:
                inside[field] = node.text or ""
        for child in node:
            visit(child, depth + 1, inside)

    visit(tree(text), 1, None)
    return checksum, records, deepest
