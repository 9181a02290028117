"""Options of Spark's readers and writers as parameters."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from riot_ops import ConfigError, Secret
from riot_ops.connectors import HTTPSink, MQTTSource, PostgresSink
from riot_ops.spark.data_sinks import STREAM
from riot_ops.spark.data_sources import delta_table
from riot_ops.spark.options import arguments, count_option, text_option


def test_texts_become_the_types_of_parameters():
    given = {
        "URL": "http://x",
        "batchSize": "7",
        "timeout": "5s",
        "fields": "a, b",
        "headers.X-Tenant": "t",
        "tokenEnv": "NAME",
        "runId": "left out",
    }
    made = arguments("riot_http", HTTPSink, given, ("runId",))
    assert made == {
        "url": "http://x",
        "batch_size": 7,
        "timeout": "5s",
        "fields": ("a", "b"),
        "headers": {"X-Tenant": Secret("t")},
        "token": Secret.env("NAME"),
    }
    assert HTTPSink(**made).timeout == timedelta(seconds=5)
    table = arguments("riot_postgres", PostgresSink, {"table_name": "t", "CREATE": "false", "credential": "x"}, ())
    assert table == {"table_name": "t", "create": False, "credential": Secret("x")}
    assert arguments("riot_mqtt", MQTTSource, {"qos": "2", "keepalive": "30s"}, ()) == {"qos": 2, "keepalive": "30s"}


def test_path_stands_for_a_folder():
    def folder_sink(folder: str, tables: dict[str, str] | None = None): ...

    def file_source(path: str): ...

    assert arguments("x", folder_sink, {"path": "/a", "tables.out": "o"}, ()) == {
        "folder": "/a",
        "tables": {"out": "o"},
    }
    assert arguments("x", file_source, {"path": "/a,b"}, ()) == {"path": "/a,b"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"urls": "x"}, "riot_http has no option 'urls'; known are url, .*, maxRows; did you mean \"url\""),
        ({"batch_size": "many"}, "option 'batch_size' of riot_http cannot be 'many'"),
        ({"batch_size": "0"}, "cannot be '0'"),
        ({"format": "xml"}, "'format'.*'xml'"),
        ({"url.x": "y"}, "no option 'url.x'"),
        ({"urlEnv": "y"}, "no option 'urlEnv'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ConfigError, match=message):
        arguments("riot_http", HTTPSink, options, ("maxRows",))


def test_own_options():
    assert text_option({"RUNID": "a"}, "runId") == "a" and text_option({}, "runId") is None
    assert count_option({"max_rows": "3"}, "maxRows") == 3 and count_option({}, "maxRows") is None
    with pytest.raises(ConfigError, match="'maxrows' must be a whole number >= 1, got '0'"):
        count_option({"maxRows": "0"}, "maxRows")


def written(tmp_path, rows=({"room": "a", "n": 1}, {"room": "b", "n": 2}), **options):
    """Write rows to the table of a path with the options of a writer of Spark; return the table."""
    found = arguments("riot_delta", delta_table, {"path": str(tmp_path / "t"), **options}, ())
    schema = pa.Table.from_pylist(list(rows)).schema
    sink = delta_table(**found).bind({STREAM: schema})
    sink.begin(overwrite=False)
    writer = sink.writer(0, 0)
    writer.write(STREAM, pa.RecordBatch.from_pylist(list(rows), schema))
    sink.commit(0, [writer.finish()])
    return DeltaTable(str(tmp_path / "t"))


def test_each_option_of_delta_tables_has_its_effect(tmp_path):
    plain = written(tmp_path / "plain")
    assert plain.metadata().partition_columns == [] and plain.metadata().configuration == {}
    file = next((tmp_path / "plain" / "t").glob("*.parquet"))
    assert pq.read_metadata(file).row_group(0).column(0).compression == "SNAPPY"
    given = {"partitionBy": "room", "compression": "zstd", "properties.delta.checkpointInterval": "7"}
    table = written(tmp_path, **given)
    assert table.metadata().partition_columns == ["room"]
    assert table.metadata().configuration == {"delta.checkpointInterval": "7"}
    file = next((tmp_path / "t").rglob("*.parquet"))
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    more = [{"room": "c", "n": 3, "new": True}]
    with pytest.raises(ConfigError, match="lacks the fields 'new' of stream"):
        written(tmp_path, more)
    assert written(tmp_path, more, onNewField="add").schema().fields[-1].name == "new"


def test_settings_of_a_store_reach_the_delta_table_as_secrets():
    options = {
        "path": "s3://lake/t",
        "storageOptions.aws_region": "eu",
        "storage_options.aws_secret_access_key": "pa55",
    }
    sink = delta_table(**arguments("riot_delta", delta_table, options, ()))
    assert sink.table_location(STREAM).address == "s3://lake/t"
    assert sink.table_location(STREAM).storage_options == {"aws_region": "eu", "aws_secret_access_key": "pa55"}
    assert "pa55" not in repr(sink) + str(vars(sink))
