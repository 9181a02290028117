"""Upload of blobs to all stores."""

import base64
import json
import threading
import uuid
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError, Secret
from riot_ops.connectors.stores import open_blobs
from riot_ops.connectors.stores.memory import MemoryBlobs
from riot_ops.tasks import DownloadBlob, InsertTable, ReadTableRange, UploadBlob
from riot_ops.tasks.io import store_task

SCHEMA = pa.schema([("seq", pa.int64()), ("name", pa.string()), ("data", pa.binary())])


def _upload(task, rows):
    session = task.session()
    out = session.push_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).to_pylist()
    return out, {e["seq"]: e["reason"] for e in session.errors}


@pytest.fixture(params=["folder", "sqlite", "memory", pytest.param("azure", marks=pytest.mark.integration)])
def place(request, tmp_path):
    url = {"folder": str(tmp_path), "sqlite": f"sqlite:///{tmp_path}/b.db", "memory": f"memory://{tmp_path}"}
    if request.param != "azure":
        return {"store": url[request.param]}
    credential = Secret(request.getfixturevalue("azurite").connection)
    return {"store": f"azure-blob://t{uuid.uuid4().hex}", "credential": credential}


def _content(blobs):
    return {name: blobs.read(name) for name in blobs.list()}


def test_stores_are_opened_with_defaults_or_given_options(monkeypatch):
    monkeypatch.setattr(store_task, "shared_blobs", lambda *given, **options: (given, options))
    monkeypatch.setattr(store_task, "shared_table", lambda *given, **options: (given, options))
    secret = Secret("x")
    table = {"store": "azure-table://", "table": "rows", "partition": "p", "row": "{seq}"}
    assert UploadBlob(store="azure-blob://charts").blobs == (
        ("azure-blob://charts", None),
        {"retry": timedelta(minutes=1)},
    )
    upload = UploadBlob(store="azure-blob://charts", credential=secret, retry="7s")
    assert upload.blobs == (("azure-blob://charts", secret), {"retry": timedelta(seconds=7)})
    where, schema = {name: table[name] for name in ("store", "table", "partition")}, {"v": "double"}
    for task in (InsertTable(**table), ReadTableRange(**where, schema=schema)):
        assert task.rows == (("azure-table://", "rows", None), {"retry": timedelta(minutes=1), "max_concurrency": 8})
        configured = task.replace(credential=secret, retry="7s", max_concurrency=3)
        assert configured.rows == (
            ("azure-table://", "rows", secret),
            {"retry": timedelta(seconds=7), "max_concurrency": 3},
        )
    assert (
        UploadBlob(store="azure-blob://charts").max_concurrency
        == DownloadBlob(store="azure-blob://charts").max_concurrency
        == 8
    )


@pytest.mark.long
def test_all_stores_hold_the_same_blobs(place):
    blobs = open_blobs(place["store"], place.get("credential"))
    blobs.create()
    rows = [
        {"seq": 0, "name": "ü 1", "data": b"\x00\xff"},
        {"seq": 1, "name": "empty", "data": b""},
        {"seq": 2, "name": None, "data": b"x"},
        {"seq": 3, "name": "a/../b", "data": b"x"},
        {"seq": 4, "name": "null", "data": None},
        {"seq": 5, "name": "ü 1", "data": b"later"},
    ]
    task = UploadBlob(**place, blob="charts/{name}.svg")
    out, errors = _upload(task, rows)
    assert [(r["seq"], r["blob"]) for r in out] == [
        (0, "charts/ü 1.svg"),
        (1, "charts/empty.svg"),
        (5, "charts/ü 1.svg"),
    ]
    assert errors == {2: "missing_key", 3: "bad_name", 4: "missing_value"}
    wanted = {"charts/empty.svg": b"", "charts/ü 1.svg": b"later"}
    assert _content(blobs) == wanted
    _upload(task, rows)  # as after a crash
    assert _content(blobs) == wanted


def test_overwrite_false_rejects_other_content(place):
    blobs = open_blobs(place["store"], place.get("credential"))
    blobs.create()
    blobs.write("old", b"old")
    rows = [(0, "old", b"new"), (1, "old", b"old"), (2, "a", b"1"), (3, "a", b"1"), (4, "a", b"2")]
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    task = UploadBlob(**place, overwrite=False)
    assert _upload(task, rows[2:])[1] == {4: "exists"}
    assert _upload(task, rows[:1])[1] == {0: "exists"}
    assert _upload(task, rows[1:2])[1] == {}
    assert _upload(task, rows[2:])[1] == {4: "exists"}  # unchanged when repeated
    assert _content(blobs) == {"a": b"1", "old": b"old"}


def test_gather_writes_one_blob_per_batch(place):
    blobs = open_blobs(place["store"], place.get("credential"))
    blobs.create()
    rows = [{"seq": i, "name": f"r{i}", "data": f"ü\n{i}".encode() if i % 10 else b"\xff"} for i in range(1000)]
    rows[3]["name"] = None
    task = UploadBlob(**place, gather="results/{seq}.jsonl")
    out, errors = [], {}
    for start in (0, 400):
        found, failed = _upload(task, rows[start : start + 600 if start else 400])
        out += found
        errors |= failed
    assert errors == {3: "missing_key"} and [r["seq"] for r in out] == [i for i in range(1000) if i != 3]
    assert {r["blob"] for r in out} == set(blobs.list()) == {"results/0.jsonl", "results/400.jsonl"}
    got = {}
    for line in b"".join(_content(blobs).values()).splitlines():
        entry = json.loads(line)
        got[entry["blob"]] = entry["data"].encode() if "data" in entry else base64.b64decode(entry["base64"])
    assert got == {r["name"]: r["data"] for r in rows if r["name"]}


def test_batch_without_a_blob_name_is_rejected():
    rows = [{"seq": i, "name": "a", "data": b""} for i in range(2)]
    assert _upload(UploadBlob(store="memory", gather="../{seq}"), rows) == ([], dict.fromkeys((0, 1), "bad_name"))
    rows = [{"seq": i, "name": None, "data": b""} for i in range(2)]
    assert _upload(UploadBlob(store="memory", gather="x{seq}"), rows) == ([], dict.fromkeys((0, 1), "missing_key"))
    rows = [{"seq": 0, "name": "a", "data": b""}]
    task = UploadBlob(store="memory", gather="x{name}", blob="{seq}")
    assert _upload(task, [{**rows[0], "name": None}]) == ([], {0: "missing_key"})


def test_files_of_a_folder_are_uploaded(tmp_path):
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "ü.zip").write_bytes(b"zip")
    (tmp_path / "outside").write_bytes(b"s")
    paths = ["sub/ü.zip", f"{folder}/sub/ü.zip", "gone", str(tmp_path / "outside"), "../outside", "sub", "/", ""]
    rows = [{"seq": i, "name": f"n{i}", "data": path.encode()} for i, path in enumerate(paths)]
    out, errors = _upload(UploadBlob(store="memory://files", folder=str(folder)), rows)
    assert [r["seq"] for r in out] == [0, 1]
    assert errors == {2: "not_found", **dict.fromkeys((3, 4, 6, 7), "bad_name"), 5: "not_found"}
    assert _content(MemoryBlobs("files")) == {"n0": b"zip", "n1": b"zip"}


@given(st.lists(st.tuples(st.sampled_from("abcü"), st.binary(max_size=4)), max_size=20))
def test_uploaded_blobs_are_downloaded_unchanged(pairs):
    store = f"memory://{uuid.uuid4()}"
    rows = [{"seq": i, "name": name, "data": data} for i, (name, data) in enumerate(pairs)]
    out, errors = _upload(UploadBlob(store=store), rows)
    assert not errors and [r["blob"] for r in out] == [name for name, _ in pairs]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    got = DownloadBlob(store=store, output="again").session().push_batch(batch)
    latest = dict(pairs)
    assert got.column("again").to_pylist() == [latest[name] for name, _ in pairs]


@pytest.mark.parametrize("wrong", [{"store": ""}, {"blob": "{}"}, {"gather": "{"}, {"gather": ""}, {"folder": ""}])
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        UploadBlob(**{"store": "memory", **wrong})


def test_lists_are_refused_in_names():
    schema = pa.schema([("name", pa.list_(pa.string())), ("data", pa.string())])
    with pytest.raises(ConfigError, match="'name'"):
        UploadBlob(store="memory").output_schema(schema)
    with pytest.raises(ConfigError, match="'name'"):
        UploadBlob(store="memory", blob="x", gather="{name}").output_schema(schema)


@pytest.mark.parametrize("max_concurrency", [1, 3])
def test_parallel_uploads_run_at_once(max_concurrency, monkeypatch):
    together = threading.Barrier(max_concurrency)
    busy, most, lock = 0, 0, threading.Lock()
    write = MemoryBlobs.write

    def slow(self, name, *args, **kwargs):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        together.wait(timeout=30)  # breaks if fewer uploads run at once
        with lock:
            busy -= 1
        return write(self, name, *args, **kwargs)

    monkeypatch.setattr(MemoryBlobs, "write", slow)
    task = UploadBlob(
        store=f"memory://{uuid.uuid4().hex}", blob="{name}", value="data", max_concurrency=max_concurrency
    )
    out, failed = _upload(task, [{"seq": n, "name": f"b{n}", "data": b"x"} for n in range(6)])
    assert (len(out), failed, most) == (6, {}, max_concurrency)


def test_options_reach_the_store(monkeypatch):
    """The tests of the stores check their effect."""
    given = []
    monkeypatch.setattr(store_task, "shared_blobs", lambda *args, **kwargs: given.append((*args, kwargs)))
    monkeypatch.setattr(store_task, "shared_table", lambda *args, **kwargs: given.append((*args, kwargs)))
    secret = Secret("env:RIOT_OPS_NOTHING")
    _ = UploadBlob(store="azure-blob://models", credential=secret, retry="7s").blobs
    table = {"store": "azure-table://", "table": "rows", "partition": "p", "row": "r", "credential": secret}
    _ = InsertTable(**table, retry="8s", max_concurrency=2).rows
    assert given == [
        ("azure-blob://models", secret, {"retry": timedelta(seconds=7)}),
        ("azure-table://", "rows", secret, {"retry": timedelta(seconds=8), "max_concurrency": 2}),
    ]
