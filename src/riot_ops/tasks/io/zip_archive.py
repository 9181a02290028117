"""Reproducible zip archives: the same entries make the same bytes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ["FIRST_SECOND", "ZipEntry", "zip_bytes"]

#: The range of times that the format can store, in seconds since 1970: the years 1980 to 2107.
FIRST_SECOND, LAST_SECOND = 315_532_800, 4_354_819_198
MAX_NAME_LENGTH = 200


class ZipEntry(NamedTuple):
    """One file of an archive, with its modification time in seconds since 1970."""

    name: str
    data: bytes
    seconds: int = FIRST_SECOND


def zip_bytes(entries: Iterable[ZipEntry], compress: bool = True) -> bytes:
    """Make an archive of the entries, in their order.

    Names are made safe to unpack: no absolute paths, ``..``, control characters or duplicates.

    >>> data = zip_bytes([ZipEntry("a.svg", b"1"), ZipEntry("../a.svg", b"2")])
    >>> zipfile.ZipFile(io.BytesIO(data)).namelist()
    ['a.svg', 'a-2.svg']
    """
    out = io.BytesIO()
    used: set[str] = set()
    with zipfile.ZipFile(out, "w") as archive:
        for entry in entries:
            name = _unique(_safe(entry.name), used)
            time = datetime.fromtimestamp(min(max(entry.seconds, FIRST_SECOND), LAST_SECOND), UTC)
            info = zipfile.ZipInfo(name, time.timetuple()[:6])
            info.create_system = 3  # Unix everywhere: the default depends on the system
            info.external_attr = 0o644 << 16
            method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(info, entry.data, method, 6)
    return out.getvalue()


def _safe(name: str) -> str:
    parts = re.split(r"[/\\]", re.sub(r"[\x00-\x1f\x7f]", "_", name))
    if re.fullmatch(r"[A-Za-z]:.*", parts[0]):
        parts[0] = parts[0].replace(":", "_", 1)  # a drive letter
    return "/".join(p for p in parts if p.strip(". ")) or "entry"


def _unique(name: str, used: set[str]) -> str:
    folder, slash, file = name.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    if not stem:
        stem, dot, suffix = file, "", ""
    stem, folder, suffix = stem[:MAX_NAME_LENGTH], folder[:MAX_NAME_LENGTH], suffix[:MAX_NAME_LENGTH]
    found, n = f"{folder}{slash}{stem}{dot}{suffix}", 1
    while found.casefold() in used:
        n += 1
        found = f"{folder}{slash}{stem}-{n}{dot}{suffix}"
    used.add(found.casefold())
    return found
