"""The log of actions: lines of JSON, each under a checksum and on disk before the next thing happens.

An action is written as *intent* with all that it takes to do it again, as *enacted* when the back end has done it, and
as *committed* when the books say so; or as *reverted*. The last line may be torn: a process can end while it writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.core.paths import make_folder, sync
from riot_ops.reuse.errors import EnactError

__all__ = ["ActionLog", "Journal"]

STATES = ("intent", "enacted", "committed", "reverted")


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
        Where a line but the last is damaged or missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path.parent)
            self._file = open(path, "a+b")  # noqa: SIM115 (held until it is closed)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConnectorError(f"the log {path} is in use by another manager; stop it, or use another log") from None
        except OSError as error:
            raise ConnectorError(f"the log {path} cannot be used: {error}") from error
        self._line = 0
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
        self._file.truncate(at)

    def intend(self, do: str, what: Any) -> None:
        """Begin an action."""
        self._write({"state": "intent", "do": do, "what": what})

    def note(self, state: str) -> None:
        """What has become of the action."""
        self._write({"state": state})

    def _write(self, entry: dict[str, Any]) -> None:
        body = json.dumps({"n": self._line, **entry}, separators=(",", ":"), ensure_ascii=False)
        line = f'{body[:-1]},"crc":{zlib.crc32(body.encode())}}}\n'.encode()
        begin = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._forget(begin)
            raise ConnectorError(f"the log {self.path} cannot be written: {error}; make room") from error
        self._line += 1

    def _forget(self, begin: int) -> None:
        """Take back half a line; where that fails too, the line counts as torn, and nothing may follow it."""
        try:
            self._file.truncate(begin)
        except OSError:
            self._file.close()

    def close(self) -> None:
        """Let another manager have it."""
        self._file.close()


class Journal:
    """Writes actions to a log, where there is one."""

    def __init__(self, log: ActionLog | None = None) -> None:
        self.log = log

    @contextmanager
    def acting(self, do: str, what: Any) -> Iterator[None]:
        """Around an action: the log knows of it before and after, and the back end's failures have one name."""
        if self.log is not None:
            self.log.intend(do, what)
        try:
            yield
        except Exception as error:
            if self.log is not None:
                self.log.note("reverted")
            if isinstance(error, RiotError):
                raise
            raise EnactError(f"{do}: the back end failed, and nothing has changed: {error}") from error
        if self.log is not None:
            self.log.note("committed")

    def enacted(self, undo: Callable[[], None] = lambda: None) -> None:
        """Note that the back end has done it; where that cannot be, it is undone."""
        try:
            if self.log is not None:
                self.log.note("enacted")
        except BaseException:
            undo()
            raise

    def close(self) -> None:
        """Let another manager have the log."""
        if self.log is not None:
            self.log.close()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says, or None where it is not whole."""
    body, found, checksum = line.rstrip(b"\n").rpartition(b',"crc":')
    if not found or checksum != f"{zlib.crc32(body + b'}')}}}".encode():
        return None
    entry: dict[str, Any] = json.loads(body + b"}")
    return entry
