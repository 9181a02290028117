"""All blob stores behave alike: folders, memory, SQLite, and Azure with the emulator."""

from __future__ import annotations

import errno
import os
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from riot_ops import ConfigError, ConnectorError, RecordError, Secret
from riot_ops.connectors.retry import map_parallel
from riot_ops.connectors.stores import open_blobs
from riot_ops.connectors.stores.blob import check_name
from riot_ops.connectors.stores.folder import FolderBlobs
from tests.reference.stores import Blobs
from tests.search import depth

ODD_NAMES = (
    "a",
    "a b/c'd\"",
    "ü/日本/😀.bin",
    "%41",
    "q?x=1&y#z",
    "semi;colon+plus=equal@at:colon,comma~tilde!$()*[]{}|^`<>",
    "..a/b..c/.hidden",
    "CON",
    "é",  # one code point, and
    "e\u0301",  # two code points with the same glyph
    "x" * 255,
    "/".join(["seg"] * 100),
    "percent%2Fslash",
    "\u200d\u202e",
    "A",
)
BAD_NAMES = ("", "/a", "a/", "a//b", ".", "../a", "a/../b", "a/./b", "a\\b", "a\nb", "a\x00", "a\x9f", "a.", "a./b")
BAD_NAMES += (" a", "a ", "a /b", "\u00a0a", "\ufffe", "\U0001ffff", "\ud800", "x" * 256, "ü" * 128, "a/" * 512 + "a")
BAD_NAMES += (".riot_ops/a", ".riot_ops")


@pytest.fixture(params=["folder", "memory", "sqlite", pytest.param("azure", marks=pytest.mark.integration)])
def store(request, tmp_path):
    credential = None
    url = {
        "folder": f"file://{tmp_path}/blobs",
        "memory": f"memory://{tmp_path}",
        "sqlite": f"sqlite:///{tmp_path}/b.db",
    }
    if request.param == "azure":
        url["azure"] = f"azure-blob://test-{uuid.uuid4().hex[:20]}"
        credential = Secret(request.getfixturevalue("azurite").connection)
    with open_blobs(url[request.param], credential, retry="5s") as opened:
        opened.create()
        opened.create()
        yield opened


def _reason(call, *arguments, **options):
    with pytest.raises(RecordError) as caught:
        call(*arguments, **options)
    return caught.value.reason


@pytest.mark.long
def test_written_blobs_are_read_back(store):
    assert list(store.list()) == []
    store.write("models/a.bin", b"\x00\xff")
    store.write("models/a.bin", b"two")
    store.write("empty", b"")
    store.write("modelsb", b"m")
    assert (store.read("models/a.bin"), store.read("empty"), store.read("modelsb")) == (b"two", b"", b"m")
    assert list(store.list()) == ["empty", "models/a.bin", "modelsb"]
    assert list(store.list("models/")) == ["models/a.bin"]
    assert list(store.list("models")) == ["models/a.bin", "modelsb"]
    assert list(store.list("MODELS")) == []
    store.delete("models/a.bin")
    store.delete("models/a.bin")
    assert _reason(store.read, "models/a.bin") == "not_found"
    with pytest.raises(FileNotFoundError):
        store.read("models")


def test_conditional_writes(store):
    store.write("a", b"1", overwrite=False)
    store.write("a", b"1", overwrite=False)  # as after a lost response
    assert _reason(store.write, "a", b"2", overwrite=False) == "exists"
    assert store.read("a") == b"1"
    store.delete("a")
    store.write("a", b"2", overwrite=False)
    assert store.read("a") == b"2"


def test_one_of_many_writers_wins(store):
    def write(i):
        try:
            store.write("race", str(i).encode(), overwrite=False)
        except RecordError as error:
            assert error.reason == "exists"
            return None
        return i

    winners = [i for i in map_parallel(write, range(6), workers=1 if "memory" in store.label else 6) if i is not None]
    assert [store.read("race")] == [str(i).encode() for i in winners]


def test_size_limit(store):
    store.write("a", b"12345")
    assert store.read("a", 5) == b"12345"
    assert _reason(store.read, "a", 4) == "too_large"
    assert _reason(store.read, "b", 4) == "not_found"


def test_unusual_names_are_accepted(store):
    for name in ODD_NAMES:
        store.write(name, name.encode())
    assert list(store.list()) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        assert store.read(name) == name.encode()
        store.delete(name)
    assert list(store.list()) == []


def test_invalid_names_are_refused(store):
    for name in BAD_NAMES:
        for call in (store.read, store.delete, lambda n: store.write(n, b"")):
            assert _reason(call, name) == "bad_name", repr(name)
    assert list(store.list()) == []


@pytest.mark.long
def test_large_blob_is_written_in_blocks(store):
    data = os.urandom(1 << 20) * 50
    store.write("big", data)
    assert store.read("big") == data
    assert _reason(store.read, "big", 1 << 20) == "too_large"


NAMES = st.sampled_from(["a", "b", "c/d", "c/e", "ü"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=3), st.booleans()),
        st.tuples(st.sampled_from(["read", "delete"]), NAMES),
        st.tuples(st.just("list"), st.sampled_from(["", "c", "c/", "x"])),
    ),
    max_size=12,
)


@pytest.mark.long
@given(steps=STEPS)
@settings(max_examples=depth(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_operations_equals_a_dict(store, steps):
    for name in list(store.list()):
        store.delete(name)
    model = Blobs()
    for step, *arguments in steps:
        results = []
        for one in (store, model):
            try:
                if step == "write":
                    found = one.write(arguments[0], arguments[1], overwrite=arguments[2])
                else:
                    found = getattr(one, step)(*arguments)
                results.append(list(found) if step == "list" else found)
            except RecordError as error:
                results.append(error.reason)
        assert results[0] == results[1], step


@given(st.text(max_size=40))
def test_any_name_is_accepted_or_refused_with_a_reason(name):
    try:
        assert check_name(name) == name
    except RecordError as error:
        assert error.reason == "bad_name" and "blob name" in str(error)
        return
    assert not name.startswith("/") and ".." not in name.split("/") and "\\" not in name


# -- folders ---------------------------------------------------------------------------------------


def test_no_name_leads_out_of_a_folder(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    store = FolderBlobs(tmp_path / "in")
    store.write("a", b"")
    (store.folder / "link").symlink_to(outside)
    (store.folder / "file").symlink_to(outside / "secret")
    assert _reason(store.read, "link/secret") == "bad_name"
    assert _reason(store.write, "link/new", b"") == "bad_name"
    assert _reason(store.delete, "link/secret") == "bad_name"
    assert _reason(store.read, "file") == "bad_name"
    store.write("file", b"mine")
    assert (store.folder / "file").read_bytes() == b"mine" and (outside / "secret").read_text() == "s"
    assert list(store.list()) == ["a", "file"]
    assert [p.name for p in outside.iterdir()] == ["secret"]


def test_folder_in_place_of_a_blob_is_an_error(tmp_path):
    store = FolderBlobs(tmp_path)
    store.write("a", b"")
    assert _reason(store.write, "a/b", b"") == "bad_name"
    assert _reason(store.read, "a/b") == "not_found"
    store.write("c/d", b"")
    for overwrite in (True, False):
        assert _reason(store.write, "c", b"", overwrite=overwrite) == "bad_name"
    assert _reason(store.read, "c") == "not_found"
    store.delete("c")
    store.delete("a/b")
    os.mkfifo(tmp_path / "pipe")
    assert _reason(store.read, "pipe") == "not_found"
    assert list(store.list()) == ["a", "c/d", "pipe"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_full_disk_leaves_only_the_old_blob(tmp_path, monkeypatch, overwrite):
    store = FolderBlobs(tmp_path)
    store.write("a", b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConnectorError, match=r"blob 'a' .* cannot be written: No space left on device"):
        store.write("a", b"new", overwrite=overwrite)
    monkeypatch.undo()
    assert store.read("a") == b"old"
    assert list(store.list()) == ["a"] and not list((tmp_path / ".riot_ops").iterdir())


def test_file_in_place_of_the_store_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    store = FolderBlobs(tmp_path / "file")
    for call in (store.create, lambda: store.write("a", b""), store.list):
        with pytest.raises(ConnectorError, match=r"cannot be (created|listed): (File exists|Not a directory)"):
            call()
    assert list(FolderBlobs(tmp_path / "missing").list()) == []


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://account.blob.core.windows.net/c?sv=1&sig=hush",
        "azure-blob://",
        "azure-blob://UPPER",
        "azure-blob://a--b",
        "azure-blob://models?sig=hush",
        "azure-blob://key:hush@models",
        "file://host/hush",
        "postgresql://me:hush@host/db",
        "postgresql://me@host/db?password=hush",
        "ftp://hush",
    ],
)
def test_invalid_urls_are_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match=r"\bstore\b") as caught:
        open_blobs(url)
    assert "hush" not in str(caught.value)


def test_folder_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("with space", f"file://{tmp_path}/with%20space", f"file://localhost{tmp_path}/with%20space"):
        assert open_blobs(url).folder == tmp_path / "with space"
