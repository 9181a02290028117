"""Word count, fraud detection and STATS for other engines: a function per line and a function per key."""

from __future__ import annotations

import json
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from sys import intern
from typing import Any

from orjson import loads

__all__ = ["PROGRAMS", "Builder", "Checksum", "Program", "RowCounter", "main", "read_lines", "run_timed"]

Row = tuple[Any, ...]


@dataclass
class RowCounter:
    """Number of rows."""

    count: int = 0

    def add(self, row: Row) -> None:
        """Count a row."""
        self.count += 1


@dataclass
class Checksum(RowCounter):
    """Order-independent checksum: the number of rows, a sum over their exact values, and one over their floats.

    Each float has a weight from 1 to 2, given by the exact values of its row and its position.

    >>> rows = [("a", 1, 0.5), ("b", 2, 0.25)]
    >>> Checksum.of(rows) == Checksum.of(rows[::-1]), Checksum.of(rows) == Checksum.of(rows[:1])
    (True, False)
    >>> Checksum.of(rows).like(Checksum.of([("a", 1, 0.25), ("b", 2, 0.5)]))
    False
    """

    exact: int = 0
    total: float = 0.0

    def add(self, row: Row) -> None:
        """Add a row."""
        super().add(row)
        plain = zlib.crc32(repr(tuple(v for v in row if not isinstance(v, float))).encode())
        self.exact = (self.exact + plain) % (1 << 64)
        for place, value in enumerate(row):
            if isinstance(value, float):
                self.total += value * (1 + zlib.crc32(b"%d" % place, plain) / (1 << 32))

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Checksum:
        """Compute the checksum of rows."""
        checksum = cls()
        for row in rows:
            checksum.add(row)
        return checksum

    def like(self, other: Checksum) -> bool:
        """Return whether both are of the same rows, comparing floats to nine digits."""
        near = abs(self.total - other.total) <= 1e-9 * max(1.0, abs(self.total))
        return (self.count, self.exact) == (other.count, other.exact) and near


@dataclass(frozen=True)
class Program:
    """A stateful program.

    Attributes
    ----------
    expand : function
        Maps a line to pairs of key and value.
    step : function
        Maps the state of a key (None at first) and a value to the new state and the results.
    """

    expand: Callable[[bytes], Iterable[tuple[str, Any]]]
    step: Callable[[Any, Any], tuple[Any, list[Row]]]


_WORDS = re.compile(r"[A-Za-z0-9_]+")


def _words(line: bytes) -> list[tuple[str, str]]:
    return [(word, word) for word in map(intern, _WORDS.findall(line.decode("utf-8", "replace")))]


def _count(state: int | None, word: str) -> tuple[int, list[Row]]:
    count = (state or 0) + 1
    return count, [(word, count)]


WINDOW, THRESHOLD = 5, 0.96


@cache
def _misses() -> dict[tuple[str, str], float]:
    """Return what each transition adds to the score of fraud detection."""
    from riot_ops.models.markov import purchase_model

    model = purchase_model()
    pairs = zip(model.states, model.matrix.tolist(), strict=True)
    return {(a, b): 1 - p for a, row in pairs for b, p in zip(model.states, row, strict=True)}


def _purchase(line: bytes) -> list[tuple[str, tuple[str, str]]]:
    cells = line.decode("utf-8", "replace").rstrip("\r\n").split(",")
    if len(cells) < 3 or not cells[0] or (cells[2], cells[2]) not in _misses():
        return []
    who = intern(cells[0])
    return [(who, (who, intern(cells[2])))]


def _score(chain: list[str] | None, purchase: tuple[str, str]) -> tuple[list[str], list[Row]]:
    who, state = purchase
    chain = [*(chain or ()), state][-WINDOW:]
    if len(chain) < WINDOW:
        return chain, []
    misses = _misses()
    score = sum(misses[pair] for pair in pairwise(chain)) / (WINDOW - 1)
    return chain, [(who, score, ",".join(chain))] if score > THRESHOLD else []


def _readings(line: bytes) -> Iterator[tuple[str, tuple[str, str, float | None]]]:
    message = loads(line[line.index(b",") + 1 :])
    records = {record["n"]: record for record in message["e"]}
    sensor = records["source"]["sv"]
    for name, own, common in _keys(sensor):
        text = records[name]["v"]
        value = None if text == "null" else float(text)
        yield own, (sensor, name, value)
        yield common, ("", name, value)


@cache
def _keys(sensor: str) -> list[tuple[str, str, str]]:
    """Return each field with its key of the sensor and its key of all sensors, the same objects for each message."""
    from riot_bench.baselines.python.senml import FIELDS

    return [(name, intern(f"{sensor}/{name}"), intern(f"/{name}")) for name in FIELDS]


def _statistics(state: Any, reading: tuple[str, str, float | None]) -> tuple[Any, list[Row]]:
    from riot_bench.baselines.python.stats import HORIZON, HyperLogLog, SensorState

    sensor, name, value = reading
    if not sensor:
        state = state or HyperLogLog()
        if value is not None:
            state.add(value)
        return state, [("dac", name, float(state.estimate()))]
    state = state or SensorState()
    rows: list[Row] = []
    mean = None if value is None else state.average(value)
    if mean is not None:
        rows.append(("avg", sensor, name, mean))
    predictions = state.predict(state.smooth(value))
    if predictions is not None:
        rows.append(("slr", sensor, name, sum(predictions) / HORIZON))
    return state, rows


PROGRAMS = {
    "wc": Program(_words, _count),
    "fd": Program(_purchase, _score),
    "stats": Program(_readings, _statistics),
}


def read_lines(files: Iterable[str]) -> Iterator[bytes]:
    """Read all lines of files."""
    for path in files:
        with open(path, "rb") as file:
            yield from file


#: Builds a program by name over files; the returned function runs it and adds all results to the last argument.
Builder = Callable[[str, list[str], RowCounter], Callable[[], None]]


def run_timed(build: Builder, name: str, files: list[str]) -> tuple[Checksum, float, float]:
    """Run a program twice; return the checksum of the first run, and wall and CPU seconds of the second.

    The first run is also the warm-up, so the times contain no imports, start-up or compilation. The second run only
    counts its results.
    """
    found, counted = Checksum(), RowCounter()
    build(name, files, found)()
    run = build(name, files, counted)
    begun, used = time.perf_counter(), time.process_time()
    run()
    spent = time.perf_counter() - begun, time.process_time() - used
    if counted.count != found.count:
        raise RuntimeError(f"the second run has {counted.count} results, the first had {found.count}")
    return found, *spent


def main(build: Builder) -> None:
    """Run the program and files of the command line and print checksum and times as JSON."""
    name, *files = sys.argv[1:]
    found, seconds, cpu_seconds = run_timed(build, name, files)
    print(json.dumps({**vars(found), "seconds": seconds, "cpu_seconds": cpu_seconds}))
