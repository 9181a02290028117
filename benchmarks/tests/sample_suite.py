"""A sample suite without real measurements, for the tests of the report."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure

NASTY = 'a <b>&"quoted"</b> | *x*'


def _relay(quick: bool) -> Iterator[Measure]:
    print("what an experiment prints is its own affair {}")
    for side, rate in (("local", 2e6), ("spark", 1.2e5)):
        for size, theirs in ((50, 2e6), (1000, None), (10_000, 4e5)):
            value = rate / (1 + size / 1e3)
            values = tuple(value * f for f in (0.9, 1.0, 1.1, 1.02)) if side == "local" else ()
            name = f"sample/relay/{side}/{size}B"
            yield Measure(name, value, "messages/s", NASTY, 1e5, values=values, published=theirs)
    yield Measure("sample/relay/lost", 0 if quick else 1, "messages", "", 0, at_most=True)
    yield Measure("sample/relay/unknown", math.nan, "ms", "no record came")


def _words(quick: bool) -> Iterator[Measure]:
    for number, word in enumerate(("identity", "sample", "projection", "grep", "wordcount", "distinct", "statistics")):
        for form in ("packed", "expressions", "udf"):
            value = 10.0**number / len(form)
            yield Measure(f"sample/words/{word}/{form}", value, "records/s", values=(value, 1.1 * value, 0.8 * value))


def _breaks(quick: bool) -> Iterator[Measure]:
    yield Measure("sample/breaks/first", 1.0, "s")
    raise ValueError("no <luck>")


def _hangs(quick: bool) -> Iterator[Measure]:
    """Start a process, record its id, and never end."""
    yield Measure("sample/hangs/first", 1.0, "s")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    where = Path(os.environ["MADE_UP"])
    where.with_suffix(".tmp").write_text(f"{os.getpid()} {child.pid}")
    where.with_suffix(".tmp").rename(where)
    time.sleep(600)


def _killed(quick: bool) -> Iterator[Measure]:
    print("all is well", flush=True)
    yield Measure("sample/killed/first", 1.0, "s")
    os.kill(os.getpid(), signal.SIGKILL)


def _counts(quick: bool) -> Iterator[Measure]:
    """How often it was run is in a file."""
    where = Path(os.environ["MADE_UP"])
    times = int(where.read_text() or 0) + 1 if where.exists() else 1
    where.write_text(str(times))
    yield Measure("sample/counts/times", times, "runs")


RELAY = Experiment(
    "sample/relay",
    f"Message relay {NASTY}",
    _relay,
    "Messages of several sizes pass three stages.",
    (
        Figure(
            "size", "Rate by size", r"sample/relay/(?P<series>\w+)/(?P<x>\d+)B", "bytes", "messages/s", "line", "xy"
        ),
        Figure("none", "Nothing of it", r"sample/none/(?P<x>.*)", "x", "y"),
    ),
    (1.0, 2.0),
    seed=7,
)
WORDS = Experiment(
    "sample/words",
    "Programs by form",
    _words,
    figures=(
        Figure("form", "Rate by form", r"sample/words/(?P<x>\w+)/(?P<series>\w+)", "program", "records/s", log="y"),
    ),
    seconds=(1.0, 2.0),
)
BREAKS = Experiment("sample/breaks", "It breaks", _breaks, seconds=(1.0, 2.0))
HANGS = Experiment("sample/hangs", "It hangs", _hangs, seconds=(1.0, 2.0))
COUNTS = Experiment("sample/counts", "It counts", _counts, seconds=(1.0, 2.0))
KILLED = Experiment("sample/killed", "It is killed", _killed, seconds=(1.0, 2.0))
SILENT = Experiment("sample/silent", "It finds nothing", lambda quick: iter(()), seconds=(1.0, 2.0))
EXPERIMENTS = (RELAY, WORDS, BREAKS, HANGS, COUNTS, SILENT, KILLED)
