"""The lock by which the processes of a machine compile a kernel once: the others wait, and load its machine code."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["compile_once"]

LOCK = ".lock"


def compile_once(dispatcher: Any, directory: Path) -> Any:
    """Make a numba dispatcher compile under a lock on its cache directory; returns it.

    numba looks into the cache within ``compile``, so a process that has waited for the lock finds what another one has
    compiled in the meantime. Where no file can be locked, each process compiles for itself.
    """
    compile_signature = dispatcher.compile

    @functools.wraps(compile_signature)
    def compile_locked(signature: Any) -> Any:
        with _locked(directory):
            return compile_signature(signature)

    dispatcher.compile = compile_locked
    return dispatcher


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(ImportError, OSError):  # the lock ends with the process
            import fcntl

            directory.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(open(directory / LOCK, "wb"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
