"""Parameters that shape no state: a state written with one value goes on with another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.fingerprint import StepContract
from riot_ops.runtime.restart import kept_state
from riot_ops.runtime.snapshot import state_identity
from riot_ops.runtime.state import KeyedState
from riot_ops.task import KeyedTask, registered_tasks
from riot_ops.testing import exact

#: Another value of each parameter, of its value; None if there is no other in this case.
OTHER = {
    "output": lambda now: f"{now or 'other'}_then",
    "value": lambda now: f"{now}_then",
    "flag": lambda now: "flag_then" if now is None else None,
    "how": lambda now: "left" if now == "inner" else "inner",
    "horizon": lambda now: now + 2,
    "keep": lambda now: () if now else None,
}


def found_cases():
    """Return each free parameter of each case of each task: the case, and the task with another value."""
    for kind in registered_tasks():
        if not issubclass(kind, KeyedTask):
            continue
        for i, case in enumerate(kind.cases()):
            for name in sorted(kind.state_free_parameters):
                now = getattr(case.task, name)
                other = OTHER[name](now)
                if other != now and not (name == "keep" and other is None):
                    yield pytest.param(case, name, other, id=f"{kind.code}[{i}]-{name}")


def output(state, batch, task):
    rejects = RejectedRecords(task.name())
    made = [row for part in state.update(batch, rejects) for row in part.to_pylist()]
    last = state.flush(rejects)
    return list(map(exact, made)), None if last is None else list(map(exact, last.to_pylist()))


@pytest.mark.long
@pytest.mark.parametrize(("case", "name", "other"), [*found_cases()])
def test_state_goes_on_under_another_value(case, name, other):
    before, after = replace(case.task, **{name: other}), case.task
    batch = case.batch
    half = batch.num_rows // 2
    old, whole, new = KeyedState(before), KeyedState(after), KeyedState(after)
    old.update(batch.slice(0, half), RejectedRecords("before"))
    whole.update(batch.slice(0, half), RejectedRecords("before"))
    identity = state_identity(after, "full")
    assert identity["fields"] == state_identity(before, "full")["fields"]
    new.restore(kept_state(old.snapshot(), StepContract(identity, [], {}, {}, []), "it"), "it")
    assert output(new, batch.slice(half), after) == output(whole, batch.slice(half), after)
