"""A subscriber for a test that kills it: it writes to Parquet files, with a checkpoint.

It is forked from a process that has imported all modules, since imports take most of the time of a start.

usage: killed_job.py URL FOLDER MESSAGES QOS
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import riot_ops as ro
from riot_ops.connectors import MQTTSource


def source(url: str, folder: Path, messages: int, qos: int) -> MQTTSource:
    return MQTTSource(
        url=url, topics=("job/#",), client_id=f"job-{qos}", spool=str(folder / "spool"), qos=qos, messages=messages
    )


def job(url: str, folder: Path, messages: int, qos: int) -> None:
    flow = ro.Dataflow("job")
    one = source(url, folder, messages, qos)
    raw = flow.source("raw", schema=one.schema)
    flow.sink("out", raw)
    flow.run(one, out=folder / "out", checkpoint=folder / "checkpoint", epoch="50ms", batch_size=200, overwrite=False)


def main() -> None:
    """For each line of standard input start the job in a new process; print its process id, and its exit code."""
    url, folder, messages, qos = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    for _ in iter(sys.stdin.readline, ""):
        process = os.fork()
        if not process:
            try:
                job(url, folder, messages, qos)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
