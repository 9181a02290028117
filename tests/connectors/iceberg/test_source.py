"""The Iceberg source: snapshots, appended ones, limits, renamed columns, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import IcebergSink, IcebergSource
from riot_ops.core.errors import ConfigError, ConnectorError

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog


def settings(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


def rows(*values: float) -> pa.Table:
    return pa.table({"bed": ["a"] * len(values), "value": list(values)})


@pytest.fixture
def table(tmp_path):
    """A table of three snapshots with 3, 2 and 1 records."""
    client = load_catalog("default", **settings(tmp_path))
    client.create_namespace("bronze")
    made = client.create_table("bronze.readings", rows().schema.set(0, pa.field("bed", pa.string())).set(1, VALUE))
    for part in (rows(0.0, 1.0, 2.0), rows(3.0, 4.0), rows(5.0)):
        made.append(part)
    return made


VALUE = pa.field("value", pa.float64())


def source(folder: Path, **options) -> IcebergSource:
    return IcebergSource("bronze.readings", catalog=settings(folder), **options)


def read(one: IcebergSource, start: dict | None = None, limit: int | None = None, n: int = 1) -> list[dict]:
    start = one.initial() if start is None else start
    end = one.latest(start, limit)
    splits = [json.loads(json.dumps(split)) for split in one.splits(start, end, n)]
    return [row for split in splits for batch in one.read(split) for row in batch.to_pylist()]


def values(found: list[dict]) -> list[float]:
    return [row["value"] for row in found]


def test_records_are_those_of_the_table(table, tmp_path):
    found = read(source(tmp_path))
    assert [row["seq"] for row in found] == list(range(6))
    assert sorted(values(found)) == sorted(table.scan().to_arrow()["value"].to_pylist())


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_any_limit_gives_each_record_once(table, tmp_path, limit):
    one, found = source(tmp_path), []
    at = one.initial()
    while not one.finished(at):
        after = one.latest(at, limit)
        for split in one.splits(at, after, 2):
            found += [row for batch in one.read(split) for row in batch.to_pylist()]
        at = json.loads(json.dumps(after))
        assert one.seq_at(at) == len(found)
    assert found == read(source(tmp_path))


def test_follow_reads_appended_snapshots_in_order(table, tmp_path):
    one = pickle.loads(pickle.dumps(source(tmp_path, follow=True)))
    at = one.latest(one.initial())
    assert one.waits() and not one.finished(at) and one.latest(at) == at
    table.append(rows(6.0))
    table.append(rows(7.0))
    assert [(row["seq"], row["value"]) for row in read(one, at)] == [(6, 6.0), (7, 7.0)]


def test_snapshots_by_number(table, tmp_path):
    first, second, _ = (snapshot.snapshot_id for snapshot in table.snapshots())
    assert sorted(values(read(source(tmp_path, snapshot_id=second)))) == [0, 1, 2, 3, 4]
    assert values(read(source(tmp_path, start_snapshot_id=first))) == [3, 4, 5]
    with pytest.raises(ConnectorError, match=r"snapshot_id: the table bronze.readings has no snapshot 7"):
        read(source(tmp_path, snapshot_id=7))


def test_from_table_to_table_with_a_restart(table, tmp_path):
    def run():
        flow = ro.Dataflow("copy")
        one = source(tmp_path)
        flow.sink("kept", flow.source("in", schema=one.schema).apply(t.NoOp(), id="out"))
        flow.run(one, sinks=IcebergSink("silver", catalog=settings(tmp_path)), checkpoint=tmp_path / "kept")
        return load_catalog("default", **settings(tmp_path)).load_table("silver.out").scan().to_arrow()

    assert sorted(run()["value"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    table.append(rows(6.0))
    assert sorted(run()["value"].to_pylist()) == [0, 1, 2, 3, 4, 5, 6]


def test_renamed_and_added_columns_and_names_of_the_source(tmp_path):
    client = load_catalog("default", **settings(tmp_path))
    client.create_namespace("bronze")
    at = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    old = pa.table({"seq": [7], "at": pa.array([at], pa.timestamp("us", "UTC")), "worth": [1.0]})
    made = client.create_table("bronze.readings", old.schema)
    made.append(old)
    with made.update_schema() as update:
        update.rename_column("worth", "value")
        update.union_by_name(pa.schema([("note", pa.string())]))
    found = read(source(tmp_path, time="at"))
    assert found == [{"seq": 0, "table_seq": 7, "event_time": at, "value": 1.0, "note": None}]
    one = source(tmp_path).project(pa.schema([("value", pa.float64())]))
    assert read(one) == [{"seq": 0, "value": 1.0}]


def test_empty_table_has_no_records(tmp_path):
    client = load_catalog("default", **settings(tmp_path))
    client.create_namespace("bronze")
    made = client.create_table("bronze.readings", pa.schema([VALUE]))
    one = source(tmp_path, follow=True)
    at = one.latest(one.initial())
    assert one.seq_at(at) == 0
    made.append(pa.table({"value": [1.0]}))
    assert values(read(one, at)) == [1.0]


def test_changes_are_refused_or_passed_over(table, tmp_path):
    at = source(tmp_path).initial()
    table.delete("value = 1")
    table.append(rows(6.0))
    with pytest.raises(ConnectorError, match=r"removes or changes records \(overwrite\).*on_change='ignore'"):
        read(source(tmp_path), at)
    assert sorted(values(read(source(tmp_path, on_change="ignore"), at))) == [0, 1, 2, 3, 4, 5, 6]


def test_expired_snapshots_are_refused(table, tmp_path):
    start = source(tmp_path).latest(source(tmp_path).initial())
    table.append(rows(6.0))
    table.append(rows(7.0))
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.snapshots()[:-1]]).commit()
    with pytest.raises(ConnectorError, match="that the run has not read has expired"):
        read(source(tmp_path), start)


def test_changed_columns_are_refused(table, tmp_path):
    one = source(tmp_path, follow=True)
    assert one.schema.names == ["seq", "bed", "value"]
    at = one.latest(one.initial())
    with table.update_schema() as update:
        update.delete_column("value")
    table.append(pa.table({"bed": ["b"]}))
    with pytest.raises(ConnectorError, match="lacks the column 'value' now"):
        read(one, at)


def test_other_table_of_the_name_is_refused(table, tmp_path):
    at = source(tmp_path).latest(source(tmp_path).initial())
    client = load_catalog("default", **settings(tmp_path))
    client.drop_table("bronze.readings")
    client.create_table("bronze.readings", pa.schema([VALUE]))
    with pytest.raises(ConnectorError, match=r"the table bronze.readings was replaced by another"):
        source(tmp_path).latest(at)
    client.drop_table("bronze.readings")
    with pytest.raises(ConnectorError, match=r"there is no table bronze.readings in the Iceberg catalogue"):
        source(tmp_path).schema  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "readings"}, "table must be a namespace and a name"),
        ({"table": "a b.c"}, "table must be a name such as"),
        ({"snapshot_id": "1"}, "snapshot_id must be the number"),
        ({"snapshot_id": 1, "follow": True}, "snapshot_id reads one snapshot"),
        ({"on_change": "x"}, "on_change must be"),
        ({"catalog": None}, "catalog must be the name"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        IcebergSource(**{"table": "bronze.readings", "catalog": settings(tmp_path), **options})


def test_unknown_time_is_refused(table, tmp_path):
    with pytest.raises(ConfigError, match=r"time: the table bronze.readings has no column 'valeu'; did you mean"):
        source(tmp_path, time="valeu").schema  # noqa: B018


@pytest.mark.spark
@pytest.mark.slow  # the same over Delta tables is in make test
def test_query_on_spark_from_table_to_table(table, spark, tmp_path):
    def run():
        flow = ro.Dataflow("copy")
        one = source(tmp_path)
        flow.sink("kept", flow.source("in", schema=one.schema).apply(t.NoOp(), id="out"))
        sink = IcebergSink("silver", catalog=settings(tmp_path), partition_by="bed")
        flow.start(spark, one, sinks=sink, checkpoint=tmp_path / "kept", max_records=4, partitions=2).wait("4min")
        return load_catalog("default", **settings(tmp_path)).load_table("silver.out")

    found = run()
    batches = [snapshot.summary["riot-ops.batch"] for snapshot in found.snapshots()]
    assert batches == ["0", "1"]
    commits = tmp_path / "kept" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)  # as a kill between the table's commit and Spark's
    table.append(rows(6.0))
    assert sorted(run().scan().to_arrow()["value"].to_pylist()) == [0, 1, 2, 3, 4, 5, 6]
