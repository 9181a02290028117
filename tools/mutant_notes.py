"""What each test takes and which statements it reaches, kept from one run of mutants to the next."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Seconds of tests for one mutant, the shortest first: what is left of them is left out.
MOST = 20.0


class Notes:
    """What each test takes and reaches: kept in a file, as long as the product and the test's file stay the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[str, str] = {}
        self._product = _digest([*Path("src").rglob("*.py"), *_helpers()])
        self.read()

    def read(self) -> None:
        """Read what is there, as after a child has kept more."""
        self._all = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        self._reached: dict[str, int] = {}

    def of(self, test: str) -> dict[str, Any] | None:
        """Its note, if that is of this state; one that has failed is run again."""
        found = self._all.get(test)
        return found if found and found["digest"] == self._state(test) and not found["failed"] else None

    def add(self, test: str, seconds: float | None, reached: int, *, failed: bool = False) -> None:
        """Note a test; without seconds it takes too long, or has failed without a fault."""
        note = {"digest": self._state(test), "seconds": seconds, "failed": failed, "reached": _pack(reached)}
        self._all[test] = note

    def keep(self) -> None:
        """Write what has been added."""
        if self._path.exists():  # by another file's run meanwhile
            self._all = json.loads(self._path.read_text(encoding="utf-8")) | self._all
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(self._all), encoding="utf-8")
        fresh.replace(self._path)

    def reached(self, test: str) -> int:
        """What a test reaches."""
        if test not in self._reached:
            self._reached[test] = _unpack(self._all[test]["reached"])
        return self._reached[test]

    def long(self, tests: Iterable[str]) -> list[str]:
        """Those that take too long."""
        return [test for test in tests if self._all[test]["seconds"] is None and not self._all[test]["failed"]]

    def failed(self, tests: Iterable[str]) -> list[str]:
        """Those that fail without a fault."""
        return [test for test in tests if self._all[test]["failed"]]

    def short(self, *groups: Iterable[str]) -> list[str]:
        """Those that do not take too long, of each group the shortest first, up to ``MOST`` seconds in all."""
        found: dict[str, float] = {}
        for group in groups:
            for seconds, test in sorted((s, t) for t in group if (s := self._all[t]["seconds"]) is not None):
                if found and sum(found.values()) + seconds > MOST:
                    break
                found[test] = seconds
        return list(found)

    def seconds(self, tests: Iterable[str]) -> float:
        """How long tests take without a fault."""
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
    """A set of bits as a text for JSON."""
    data = found.to_bytes((found.bit_length() + 7) // 8, "little")
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpack(text: str) -> int:
    """The set of bits again."""
    return int.from_bytes(zlib.decompress(base64.b64decode(text)), "little")
