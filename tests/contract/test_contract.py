"""The contract suite: every check for every case of every registered task."""

from __future__ import annotations

import pytest

from riot_ops.task import registered_tasks
from riot_ops.testing import CHECKS, applies

#: Checks that cannot pass, as (task code, check) or (task code, case, check), with the reason.
CANNOT: dict[tuple[str, ...], str] = {}


def _cases():
    for kind in registered_tasks():
        for i, case in enumerate(kind.cases()):
            for check in (c for c in CHECKS if applies(c, case)):
                name = check.__name__.removeprefix("check_")
                label = f"{kind.code}[{i}]"
                reason = CANNOT.get((kind.code, name)) or CANNOT.get((kind.code, str(i), name))
                marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
                yield pytest.param(case, check, id=f"{label}:{name}", marks=marks)


@pytest.mark.long
@pytest.mark.parametrize(("case", "check"), list(_cases()))
def test_task_fulfils_the_contract(case, check):
    check(case)


@pytest.mark.parametrize("kind", registered_tasks(), ids=lambda kind: kind.code)
def test_every_task_has_cases(kind):
    assert list(kind.cases()), f"{kind.__name__} has no cases, so it is not tested"


def test_every_docstring_is_checked_once():
    checked = [case.task.code for case, check in (p.values for p in _cases()) if check.__name__ == "check_docstring"]
    assert sorted(checked) == sorted(kind.code for kind in registered_tasks())
