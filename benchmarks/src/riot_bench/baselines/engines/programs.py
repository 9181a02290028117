"""Word count, fraud detection and STATS for other engines: what a line becomes, and what a key does with it."""

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
from typing import Any

__all__ = ["PROGRAMS", "Build", "Checksum", "Count", "Program", "lines_of", "main", "timed"]

Row = tuple[Any, ...]


@dataclass
class Count:
    """How many rows there were."""

    count: int = 0

    def add(self, row: Row) -> None:
        """Count a row."""
        self.count += 1


@dataclass
class Checksum(Count):
    """Of rows in any order: how many, a sum over what is exact in each, and one of all fractions.

    Each fraction weighs from 1 to 2, by what is exact in its row and its place in that.

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
        """That of some rows."""
        made = cls()
        for row in rows:
            made.add(row)
        return made

    def like(self, other: Checksum) -> bool:
        """Whether both are of the same rows, fractions to nine digits."""
        near = abs(self.total - other.total) <= 1e-9 * max(1.0, abs(self.total))
        return (self.count, self.exact) == (other.count, other.exact) and near


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes
    ----------
    expand : function
        A line to keys and values.
    step : function
        The state of a key (None at first) and a value to the new state and the results.
    """

    expand: Callable[[bytes], Iterable[tuple[str, Any]]]
    step: Callable[[Any, Any], tuple[Any, list[Row]]]


_WORDS = re.compile(r"[A-Za-z0-9_]+")


def _words(line: bytes) -> list[tuple[str, str]]:
    return [(word, word) for word in _WORDS.findall(line.decode("utf-8", "replace"))]


def _count(state: int | None, word: str) -> tuple[int, list[Row]]:
    count = (state or 0) + 1
    return count, [(word, count)]


WINDOW, THRESHOLD = 5, 0.96


@cache
def _misses() -> dict[tuple[str, str], float]:
    """What each transition adds to the score of fraud detection."""
    from riot_ops.models.markov import purchases

    model = purchases()
    pairs = zip(model.states, model.matrix.tolist(), strict=True)
    return {(a, b): 1 - p for a, row in pairs for b, p in zip(model.states, row, strict=True)}


def _purchase(line: bytes) -> list[tuple[str, tuple[str, str]]]:
    cells = line.decode("utf-8", "replace").rstrip("\r\n").split(",")
    if len(cells) < 3 or not cells[0] or (cells[2], cells[2]) not in _misses():
        return []
    return [(cells[0], (cells[0], cells[2]))]


def _score(chain: list[str] | None, purchase: tuple[str, str]) -> tuple[list[str], list[Row]]:
    who, state = purchase
    chain = [*(chain or ()), state][-WINDOW:]
    if len(chain) < WINDOW:
        return chain, []
    misses = _misses()
    score = sum(misses[pair] for pair in pairwise(chain)) / (WINDOW - 1)
    return chain, [(who, score, ",".join(chain))] if score > THRESHOLD else []


def _readings(line: bytes) -> Iterator[tuple[str, tuple[str, str, float | None]]]:
    from riot_bench.baselines.python.senml import FIELDS

    message = json.loads(line[line.index(b",") + 1 :])
    records = {record["n"]: record for record in message["e"]}
    sensor = records["source"]["sv"]
    for name in FIELDS:
        text = records[name]["v"]
        value = None if text == "null" else float(text)
        yield f"{sensor}/{name}", (sensor, name, value)
        yield f"/{name}", ("", name, value)


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


def lines_of(files: Iterable[str]) -> Iterator[bytes]:
    """All lines of files."""
    for path in files:
        with open(path, "rb") as file:
            yield from file


#: Builds a program, by its name, over files: what is returned runs it and hands all results to the last argument.
Build = Callable[[str, list[str], Count], Callable[[], None]]


def timed(build: Build, name: str, files: list[str]) -> tuple[Checksum, float, float]:
    """What a program comes to, and in how many seconds and seconds of processor a second run only counts it.

    The first run is the warm-up as well: what an engine imports, starts and compiles once is in no time.
    """
    found, counted = Checksum(), Count()
    build(name, files, found)()
    run = build(name, files, counted)
    begun, used = time.perf_counter(), time.process_time()
    run()
    spent = time.perf_counter() - begun, time.process_time() - used
    if counted.count != found.count:
        raise RuntimeError(f"a second run has {counted.count} results, the first had {found.count}")
    return found, *spent


def main(build: Build) -> None:
    """Run a program by name over files, as the arguments say, and print what it took and came to."""
    name, *files = sys.argv[1:]
    found, seconds, cpu_seconds = timed(build, name, files)
    print(json.dumps({**vars(found), "seconds": seconds, "cpu_seconds": cpu_seconds}))
