"""Duration and reached statements of each test, cached between runs of mutants."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Maximum seconds of tests for one mutant, the shortest first; the remaining tests are skipped.
MOST = 20.0


class Notes:
    """Cache of each test's duration and reached statements, valid while product and test are unchanged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[str, str] = {}
        self._product = _digest([*Path("src").rglob("*.py"), *_helpers()])
        self.read()

    def read(self) -> None:
        """Read the file, which a child process may have extended."""
        self._all = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        self._reached: dict[str, int] = {}

    def of(self, test: str) -> dict[str, Any] | None:
        """Return the valid note of a test; a failed test has none, so that it runs again."""
        found = self._all.get(test)
        return found if found and found["digest"] == self._state(test) and not found["failed"] else None

    def add(self, test: str, seconds: float | None, reached: int, *, failed: bool = False) -> None:
        """Note a test; without ``seconds`` it takes too long, or failed without a fault."""
        note = {"digest": self._state(test), "seconds": seconds, "failed": failed, "reached": _pack(reached)}
        self._all[test] = note

    def keep(self) -> None:
        """Write the added notes."""
        if self._path.exists():  # a concurrent run for another file may have written it
            self._all = json.loads(self._path.read_text(encoding="utf-8")) | self._all
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(self._all), encoding="utf-8")
        fresh.replace(self._path)

    def reached(self, test: str) -> int:
        """Return the statements that a test reaches."""
        if test not in self._reached:
            self._reached[test] = _unpack(self._all[test]["reached"])
        return self._reached[test]

    def long(self, tests: Iterable[str]) -> list[str]:
        """Return the tests that take too long."""
        return [test for test in tests if self._all[test]["seconds"] is None and not self._all[test]["failed"]]

    def failed(self, tests: Iterable[str]) -> list[str]:
        """Return the tests that fail without a fault."""
        return [test for test in tests if self._all[test]["failed"]]

    def short(self, *groups: Iterable[str]) -> list[str]:
        """Return quick tests, the shortest of each group first, up to ``MOST`` seconds in all."""
        found: dict[str, float] = {}
        for group in groups:
            for seconds, test in sorted((s, t) for t in group if (s := self._all[t]["seconds"]) is not None):
                if found and sum(found.values()) + seconds > MOST:
                    break
                found[test] = seconds
        return list(found)

    def seconds(self, tests: Iterable[str]) -> float:
        """Return the duration of tests without a fault."""
        return sum((self._all[t]["seconds"] for t in tests), 0.0)

    def _state(self, test: str) -> str:
        file = test.partition("::")[0]
        if file not in self._digests:
            self._digests[file] = self._product + _digest([Path(file)])
        return self._digests[file]


def _helpers() -> list[Path]:
    return [path for path in Path("tests").rglob("*.py") if not path.name.startswith("test_")]


def _digest(files: Iterable[Path]) -> str:
    state = hashlib.blake2b(digest_size=8)
    for path in sorted(files):
        state.update(path.read_bytes())
    return state.hexdigest()


def _pack(found: int) -> str:
    """Encode a set of bits as text for JSON."""
    data = found.to_bytes((found.bit_length() + 7) // 8, "little")
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpack(text: str) -> int:
    """Decode a set of bits."""
    return int.from_bytes(zlib.decompress(base64.b64decode(text)), "little")
