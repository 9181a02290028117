"""Zip archives as records and as files: limits, times and names of entries, reproducible bytes, atomic writes."""

import io
import os
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import ConfigError, ConnectorError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks import Collect, PlotLines, Zip
from tests.reference.splits import run


def opened(data):
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


FILES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.text(max_size=12), st.one_of(st.none(), st.binary(max_size=40))),
    max_size=30,
)


@pytest.mark.long
@given(FILES, st.integers(1, 5), st.integers(10, 60), st.lists(st.integers(0, 30), max_size=3))
def test_archives_hold_all_entries_within_the_limits(files, size, max_bytes, cuts):
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(files)), pa.int64()),
            "key": pa.array([k for k, _, _ in files], pa.string()),
            "name": pa.array([n for _, n, _ in files], pa.string()),
            "data": pa.array([d for _, _, d in files], pa.binary()),
        }
    )
    task = Zip(size=size, max_bytes=max_bytes, by=("key",))
    got, errors = run(task, batch, cuts)
    assert run(task, batch, restart=False)[0] == got
    found = {}
    for row in got:
        archive = opened(row["data"])
        contents = [archive.read(info) for info in archive.infolist()]
        assert row["entries"] == len(contents) <= size and sum(map(len, contents)) <= max_bytes
        found.setdefault(row["key"], []).extend(contents)
    wanted = {}
    for key, _, data in files:
        if data is not None and len(data) <= max_bytes:
            wanted.setdefault(key, []).append(data)
    assert found == wanted
    assert len(errors) == len(files) - sum(map(len, wanted.values()))
    assert {e["reason"] for e in errors} <= {"missing", "too_big"}


def test_entries_have_the_event_times_of_their_records():
    time = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    schema = pa.schema([("event_time", TIMESTAMP), ("name", pa.string()), ("data", pa.binary())])
    far = pa.array([253402300799 * 10**6, -62135596800 * 10**6], pa.int64()).cast(TIMESTAMP)
    times = pa.concat_arrays([pa.array([time, None], TIMESTAMP), far])
    batch = pa.RecordBatch.from_arrays([times, pa.array(["a", "b", "c", "d"]), pa.array([b""] * 4)], schema=schema)
    row = Zip(size=4).session().push_batch(batch)
    infos = opened(row["data"][0].as_py()).infolist()
    assert [i.date_time for i in infos] == [
        (2026, 2, 3, 4, 5, 6),
        (1980, 1, 1, 0, 0, 0),
        (2107, 12, 31, 23, 59, 58),
        (1980, 1, 1, 0, 0, 0),
    ]


def test_content_and_name_come_from_the_named_fields():
    pack = Zip(size=2, field="chart", entry="title").session()
    rows = [{"title": t, "chart": c, "name": "no", "data": b"no"} for t, c in (("a", b"1"), ("b", b"2"))]
    archive = opened(pack.push_many(rows)[0]["data"])
    assert {name: archive.read(name) for name in archive.namelist()} == {"a": b"1", "b": b"2"}


def test_entries_without_names_are_numbered():
    pack = Zip(size=2, entry=None).session()
    assert opened(pack.push_many([{"data": b"1"}, {"data": b"2"}])[0]["data"]).namelist() == ["entry-1", "entry-2"]


@pytest.mark.parametrize("compress", [True, False])
def test_compress_deflates_the_entries(compress):
    (row,) = Zip(size=1, compress=compress).session().push({"name": "a", "data": b"a" * 10_000})
    (info,) = opened(row["data"]).infolist()
    assert info.compress_type == (zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED)
    assert (len(row["data"]) < 500) == compress
    assert opened(row["data"]).read("a") == b"a" * 10_000


@pytest.mark.long
def test_bytes_do_not_depend_on_process_or_time_zone():
    script = (
        "from riot_ops.tasks import Zip; import os, time\n"
        "for zone in ('UTC', 'Asia/Tokyo'):\n"
        "    os.environ['TZ'] = zone; time.tzset()\n"
        "    s = Zip(size=2).session(); s.push({'name': 'ü', 'data': b'a' * 1000})\n"
        "    r = s.push({'name': 'b', 'data': b'b'})[0]; print(r['name'] + r['data'].hex(), time.timezone)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (first, utc), (second, tokyo) = (line.split() for line in done.stdout.splitlines())
    assert first == second and first.startswith("archive~")
    assert (utc, tokyo) == ("0", "-32400")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"size": 0}, "size"),
        ({"size": 70_000}, "size must be at most 65535"),
        ({"max_bytes": 1 << 31}, "max_bytes must be at most"),
        ({"by": ("data",)}, "must not have that name"),
        ({"ttl": timedelta(1)}, "does not use ttl"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match):
        Zip(**wrong)


# -- archives in a folder -------------------------------------------------------------------------


def test_second_run_replaces_the_archive(tmp_path):
    folder = tmp_path / "new" / "ü"
    pack = Zip(to=str(folder), size=2, prefix="plots").session()
    row = pack.push_many([{"name": "a.svg", "data": "text"}, {"name": "a.svg", "data": "more"}])[0]
    path = Path(row["path"])
    assert path.parent == folder and path.name == row["name"] and path.stat().st_size == row["bytes"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert zipfile.ZipFile(path).namelist() == ["a.svg", "a-2.svg"] and row["entries"] == 2
    again = Zip(to=str(folder), size=2, prefix="plots").session()
    assert again.push_many([{"name": "a.svg", "data": "text"}, {"name": "a.svg", "data": "more"}]) == [row]
    assert os.listdir(folder) == [row["name"]]


def test_failed_write_leaves_no_file(tmp_path, monkeypatch):
    pack = Zip(to=str(tmp_path), size=1).session()

    def fails(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(ConnectorError, match="No space left"):
        pack.push({"name": "a", "data": "text"})
    assert os.listdir(tmp_path) == []


def test_dataflow_packs_charts_for_any_batch_size(tmp_path):
    n = 40
    table = pa.table(
        {
            "seq": pa.array(range(n), pa.int64()),
            "event_time": pa.array([i * 1_000_000 for i in range(n)], TIMESTAMP),
            "sensor_id": pa.array([f"s{i % 4}" for i in range(n)]),
            "obs_type": pa.array(["t"] * n),
            "analytic": pa.array(["AVG"] * n),
            "value": pa.array([float(i) for i in range(n)]),
        }
    )
    flow = ro.Dataflow("plots")
    collected = flow.source("in", schema=table.schema).to(Collect(size=20), id="collect")
    charts = collected.to(PlotLines(), id="chart")
    flow.sink("out", charts.to(Zip(to=str(tmp_path), size=6), id="zip"))
    rows = flow.run(table, batch_size=7)["zip"].to_pylist()
    assert [row["entries"] for row in rows] == [6, 2]
    names = [name for row in rows for name in zipfile.ZipFile(row["path"]).namelist()]
    assert names == [f"s{i}~t~{block}.svg" for block in (0, 1) for i in range(4)]
    assert flow.run(table, batch_size=100)["zip"].to_pylist() == rows


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="to must name a folder"):
        Zip(to=str(tmp_path / "x"))
