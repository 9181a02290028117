"""Modules that run in child processes, which a benchmark can kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from riot_ops.core.errors import RiotError

__all__ = ["die_with_parent", "kill_group", "module_process", "wait_for_exit"]


def die_with_parent() -> list[str]:
    """Return a command prefix that ends the command with this process, even if this process is killed (Linux)."""
    if not shutil.which("setpriv"):
        return []
    # If this process dies before the child has requested the signal, no signal is sent: the child then has another
    # parent and exits.
    ours = f'[ "$PPID" = {os.getpid()} ] && exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", ours, "sh"]


@contextmanager
def module_process(module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a program; at the end, kill it with all that it has started.

    >>> with module_process("this") as process:
    ...     process.wait()
    0
    """
    process = subprocess.Popen(  # noqa: S603
        [*die_with_parent(), sys.executable, "-m", module, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_group(process)


def wait_for_exit(process: subprocess.Popen[bytes], what: str, limit_s: float) -> None:
    """Wait until a process has ended; raise if it takes longer than ``limit_s`` or its exit code is not 0.

    >>> with module_process("this") as process:
    ...     wait_for_exit(process, "the job", 60.0)
    """
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise RiotError(f"{what} was not done in {limit_s:g} s") from None
    if code:
        raise RiotError(f"{what} ended with exit code {code}")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group immediately."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
