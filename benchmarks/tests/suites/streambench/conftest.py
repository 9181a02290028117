"""Fixtures of the suite streambench."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from riot_bench.suites.streambench import durability as streambench_durability
from riot_bench.suites.streambench import recipients as streambench_recipients
from riot_bench.suites.streambench import saturation as streambench_saturation
from riot_bench.suites.streambench import tuning as streambench_knobs


@pytest.fixture
def alone(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites take the session of all tests."""
    for suite in (streambench_durability, streambench_knobs, streambench_recipients, streambench_saturation):
        monkeypatch.setattr(suite, "spark_session", lambda *_, **__: contextlib.nullcontext(spark))
