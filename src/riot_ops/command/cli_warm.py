"""The ``riot-ops warm`` command."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["EXAMPLES", "warm"]

EXAMPLES = """**Examples**

`riot-ops warm` · once after installation, or after an update

`riot-ops warm --processes 1`"""


def warm(
    processes: Annotated[int | None, typer.Option(min=1, help="Default: as many as there are cores.")] = None,
) -> None:
    """Compile all loops now instead of each at its first use; the machine code is kept for later runs."""
    from riot_ops.command.warm import warm as warm_all

    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        print("warm: compiling is off (NUMBA_DISABLE_JIT=1), so there is nothing to do")
        return
    console = Console(stderr=True)
    start = time.perf_counter()
    with console.status("compiling …") as status:
        every = 1 if console.is_terminal else 10

        def progress(done: int, total: int, unit: str) -> None:
            line = f"compiled {done} of {total} ({unit}), {time.perf_counter() - start:.0f} s"
            status.update(line)
            if not console.is_terminal and (done % every == 0 or done == total):
                print(f"warm: {line}", flush=True)

        failed = warm_all(processes, progress)
    for unit, error in failed.items():
        print(f"warm: {unit} was left out: {error}")
    print(f"warm: done in {time.perf_counter() - start:.0f} s")
