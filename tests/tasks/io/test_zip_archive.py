"""Zip archives from bytes: safe and unique names."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.tasks.io.zip_archive import ZipEntry, zip_bytes


def opened(data):
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


@given(st.lists(st.text(max_size=30), max_size=10))
def test_any_name_is_safe_to_unpack(names):
    archive = opened(zip_bytes(ZipEntry(n, n.encode("utf-8", "replace")) for n in names))
    found = [info.filename for info in archive.infolist()]
    assert len(found) == len(names) and len({n.casefold() for n in found}) == len(names)
    for name in found:
        assert not name.startswith("/") and ".." not in name.split("/") and "\\" not in name and "\x00" not in name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("/a.svg", "a.svg"),
        ("C:\\x\\a.svg", "C_/x/a.svg"),
        ("", "entry"),
        ("..", "entry"),
        ("ü/漢.svg", "ü/漢.svg"),
        ("a\nb", "a_b"),
        (".hidden", ".hidden"),
    ],
)
def test_names_are_made_safe(given, name):
    assert opened(zip_bytes([ZipEntry(given, b"")])).namelist() == [name]
