"""Options of Spark's readers and writers as parameters."""

from __future__ import annotations

from datetime import timedelta

import pytest

from riot_ops import ConfigError, Secret
from riot_ops.connectors import HTTPSink, MQTTSource, PostgresSink
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
