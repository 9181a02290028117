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

`riot-ops warm stats` · only what this application needs

`riot-ops warm --processes 1`

`riot-ops warm --spark` · sessions then start in two thirds of the time; 180 MB in the user's cache"""


def warm(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Applications by name; default: everything.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: as many as there are cores.")] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Archive the classes of Spark instead: its JVM starts in less time.")
    ] = False,
) -> None:
    """Compile all loops now instead of each at its first use; the machine code is kept for later runs."""
    if spark:
        if names:
            raise ConfigError(f"--spark archives the classes of Spark for all applications, got {' '.join(names)}")
        if processes is not None:
            raise ConfigError(f"--processes {processes} does not go with --spark: there is one archive of classes")
        _archive()
        return
    from riot_ops.cli.kernel_warm_up import UNITS, units_of
    from riot_ops.cli.kernel_warm_up import warm as warm_all

    units = units_of(names) if names else UNITS
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

        failed = warm_all(processes, progress, units)
    for unit, error in failed.items():
        print(f"warm: {unit} was left out: {error}")
    print(f"warm: done in {time.perf_counter() - start:.0f} s")


def _archive() -> None:
    from riot_ops.core.errors import RiotError
    from riot_ops.spark.launcher import archive_classes

    start = time.perf_counter()
    print("warm: reading the classes of Spark, which takes a minute or two", flush=True)
    try:
        archive = archive_classes()
    except (RiotError, OSError) as error:
        print(f"warm: there is no archive: {error}")
        raise typer.Exit(1) from None
    if archive is None:
        print("warm: Spark is not of this environment, whose classes are archived alone")
        raise typer.Exit(1)
    print(f"warm: {archive} is there after {time.perf_counter() - start:.0f} s")
