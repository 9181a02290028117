"""Files read from object stores: what is found, read as from a disk, and recognised after a restart."""

from __future__ import annotations

import gzip
import json
import pickle
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.file_paths import list_files
from riot_ops.core.storage import Address
from riot_ops.streams import replay
from riot_ops.testing.services import Moto

SCHEMA = {"room": "string", "value": "int64"}


@pytest.fixture
def place(request):
    return Address.of(f"memory://{re.sub(r'[^a-z0-9]+', '-', request.node.name)}/days", {})


def flow(schema=SCHEMA):
    made = ro.Dataflow("files")
    made.sink("out", made.source("readings", schema=schema))
    return made


def lines(start, stop):
    return "".join(f"r{i},{i}\n" for i in range(start, stop)).encode()


def parquet_bytes(start, stop):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"room": [f"r{i}" for i in range(start, stop)], "value": range(start, stop)}), sink)
    return sink.getvalue().to_pybytes()


def jsonl_bytes(start, stop):
    return b"".join(json.dumps({"room": f"r{i}", "value": i}).encode() + b"\n" for i in range(start, stop))


def values(source, **options):
    return flow().run(source, **options)["readings"]["value"].to_pylist()


FORMS = {
    "a.csv": b"room,value\n" + lines(0, 5),
    "a.csv.gz": gzip.compress(b"room,value\n" + lines(0, 5)),
    "a.jsonl": jsonl_bytes(0, 5),
    "a.jsonl.gz": gzip.compress(jsonl_bytes(0, 5)),
    "a.parquet": parquet_bytes(0, 5),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_format_is_read(place, name):
    (place / name).write(FORMS[name])
    for path in (place / name, place, place / "a.*"):
        assert values(ro.read(str(path))) == list(range(5))
    assert values(str(place / name)) == list(range(5))
    assert ro.read(str(place)).local_files() == []


def test_folder_grows_and_a_replaced_file_is_refused(place, tmp_path):
    (place / "a.parquet").write(parquet_bytes(0, 5))
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "state"}
    assert values(ro.read(str(place)), **options) == list(range(5))
    (place / "b.parquet").write(parquet_bytes(5, 8))
    assert values(ro.read(str(place)), **options) == list(range(8))
    (place / "a.parquet").write(parquet_bytes(1, 6))
    with pytest.raises(StateError, match=r"memory://.*a.parquet is not the file that was read: it has other content"):
        values(ro.read(str(place)), **options)


def test_fields_of_folders(place):
    for day in (1, 2):
        (place / f"day=2026-01-0{day}" / "a.parquet").write(parquet_bytes(0, 2))
    (place / "_SUCCESS").write(b"")
    made = flow({**SCHEMA, "day": "string"})
    assert made.run(ro.read(str(place)))["readings"]["day"].to_pylist() == ["2026-01-01"] * 2 + ["2026-01-02"] * 2


def test_replay_reads_as_from_a_disk(place, tmp_path):
    data = b"".join(b"%d,r%d\n" % (1000 * i, i) for i in range(50))
    (tmp_path / "a.csv").write_bytes(data)
    (place / "a.csv").write(data)
    (place / "b.csv.gz").write(gzip.compress(data))
    made = ro.Dataflow("lines")
    made.sink("out", made.source("lines"))
    local = made.run(replay(tmp_path / "a.csv"))["lines"]
    assert local.num_rows == 50
    for name in ("a.csv", "b.csv.gz"):
        assert made.run(replay(str(place / name)))["lines"].equals(local)
    with pytest.raises(ConfigError, match="follow needs a file on this machine, and memory://"):
        replay(str(place / "a.csv"), follow=True)


def test_own_output_is_read_without_what_is_not_committed(place):
    out = str(place)
    flow().run([{"room": "a", "value": 1}], out=out)
    (place / "readings" / "part-000001-00000.parquet").write(parquet_bytes(0, 5))
    assert values(ro.read(f"{out}/readings")) == [1]
    assert len(list_files(f"{out}/readings/*.parquet")) == 2  # a pattern is taken at its word


@pytest.mark.parametrize("name", ["", "none.csv", "*.csv", ".hidden.csv"])
def test_missing_files_are_named(place, name):
    (place / ".hidden").write(b"")
    with pytest.raises(ConnectorError, match=rf"no such file, and no files in a folder: memory://.*{re.escape(name)}"):
        ro.read(str(place / name) if name else str(place))


@pytest.mark.integration
@pytest.mark.long
def test_files_of_a_bucket(monkeypatch):
    with Moto() as moto:
        for name, value in moto.settings().items():
            monkeypatch.setenv(name, value)
        place = Address.of(moto.create_bucket("files") + "/days", {})
        for name, data in FORMS.items():
            (place / name / name).write(data)
            assert values(ro.read(f"{place}/{name}")) == list(range(5))
            assert values(ro.read(f"{place}/{name}/{name}")) == list(range(5))
        with pytest.raises(ConnectorError, match="no such file, and no files in a folder: s3://files/none"):
            ro.read("s3://files/none")


@pytest.mark.integration
@pytest.mark.long
def test_settings_of_a_source_reach_its_store_and_are_not_shown(monkeypatch, tmp_path, caplog):
    with Moto() as moto:
        settings = moto.storage_options()
        for name in moto.settings():
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PLANT_KEY", "never-shown-key")
        settings |= {
            "aws_secret_access_key": ro.Secret.env("PLANT_KEY"),
            "aws_session_token": ro.Secret("never-shown-token"),
        }
        place = Address.of(moto.create_bucket("settings") + "/days", settings)
        timed = b"".join(b"%d,r%d\n" % (1000 * i, i) for i in range(5))
        (place / "lines" / "a.log").write(timed)
        (place / "lines" / "b.log.gz").write(gzip.compress(timed))
        (place / "by_day" / "day=1" / "a.parquet").write(FORMS["a.parquet"])
        for name, data in FORMS.items():
            (place / name / name).write(data)

        def sources():
            for name in FORMS:
                yield "readings", flow(), ro.read(f"{place}/{name}", storage_options=settings)
                yield "readings", flow(), ro.read(f"{place}/{name}/a.*", storage_options=settings)
            days = flow({**SCHEMA, "day": "string"})
            yield "readings", days, ro.read(f"{place}/by_day", storage_options=settings)
            lines = ro.Dataflow("lines")
            lines.sink("out", lines.source("lines"))
            yield "lines", lines, replay(f"{place}/lines", storage_options=settings)

        for number, (stream, made, source) in enumerate(sources()):
            # a worker gets the source so, and a restart its position
            source = pickle.loads(pickle.dumps(source))
            state = tmp_path / str(number)
            for _ in range(2):
                result = made.run(source, out=tmp_path / f"out{number}", checkpoint=state, batch_size=3)
                assert result[stream].num_rows == (10 if stream == "lines" else 5)
            end = source.latest(source.initial(), 3)
            told = [
                repr(source),
                *map(json.dumps, (source.description(), end, source.splits(source.initial(), end, 1))),
            ]
            told += [path.read_bytes().decode("latin-1") for path in state.rglob("*") if path.is_file()]
            assert not any("never-shown" in text for text in (*told, caplog.text))


def test_settings_are_for_addresses(tmp_path):
    (tmp_path / "a.csv").write_bytes(FORMS["a.csv"])
    for read in (ro.read, replay):
        with pytest.raises(ConfigError, match="storage_options are for object stores, and path is the path"):
            read(tmp_path / "a.csv", storage_options={"aws_region": "x"})
        with pytest.raises(ConfigError, match=r"storage_options\['region'\] is no setting of s3: addresses"):
            read("s3://bucket/a.csv", storage_options={"region": "x"})
