"""Checks of declarations find their faults."""

from __future__ import annotations

import pytest

from riot_ops.testing import declarations
from tests.testing.faulty_tasks import assert_found, faults_of


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "law"), faults_of(declarations))
def test_fault_is_found(kind, name, law):
    assert_found(kind, name, law)
