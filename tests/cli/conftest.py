"""Fixtures of the tests of the command."""

from __future__ import annotations

import pytest

from tests.reuse.serving import LINES


@pytest.fixture
def readings(tmp_path):
    """A CSV file of readings, the input of the dataflow of ``tests.reuse.serving``."""
    file = tmp_path / "readings.csv"
    file.write_text("device,value\n" + LINES)
    return file
