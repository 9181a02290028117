"""One experiment in a process of its own: ``python -m riot_bench.report.run_one PIPE SOURCE KEY FORM``.

Each measure goes as a line of JSON to the pipe with that number; what the experiment prints is its own affair. When
nobody listens any more, because the report was killed, the experiment ends, with what it has started.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace

from riot_bench.harness.measure import load, machine
from riot_bench.report.plan import find

__all__ = ["main"]

#: Seconds for the experiment to put things away when nobody listens.
GRACE_S = 5.0


def main(pipe: int, source: str, key: str, quick: bool) -> None:
    """Run it."""
    os.set_inheritable(pipe, False)  # what the experiment starts may outlive it
    threading.Thread(target=_listened_to, args=(pipe,), daemon=True).start()
    where, before = machine(), load()
    with os.fdopen(pipe, "w", encoding="utf-8") as file:
        for measure in find(source, key).measures(quick):
            print(replace(measure, machine=where, load=((before, load()),)).to_json(), file=file, flush=True)


def _listened_to(pipe: int) -> None:
    """Wait until the other end is closed; then end this process and its group, if that is its own."""
    poll = select.poll()
    poll.register(pipe, 0)  # an error is told in any case
    poll.poll()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "quick")
