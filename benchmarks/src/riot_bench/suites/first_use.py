"""First use: what a new process pays before its first result, and what a device pays for a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_ops.streams.riotbench.city import CitySource

__all__ = ["measures"]

#: What each process prints at its end: its CPU and wall time in seconds and its largest memory in MB.
REPORT = """
def report(cpu, wall):
    peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) / 1024
    print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak}))
"""
IMPORT = "import json, time\nc, w = time.process_time(), time.perf_counter()\nimport riot_ops as ro\n"
END = "report(time.process_time() - c, time.perf_counter() - w)\n"
PUSH = """
c, w = time.process_time(), time.perf_counter()
ro.tasks.KalmanFilter().session().push({"value": 21.5})
"""
CHANGEOVER = """
import sys
import pyarrow as pa
from riot_ops.tasks.math import kalman_filter as module
rows, repetitions = int(sys.argv[1]), int(sys.argv[2])
NAMES = ("kalman", "count_missing")
kernels = [getattr(module, name) for name in NAMES]
direct = [kernel.compile() for kernel in kernels]
batches = [pa.RecordBatch.from_pydict({"value": [21.5 + i / 7] * rows}) for i in range(repetitions)]
session = ro.tasks.KalmanFilter().session()
while not all(one.signatures for one in direct):  # it runs as plain Python until its machine code is there
    session.push_batch(batches[0])
    time.sleep(0.01)
ratios = []
for _ in range(31):
    spent = {}
    for called in (kernels, direct):
        for name, one in zip(NAMES, called):
            setattr(module, name, one)
        begin = time.process_time()
        for batch in batches:
            session.push_batch(batch)
        spent[id(called)] = time.process_time() - begin
    ratios.append(spent[id(direct)] / spent[id(kernels)])
print(json.dumps({"ratios": ratios}))
"""
STATS = """
import sys
from riot_ops.dataflows.applications import RIOTBENCH
lines = open(sys.argv[1], "rb").read().splitlines()
flow = RIOTBENCH["stats"]("city")
"""
RUN = "flow.run({'payload': line} for line in lines)\n"
DEVICE = """
def paced():
    begin = time.perf_counter()
    for i, line in enumerate(lines):
        time.sleep(max(0.0, begin + i / 100 - time.perf_counter()))
        yield {"payload": line}
flow.run(paced(), memory="small")
"""
SPARK = """
import sys
from pathlib import Path
from riot_ops.spark import session
spark = session()
flow = ro.Dataflow("first-use")
flow.sink("out", flow.source("in", schema={"value": "double"}).to(ro.tasks.KalmanFilter(), id="k"))
c, w = time.process_time(), time.perf_counter()
query = flow.start(spark, [{"value": 1.0}], out=sys.argv[1] + "/out", checkpoint=sys.argv[1] + "/checkpoint")
while not any(Path(sys.argv[1], "checkpoint").rglob("commits/0")):
    time.sleep(0.01)
report(time.process_time() - c, time.perf_counter() - w)
query.stop()
"""


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite; the first process of each kind does not count, except with an empty cache."""
    repetitions = 1 if quick else 5
    yield _measure("import", [_child(IMPORT + REPORT + END) for _ in range(repetitions)], "cpu", 0.25, "CPU of import")
    _child(IMPORT + REPORT + PUSH + END, RIOT_OPS_COMPILE="immediate")  # its kernels are compiled now
    pushes = [_child(IMPORT + REPORT + PUSH + END) for _ in range(repetitions)]
    yield _measure("first-push", pushes, "wall", 0.15, "KalmanFilter().session().push() after the import")
    yield _measure("rss", pushes, "peak", 110, "the same process")
    ratios = _child(IMPORT + CHANGEOVER, "1", "100" if quick else "2000")["ratios"]
    against = "KalmanFilter on batches of one record after its kernels have changed over, against direct calls"
    yield Measure("first-use/changeover", median(ratios), "ratio", against, 0.97, sample=tuple(ratios))
    with tempfile.TemporaryDirectory() as folder:
        messages = 300 if quick else 10_000
        lines = Path(folder, "lines")
        payloads = CitySource(1000, messages).lines(0, messages).column("payload").to_pylist()
        lines.write_bytes(b"\n".join(one if isinstance(one, bytes) else one.encode() for one in payloads))
        empty = _child(IMPORT + REPORT + STATS + RUN + END, str(lines), NUMBA_CACHE_DIR=f"{folder}/cache")
        yield _measure("stats-empty-cache", [empty], "wall", 5, f"STATS over {messages:,} messages, with the import")
        device = _child(IMPORT + REPORT + STATS + DEVICE + END, str(lines))
        yield _measure("stats-small-rss", [device], "peak", 160, "STATS at 100 messages/s, memory='small'")
        yield Measure(
            "first-use/stats-small-cpu", device["cpu"] / device["wall"], "cores", "the same process", at_most=True
        )
    starts = []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            starts.append(_child(IMPORT + REPORT + SPARK, folder))
    yield _measure("spark-first-commit", starts, "wall", 5, "flow.start in a new session, to the first commit")


def _measure(name: str, found: list[dict[str, float]], what: str, reach: float, against: str) -> Measure:
    values = tuple(one[what] for one in found)
    unit = "MB" if what == "peak" else "s"
    return Measure(f"first-use/{name}", median(values), unit, against, reach, at_most=True, values=values)


def _child(code: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run code in a new process as a user has it; returns what it reports."""
    settings = {**os.environ, "RIOT_OPS_COMPILE": "deferred", **environment}
    done = subprocess.run(  # noqa: S603 (the code is this module's)
        [sys.executable, "-c", code, *arguments], env=settings, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(next(one for one in done.stdout.splitlines()[::-1] if one.startswith("{")))
    return found
