"""Checks of a session before a query starts, with fake sessions."""

from __future__ import annotations

import site
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.spark import session_check as check

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class Settings:
    """A fake session of Spark Connect with given settings."""

    is_stopped = False

    def __init__(self, **settings: str) -> None:
        self._settings = {"spark.master": "spark://host:7077", check.PROVIDER: check.ROCKSDB, **settings}

    @property
    def conf(self) -> Any:
        return self

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._settings.get(name, default)


def settings(**given: str) -> Any:
    named = {"copies": "spark.speculation", "format": FORMAT, "master": "spark.master"}
    return Settings(**{named[name]: value for name, value in given.items()})


@pytest.mark.parametrize("given", [{}, {"format": "1"}, {"master": "local-cluster[2,1,1024]"}, {"master": "yarn"}])
@pytest.mark.parametrize("yes", ["true", " True"])
def test_speculation_over_state_is_refused(given: dict[str, str], yes: str) -> None:
    spark = settings(copies=yes, **given)
    with pytest.raises(ConfigError) as caught:
        check.check_session(spark, keeps_state=True)
    now = given.get("format", "not set")
    for part in ("spark.speculation is true", f"{FORMAT} {now}", 'spark.speculation to "false"', f'{FORMAT} to "2"'):
        assert part in str(caught.value)
    check.check_session(spark, keeps_state=False)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"copies": "false"},
        {"copies": "true", "format": "2"},
        {"copies": "true", "format": "10"},
        {"copies": "true", "master": "local"},
        {"copies": "true", "master": "local[4]"},
        {"format": "1"},
    ],
)
def test_safe_settings_are_accepted(given: dict[str, str]) -> None:
    check.check_session(settings(**given), keeps_state=True)


def test_workers_are_asked_unless_they_find_the_same_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that asks them is left out only if a new process of this Python finds each module by itself."""
    installed, given = tmp_path / "installed", tmp_path / "given"
    for folder, name in (
        (installed, "pyarrow"),
        (installed, "pandas"),
        (installed, "google/protobuf"),
        (given, "riot_ops"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(installed)])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    monkeypatch.setenv("PYTHONPATH", f":{given}")

    def session(python: str = sys.executable, master: str = "local[2]") -> Any:
        return SimpleNamespace(conf=settings(master=master), sparkContext=SimpleNamespace(pythonExec=python))

    assert check.share_modules(session())
    assert not check.share_modules(session(python="python3"))
    assert not check.share_modules(session(master="spark://host:7077"))
    (installed / "google" / "protobuf" / "__init__.py").rename(tmp_path / "away")
    (installed / "google" / "protobuf").rmdir()
    assert not check.share_modules(session())
    (installed / "google" / "protobuf.py").touch()
    assert check.share_modules(session())
    monkeypatch.delenv("PYTHONPATH")
    assert not check.share_modules(session()), "riot_ops is found by this process only"
