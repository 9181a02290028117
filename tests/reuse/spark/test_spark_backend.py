"""Options of a back end on Spark, and the errors of a stopped session, with a fake session."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from types import SimpleNamespace

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.reuse.spark import spark_backend
from riot_ops.reuse.spark.fragment import QueryOptions
from riot_ops.reuse.spark.spark_backend import SparkBackend


@pytest.fixture
def fake_session(monkeypatch):
    monkeypatch.setattr(spark_backend, "is_connect", lambda spark: False)
    monkeypatch.setattr(spark_backend, "check_session", lambda spark, keeps_state: None)
    monkeypatch.setattr(spark_backend, "default_partitions", lambda spark: 9)


def applied(folder, **options):
    """Return the options of a back end where it uses them."""
    backend = SparkBackend(None, folder, **options)
    found = {
        "options": backend.options,
        "fuse": backend.fuse,
        "patience_s": (backend.patience_s, backend.dispatchers.patience_s),
        "max_lag_bytes": backend.dispatchers.max_lag_bytes,
        "tries": backend.supervisor.tries,
        "max_queries": backend.max_queries,
        "join": backend.join,
    }
    backend.close()
    return found


@pytest.mark.usefixtures("fake_session")
def test_each_option_is_applied(tmp_path):
    defaults = applied(tmp_path)
    assert defaults == {
        "options": QueryOptions(9, None, 64 << 20, 0.2),
        "fuse": "exact",
        "patience_s": (60.0, 60.0),
        "max_lag_bytes": 4 << 30,
        "tries": 3,
        "max_queries": None,
        "join": True,
    }
    for given, changed in (
        ({"trigger": "3 seconds"}, {"options": QueryOptions(9, None, 64 << 20, 3.0)}),
        ({"trigger": timedelta(minutes=1)}, {"options": QueryOptions(9, None, 64 << 20, 60.0)}),
        ({"partitions": 2}, {"options": QueryOptions(2, None, 64 << 20, 0.2), "fuse": "coarse"}),
        ({"max_records": 5}, {"options": QueryOptions(9, 5, 64 << 20, 0.2)}),
        ({"max_queue_bytes": 6}, {"options": QueryOptions(9, None, 6, 0.2)}),
        ({"max_lag_bytes": 7}, {"max_lag_bytes": 7}),
        ({"patience": "8.5s"}, {"patience_s": (8.5, 8.5)}),
        ({"max_tries": 0}, {"tries": 0}),
        ({"max_queries": 4}, {"max_queries": 4}),
        ({"join": False}, {"join": False}),
    ):
        assert applied(tmp_path, **given) == {**defaults, **changed}, given


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_records": 0}, "max_records must be a whole number >= 1, got 0"),
        ({"partitions": 0}, "partitions must be a whole number >= 1, got 0"),
        ({"max_queue_bytes": 0}, "max_queue_bytes must be a whole number >= 1, got 0"),
        ({"max_lag_bytes": 0}, "max_lag_bytes must be a whole number >= 1, got 0"),
        ({"max_tries": -1}, "max_tries must be a whole number >= 0, got -1"),
        ({"max_queries": 0}, "max_queries must be a whole number >= 1, got 0"),
        ({"patience": "0s"}, "patience must be > 0 and at most 1e\\+09 seconds, got 0"),
        ({"patience": 60}, "patience must be a timedelta or a text such as '10s' or '1h30m', got 60"),
        ({"max_queue_bytes": float("nan")}, "max_queue_bytes must be a whole number >= 1, got nan"),
        ({"max_tries": 1.5}, "max_tries must be a whole number >= 0, got 1.5"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        SparkBackend(None, tmp_path, **options)


@pytest.mark.parametrize("trigger", ["soon", "available now", 5, "", None])
def test_trigger_without_interval_is_refused(trigger, tmp_path):
    with pytest.raises(ConfigError, match="trigger must be a timedelta or a text such as '1s', got"):
        SparkBackend(None, tmp_path, trigger=trigger)


@pytest.mark.usefixtures("fake_session")
def test_query_has_its_own_partitions_and_no_trigger_of_spark(tmp_path, monkeypatch):
    triggers = []

    class Anything:
        """Takes any call, and returns itself."""

        def __getattr__(self, name):
            return lambda *given, **options: (triggers.append(options) if name == "trigger" else None, self)[1]

    frame = SimpleNamespace(writeStream=Anything())
    spark = SimpleNamespace(
        conf={},
        dataSource=SimpleNamespace(register=lambda source: None),
        readStream=SimpleNamespace(format=lambda name: SimpleNamespace(load=lambda: None)),
    )
    for name in ("pickled_source", "pickled_sink"):
        monkeypatch.setattr(spark_backend, name, lambda *given: None)
    monkeypatch.setattr(spark_backend, "chain_stages", lambda *given: frame)
    settings = {}
    monkeypatch.setattr(spark_backend, "active_session", lambda spark: contextlib.nullcontext())
    monkeypatch.setattr(
        spark_backend, "query_settings", lambda spark, found: settings.update(found) or contextlib.nullcontext()
    )
    backend = SparkBackend(spark, tmp_path, partitions=2)
    own = SimpleNamespace(partitions=5)
    fragment = SimpleNamespace(query_parts=lambda options: (None, None, None), folder=tmp_path, name="f", spec=own)
    backend.supervisor.launch(fragment)
    backend.close()
    assert not triggers, "Spark polls the source at once"
    assert settings["spark.sql.shuffle.partitions"] == "5"
