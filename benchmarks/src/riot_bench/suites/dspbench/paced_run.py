"""A paced run of a DSPBench application in a new process.

Earlier work in a process, such as the baseline in plain Python, fragments and enlarges its memory. The latencies of a
new process are those that a user sees.

``python -m riot_bench.suites.dspbench.paced_run ARGUMENTS`` takes JSON from :func:`paced_measures` and prints measures
as lines of JSON.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import numpy as np

from riot_bench.harness.child_process import die_with_parent
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import FILES_PER_BATCH, InputLines, write_input_lines
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.outcome import BOX_QUANTILES
from riot_bench.harness.workload import Workload
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.probe import Probe
from riot_ops.measure.probe_report import Report
from riot_ops.runtime.parallel import available_cores

__all__ = ["SAMPLE_S", "paced_measures", "paced_workload", "run_measures"]

#: Share of a paced run that is its warm-up; sources that are read before without a pace do not count, either.
SETTLING_SHARE = 0.25
#: Seconds between samples of CPU and memory.
SAMPLE_S = 0.25
#: Target of the 95th percentile of the latency in ms.
MAX_P95_MS = 50


def paced_measures(data: InputLines, together: float, alone: float | None, seconds: float) -> Iterator[Measure]:
    """Measure latency, CPU and memory at a rate on all cores, and optionally latency at another rate on one core.

    Both runs read the same new lines; repeating earlier lines would let event time go back.

    Parameters
    ----------
    data : InputLines
    together : float, lines/s
        Rate on all cores.
    alone : float or None, lines/s
        Rate on one core.
    seconds : float
        Duration of each run.
    """
    batch, sources = data.lines_per_file * FILES_PER_BATCH, len(paced_workload(data).sources)

    def needed(lines_per_s: float) -> int:
        return batch * math.ceil(lines_per_s / sources * seconds / batch)

    with temporary_folder() as base:
        lines = write_input_lines(data.application, base, needed(max(together, alone or 0.0)), batch)
        yield from _run_in_child(lines.take(needed(together)), together, seconds)
        if alone is not None:
            yield from _run_in_child(lines.take(needed(alone)), alone, seconds, alone=True)


def _run_in_child(lines: InputLines, lines_per_s: float, seconds: float, alone: bool = False) -> Iterator[Measure]:
    files = {name: [str(file) for file in files] for name, files in lines.files.items()}
    words = json.dumps([lines.application.code, files, lines.lines_per_file, lines_per_s, seconds, alone])
    command = [*die_with_parent(), sys.executable, "-m", __name__, words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RiotError(
            f"{lines.application.name} at {lines_per_s:,.0f} lines/s ended with exit code {done.returncode}"
        )
    yield from map(Measure.from_json, done.stdout.splitlines())


def main(words: str) -> None:
    """Run an application at a rate and print its measures."""
    code, files, each, lines_per_s, seconds, alone = json.loads(words)
    data = InputLines(application(code), {name: [Path(file) for file in some] for name, some in files.items()}, each)
    cores, probe, at = available_cores(), Probe(every=timedelta(seconds=SAMPLE_S)), f"dspbench/{code}/local"
    with pinned_to_one_core() if alone else nullcontext():
        data.application.builder().run(data.take(each * FILES_PER_BATCH).sources(), sinks=DiscardSink())  # compiles
        report = _run(data, lines_per_s, probe)
    settled = report.duration - (1 - SETTLING_SHARE) * min(seconds, report.duration)
    given = at, report, settled, lines_per_s
    if alone:
        found = latency_measures(*given, "half of the peak of one core, on one core", MAX_P95_MS, "-one-core")
    else:
        found = run_measures(*given, f"half of the peak, {cores} cores", MAX_P95_MS)
    for measure in found:
        print(measure.to_json(), flush=True)


def _run(data: InputLines, lines_per_s: float, probe: Probe) -> Report:
    given = paced_workload(data)
    rate = lines_per_s / len(given.sources)
    sources = {name: PacedSource(source, rate=rate) for name, source in given.sources.items()}
    given.flow.run({**sources, **given.side_inputs}, sinks=DiscardSink(), probe=probe)
    return probe.report()


def paced_workload(data: InputLines, most: int = 65_536) -> Workload:
    """Return the workload; of sources read in sequence, only the last is paced, the others are side inputs."""
    flow, sources = data.application.builder(), data.sources()
    side = list(sources)[:-1] if flow.merging == "sequence" else []
    return Workload(flow, {n: s for n, s in sources.items() if n not in side}, {n: sources[n] for n in side}, most)


def run_measures(
    at: str, report: Report, since: float, rate: float, where: str, reach_ms: float | None
) -> Iterator[Measure]:
    """Yield the measures of a run at a rate, from second ``since`` on."""
    yield from latency_measures(at, report, since, rate, where, reach_ms)
    how = f"at {rate:,.0f} lines/s, {where}"
    span = max(report.duration - since, 1e-9)
    delivered = report.series(span, since, report.duration).output_rate
    yield Measure(f"{at}-sink", float(delivered[0]) if delivered.size else 0.0, "records/s", f"delivered, {how}")
    yield Measure(f"{at}-cpu", report.cpu(since), "cores", f"all processes, {how}")
    yield Measure(f"{at}-memory", report.memory(since) / 2**20, "MiB", f"all processes, {how}")
    assert report.usage is not None
    samples = report.usage.between(report.begin + since, report.begin + report.duration).memory / 2**20
    for share in BOX_QUANTILES if samples.size else ():
        value = float(np.quantile(samples, share))
        note = f"over {samples.size} samples of all processes, {how}"
        yield Measure(f"{at}-memory-p{100 * share:.0f}", value, "MiB", note)


def latency_measures(
    at: str, report: Report, since: float, rate: float, where: str, reach_ms: float | None, end: str = ""
) -> Iterator[Measure]:
    """Yield the median and the 95th percentile of the latency, from second ``since`` on."""
    how = f"at {rate:,.0f} lines/s, {where}"
    p50, p95 = (1e3 * late for late in report.latency(0.5, 0.95, since_s=since, until_s=report.duration))
    yield Measure(f"{at}-latency-p50{end}", p50, "ms", how)
    yield Measure(f"{at}-latency-p95{end}", p95, "ms", how, reach_ms, at_most=True)


if __name__ == "__main__":
    main(sys.argv[1])
