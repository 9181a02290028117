"""State of earlier releases is loaded, or refused with both versions named; ``tools/keep_states.py`` keeps it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from riot_ops.core.errors import ConfigError, StateError
from riot_ops.task import KeyedTask, StateField, find_task, tasks
from riot_ops.testing.states import check_kept_state, keep_state

KEPT = Path(__file__).parents[1] / "data" / "state"


def _states() -> list[tuple[str, bytes]]:
    found = []
    for kind in tasks():
        for i, case in enumerate(kind.cases() if issubclass(kind, KeyedTask) else ()):
            try:
                found.append((f"{kind.code}[{i}]", keep_state(case)))
            except ConfigError as error:
                assert "function" in str(error)  # which has to be supplied again
    return found


FILES = sorted(KEPT.rglob("*.state"))
HELP = "a state that was written goes on: give the task a new version (before a release: tools/keep_states.py --again)"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_kept_states_go_on(file):
    try:
        check_kept_state(file.read_bytes())
    except Exception as error:
        error.add_note(HELP)
        raise


def test_each_task_with_state_has_kept_states():
    """But for those over functions, whose descriptors do not hold them."""
    newest = max(file.parent for file in FILES)
    kept = {file.stem.rpartition("-")[0] for file in FILES if file.parent == newest}
    assert kept == {name.partition("[")[0] for name, _ in _states()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_layout_that_changes_without_a_new_version_is_found(monkeypatch, file):
    kind = find_task(file.stem.rpartition("-")[0])
    fields = kind.state_fields
    monkeypatch.setattr(kind, "state_fields", lambda self: {**fields(self), "more": StateField("int64")})
    with pytest.raises(StateError, match="layout"):
        check_kept_state(file.read_bytes())


def test_a_parameter_that_is_renamed_or_means_something_else_is_found():
    kept = msgspec.msgpack.decode((FILES[0].parent / "KAL-0.state").read_bytes())
    for task in ({**kept["task"], "proces_noise": 1.0}, {**kept["task"], "process_noise": 0.5}):
        with pytest.raises((StateError, ConfigError), match="process_noise"):
            check_kept_state(msgspec.msgpack.encode({**kept, "task": task}))


def test_what_is_kept_now_can_be_loaded_and_of_another_version_is_refused(monkeypatch):
    states = _states()
    assert len(states) > 20
    for name, data in states:
        check_kept_state(data)
        kind = next(k for k in tasks() if name.startswith(k.code + "["))
        monkeypatch.setattr(kind, "version", kind.version + 1)
        check_kept_state(data)
        monkeypatch.undo()


def test_a_kept_state_that_goes_on_otherwise_is_found():
    kept = msgspec.msgpack.decode(next(data for name, data in _states() if name == "KAL[0]"))
    rows = kept["out"][0]
    (number,) = re.findall(r"value: (\S+) \w{16}", rows[0])
    for other, found in ((float(number) * (1 + 1e-12), False), (float(number) * (1 + 1e-6), True), (7, True)):
        kept["out"][0] = [rows[0].replace(number, repr(other)), *rows[1:]]
        if not found:  # the last digits are the processor's
            check_kept_state(msgspec.msgpack.encode(kept))
            continue
        with pytest.raises(AssertionError, match="state of kalman_filter that was kept"):
            check_kept_state(msgspec.msgpack.encode(kept))
