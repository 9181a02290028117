"""The ``riot-ops warm`` command."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from rich.console import Console

from riot_ops.core.errors import ConfigError

__all__ = ["EXAMPLES", "warm"]

EXAMPLES = """**Examples**

`riot-ops warm` · once after installation, or after an update

`riot-ops warm stats` · only the kernels of this application

`riot-ops warm --processes 1`

`riot-ops warm --spark` · cut the start of sessions by a third; takes 180 MB in the user's cache"""


def warm(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Applications, by name or code; default: all kernels.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: one per core.")] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Archive the Java classes of Spark instead, so that its JVM starts faster.")
    ] = False,
) -> None:
    """Compile the kernels of tasks now instead of at their first use, and cache their machine code."""
    if spark:
        if names:
            raise ConfigError(f"--spark takes no applications, got {' '.join(names)}")
        if processes is not None:
            raise ConfigError(f"--processes {processes} is not for --spark; leave it out")
        _archive()
        return
    from riot_ops.cli.kernel_warm_up import UNITS, units_of
    from riot_ops.cli.kernel_warm_up import warm as warm_all

    units = units_of(names) if names else UNITS
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        print("warm: nothing to do, as compilation is disabled (NUMBA_DISABLE_JIT=1)")
        return
    console = Console(stderr=True, markup=False)
    start = time.perf_counter()
    with console.status("compiling …") as status:
        every = 1 if console.is_terminal else 10

        def progress(done: int, total: int, unit: str) -> None:
            line = f"compiled {done} of {total} ({unit}), {time.perf_counter() - start:.0f} s"
            status.update(line)
            if not console.is_terminal and (done % every == 0 or done == total):
                print(f"warm: {line}", flush=True)

        failed = warm_all(processes, progress, units)
    for unit, error in failed.items():
        print(f"warm: {unit} failed: {error}")
    print(f"warm: done in {time.perf_counter() - start:.0f} s")


def _archive() -> None:
    from riot_ops.core.errors import RiotError
    from riot_ops.spark.launcher import archive_classes

    start = time.perf_counter()
    print("warm: archiving the Java classes of Spark, which takes a minute or two", flush=True)
    try:
        archive = archive_classes()
    except (RiotError, OSError) as error:
        print(f"warm: no archive was made: {error}")
        raise typer.Exit(1) from None
    if archive is None:
        print("warm: no archive was made, as Spark is not from this environment")
        raise typer.Exit(1)
    print(f"warm: wrote {archive} in {time.perf_counter() - start:.0f} s")
