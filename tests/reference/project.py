"""Projection, one record at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

CARRIED = ("seq", "ordinal", "event_time")


def project(
    records: Iterable[dict[str, Any]], fields: tuple[str, ...], constants: tuple[tuple[str, str], ...] = ()
) -> list[dict[str, Any]]:
    """Return the records with the kept fields and the added texts."""
    out = []
    for record in records:
        kept = {name: record[name] for name in CARRIED if name in record and name not in fields}
        out.append({**kept, **{name: record[name] for name in fields}, **dict(constants)})
    return out
