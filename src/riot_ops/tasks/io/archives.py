"""Zip archives whose bytes depend on nothing but their entries."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ["FIRST", "Entry", "zip_bytes"]

#: The seconds since 1970 that the format can say: the years 1980 to 2107.
FIRST, LAST = 315_532_800, 4_354_819_198
LONGEST_NAME = 200


class Entry(NamedTuple):
    """One file of an archive, changed at a time in seconds since 1970."""

    name: str
    data: bytes
    seconds: int = FIRST


def zip_bytes(entries: Iterable[Entry], compress: bool = True) -> bytes:
    """The archive of the entries in their order.

    Names are made safe to unpack: no absolute paths, no ``..``, no control characters, none twice.

    >>> data = zip_bytes([Entry("a.svg", b"1"), Entry("../a.svg", b"2")])
    >>> zipfile.ZipFile(io.BytesIO(data)).namelist()
    ['a.svg', 'a-2.svg']
    """
    out = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(out, "w") as archive:
        for entry in entries:
            name = _unique(_safe(entry.name), taken)
            time = datetime.fromtimestamp(min(max(entry.seconds, FIRST), LAST), UTC)
            info = zipfile.ZipInfo(name, time.timetuple()[:6])
            info.create_system = 3  # else it tells which system made it
            info.external_attr = 0o644 << 16
            method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(info, entry.data, method, 6)
    return out.getvalue()


def _safe(name: str) -> str:
    parts = re.split(r"[/\\]", re.sub(r"[\x00-\x1f\x7f]", "_", name))
    if re.fullmatch(r"[A-Za-z]:.*", parts[0]):
        parts[0] = parts[0].replace(":", "_", 1)  # a drive
    return "/".join(p for p in parts if p.strip(". ")) or "entry"


def _unique(name: str, taken: set[str]) -> str:
    folder, slash, file = name.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    if not stem:
        stem, dot, suffix = file, "", ""
    stem, folder, suffix = stem[:LONGEST_NAME], folder[:LONGEST_NAME], suffix[:LONGEST_NAME]
    found, n = f"{folder}{slash}{stem}{dot}{suffix}", 1
    while found.casefold() in taken:
        n += 1
        found = f"{folder}{slash}{stem}-{n}{dot}{suffix}"
    taken.add(found.casefold())
    return found
