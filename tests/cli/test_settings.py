"""``--input NAME=FILE`` and ``--set NAME=VALUE``: texts become files and typed parameters of an application."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from riot_ops.cli.settings import configure, parse_assignments, parse_settings
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import application


def test_file_without_a_name_feeds_the_sources_of_these_parameters():
    for given, source in (((), "flows"), (("from_packets=true",), "packets")):
        configured = configure(application("threat"), ("a.txt",), given)
        assert list(configured.files) == [source]
        assert [node.id for node in configured.flow.nodes_of_kind("source")] == [source]
    with pytest.raises(ConfigError, match=r"--input packets: with these parameters threat reads flows"):
        configure(application("threat"), ("packets=a.txt",), ())
    with pytest.raises(ConfigError, match=r"spam_filter reads .*: name one, as in --input \w+=a.txt"):
        configure(application("sf"), ("a.txt",), ())
    with pytest.raises(ConfigError, match=r"--input analysis=FILE is missing"):
        configure(application("sf"), ("training=a.txt",), ())


def build(
    *,
    count: int = 1,
    share: float = 0.5,
    name: str | None = None,
    pair: tuple[float, float] = (0, 1),
    pages: tuple[str, ...] = (),
    every: timedelta | None = None,
    mode: Literal["a", "b"] = "a",
): ...


def test_settings_are_converted_to_declared_types():
    given = {
        "count": "3",
        "share": "1e-3",
        "name": "7",
        "pair": "1, 2.5",
        "pages": "x,y",
        "every": "1h30m",
        "mode": "b",
    }
    assert parse_settings(build, given) == {
        "count": 3,
        "share": 0.001,
        "name": "7",
        "pair": (1.0, 2.5),
        "pages": ("x", "y"),
        "every": timedelta(minutes=90),
        "mode": "b",
    }
    assert parse_settings(build, {"every": "", "name": "", "pages": ""}) == {"every": None, "name": None, "pages": ()}
    for name, text in (("count", "1.5"), ("share", "x"), ("pair", "1"), ("every", "soon"), ("mode", "c")):
        with pytest.raises(ConfigError, match=f"--set {name}={text}: "):
            parse_settings(build, {name: text})
    assert parse_assignments(["a=b=c"], "--set") == {"a": "b=c"}
