"""An application of DSPBench at a rate, in a process that has run nothing else.

What ran before in a process, such as plain Python, leaves memory in pieces, and more of it to look at: latencies of a
process of its own are those that a user's has.

``python -m riot_bench.suites.dspbench.paced WORDS``, with what :func:`paced` writes; figures come as lines of JSON.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from riot_bench.harness.data import Discard
from riot_bench.harness.jobs import with_us
from riot_bench.harness.measure import Measure, one_core
from riot_bench.harness.micro_batches import folder
from riot_bench.harness.trial import Feed
from riot_bench.suites.dspbench.lines import PARTS, Lines, write_lines
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application
from riot_ops.measure.probe import Probe
from riot_ops.measure.probe_report import Report
from riot_ops.runtime.parallel import available
from riot_ops.ingest.pace import Paced

__all__ = ["LOOK_S", "feed", "figures", "paced"]

#: Part of a paced run in which it settles, which does not count; nor does what comes before it without a pace.
SETTLING = 0.25
#: Seconds between two looks at processor and memory.
LOOK_S = 0.5
#: 95 % of the results should not be later, ms.
REACH_MS = 50


def paced(data: Lines, together: float, alone: float | None, seconds: float) -> Iterator[Measure]:
    """Latency, CPU and memory at a rate (lines/s) on all cores, and latency at another one, if any, on one core.

    Over new lines, as times of old ones would go back; both over the same.
    """
    batch, sources = data.each * PARTS, len(feed(data).sources)

    def needed(lines_per_s: float) -> int:
        return batch * math.ceil(lines_per_s / sources * seconds / batch)

    with folder() as base:
        lines = write_lines(data.application, base, needed(max(together, alone or 0.0)), batch)
        yield from _in_own_process(lines.first(needed(together)), together, seconds)
        if alone is not None:
            yield from _in_own_process(lines.first(needed(alone)), alone, seconds, alone=True)


def _in_own_process(lines: Lines, lines_per_s: float, seconds: float, alone: bool = False) -> Iterator[Measure]:
    files = {name: [str(file) for file in files] for name, files in lines.files.items()}
    words = json.dumps([lines.application.code, files, lines.each, lines_per_s, seconds, alone])
    command = [*with_us(), sys.executable, "-m", __name__, words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RiotError(f"{lines.application.name} at {lines_per_s:,.0f} lines/s ended with {done.returncode}")
    yield from map(Measure.from_json, done.stdout.splitlines())


def main(words: str) -> None:
    """Run an application at a rate."""
    code, files, each, lines_per_s, seconds, alone = json.loads(words)
    data = Lines(application(code), {name: [Path(file) for file in some] for name, some in files.items()}, each)
    cores, probe, at = available(), Probe(every_s=LOOK_S), f"dspbench/{code}/local"
    with one_core() if alone else nullcontext():
        data.application.builder().run(data.first(each * PARTS).sources(), sinks=Discard())  # compiles
        report = _run(data, lines_per_s, probe)
    settled = report.duration - (1 - SETTLING) * min(seconds, report.duration)
    given = at, report, settled, lines_per_s
    if alone:
        found = latencies(*given, "half of the peak of one core, on one core", REACH_MS, "-one-core")
    else:
        found = figures(*given, f"half of the peak, {cores} cores", REACH_MS)
    for measure in found:
        print(measure.to_json(), flush=True)


def _run(data: Lines, lines_per_s: float, probe: Probe) -> Report:
    given = feed(data)
    rate = lines_per_s / len(given.sources)
    sources = {name: Paced(source, rate=rate) for name, source in given.sources.items()}
    given.flow.run({**sources, **given.side}, sinks=Discard(), probe=probe)
    return probe.report()


def feed(data: Lines, most: int = 65_536) -> Feed:
    """What is paced; of sources that come one after the other the last, the others at once."""
    flow, sources = data.application.builder(), data.sources()
    side = list(sources)[:-1] if flow.merging == "sequence" else []
    return Feed(flow, {n: s for n, s in sources.items() if n not in side}, {n: sources[n] for n in side}, most)


def figures(
    at: str, report: Report, since: float, rate: float, where: str, reach_ms: float | None
) -> Iterator[Measure]:
    """What a run at a rate came to, from a second on."""
    yield from latencies(at, report, since, rate, where, reach_ms)
    how = f"at {rate:,.0f} lines/s, {where}"
    span = max(report.duration - since, 1e-9)
    delivered = report.series(span, since, report.duration).output_rate
    yield Measure(f"{at}-sink", float(delivered[0]) if delivered.size else 0.0, "records/s", f"delivered, {how}")
    yield Measure(f"{at}-cpu", report.cpu(since), "cores", f"all processes, {how}")
    yield Measure(f"{at}-memory", report.memory(since) / 2**20, "MiB", f"all processes, {how}")


def latencies(
    at: str, report: Report, since: float, rate: float, where: str, reach_ms: float | None, end: str = ""
) -> Iterator[Measure]:
    """How late half and 95 % of the results of a run were at most, from a second on."""
    how = f"at {rate:,.0f} lines/s, {where}"
    p50, p95 = (1e3 * late for late in report.latency(0.5, 0.95, since_s=since, until_s=report.duration))
    yield Measure(f"{at}-latency-p50{end}", p50, "ms", how)
    yield Measure(f"{at}-latency-p95{end}", p95, "ms", how, reach_ms, at_most=True)


if __name__ == "__main__":
    main(sys.argv[1])
