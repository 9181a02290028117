"""State of earlier releases is loaded, or refused with both versions named; ``scripts/keep_states.py`` keeps it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from riot_ops.errors import ConfigError
from riot_ops.task import KeyedTask, tasks
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


def test_kept_states_of_earlier_releases():
    for file in sorted(KEPT.rglob("*.state")):
        try:
            check_kept_state(file.read_bytes())
        except Exception as error:
            error.add_note(f"in {file}")
            raise


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
    kept["out"][0][0] += "1"
    with pytest.raises(AssertionError, match="state of kalman_filter that was kept"):
        check_kept_state(msgspec.msgpack.encode(kept))
