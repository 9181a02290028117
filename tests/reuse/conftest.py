"""Ends the queries that a test has left running, also after a failure."""

from __future__ import annotations

import threading

import pytest

from tests.reuse.spark.fake_spark import FakeSpark


@pytest.fixture(autouse=True)
def end_queries():
    before = {*threading.enumerate()}
    yield
    for backend in [*FakeSpark.open]:
        backend.close()
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("fake-query")]
    assert not left, left
