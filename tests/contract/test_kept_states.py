"""States written by ``tools/keep_states.py`` for each release can be loaded, or are refused with both versions named."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from riot_ops.core.errors import ConfigError, StateError
from riot_ops.task import KeyedTask, StateField, Task, registered_tasks
from riot_ops.testing.states import check_kept_state, keep_state

KEPT = Path(__file__).parents[1] / "data" / "state"


def _states() -> list[tuple[str, bytes]]:
    found = []
    for kind in registered_tasks():
        for i, case in enumerate(kind.cases()):
            if not isinstance(case.task, KeyedTask):
                continue
            try:
                found.append((f"{kind.code}[{i}]", keep_state(case)))
            except ConfigError as error:
                assert "function" in str(error)  # a function must be supplied again
    return found


FILES = sorted(KEPT.rglob("*.state"))
HELP = "kept states must stay loadable: give the task a new version (before a release: tools/keep_states.py --again)"


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_kept_states_continue(file):
    try:
        check_kept_state(file.read_bytes())
    except Exception as error:
        error.add_note(HELP)
        raise


@pytest.mark.long
def test_each_task_with_state_has_kept_states():
    """Except tasks over functions, whose descriptors do not contain the function."""
    newest = max(file.parent for file in FILES)
    kept = {file.stem.rpartition("-")[0] for file in FILES if file.parent == newest}
    assert kept == {name.partition("[")[0] for name, _ in _states()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_changed_layout_without_a_new_version_fails(monkeypatch, file):
    kind = type(Task.from_dict(msgspec.msgpack.decode(file.read_bytes())["task"]))
    fields = kind.state_fields
    monkeypatch.setattr(kind, "state_fields", lambda self: {**fields(self), "more": StateField("int64")})
    with pytest.raises(StateError, match="layout"):
        check_kept_state(file.read_bytes())


def test_renamed_or_changed_parameter_fails():
    kept = msgspec.msgpack.decode((FILES[0].parent / "KAL-0.state").read_bytes())
    for task in ({**kept["task"], "proces_noise": 1.0}, {**kept["task"], "process_noise": 0.5}):
        with pytest.raises((StateError, ConfigError), match="process_noise"):
            check_kept_state(msgspec.msgpack.encode({**kept, "task": task}))


@pytest.mark.long
def test_new_states_load_and_other_versions_are_refused(monkeypatch):
    states = _states()
    assert len(states) > 20
    for _, data in states:
        check_kept_state(data)
        kind = type(Task.from_dict(msgspec.msgpack.decode(data)["task"]))
        monkeypatch.setattr(kind, "version", kind.version + 1)
        check_kept_state(data)
        monkeypatch.undo()


@pytest.mark.long
def test_differing_continuation_fails():
    kept = msgspec.msgpack.decode(next(data for name, data in _states() if name == "KAL[0]"))
    rows = kept["out"][0]
    (number,) = re.findall(r"value: (\S+) \w{16}", rows[0])
    for other, found in ((float(number) * (1 + 1e-12), False), (float(number) * (1 + 1e-6), True), (7, True)):
        kept["out"][0] = [rows[0].replace(number, repr(other)), *rows[1:]]
        if not found:  # the last digits depend on the processor
            check_kept_state(msgspec.msgpack.encode(kept))
            continue
        with pytest.raises(AssertionError, match="state of kalman_filter that was kept"):
            check_kept_state(msgspec.msgpack.encode(kept))
