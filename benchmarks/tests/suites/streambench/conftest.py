"""Fixtures of the suite streambench."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from riot_bench.suites.streambench import durability, recipients, saturation, tuning


@pytest.fixture
def alone(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites take the session of all tests."""
    for suite in (durability, tuning, recipients, saturation):
        monkeypatch.setattr(suite, "spark_session", lambda *_, **__: contextlib.nullcontext(spark))
