"""Download of blobs from all stores."""

import uuid
from datetime import timedelta

import pyarrow as pa
import pytest

from riot_ops import ConfigError, ConnectorError, Secret
from riot_ops.connectors.stores import open_blobs
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.tasks import DownloadBlob
from riot_ops.tasks.io import download_blob


def _download(task, rows):
    session = task.session()
    out = session.push_batch(pa.RecordBatch.from_pylist(rows, schema=pa.schema([("name", pa.string())])))
    return out.to_pylist(), [(e["reason"], e["message"]) for e in session.errors]


@pytest.fixture(params=["folder", "sqlite", pytest.param("azure", marks=pytest.mark.integration)])
def place(request, tmp_path):
    if request.param != "azure":
        return {"store": str(tmp_path) if request.param == "folder" else f"sqlite:///{tmp_path}/b.db"}
    credential = Secret(request.getfixturevalue("azurite").connection)
    return {"store": f"azure-blob://t{uuid.uuid4().hex}", "credential": credential}


def test_all_stores_give_the_same_blobs(place):
    blobs = open_blobs(place["store"], place.get("credential"))
    blobs.create()
    blobs.write("ü/a", b"\x00\xff")
    blobs.write("b", b"12345")
    names = ["ü/a", "gone", None, "b", "ü/a", "../x", ""]
    rows, errors = _download(DownloadBlob(**place, max_bytes=4), [{"name": n} for n in names])
    assert rows == [{"name": "ü/a", "data": b"\x00\xff"}] * 2
    assert sorted(reason for reason, _ in errors) == ["bad_name", "bad_name", "missing_key", "not_found", "too_large"]
    assert any("'gone'" in message for _, message in errors)


def test_name_is_downloaded_once_per_batch(tmp_path, monkeypatch):
    FolderBlobs(tmp_path).write("a", b"x")
    reads = []
    read = FolderBlobs.read
    monkeypatch.setattr(FolderBlobs, "read", lambda *a: reads.append(a[1]) or read(*a))
    rows, errors = _download(DownloadBlob(store=str(tmp_path)), [{"name": "a"}] * 50 + [{"name": "gone"}] * 50)
    assert len(rows) == 50 and len(errors) == 50 and sorted(reads) == ["a", "gone"]


def test_blobs_beyond_the_size_of_a_column_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(download_blob, "MAX_COLUMN_BYTES", 5)
    for name in "abc":
        FolderBlobs(tmp_path).write(name, b"xxx" if name == "a" else b"xx" if name == "c" else b"xxxx")
    rows, errors = _download(DownloadBlob(store=str(tmp_path)), [{"name": n} for n in "abc"])
    assert [r["name"] for r in rows] == ["a", "c"] and [reason for reason, _ in errors] == ["too_large"]


def test_failing_store_stops_the_stream(tmp_path):
    (tmp_path / "x").symlink_to("x")
    with pytest.raises(ConnectorError):
        _download(
            DownloadBlob(
                store="azure-blob://models",
                credential=Secret("AccountName=a;AccountKey=eA==;BlobEndpoint=http://127.0.0.1:1/a"),
                retry="0s",
            ),
            [{"name": "a"}],
        )


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"store": "azure-blob://UPPER"}, "store"),
        ({"blob": "{"}, "blob"),
        ({"blob": ""}, "blob"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"credential": "AccountKey=hush"}, "credential must be a Secret"),
        ({"retry": timedelta(seconds=-1)}, "retry"),
        ({"retry": 60}, "retry = 60: must be a timedelta or a text such as .10s."),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match) as caught:
        DownloadBlob(**{"store": "memory", **wrong})
    assert "hush" not in str(caught.value)
