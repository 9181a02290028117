"""The log of actions: lines of JSON with checksums, each on disk before the manager continues.

A second file, with the suffix ``.end``, holds the number of lines and a checksum of all of them after each action. It
shows that lines at the end are missing, or are those of another log. It may lag behind the log, never the reverse.

An action is logged as *intent* with all that is needed to repeat it, as *enacted* when the back end has done it, and as
*committed* when the ledger holds it; or as *reverted*. The last line may be torn, if the process ended while it wrote.

When a line cannot be written, the action either takes place or does not, and the log says which; see :class:`Journal`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.core.paths import make_folder, sync
from riot_ops.reuse.errors import EnactError

__all__ = ["ActionLog", "Journal", "ReplayedState", "compacted_actions", "replay"]

_log = logging.getLogger("riot_ops")

COMMITTED = {"state": "committed"}
STATES = ("intent", "enacted", "committed", "reverted")
#: How each log begins.
FIRST_BYTES = b'{"n":'


class ActionLog:
    """A file of actions, locked by this process.

    Attributes
    ----------
    actions : list of dict
        The actions that the file held: ``do``, ``what`` and the ``state`` reached.
    file : binary file
        The open file.

    Raises
    ------
    ConnectorError
        If the file cannot be written, or another manager has it.
    StateError
        If a line other than the last is damaged or missing, or a compacted log has lost its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path.parent)
            # unbuffered: a line that could not be written must not be written with the next one
            self.file = open(path, "a+b", buffering=0)  # noqa: SIM115 (held until it is closed)
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self.file.fileno()), path.stat()):
                raise BlockingIOError  # another manager has just replaced it
        except BlockingIOError:
            self.file.close()
            raise ConnectorError(f"the log {path} is in use by another manager; stop it, or use another log") from None
        except OSError as error:
            raise ConnectorError(f"the log {path} cannot be used: {error}") from error
        self._line = self._size = self._chain = 0
        #: Line, size and chain before the last action.
        self._before = (0, 0, 0)
        self.actions: list[dict[str, Any]] = []
        try:
            self._read()
            sync(path.parent)
        except BaseException:
            self.file.close()
            raise

    def _read(self) -> None:
        self.file.seek(0)
        data = self.file.read()
        if not data.startswith(FIRST_BYTES[: len(data)]):
            raise StateError(f"{self.path} is a file of something else, not a log of actions; name another file")
        known, at = self._read_end(), 0
        while at < len(data):
            end = data.find(b"\n", at) + 1
            entry = _parse_line(data[at:end]) if end else None
            if entry is None and (not end or end == len(data)):
                break  # torn: no caller was given success for it
            if entry is None or entry["n"] != self._line:
                raise StateError(
                    f"the log {self.path} is damaged in line {self._line + 1}; restore it, or begin with a new one"
                )
            self._line, self._chain = self._line + 1, zlib.crc32(data[at:end], self._chain)
            if known is not None and self._line == known[0] and self._chain != known[1]:
                raise StateError(
                    f"the log {self.path} is not the one that was written; restore it, or begin with a new one"
                )
            if entry["state"] == "intent":
                self.actions.append({"do": entry["do"], "what": entry["what"], "state": "intent"})
            elif not self.actions:
                raise StateError(
                    f"the log {self.path} has the end of an action in line {self._line}, but not its beginning"
                )
            else:
                self.actions[-1]["state"] = entry["state"]
            at = end
        cut = known is not None and self._line < known[0]
        if cut or (self.actions and self.actions[-1]["do"] == COMPACTED):  # the dataflows followed it
            raise StateError(f"the log {self.path} is damaged: its end is missing; restore it, or begin with a new one")
        self.file.truncate(at)
        self._size = at

    @property
    def _end_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.end")

    def _read_end(self) -> tuple[int, int] | None:
        """Read the number of lines and their checksum after the last action; None if they are not known."""
        try:
            lines, chain = json.loads(self._end_path.read_bytes())
            return int(lines), int(chain)
        except (OSError, ValueError, TypeError):
            return None

    def _write_end(self) -> None:
        hidden = self.path.with_name(f"{self.path.name}.end.part")
        with suppress(OSError):  # not synced: after a crash it may lag, or be unreadable
            hidden.write_text(json.dumps([self._line, self._chain]))
            os.replace(hidden, self._end_path)

    def _forget_end(self) -> None:
        """Remove the recorded end, before lines are removed or replaced."""
        with suppress(OSError):
            self._end_path.unlink(missing_ok=True)

    def begin_action(self, do: str, what: Any) -> None:
        """Write the intent of an action."""
        before = self._line, self._size, self._chain
        self._write({"state": "intent", "do": do, "what": what})
        self._before = before

    def record_outcome(self, state: str) -> None:
        """Write the state that the action has reached."""
        self._write({"state": state})
        if state != "enacted":
            self._write_end()

    def retract(self) -> None:
        """Remove the lines of the last action, which needs no disk space."""
        line, size, chain = self._before
        self._forget_end()
        try:
            self.file.truncate(size)
            os.fsync(self.file.fileno())
        except OSError as error:
            raise ConnectorError(f"the log {self.path} cannot be shortened: {error}") from error
        self._line, self._size, self._chain = line, size, chain
        self._write_end()

    def compact(self, actions: Iterable[tuple[str, Any]]) -> None:
        """Replace the log by equivalent actions if that halves its size at least."""
        entries = [one for do, what in actions for one in ({"state": "intent", "do": do, "what": what}, COMMITTED)]
        data = b"".join(_format_line(number, entry) for number, entry in enumerate(entries))
        if 2 * len(data) > self._size:
            return
        hidden = self.path.with_name(f"{self.path.name}.part")
        with ExitStack() as undo:
            try:
                file = undo.enter_context(open(hidden, "w+b", buffering=0))
                undo.callback(hidden.unlink, missing_ok=True)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
                self._forget_end()
                os.replace(hidden, self.path)
            except OSError as error:
                _log.warning("the log %s was not compacted: %s", self.path, error)
                return
            undo.pop_all()
        sync(self.path.parent)
        self.file.close()
        self.file, self._line, self._size, self._chain = file, len(entries), len(data), zlib.crc32(data)
        self._write_end()

    def _write(self, entry: dict[str, Any]) -> None:
        if self.file.closed:
            raise ConnectorError(f"the log {self.path} is closed; open a new manager over it")
        line = _format_line(self._line, entry)
        try:
            if self.file.seek(0, os.SEEK_END) != self._size:  # a line that could not be removed
                self.file.truncate(self._size)
            if self.file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())
        except OSError as error:
            with suppress(OSError):
                self.file.truncate(self._size)
            raise ConnectorError(f"the log {self.path} cannot be written: {error}; make room") from error
        self._line += 1
        self._size += len(line)
        self._chain = zlib.crc32(line, self._chain)

    def close(self) -> None:
        """Release the log to another manager."""
        self.file.close()


class Journal:
    """Writes actions to a log, if there is one, so that the log is right even when it cannot be written.

    - An action whose intent cannot be written does not take place.
    - An action that fails is marked *reverted*; without disk space for that line, its lines are removed.
    - An action that the back end has enacted is undone, and fails, when *enacted* cannot be written. If it cannot be
      undone, because sinks have ended or messages have passed, it counts as done. Its outcome is then owed to the log,
      and further actions are refused until it is written. A manager that replays the log in between finds the intent
      last, and completes the action (:func:`replay`).
    """

    def __init__(self, log: ActionLog | None = None) -> None:
        self.log = log
        #: Outcome of the last action that could not be written.
        self._owed: str | None = None

    @contextmanager
    def action(self, do: str, what: Any) -> Iterator[None]:
        """Surround an action: write its intent and outcome, and raise other failures as EnactError."""
        if self.log is not None:
            self._write_owed(self.log)
            self.log.begin_action(do, what)
        try:
            yield
        except Exception as error:
            self._end(do, "reverted")
            if isinstance(error, RiotError):
                raise
            raise EnactError(f"{do}: the back end failed, and nothing has changed: {error}") from error
        self._end(do, "committed")

    def mark_enacted(self, undo: Callable[[], None] | None = None) -> None:
        """Write that the back end has done the action; if that fails, undo the action and raise."""
        if self.log is None:
            return
        try:
            self.log.record_outcome("enacted")
        except ConnectorError as error:
            if undo is None:
                return  # the line of the outcome follows, and says more
            try:
                undo()
            except Exception as failure:
                _log.error("an action cannot be undone (%s), and counts as done, although %s", failure, error)
            else:
                raise
        except BaseException:
            if undo is not None:
                undo()
            raise

    def _end(self, do: str, outcome: str) -> None:
        """Write the outcome of an action, or owe it."""
        if self.log is None:
            return
        try:
            self.log.record_outcome(outcome)
        except ConnectorError as error:
            if outcome == "reverted":
                with suppress(ConnectorError):
                    self.log.retract()
                    return
            self._owed = outcome
            _log.error("%s is %s, but %s; until it is, further actions are refused", do, outcome, error)

    def _write_owed(self, log: ActionLog) -> None:
        """Write the owed outcome."""
        if self._owed is None:
            return
        try:
            log.record_outcome(self._owed)
        except ConnectorError as error:
            raise ConnectorError(f"actions are refused until the last one's outcome is in the log: {error}") from error
        self._owed = None

    def close(self) -> None:
        """Release the log to another manager."""
        if self.log is not None:
            with suppress(ConnectorError):
                self._write_owed(self.log)
            self.log.close()


def _format_line(number: int, entry: Mapping[str, Any]) -> bytes:
    """Encode an entry as a line."""
    body = json.dumps({"n": number, **entry}, separators=(",", ":"), ensure_ascii=False)
    return f'{body[:-1]},"crc":{zlib.crc32(body.encode())}}}\n'.encode()


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Decode a line; None if it is damaged."""
    body, found, checksum = line.rstrip(b"\n").rpartition(b',"crc":')
    if not found or checksum != f"{zlib.crc32(body + b'}')}}}".encode():
        return None
    try:
        entry = json.loads(body + b"}")
    except ValueError:
        return None
    if not isinstance(entry, dict) or type(entry.get("n")) is not int or entry.get("state") not in STATES:
        return None
    if entry["state"] == "intent" and not (isinstance(entry.get("do"), str) and "what" in entry):
        return None
    return entry


#: The first action of a compacted log.
COMPACTED = "taken"
#: Actions that a replay completes: if the back end has done them, sinks may have ended or messages passed.
COMPLETED_ACTIONS = ("remove", "pause", "resume")


@dataclass
class ReplayedState:
    """State after the replay of a log.

    Attributes
    ----------
    dataflows : dict of str to dict
        Descriptions of the running dataflows, in the order of their submission.
    steps : list of str
        Ids of all steps that ever ran.
    paused : list of str
        The paused dataflows.
    resuming : str, optional
        A dataflow whose resumption was under way; it may still be paused.
    outcome : str, optional
        Outcome of the action that was under way, if there was one.
    begun : list of str
        Steps of dataflows whose submission was under way and is reverted.
    """

    dataflows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    resuming: str | None = None
    outcome: str | None = None
    begun: list[str] = field(default_factory=list)


def compacted_actions(state: Mapping[str, Any], steps: Sequence[str]) -> list[tuple[str, Any]]:
    """The shortest log that leads to a state, and keeps the newest of the step ids, so that none is given again."""
    newest = sorted(steps, key=lambda step: int(step.rpartition(".")[2]))[-1:]
    return [(COMPACTED, newest), ("submit", state["dataflows"])]


def replay(actions: Sequence[Mapping[str, Any]]) -> ReplayedState:
    """Determine what actions lead to.

    The process may have ended during the last action, before its outcome was reported. A removal, a pause or a
    resumption is then completed. A submission is reverted, unless the back end had enacted it or a compacted log
    consists of it.

    Examples
    --------
    >>> came = {"do": "submit", "what": [{"name": "ada", "placed": {"in": "in.0"}}], "state": "committed"}
    >>> replay([came, {"do": "remove", "what": "ada", "state": "intent"}]).dataflows
    {}
    >>> replay([came, {"do": "pause", "what": "ada", "state": "intent"}]).paused
    ['ada']
    """
    found = ReplayedState()
    for place, action in enumerate(actions):
        do, what, state = action["do"], action["what"], action["state"]
        if do in COMPLETED_ACTIONS and not isinstance(what, str):
            raise TypeError(f"{do} of {what!r}")
        under_way = place == len(actions) - 1 and state in ("intent", "enacted")
        finished = do in COMPLETED_ACTIONS or (place > 0 and actions[place - 1]["do"] == COMPACTED)
        done = state in ("enacted", "committed") or (under_way and finished)
        if under_way:
            found.outcome = "committed" if done else "reverted"
        if not done:
            if do == "submit":
                found.begun += [step for one in what for step in one["placed"].values()]
            continue
        if do == "submit":
            found.dataflows.update({one["name"]: one for one in what})
            found.steps += [step for one in what for step in one["placed"].values()]
            found.paused += [one["name"] for one in what if one.get("paused")]  # of a restored state
        elif do == COMPACTED:  # ids of steps that do not run any more
            found.steps += what
        elif do == "pause":
            found.paused.append(what)
        elif do in ("remove", "resume"):
            found.paused = [name for name in found.paused if name != what]
            if do == "remove":
                del found.dataflows[what]
            elif under_way:
                found.resuming = what
    return found
