"""Checkpoints of the back end in process: when they are written, and how long they stay."""

from __future__ import annotations

import threading

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager
from riot_ops.runtime.engine import Engine
from tests.reuse.tapes import VALUES, Tape, flow, gone, opened
from tests.reuse.test_failures_over_restart import looked_up

SUMS = [sum(VALUES[: i + 1]) for i in range(60)]


# -- failed recovery -------------------------------------------------------------------------------


def closed(folder, patch):
    LocalBackend(folder=folder / "kept").close()


def turned(folder, patch):
    backend = LocalBackend(folder=folder / "kept", epoch="0s")
    backend.turn()
    backend.close()


def refused(folder, patch):
    backend = LocalBackend(folder=folder / "kept")
    with pytest.raises(ConfigError, match="policy must be"):
        ReuseManager(backend, "allways", log=folder / "log")
    backend.close()


def damaged(folder, patch):
    data = (folder / "log").read_bytes()
    (folder / "log").write_bytes(b"x" + data)
    backend = LocalBackend(folder=folder / "kept")
    with pytest.raises(StateError, match="not a log of actions"):
        ReuseManager(backend, log=folder / "log")
    backend.close()
    (folder / "log").write_bytes(data)


def elsewhere(folder, patch):
    backend = LocalBackend(folder=folder / "kept")
    with pytest.raises(StateError, match="other is empty, but the folder of the back end holds ada"):
        ReuseManager(backend, log=folder / "other")
    backend.close()


def broken_off(folder, patch):
    def restore(self, data):
        raise StateError("another layout")

    backend = LocalBackend(folder=folder / "kept")
    ends = ro.MemorySource([{"value": 1.0}]), Tape()
    with patch.context() as patched:
        patched.setattr(Engine, "restore", restore)
        with pytest.raises(StateError, match="another layout"):
            ReuseManager(backend, log=folder / "log", rebind=lambda name, flow: ends)
    backend.close()


@pytest.mark.parametrize("how", [closed, turned, refused, damaged, elsewhere, broken_off])
def test_checkpoint_stays_unless_a_manager_continues_it(tmp_path, how, monkeypatch):
    sinks = {"ada": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.SlidingSum(window=100)), source, sinks["ada"])
    manager.backend.turn()
    manager.close()
    manager.backend.close()
    kept = sorted((tmp_path / "kept").glob("state-*"))[-1].read_bytes()
    how(tmp_path, monkeypatch)
    assert sorted((tmp_path / "kept").glob("state-*"))[-1].read_bytes() == kept
    manager, _ = opened(tmp_path, sinks)
    assert manager.stats()["messages"] == 10 and sinks["ada"].values("t0") == SUMS[:10]
    manager.backend.run()
    assert sinks["ada"].values("t0") == SUMS
    manager.close()


@pytest.mark.parametrize("kept", [True, False])
def test_closed_back_end_refuses_actions(tmp_path, kept):
    manager = ReuseManager(LocalBackend(folder=tmp_path if kept else None))
    source = ro.MemorySource([{"value": 1.0}])
    manager.submit(flow("ada"), source, Tape())
    manager.close()
    for act in (lambda: manager.submit(flow("bob"), source, Tape()), lambda: manager.remove("ada")):
        with pytest.raises(StateError, match="is closed"):
            act()
    assert manager.names == ["ada"]


# -- reused names ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("under_way", [False, True])
def test_new_dataflow_under_a_removed_name_starts_without_state(tmp_path, under_way):
    free = threading.Event()
    slow = Tape(lambda stream, batch: batch["value"][0].as_py() < 10 or free.wait(20))
    sinks = {"slow": slow, "ada": Tape()}
    limits = Limits(grace="50ms", max_queue_bytes=10_000 if under_way else 100, patience="200ms")
    manager, source = opened(tmp_path, sinks, limits=limits)
    for name in sinks:
        manager.submit(flow(name), source, sinks[name])
    manager.backend.turn()
    assert manager.backend.commit()
    for _ in range(2):
        manager.backend.turn()
        assert not manager.backend.commit()  # no checkpoint ahead of a slow sink
    manager.remove("ada")
    sinks["ada"] = Tape()
    assert manager.submit(flow("ada"), source, sinks["ada"]).first == {"in": 30}
    manager.backend.turn()
    manager.backend.commit()
    assert sinks["ada"].values("in") == VALUES[30:40]
    gone(manager)
    free.set()
    manager, _ = opened(tmp_path, sinks)
    assert manager.stats()["rows"]["ada"] == 0
    manager.backend.run()
    manager.close()
    assert sinks["ada"].values("in") == VALUES[10:] and slow.values("in") == VALUES, "each record once"


# -- missing tables --------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_dataflow_continues_when_its_missing_table_is_back(tmp_path, shared):
    table, text = tmp_path / "names.csv", "key,name\na,ada\nb,bob\n"
    table.write_text(text)
    source = ro.MemorySource([{"key": "ab"[i % 2], "value": float(i)} for i in range(60)])
    ends = {"lost": Tape(), "kept": Tape()}

    def begun():
        backend = LocalBackend(10, epoch="0s", folder=tmp_path / "kept")
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, ends[name]))

    manager = begun()
    manager.submit(looked_up("lost", table), source, ends["lost"])
    manager.backend.turn()
    if shared:
        plain = ro.Dataflow("kept")
        manager.submit(
            plain.sink("out", plain.source("in", schema={"key": "string", "value": "double"})), source, ends["kept"]
        )
    manager.close()
    table.unlink()
    for _ in range(2):  # any number of restarts without the table
        manager = begun()
        assert "names.csv" in manager.stats()["failed"]["lost"]
        if not shared:
            manager.backend.turn()  # reads nothing: its source is not known
        manager.close()
    table.write_text(text)
    manager = begun()
    assert manager.stats()["failed"] == {}
    manager.backend.run()
    manager.close()
    alone = looked_up("alone", table).run(source)
    for stream in ("kalman", "mean"):
        assert ends["lost"].values(stream) == alone[stream]["value"].to_pylist()


# -- cost ------------------------------------------------------------------------------------------


def test_new_dataflow_causes_no_commit_of_others(tmp_path):
    sinks = {f"d{i}": Tape() for i in range(4)}
    manager, source = opened(tmp_path, sinks)
    for name in [*sinks][:3]:
        manager.submit(flow(name, t.SlidingSum()), source, sinks[name])
    assert not any(sink.epochs for sink in sinks.values())
    manager.backend.turn()
    manager.submit(flow("d3", t.SlidingSum()), source, sinks["d3"])
    manager.submit(flow("d4", t.SlidingSum()), source, Tape())
    assert [len(sink.epochs) for sink in sinks.values()] == [1, 1, 1, 0]
    manager.close()
