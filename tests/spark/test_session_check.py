"""Checks of a session before a query starts, with fake sessions."""

from __future__ import annotations

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
