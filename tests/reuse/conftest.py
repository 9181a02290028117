"""What a test of shared dataflows starts ends with it, also where it fails."""

from __future__ import annotations

import threading

import pytest

from tests.reuse.queries import FakeSpark


@pytest.fixture(autouse=True)
def all_ends():
    before = {*threading.enumerate()}
    yield
    for backend in [*FakeSpark.open]:
        backend.close()
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("fake-query")]
    assert not left, left
