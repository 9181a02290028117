"""What a back end on Spark is made with arrives where it acts; its session is only pretended here."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.reuse.spark import session as of_session
from riot_ops.reuse.spark.fragment import Options
from riot_ops.reuse.spark.session import SparkBackend


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(of_session, "is_connect", lambda spark: False)
    monkeypatch.setattr(of_session, "check_session", lambda spark, keeps_state: None)
    monkeypatch.setattr(of_session, "usual_partitions", lambda spark: 9)


def made(folder, **options):
    backend = SparkBackend(None, folder, **options)
    carriers, care = backend._carriers, backend._care
    found = {
        "options": backend._options,
        "fuse": backend._fuse,
        "patience_s": (backend.patience_s, carriers.patience_s),
        "behind_bytes": carriers.behind_bytes,
        "tries": care._tries,
        "max_queries": backend.max_queries,
        "join": backend.join,
    }
    backend.close()
    return found


@pytest.mark.usefixtures("pretended")
def test_each_option_arrives(tmp_path):
    usual = made(tmp_path)
    assert usual == {
        "options": Options(9, None, 64 << 20, 0.2),
        "fuse": "exact",
        "patience_s": (60.0, 60.0),
        "behind_bytes": 4 << 30,
        "tries": 3,
        "max_queries": None,
        "join": True,
    }
    for given, changed in (
        ({"trigger": "3 seconds"}, {"options": Options(9, None, 64 << 20, 3.0)}),
        ({"partitions": 2}, {"options": Options(2, None, 64 << 20, 0.2), "fuse": "coarse"}),
        ({"max_records": 5}, {"options": Options(9, 5, 64 << 20, 0.2)}),
        ({"queue_bytes": 6}, {"options": Options(9, None, 6, 0.2)}),
        ({"behind_bytes": 7}, {"behind_bytes": 7}),
        ({"patience_s": 8.5}, {"patience_s": (8.5, 8.5)}),
        ({"tries": 0}, {"tries": 0}),
        ({"max_queries": 4}, {"max_queries": 4}),
        ({"join": False}, {"join": False}),
    ):
        assert made(tmp_path, **given) == {**usual, **changed}, given


@pytest.mark.parametrize("trigger", ["soon", "available now", 5, "", None])
def test_a_trigger_that_is_no_interval(trigger, tmp_path):
    with pytest.raises(ConfigError, match="trigger must be a text such as '1 second', got"):
        SparkBackend(None, tmp_path, trigger=trigger)


@pytest.mark.usefixtures("pretended")
def test_a_query_has_its_own_number_of_partitions_and_looks_when_it_wants(tmp_path, monkeypatch):
    asked = []

    class Anything:
        """Takes any call, and returns itself."""

        def __getattr__(self, name):
            return lambda *given, **options: (asked.append((name, options)) if name == "trigger" else None, self)[1]

    frame = SimpleNamespace(writeStream=Anything())
    spark = SimpleNamespace(
        conf={},
        dataSource=SimpleNamespace(register=lambda source: None),
        readStream=SimpleNamespace(format=lambda name: SimpleNamespace(load=lambda: None)),
    )
    for name in ("packed_source", "packed_sink"):
        monkeypatch.setattr(of_session, name, lambda *given: None)
    monkeypatch.setattr(of_session, "staged", lambda *given: frame)
    told = {}
    monkeypatch.setattr(of_session, "active", lambda spark: contextlib.nullcontext())
    monkeypatch.setattr(
        of_session, "settings_of_query", lambda spark, settings: told.update(settings) or contextlib.nullcontext()
    )
    backend = SparkBackend(spark, tmp_path)
    own = SimpleNamespace(partitions=5)
    fragment = SimpleNamespace(parts=lambda options: (None, None, None), folder=tmp_path, name="f", spec=own)
    backend._started(fragment, Options(2, None, 1))
    backend.close()
    assert not asked, "Spark asks again at once"
    assert told["spark.sql.shuffle.partitions"] == "5"
