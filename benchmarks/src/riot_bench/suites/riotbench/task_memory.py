"""Memory of a task in a process that has run nothing else.

A process keeps much of the memory that earlier tasks have used, so that in a common process the last tasks would have
most.

``python -m riot_bench.suites.riotbench.task_memory ARGUMENTS`` takes JSON from :func:`task_memory` and prints the
samples as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_bench.harness import trial
from riot_bench.harness.child_process import die_with_parent
from riot_bench.harness.workload import Workload
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.riotbench.micro import SOURCE, micro, micro_source

__all__ = ["task_memory"]


def task_memory(code: str, rate: float, quick: bool) -> npt.NDArray[np.float64]:
    """Run a task at a rate on one core, in a new process; return its memory (MiB) at each sample after the warm-up.

    Raises
    ------
    RiotError
        The process ended with an error.
    """
    words = json.dumps([code, rate, quick])
    command = [*die_with_parent(), sys.executable, "-m", __name__, words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RiotError(f"{code} at {rate:,.0f} messages/s ended with exit code {done.returncode}")
    return np.array(json.loads(done.stdout))


def main(words: str) -> None:
    """Run a task at a rate and print its memory."""
    code, rate, quick = json.loads(words)
    with trial.runner("local", quick, cores=1) as run:
        batch = min(run.max_batch, max(run.min_batch, int(rate * run.batch_s)))
        workload = replace(Workload(micro(code), {SOURCE: micro_source(code)}), max_batch=batch)
        run.warm_up(workload)
        report = run.run(workload, run.trial_s, {"rate": rate}, run.every_s / 4)
    usage: Any = report.usage
    part = usage.between(report.begin + run.warm_s, report.begin + run.trial_s)
    print(json.dumps(((part if part.times.size else usage).memory / 2**20).tolist()))


if __name__ == "__main__":
    main(sys.argv[1])
