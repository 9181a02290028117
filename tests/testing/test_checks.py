"""The checks of tasks: every one finds a fault, and correct tasks pass."""

from __future__ import annotations

import pytest

from riot_ops import tasks as t
from riot_ops.task import (
    Case,
)
from riot_ops.testing import CHECKS, applies, check_task
from tests.testing.faulty_tasks import BATCH, FAULTS, Doubling, Merging, Total


def test_every_check_has_a_fault():
    shown = {f"check_{name}" for _, name, _ in FAULTS} | {"check_state_versions", "check_wrong_type"}  # below
    assert shown == {c.__name__ for c in CHECKS}


def test_checks_run_only_on_cases_they_apply_to():
    counts = {c.__name__: [sum(applies(c, case) for case in kind.cases()) for kind in KINDS] for c in CHECKS}
    cases = [len(list(kind.cases())) for kind in KINDS]
    assert min(cases) > 0
    keyed = [cases[0], 0, 0]
    assert counts.pop("check_merge") == counts.pop("check_state_versions") == counts.pop("check_bounded_state") == keyed
    assert counts.pop("check_docstring") == [1, 1, 1]
    assert counts.pop("check_selection") == counts["check_bad_input_schema"]
    assert counts.pop("check_bad_input_schema") == counts.pop("check_wrong_type") == [cases[0], cases[1], 0]
    assert counts.pop("check_key_independence")[1:] == cases[1:]
    assert all(found == cases for found in counts.values())
    assert [applies(c, Case(Total(), BATCH)) for c in CHECKS if c.__name__ == "check_key_independence"] == [False]


KINDS = (t.KalmanFilter, t.RangeFilter, t.NoOp)


def test_correct_task_passes():
    skipped = {"check_config_roundtrip"}  # it is not registered
    assert check_task(Total, [c for c in CHECKS if c.__name__ not in skipped]) == len(CHECKS) - 1


def test_correct_merge_passes():
    assert check_task(Merging, [c for c in CHECKS if c.__name__ == "check_merge"]) == 1


def test_failure_names_check_task_and_case():
    with pytest.raises(AssertionError) as caught:
        check_task(Doubling, [c for c in CHECKS if c.__name__ == "check_selectivity"])
    assert any("Doubling, case 0" in note for note in caught.value.__notes__)


def test_task_without_cases_is_refused():
    class Bare(t.KalmanFilter):
        @classmethod
        def cases(cls):
            return ()

    with pytest.raises(AssertionError, match="Bare has no cases"):
        check_task(Bare)
