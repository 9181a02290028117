"""The log of actions: lines of JSON, each under a checksum and on disk before the next thing happens.

An action is written as *intent* with all that it takes to do it again, as *enacted* when the back end has done it, and
as *committed* when the books say so; or as *reverted*. The last line may be torn: a process can end while it writes.

Where a line cannot be written, an action takes place or it does not, and the log says which (see :class:`Journal`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.core.paths import make_folder, sync
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.past import TAKEN

__all__ = ["ActionLog", "Journal"]

_log = logging.getLogger("riot_ops")

COMMITTED = {"state": "committed"}


class ActionLog:
    """A file of actions, of this process alone.

    Attributes
    ----------
    actions : list of dict
        What was found: each action's ``do`` and ``what``, with the ``state`` that it came to.

    Raises
    ------
    ConnectorError
        Where the file cannot be written, or another manager has it.
    StateError
        Where a line but the last is damaged or missing, or the log has lost what it was shortened to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path.parent)
            # what cannot be written must not wait in a buffer for the next time
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (held until it is closed)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self._file.fileno()), path.stat()):
                raise BlockingIOError  # another has written it anew just then
        except BlockingIOError:
            self._file.close()
            raise ConnectorError(f"the log {path} is in use by another manager; stop it, or use another log") from None
        except OSError as error:
            raise ConnectorError(f"the log {path} cannot be used: {error}") from error
        self._line = self._size = 0
        #: Line and size before the last action.
        self._before = (0, 0)
        self.actions: list[dict[str, Any]] = []
        try:
            self._read()
            sync(path.parent)
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        at = 0
        while at < len(data):
            end = data.find(b"\n", at) + 1
            entry = _parsed(data[at:end]) if end else None
            if entry is None and (not end or end == len(data)):
                break  # torn: it was never said to be there
            if entry is None or entry["n"] != self._line:
                raise StateError(
                    f"the log {self.path} is damaged in line {self._line + 1}; restore it, or begin with a new one"
                )
            self._line += 1
            if entry["state"] == "intent":
                self.actions.append({"do": entry["do"], "what": entry["what"], "state": "intent"})
            elif not self.actions:
                raise StateError(
                    f"the log {self.path} tells the end of an action in line {self._line}, but not its begin"
                )
            else:
                self.actions[-1]["state"] = entry["state"]
            at = end
        if self.actions and self.actions[-1]["do"] == TAKEN:  # what runs stood behind it
            raise StateError(f"the log {self.path} is damaged: its end is missing; restore it, or begin with a new one")
        self._file.truncate(at)
        self._size = at

    def intend(self, do: str, what: Any) -> None:
        """Begin an action."""
        before = self._line, self._size
        self._write({"state": "intent", "do": do, "what": what})
        self._before = before

    def note(self, state: str) -> None:
        """What has become of the action."""
        self._write({"state": state})

    def take_back(self) -> None:
        """Have the lines of the last action gone, which takes no room."""
        line, size = self._before
        try:
            self._file.truncate(size)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ConnectorError(f"the log {self.path} cannot be shortened: {error}") from error
        self._line, self._size = line, size

    def shorten(self, actions: Iterable[tuple[str, Any]]) -> None:
        """Have these in place of all others, which came to the same, if that takes half the room at most."""
        entries = [one for do, what in actions for one in ({"state": "intent", "do": do, "what": what}, COMMITTED)]
        data = b"".join(_line(number, entry) for number, entry in enumerate(entries))
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
                os.replace(hidden, self.path)
            except OSError as error:
                _log.warning("the log %s stays as long as it is: %s", self.path, error)
                return
            undo.pop_all()
        sync(self.path.parent)
        self._file.close()
        self._file, self._line, self._size = file, len(entries), len(data)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file.closed:
            raise ConnectorError(f"the log {self.path} is closed; open a new manager over it")
        line = _line(self._line, entry)
        try:
            if self._file.seek(0, os.SEEK_END) != self._size:  # a line that could not be taken back
                self._file.truncate(self._size)
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise ConnectorError(f"the log {self.path} cannot be written: {error}; make room") from error
        self._line += 1
        self._size += len(line)

    def close(self) -> None:
        """Let another manager have it."""
        self._file.close()


class Journal:
    """Writes actions to a log, where there is one, so that it tells what runs whatever cannot be written.

    - An action whose intention cannot be written does not take place.
    - One that fails leaves no line but *reverted*; where there is no room for that, none at all.
    - One that the back end has done is undone where *enacted* cannot be written, and has failed. Where it cannot be
      undone, as sinks have ended or messages have passed, it counts as done: the log then says how it ended before
      anything else, and until that can be written further actions are refused. Whoever takes up the log in between
      finds its intention last, and brings that to its end (:func:`~riot_ops.reuse.past.past`).
    """

    def __init__(self, log: ActionLog | None = None) -> None:
        self.log = log
        #: How the last action has ended, where that could not be written.
        self._owed: str | None = None

    @contextmanager
    def acting(self, do: str, what: Any) -> Iterator[None]:
        """Around an action: the log knows of it before and after, and the back end's failures have one name."""
        if self.log is not None:
            self._settle(self.log)
            self.log.intend(do, what)
        try:
            yield
        except Exception as error:
            self._end(do, "reverted")
            if isinstance(error, RiotError):
                raise
            raise EnactError(f"{do}: the back end failed, and nothing has changed: {error}") from error
        self._end(do, "committed")

    def enacted(self, undo: Callable[[], None] | None = None) -> None:
        """Note that the back end has done it; raises where that cannot be and it is undone."""
        if self.log is None:
            return
        try:
            self.log.note("enacted")
        except ConnectorError as error:
            if undo is None:
                return  # as it will be with the next line, which tells more
            try:
                undo()
            except Exception as failure:
                _log.error("an action cannot be undone (%s), and counts as done, though %s", failure, error)
            else:
                raise
        except BaseException:
            if undo is not None:
                undo()
            raise

    def _end(self, do: str, outcome: str) -> None:
        """Write how an action has ended, or owe it."""
        if self.log is None:
            return
        try:
            self.log.note(outcome)
        except ConnectorError as error:
            if outcome == "reverted":
                with suppress(ConnectorError):
                    self.log.take_back()
                    return
            self._owed = outcome
            _log.error("%s is %s, but %s; until it is, further actions are refused", do, outcome, error)

    def _settle(self, log: ActionLog) -> None:
        """Write what is owed."""
        if self._owed is None:
            return
        try:
            log.note(self._owed)
        except ConnectorError as error:
            raise ConnectorError(f"nothing changes until the log tells how the last action ended: {error}") from error
        self._owed = None

    def close(self) -> None:
        """Let another manager have the log."""
        if self.log is not None:
            with suppress(ConnectorError):
                self._settle(self.log)
            self.log.close()


def _line(number: int, entry: Mapping[str, Any]) -> bytes:
    """An entry as it is written."""
    body = json.dumps({"n": number, **entry}, separators=(",", ":"), ensure_ascii=False)
    return f'{body[:-1]},"crc":{zlib.crc32(body.encode())}}}\n'.encode()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says, or None where it is not whole."""
    body, found, checksum = line.rstrip(b"\n").rpartition(b',"crc":')
    if not found or checksum != f"{zlib.crc32(body + b'}')}}}".encode():
        return None
    entry: dict[str, Any] = json.loads(body + b"}")
    return entry
