"""Parts of benchmarks that run in a process of their own, which may be killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from riot_ops.core.errors import RiotError

__all__ = ["finish", "job", "kill", "with_us"]


def with_us() -> list[str]:
    """What stands before a command, so that it ends with this process, even where this one is killed (on Linux)."""
    if not shutil.which("setpriv"):
        return []
    # Who is killed before its child has asked for the signal sends none: the child then has another parent, and ends.
    ours = f'[ "$PPID" = {os.getpid()} ] && exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", ours, "sh"]


@contextmanager
def job(module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module that runs as a program; it and what it has started are over at the end, however that comes about.

    >>> with job("this") as process:
    ...     process.wait()
    0
    """
    process = subprocess.Popen(  # noqa: S603
        [*with_us(), sys.executable, "-m", module, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)


def finish(process: subprocess.Popen[bytes], what: str, limit_s: float) -> None:
    """Wait until a job has ended; raises where it does not within a time, or ends with another code than 0.

    >>> with job("this") as process:
    ...     finish(process, "the job", 60.0)
    """
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise RiotError(f"{what} was not done in {limit_s:g} s") from None
    if code:
        raise RiotError(f"{what} ended with {code}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a job with what it has started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
