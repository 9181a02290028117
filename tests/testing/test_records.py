"""Checks of bad records, counts and sizes find their faults."""

from __future__ import annotations

import pytest

from riot_ops.runtime.session import Session
from riot_ops.testing import records
from tests.testing.faulty_tasks import Total, assert_found, faults_of


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "law"), faults_of(records))
def test_fault_is_found(kind, name, law):
    assert_found(kind, name, law)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("takes zero", "gave a row"),
        ("says nothing", r"^\[\]"),
        ("leaves a trace", "^a record of the wrong type changed the state"),
    ],
)
def test_accepted_value_of_wrong_type_is_found(monkeypatch, fault, law):
    push = Session.push

    def wrong(self, event):
        if not isinstance(event["value"], str | list | dict):
            return push(self, event)
        if fault == "says nothing":
            return []
        out = push(self, {**event, "value": 7.0})
        return out if fault == "takes zero" else push(self, event)

    monkeypatch.setattr(Session, "push", wrong)
    assert_found(Total, "wrong_type", law)
