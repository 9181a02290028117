"""A process that runs one experiment: ``python -m riot_bench.report.experiment_process PIPE SOURCE KEY FORM``.

It writes each measure as a line of JSON to the pipe with that number; its standard output is not parsed. If the other
end of the pipe is closed because the report was killed, the process ends with all that it has started.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace

from riot_bench.harness.machine import describe_machine, load_average
from riot_bench.report.plan import find_experiment

__all__ = ["run_experiment"]

#: Seconds for the experiment to clean up after the pipe is closed.
CLEANUP_S = 5.0


def run_experiment(pipe: int, source: str, key: str, quick: bool) -> None:
    """Run an experiment and write its measures to the pipe."""
    os.set_inheritable(pipe, False)  # child processes may outlive the experiment
    threading.Thread(target=_exit_when_closed, args=(pipe,), daemon=True).start()
    where, before = describe_machine(), load_average()
    with os.fdopen(pipe, "w", encoding="utf-8") as file:
        for measure in find_experiment(source, key).measures(quick):
            print(replace(measure, machine=where, load=((before, load_average()),)).to_json(), file=file, flush=True)


def _exit_when_closed(pipe: int) -> None:
    """Wait until the other end is closed, then end this process, and its group if this process leads it."""
    poll = select.poll()
    poll.register(pipe, 0)  # errors are reported in any case
    poll.poll()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(CLEANUP_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    run_experiment(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "quick")
