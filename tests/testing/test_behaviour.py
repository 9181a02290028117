"""Checks of a running task find its faults."""

from __future__ import annotations

import pytest

from riot_ops.testing import behaviour
from tests.testing.faulty_tasks import assert_found, faults_of


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "law"), faults_of(behaviour))
def test_fault_is_found(kind, name, law):
    assert_found(kind, name, law)
