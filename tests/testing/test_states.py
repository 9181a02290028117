"""Checks of states find their faults; kept states are loaded again."""

from __future__ import annotations

import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import StateError
from riot_ops.runtime import state
from riot_ops.runtime.state import KeyedState
from riot_ops.testing import check_kept_state, keep_state, states
from tests.testing.faulty_tasks import Total, assert_found, faults_of


@pytest.mark.parametrize("kind", [t.KalmanFilter, t.MovingAverage, t.RunningTotals])
def test_kept_state_continues_with_the_same_output(kind):
    for case in kind.cases():
        check_kept_state(keep_state(case))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "law"), faults_of(states))
def test_fault_is_found(kind, name, law):
    assert_found(kind, name, law)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("accepts all", "^state was loaded although it should say 'version"),
        ("forgets", r"^state was refused \(.*\), but has changed the earlier state"),
        ("says nothing", "^the refusal does not say 'version"),
    ],
)
def test_accepted_foreign_state_is_found(monkeypatch, fault, law):
    restore = KeyedState.restore

    def wrong(self, data, where=""):
        try:
            restore(self, data, where)
        except StateError:
            if fault == "says nothing":
                raise StateError("no") from None
            restore(self, KeyedState(self.task, self.key_fields).snapshot())
            raise

    if fault == "accepts all":
        monkeypatch.setattr(state, "check_identity", lambda *_: None)
    else:
        monkeypatch.setattr(KeyedState, "restore", wrong)
    assert_found(Total, "state_versions", law)
