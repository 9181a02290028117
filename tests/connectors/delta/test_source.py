"""The Delta source: snapshots, appended versions, the change feed, limits, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import DeltaSink, DeltaSource
from riot_ops.core.errors import ConfigError, ConnectorError

deltalake = pytest.importorskip("deltalake")
from deltalake import DeltaTable, write_deltalake  # noqa: E402

FEED = {"delta.enableChangeDataFeed": "true"}


def append(folder: Path, values: list[float], **options) -> None:
    write_deltalake(str(folder), pa.table({"bed": ["a"] * len(values), "value": values}), mode="append", **options)


def read(source: DeltaSource, start: dict | None = None, limit: int | None = None, n: int = 1) -> list[dict]:
    start = source.initial() if start is None else start
    end = source.latest(start, limit)
    assert limit is None or source.count(start, end) <= limit
    found = [row for split in source.splits(start, end, n) for b in source.read(json.loads(json.dumps(split)))
             for row in b.to_pylist()]  # fmt: skip
    assert [row["seq"] for row in found] == sorted({row["seq"] for row in found})
    return found


def values(found: list[dict]) -> list[float]:
    return [row["value"] for row in found]


@pytest.fixture
def table(tmp_path):
    """A table of three versions with 3, 2 and 1 records."""
    folder = tmp_path / "table"
    for part in ([0.0, 1.0, 2.0], [3.0, 4.0], [5.0]):
        append(folder, part)
    return folder


def test_records_are_numbered_in_the_order_of_the_versions(table):
    found = read(DeltaSource(table))
    assert found == [{"seq": i, "bed": "a", "value": float(i)} for i in range(6)]
    assert values(read(DeltaSource(f"file://{table}"))) == values(found)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_any_limit_and_number_of_splits_gives_each_record_once(table, limit, n):
    source, found = DeltaSource(table), []
    at = source.initial()
    while not source.finished(at):
        after = source.latest(at, limit)
        splits = source.splits(at, after, n)
        assert len(splits) <= n
        found += [row for split in splits for one in source.read(split) for row in one.to_pylist()]
        assert source.seq_at(after) == len(found)
        at = json.loads(json.dumps(after))
    assert [(row["seq"], row["value"]) for row in found] == [(i, float(i)) for i in range(6)]


def test_a_later_run_reads_what_was_appended(table, tmp_path):
    def run():
        flow = ro.Dataflow("copy")
        source = DeltaSource(table)
        flow.source("in", schema=source.schema).apply(t.NoOp(), id="same").to("out")
        return flow.run(source, checkpoint=tmp_path / "kept")["same"]["value"].to_pylist()

    assert run() == [0, 1, 2, 3, 4, 5]
    append(table, [6.0])
    append(table, [7.0])
    assert run() == [6, 7]
    assert run() == []


def test_follow_waits_for_versions(table):
    source = DeltaSource(table, follow=True)
    at = source.latest(source.initial())
    assert source.waits() and not source.finished(at) and source.latest(at) == at
    assert source.wait_time(at, lambda: None) == 1.0
    append(table, [6.0])
    assert values(read(source, at)) == [6.0]
    ends = DeltaSource(table)
    assert not ends.waits() and ends.wait_time(at, lambda: None) is None


def test_version_is_read_as_it_was(table):
    source = DeltaSource(table, version=1)
    assert values(read(source)) == [0, 1, 2, 3, 4]
    assert source.finished(source.latest(source.initial()))


def test_start_version_reads_changes_alone(table):
    assert values(read(DeltaSource(table, start_version=1))) == [3, 4, 5]
    assert values(read(DeltaSource(table, start_version=3))) == []


def test_copy_in_another_process_reads_the_same(table):
    source = DeltaSource(table)
    end = source.latest(source.initial())
    (split,) = source.splits(source.initial(), end, 1)
    other = pickle.loads(pickle.dumps(source))
    assert [one.to_pylist() for one in other.read(split)] == [one.to_pylist() for one in source.read(split)]
    assert other.latest(source.initial()) == end


def test_only_declared_columns_are_read(table):
    source = DeltaSource(table)
    flow = ro.Dataflow("some")
    flow.source("in", schema={"value": "double"}).apply(t.NoOp(), id="same").to("out")
    assert source.project(pa.schema([("value", pa.float64())])).schema.names == ["seq", "value"]
    assert flow.run(source)["same"].column_names == ["seq", "value"]


def test_numbers_and_times_of_the_table(tmp_path):
    at = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    write_deltalake(str(tmp_path), pa.table({"seq": [7], "at": pa.array([at], pa.timestamp("us", "UTC"))}))
    assert read(DeltaSource(tmp_path, time="at")) == [{"seq": 0, "table_seq": 7, "event_time": at}]


def test_partition_columns_come_from_the_log(tmp_path):
    rows = pa.table(
        {
            "seq": [1, 2, 3],
            "bed": ["a b/ü", None, "c"],
            "day": pa.array([dt.date(2024, 5, 1), None, dt.date(1950, 1, 1)], pa.date32()),
            "at": pa.array([dt.datetime(2024, 5, 1, 12, 0, 0, 1, dt.UTC), None, None], pa.timestamp("us", "UTC")),
        }
    )
    write_deltalake(str(tmp_path), rows, partition_by=["bed", "day", "at"])
    write_deltalake(str(tmp_path), rows, mode="append")
    expected = sorted(rows.to_pylist() * 2, key=lambda row: row["seq"])
    found = sorted(read(DeltaSource(tmp_path)), key=lambda row: row["table_seq"])
    assert [{"seq": row.pop("table_seq")} | {k: row[k] for k in ("bed", "day", "at")} for row in found] == expected
    later = read(DeltaSource(tmp_path, start_version=1))
    assert {(row["bed"], row["day"], row["at"]) for row in later} == {(r["bed"], r["day"], r["at"]) for r in expected}


def test_optimize_adds_no_records(table):
    source = DeltaSource(table, follow=True)
    at = source.latest(source.initial())
    DeltaTable(str(table)).optimize.compact()
    assert read(source, at) == []
    append(table, [6.0])
    assert values(read(source, source.latest(at, 0))) == [6.0]


def test_changes_are_refused_or_passed_over(table):
    at = DeltaSource(table).initial()
    DeltaTable(str(table)).update(updates={"value": "9"}, predicate="value = 1")
    DeltaTable(str(table)).delete("value = 0")
    append(table, [6.0])
    with pytest.raises(ConnectorError, match=r"version 3 .* removes or changes records \(UPDATE\).*on_change='ignore'"):
        read(DeltaSource(table), at)
    assert values(read(DeltaSource(table, on_change="ignore"), at)) == [0, 1, 2, 3, 4, 5, 6]


def test_change_feed_says_what_each_change_is(tmp_path):
    append(tmp_path, [0.0, 1.0], configuration=FEED)
    source = DeltaSource(tmp_path, change_feed=True, follow=True)
    at = source.initial()
    first = read(source, at)
    assert [(r["_change_type"], r["_commit_version"], r["value"]) for r in first] == [
        ("insert", 0, 0),
        ("insert", 0, 1),
    ]
    after = source.latest(at)
    DeltaTable(str(tmp_path)).update(updates={"value": "9"}, predicate="value = 1")
    DeltaTable(str(tmp_path)).delete("value = 0")
    append(tmp_path, [5.0])
    DeltaTable(str(tmp_path)).optimize.compact()
    DeltaTable(str(tmp_path)).delete()
    found = read(source, after, n=2)
    expected = pa.table(DeltaTable(str(tmp_path)).load_cdf(1).read_all()).to_pylist()
    kinds = ("_change_type", "_commit_version", "value")
    assert sorted(tuple(r[k] for k in kinds) for r in found) == sorted(tuple(r[k] for k in kinds) for r in expected)
    times = {r["_commit_version"]: r["_commit_timestamp"] for r in found}
    assert times == {r["_commit_version"]: r["_commit_timestamp"].replace(tzinfo=dt.UTC) for r in expected}
    assert [r["_commit_version"] for r in found] == sorted(r["_commit_version"] for r in found)


def test_new_columns_are_ignored_and_lost_ones_refused(table):
    source = DeltaSource(table, follow=True)
    assert source.schema.names == ["seq", "bed", "value"]
    at = source.latest(source.initial())
    wider = pa.table({"bed": ["b"], "value": [6.0], "note": ["n"]})
    write_deltalake(str(table), wider, mode="append", schema_mode="merge")
    assert read(source, at) == [{"seq": 6, "bed": "b", "value": 6.0}]
    assert [row["note"] for row in read(DeltaSource(table))] == [None] * 6 + ["n"], "earlier files lack the column"
    other = pa.table({"bed": ["b"], "value": ["x"]})
    write_deltalake(str(table), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConnectorError, match="makes the column 'value' string; it was double"):
        DeltaSource.latest(source, at)


def test_table_that_was_replaced_is_refused(table, tmp_path):
    at = DeltaSource(table).latest(DeltaSource(table).initial())
    append(tmp_path / "other", [0.0])
    (table.rename(tmp_path / "old"), (tmp_path / "other").rename(table))
    with pytest.raises(ConnectorError, match=r"was replaced by another.* after version 2: start again with a new"):
        DeltaSource(table).latest(at)


def test_expired_versions_and_files_are_refused_by_name(table):
    source = DeltaSource(table, start_version=1)
    at = source.initial()
    end = source.latest(at)
    (split,) = source.splits(at, end, 1)
    (path,) = [one for one in table.glob("*.parquet") if one.name == split["pieces"][0]["path"]]
    path.unlink()
    with pytest.raises(ConnectorError, match=r"of version 1 does not exist any more: a vacuum has removed it"):
        list(DeltaSource(table).read(split))
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(ConnectorError, match=r"version 1 .* is not in its log any more"):
        DeltaSource(table, start_version=1).latest(at)
    with pytest.raises(ConnectorError, match=r"version 9 .* does not exist yet: the latest is 2"):
        DeltaSource(table, version=9).schema  # noqa: B018


def test_missing_tables_are_named(tmp_path):
    flow = ro.Dataflow("none")
    flow.source("in", schema={"value": "double"}).apply(t.NoOp(), id="same").to("out")
    with pytest.raises(ConnectorError, match=f"there is no Delta table at {tmp_path}: the folder is not a Delta table"):
        flow.run(DeltaSource(tmp_path))
    with pytest.raises(ConnectorError, match="it does not exist; correct the address"):
        flow.run(DeltaSource(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": -1}, "version must be the number of a version"),
        ({"start_version": "1"}, "start_version must be the number of a version"),
        ({"version": 1, "follow": True}, "version reads one version"),
        ({"version": 1, "start_version": 1}, "version reads one version"),
        ({"on_change": "drop"}, "on_change must be 'refuse' or 'ignore'"),
        ({"on_change": "ignore", "change_feed": True}, "leave out one"),
        ({"folder": "hdfs://host/x"}, "folder is an address of the kind hdfs:"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        DeltaSource(**{"folder": tmp_path, **options})


def test_options_that_do_not_fit_the_table_are_refused(table):
    with pytest.raises(ConfigError, match="has no column 'valeu'; did you mean"):
        DeltaSource(table, time="valeu").schema  # noqa: B018
    with pytest.raises(ConfigError, match="keeps none; set its property"):
        DeltaSource(table, change_feed=True).initial()


def test_table_with_column_mapping_is_refused(table):
    log = table / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    with pytest.raises(ConnectorError, match="column mapping"):
        DeltaSource(table).schema  # noqa: B018


def deleted_rows(*rows: int) -> dict:
    """Return a deletion vector of the log that marks rows, after the protocol: a portable Roaring bitmap, inline."""
    container = struct.pack("<" + "H" * len(rows), *rows)
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1) + struct.pack("<I", 16) + container
    data = struct.pack("<i", 1681511377) + struct.pack("<q", 1) + struct.pack("<i", 0) + bitmap
    return {"storageType": "i", "inline": data, "sizeInBytes": len(data), "cardinality": len(rows)}


def z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    data += b"\0" * (-len(data) % 4)
    found = []
    for (word,) in struct.iter_unpack(">I", data):
        found += [digits[word // 85**i % 85] for i in (4, 3, 2, 1, 0)]
    return "".join(found)


def test_records_under_a_deletion_vector_are_left_out(tmp_path):
    append(tmp_path, [0.0, 1.0, 2.0, 3.0])
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    lines = []
    for line in map(json.loads, log.read_text().splitlines()):
        if "protocol" in line:
            features = ["deletionVectors"]
            line = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                                 "writerFeatures": features}}  # fmt: skip
        if "add" in line:
            vector = deleted_rows(1, 2)
            line["add"]["deletionVector"] = {
                "storageType": "i", "pathOrInlineDv": z85(vector["inline"]), "sizeInBytes": vector["sizeInBytes"],
                "cardinality": 2,
            }  # fmt: skip
        lines.append(json.dumps(line))
    log.write_text("\n".join(lines) + "\n")
    assert sorted(pa.table(DeltaTable(str(tmp_path)).scan().read_all())["value"].to_pylist()) == [0, 3], "as delta-rs"
    source = DeltaSource(tmp_path)
    assert [(row["seq"], row["value"]) for row in read(source)] == [(0, 0.0), (3, 3.0)]
    assert values(read(source, limit=2)) == [0.0]


@pytest.mark.spark
@pytest.mark.long
def test_query_on_spark_from_table_to_table(spark, tmp_path):
    """Workers read and write; the driver commits; what ends before Spark's own commit is passed over."""
    rows = [{"bed": "ab"[i % 2], "value": float(i)} for i in range(200)]
    for first in range(0, 200, 50):
        write_deltalake(str(tmp_path / "in"), pa.Table.from_pylist(rows[first : first + 50]), mode="append")

    def flow():
        made = ro.Dataflow("means")
        readings = made.source("in", schema={"bed": "string", "value": "double"})
        made.sink("kept", readings.apply(t.KalmanFilter(by=("bed",), value="value"), id="out"))
        return made

    def run():
        sink = DeltaSink(tmp_path / "lake", partition_by="bed")
        query = flow().start(
            spark, DeltaSource(tmp_path / "in"), sinks=sink, checkpoint=tmp_path / "kept", max_records=60, partitions=2
        )
        query.wait("4min")
        return query

    query = run()
    assert DeltaTable(str(tmp_path / "lake" / "out")).version() == len(query.micro_batches)
    commits = sorted((tmp_path / "kept" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink()  # as a kill between the table's commit and Spark's
    write_deltalake(str(tmp_path / "in"), pa.Table.from_pylist([{"bed": "a", "value": 1.0}]), mode="append")
    query = run()
    expected = flow().run([*rows, {"bed": "a", "value": 1.0}])["out"].select(["seq", "bed", "value"]).to_pylist()
    found = DeltaSink(tmp_path / "lake").table("out").select(["seq", "bed", "value"]).to_pylist()
    assert found == expected
