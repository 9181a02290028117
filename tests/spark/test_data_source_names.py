"""Short names of Kafka, Iceberg and Delta as data sources, run as Spark runs them, without Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from riot_ops.spark import data_sinks, data_sources
from riot_ops.testing.services import Tansu
from tests.connectors.kafka.tools import Cluster


def written(monkeypatch, name, options, rows, schema):
    """Write rows as Spark's worker and driver do, without either."""
    monkeypatch.setattr(data_sinks.TaskContext, "get", staticmethod(lambda: SimpleNamespace(partitionId=lambda: 0)))
    monkeypatch.setattr(data_sinks, "batch_number", lambda: 0)
    writer = data_sources._format(name)(options).writer(from_arrow_schema(schema), False)
    batch = pa.RecordBatch.from_pylist(rows, schema)
    given = [batch] if data_sinks._BATCH_ARROW else [Row(**row) for row in rows]
    writer.commit([writer.write(iter(given))])


def read(name, options):
    """Read all records of a format as Spark's driver and workers do, without either."""
    reader = data_sources._format(name)(options).reader(None)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


ROOMS = pa.schema([("room", pa.string()), ("n", pa.int64())])
ROWS = [{"room": "a", "n": 1}, {"room": "b", "n": None}]


@pytest.mark.integration
@pytest.mark.long
def test_kafka_by_its_short_name(monkeypatch):
    with Tansu() as broker:
        topic = Cluster(broker.servers).create("air")
        options = {
            "SERVERS": broker.servers,
            "topic": "{stream}",
            "stream": "air",
            "clientOptions.batch.num.messages": "1",
        }
        written(monkeypatch, "riot_kafka", options, ROWS, ROOMS)
        found = read("riot_kafka", {"servers": broker.servers, "topics": topic, "endingOffsets": "latest"})
    assert [json.loads(row["payload"]) for row in found] == ROWS and {row["topic"] for row in found} == {"air"}


@pytest.mark.long
def test_iceberg_by_its_short_name(monkeypatch, tmp_path):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    options = {f"catalog.{name}": value for name, value in catalog.items()}
    written(monkeypatch, "riot_iceberg", {**options, "namespace": "bronze", "stream": "air"}, ROWS, ROOMS)
    found = read("riot_iceberg", {**options, "TABLE": "bronze.air"})
    assert [{name: row[name] for name in ROOMS.names} for row in found] == ROWS
    assert load_catalog("default", **catalog).load_table("bronze.air").scan().to_arrow().num_rows == 2


def test_delta_by_its_short_name(tmp_path):
    for part in (ROWS[:1], ROWS[1:]):
        write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist(part, ROOMS), mode="append")
    found = read("riot_delta", {"path": str(tmp_path / "t")})
    assert sorted((row["room"], row["n"] or 0) for row in found) == [("a", 1), ("b", 0)]
    first = read("riot_delta", {"PATH": str(tmp_path / "t"), "version": "0"})
    assert [row["room"] for row in first] == ["a"]
