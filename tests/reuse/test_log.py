"""The lines of the log on disk, and their replay."""

from __future__ import annotations

import errno
import json
import os
import zlib
from contextlib import suppress

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.reuse import NullBackend, ReuseManager, errors, log
from riot_ops.reuse.log import ReplayedState, replay


def smooth(name, **parameters):
    flow = ro.Dataflow(name)
    readings = flow.source("readings", schema={"value": "double"})
    return flow.sink("out", readings.to(t.KalmanFilter(**parameters), id="smooth"))


def logged_actions(path):
    """By action, the states in its lines."""
    found = []
    for line in map(json.loads, path.read_text().splitlines()):
        if line["state"] == "intent":
            found.append((line["do"], []))
        found[-1][1].append(line["state"])
    return found


def line(number, **entry):
    """A line of the file: JSON with a checksum over the rest."""
    body = json.dumps({"n": number, **entry}, separators=(",", ":"))
    return f'{body[:-1]},"crc":{zlib.crc32(body.encode())}}}\n'


def test_action_is_logged_as_intent_enacted_and_committed(tmp_path):
    manager = ReuseManager(log=tmp_path / "new" / "log")
    manager.submit(smooth("a"))
    manager.pause("a")
    manager.resume("a")
    manager.defragment()
    manager.remove("a")
    whole = ["intent", "enacted", "committed"]
    assert logged_actions(tmp_path / "new" / "log") == [
        (do, whole) for do in ("submit", "pause", "resume", "defragment", "remove")
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_failed_action_is_reverted(tmp_path, monkeypatch, kept):
    manager = ReuseManager(log=tmp_path / "log" if kept else None)
    manager.submit(smooth("a"))
    for fault, raised in ((OSError("no memory"), errors.EnactError), (ConnectorError("no broker"), ConnectorError)):
        with monkeypatch.context() as patch:
            patch.setattr(manager.backend, "reduce", lambda removal, fault=fault: (_ for _ in ()).throw(fault))
            with pytest.raises(raised, match=str(fault)):
                manager.remove("a")
        assert manager.names == ["a"]
    if kept:
        assert logged_actions(tmp_path / "log")[1:] == [("remove", ["intent", "reverted"])] * 2
    manager.remove("a")
    assert manager.names == []


def test_lines_and_file_name_are_synced(tmp_path, monkeypatch):
    path, sizes, folders = tmp_path / "log", [], []
    monkeypatch.setattr(log.os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    monkeypatch.setattr(log, "sync", folders.append)
    ReuseManager(log=path).submit(smooth("a"))
    ends = [len(b"".join(path.read_bytes().splitlines(keepends=True)[: i + 1])) for i in range(3)]
    assert (sizes, folders) == (ends, [tmp_path])


def test_line_without_disk_space_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    manager.submit(smooth("a"))
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log.os, "fsync", full)
        with pytest.raises(ConnectorError, match=f"{path} cannot be written: .*No space left on device; make room"):
            manager.submit(smooth("b"))
    assert path.read_bytes() == before
    manager.submit(smooth("b"))
    manager.close()
    assert ReuseManager(log=path).names == ["a", "b"]


def test_other_file_is_refused(tmp_path):
    with pytest.raises(ConnectorError, match=f"the log {tmp_path} cannot be used"):
        ReuseManager(log=tmp_path)
    path = tmp_path / "log"
    path.write_text(line(0, state="committed"))
    with pytest.raises(StateError, match="the end of an action in line 1, but not its begin"):
        ReuseManager(log=path)
    path.write_text(line(0, state="intent", do="pause", what="a") + line(2, state="committed"))
    with pytest.raises(StateError, match="damaged in line 2"):
        ReuseManager(log=path)
    path.write_text("")
    assert ReuseManager(log=path).names == []


@pytest.mark.parametrize("content", [b"notes\n", b"a,b\n1,2\n", b"\0" * 40, b'{"a": 1}', b"\xff\xfe", b"\n"])
def test_foreign_file_is_refused_unchanged(tmp_path, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(StateError, match="mine is a file of something else, not a log of actions; name another file"):
        ReuseManager(log=path)
    assert path.read_bytes() == content


def test_log_without_its_last_actions_is_refused(tmp_path):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    for name in "abc":
        manager.submit(smooth(name))
    manager.close()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in range(9):  # also after a whole action, and without any
        path.write_bytes(b"".join(lines[:kept]))
        with pytest.raises(StateError, match="its end is missing; restore it, or begin with a new one"):
            ReuseManager(log=path)
    path.write_bytes(whole)
    assert ReuseManager(log=path).names == ["a", "b", "c"]


def test_log_of_another_manager_in_its_place_is_refused(tmp_path):
    for folder, names in (("one", "ab"), ("two", "xy")):
        manager = ReuseManager(log=tmp_path / folder / "log")
        for name in names:
            manager.submit(smooth(name))
        manager.close()
    (tmp_path / "one" / "log").write_bytes((tmp_path / "two" / "log").read_bytes())
    with pytest.raises(StateError, match="is not the one that was written"):
        ReuseManager(log=tmp_path / "one" / "log")


@pytest.mark.parametrize(
    "entries",
    [
        [{"state": "intent", "do": "submit", "what": 7}, {"state": "committed"}],
        [{"state": "intent", "do": "submit", "what": [{"name": "a"}]}, {"state": "committed"}],
        [{"state": "intent", "do": "pause", "what": ["a"]}, {"state": "committed"}],
        [{"state": "intent", "do": 7, "what": "a"}, {"state": "committed"}],
        [{"state": "intent", "do": "submit"}, {"state": "committed"}],
        [{"state": "asleep"}, {"state": "committed"}],
    ],
)
def test_lines_of_valid_checksum_and_wrong_content_are_refused(tmp_path, entries):
    path = tmp_path / "log"
    path.write_text("".join(line(number, **entry) for number, entry in enumerate(entries)))
    with pytest.raises(StateError, match=r"damaged in line|cannot be read"):
        ReuseManager(log=path)


def test_log_is_released_after_failed_replay(tmp_path):
    path = tmp_path / "log"
    flow = ro.Dataflow("a")
    doubled = flow.source("in", schema={"x": "double"}).to(
        ro.map(abs, schema={"x": "double"}, label="abs", revision="1"), id="m"
    )
    manager = ReuseManager(log=path, functions={"builtins:abs": abs})
    manager.submit(flow.sink("out", doubled))
    manager.close()
    with pytest.raises(ConfigError, match="abs") as kept:  # the traceback keeps the manager alive
        ReuseManager(log=path)
    assert ReuseManager(log=path, functions={"builtins:abs": abs}).names == ["a"]
    del kept


class Keeps(NullBackend):
    """Runs steps before a manager uses it, and notes its calls."""

    def __init__(self, *steps):
        super().__init__()
        self.fragments, self.asked = [set(steps)], []

    def apply_pause(self, rest):
        self.asked.append((rest.name, rest.paused, sorted(rest.steps)))
        return {}


def test_running_steps_missing_in_the_log_are_ended(tmp_path):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    manager.submit(smooth("a"))
    running = manager.backend.running_steps()
    manager.close()
    backend = Keeps("kalman_filter.9", *running)
    assert ReuseManager(backend, log=path).backend.running_steps() == running
    assert backend.fragments[0] > running  # it is idle with the other steps of its fragment


def test_resumption_under_way_is_completed(tmp_path, monkeypatch):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    manager.submit(smooth("a"))
    manager.pause("a")
    monkeypatch.setattr(manager.backend, "apply_pause", lambda rest: (_ for _ in ()).throw(KeyboardInterrupt))
    with suppress(KeyboardInterrupt):
        manager.resume("a")
    manager.close()
    backend = Keeps()
    again = ReuseManager(backend, log=path)
    assert backend.asked == [("a", False, ["kalman_filter.1", "out.2", "readings.0"])]
    assert again.state()["dataflows"][0]["paused"] is False
    assert logged_actions(path)[-1] == ("resume", ["intent", "committed"])


def test_failed_step_is_not_shared(monkeypatch):
    manager = ReuseManager()
    manager.submit(smooth("a"))
    monkeypatch.setattr(manager.backend, "has_failed", lambda step: step == "kalman_filter.1")
    assert manager.submit(smooth("b")).reused == {"readings": "readings.0"}


# -- replay ----------------------------------------------------------------------------------------


def came(name, state="committed"):
    return {"do": "submit", "what": [{"name": name, "placed": {"in": "in.0", "out": f"out.{name}"}}], "state": state}


def did(do, name, state="committed"):
    return {"do": do, "what": name, "state": state}


@pytest.mark.parametrize(
    ("actions", "names", "paused", "resuming", "outcome"),
    [
        ([], [], [], None, None),
        ([came("a"), came("b")], ["a", "b"], [], None, None),
        # actions under way
        ([came("a"), came("b", "intent")], ["a"], [], None, "reverted"),
        ([came("a"), came("b", "enacted")], ["a", "b"], [], None, "committed"),
        ([came("a"), did("remove", "a", "intent")], [], [], None, "committed"),
        ([came("a"), did("pause", "a", "intent")], ["a"], ["a"], None, "committed"),
        ([came("a"), did("pause", "a"), did("resume", "a", "intent")], ["a"], [], "a", "committed"),
        ([came("a"), did("pause", "a"), did("resume", "a", "enacted")], ["a"], [], "a", "committed"),
        ([came("a"), did("defragment", None, "intent")], ["a"], [], None, "reverted"),
        # earlier actions without an outcome
        ([came("a", "intent"), came("b")], ["b"], [], None, None),
        ([came("a"), did("remove", "a", "intent"), came("b")], ["a", "b"], [], None, None),
        ([came("a", "enacted"), came("b")], ["a", "b"], [], None, None),
        # finished actions
        ([came("a", "reverted"), came("b"), did("pause", "b", "reverted")], ["b"], [], None, None),
        ([came("a"), did("pause", "a"), did("resume", "a")], ["a"], [], None, None),
        (
            [came("a"), came("b"), did("pause", "b"), did("pause", "a"), did("resume", "b")],
            ["a", "b"],
            ["a"],
            None,
            None,
        ),
        ([came("a"), did("pause", "a"), did("remove", "a"), came("a")], ["a"], [], None, None),
    ],
)
def test_replay_of_actions(actions, names, paused, resuming, outcome):
    found = replay(actions)
    came_about = "enacted", "committed"
    steps, begun = ([s for a in actions if a["do"] == "submit" and (a["state"] in came_about) == come
                     for s in ("in.0", f"out.{a['what'][0]['name']}")] for come in (True, False))  # fmt: skip
    wanted = {name: came(name)["what"][0] for name in names}
    assert found == ReplayedState(wanted, steps, paused, resuming, outcome, begun)
    assert list(found.dataflows) == names


def test_log_is_compacted_and_step_ids_stay_unique(tmp_path, monkeypatch, caplog):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    manager.submit(smooth("kept", process_noise=0.5), owner="ada")
    manager.pause("kept")
    for number in range(40):
        manager.submit(smooth(f"d{number}"))
        manager.remove(f"d{number}")
    state, size = manager.state(), path.stat().st_size
    last = manager.submit(smooth("last")).new
    manager.remove("last")
    manager.close()
    with monkeypatch.context() as patch:  # a full disk leaves the log as it was
        patch.setattr(log.os, "replace", no_room)
        manager = ReuseManager(log=path)
        assert manager.state() == state and path.stat().st_size > size and "was not compacted" in caplog.text
        manager.close()
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
    for _ in range(2):
        manager = ReuseManager(log=path)
        assert manager.state() == state and path.stat().st_size < size / 20
        with pytest.raises(ConnectorError, match="in use by another manager"):
            ReuseManager(log=path)
        manager.close()
    manager = ReuseManager(log=path)
    fresh = manager.submit(smooth("fresh")).new
    assert max(map(number_of, last.values())) < min(map(number_of, fresh.values()))
    manager.close()
    assert [do for do, _ in logged_actions(path)] == ["taken", "submit", "submit"]
    assert ReuseManager(log=path).names == ["kept", "fresh"]


def number_of(step):
    return int(step.rpartition(".")[2])


def no_room(*paths):
    raise OSError(errno.ENOSPC, "no room")


def test_log_replaced_while_opening_is_in_use(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.touch()
    flock = log.fcntl.flock

    def meanwhile(file, how):
        other = tmp_path / "other"
        other.touch()
        os.replace(other, path)
        flock(file, how)

    monkeypatch.setattr(log.fcntl, "flock", meanwhile)
    with pytest.raises(ConnectorError, match="in use by another manager"):
        ReuseManager(log=path)


def test_compacted_log_without_its_end_is_refused(tmp_path):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    for name in "abc":
        manager.submit(smooth(name))
    for name in "ab":
        manager.remove(name)
    manager.close()
    ReuseManager(log=path).close()
    whole = path.read_bytes()
    assert [do for do, _ in logged_actions(path)] == ["taken", "submit"]
    ends = [len(b"".join(whole.splitlines(keepends=True)[:n])) for n in range(1, 5)]
    for size in [*range(ends[0], ends[-1], 11), *ends, ends[-1] - 1]:
        path.write_bytes(whole[:size])
        (tmp_path / "log.end").unlink(missing_ok=True)
        if size < ends[2]:
            with pytest.raises(StateError, match="its end is missing"):
                ReuseManager(log=path)
            assert path.read_bytes() == whole[:size]
            continue
        for _ in range(2):
            manager = ReuseManager(log=path)
            assert manager.names == ["c"]
            manager.close()
        assert path.read_bytes() == whole
