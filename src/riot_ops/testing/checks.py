"""Checks of what holds for every task, as small functions over a task and an input.

Each check takes a :class:`~riot_ops.task.Case` and raises :class:`AssertionError` (or the error that the task
raised) where the property does not hold. Floats are compared to the last bit; NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from riot_ops.task import Task
from riot_ops.testing.behaviour import (
    check_any_split,
    check_cold_start,
    check_determinism,
    check_input_is_not_mutated,
    check_key_independence,
    check_output_is_not_mutated,
    check_selection,
    check_session_equals_bulk,
)
from riot_ops.testing.declarations import (
    check_bad_input_schema,
    check_config_is_identity,
    check_config_roundtrip,
    check_docstring,
    check_schema,
    check_serialisable,
    check_writes,
)
from riot_ops.testing.records import (
    check_bounded_state,
    check_derivation,
    check_missing_and_bad_values,
    check_selectivity,
    check_wrong_type,
)
from riot_ops.testing.states import check_merge, check_state_versions
from riot_ops.testing.task_run import Check, applies, exact, uncompiled

__all__ = ["CHECKS", "applies", "check_task", "exact", "uncompiled"]

#: All checks; each takes a :class:`~riot_ops.task.Case` and is for those that :func:`applies` names.
CHECKS: tuple[Check, ...] = (
    check_config_is_identity,
    check_config_roundtrip,
    check_docstring,
    check_serialisable,
    check_schema,
    check_writes,
    check_bad_input_schema,
    check_input_is_not_mutated,
    check_output_is_not_mutated,
    check_any_split,
    check_selection,
    check_key_independence,
    check_session_equals_bulk,
    check_determinism,
    check_cold_start,
    check_missing_and_bad_values,
    check_wrong_type,
    check_bounded_state,
    check_selectivity,
    check_derivation,
    check_merge,
    check_state_versions,
)


def check_task(kind: type[Task], checks: Sequence[Check] = CHECKS) -> int:
    """Run checks over all cases of a task class; returns how many ran.

    Examples
    --------
    >>> from riot_ops import tasks
    >>> check_task(tasks.KalmanFilter, checks=CHECKS[:2])
    8
    """
    ran = 0
    for i, case in enumerate(kind.cases()):
        for check in checks:
            if not applies(check, case):
                continue
            try:
                check(case)
            except Exception as error:
                error.add_note(f"in {check.__name__} of {kind.__name__}, case {case.name or i}")
                raise
            ran += 1
    assert ran, f"{kind.__name__} has no cases"
    return ran
