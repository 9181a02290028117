"""The command ``riot-ops report``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["EXAMPLES", "report"]

EXAMPLES = """**Examples**

`riot-ops report --quick --out report` · all suites, in half an hour

`riot-ops report --suite streambench --full --repeat 5 --out report` · one, with intervals

`riot-ops report --experiment neptune/relay --again --out report` · one experiment anew

`riot-ops report --list` · what there is, and how long it takes

A report goes on where an earlier one was stopped: what `results.jsonl` in the folder has is not run again. The page
shows all that is there, whatever is run, each experiment in the full form if it has one. Two reports at once need two
folders; `--page` may be given meanwhile.

**Exit codes**: 0 all through, 1 an experiment failed, 2 misuse, 130 stopped by Ctrl-C, with a page all the same"""


def report(
    suite: Annotated[
        list[str] | None,
        typer.Option(help="riotbench, dspbench, neptune, streambench, threat, reuse, all (default), or a module."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Small data and few repetitions, or the experiments as they are.")
    ] = True,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("out/report"),
    experiment: Annotated[list[str] | None, typer.Option(help="An experiment, such as neptune/relay.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each experiment, for confidence intervals.")] = 1,
    again: Annotated[bool, typer.Option("--again", help="Run what is there already, too.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Run nothing: write the page of what is there.")] = False,
    patience: Annotated[float, typer.Option(help="An experiment ends after so many times its declared seconds.")] = 4,
    list_them: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Repeat the papers' experiments, and write a page with figures, intervals and the published numbers."""
    from rich.console import Console

    from riot_bench.harness.data import needs
    from riot_bench.report import files, plan
    from riot_bench.report import runner as running
    from riot_bench.report.store import Store
    from riot_ops.core.paths import local_path
    from riot_ops.runtime.claim import Claim

    wanted = plan.planned(suite or ["all"], experiment or ())
    if list_them:
        for one in wanted:
            short, long = one.experiment.seconds
            print(f"{one.key:28} {one.suite:12} {_clock(short):>8} {_clock(long):>8}  {one.experiment.title}")
        return
    needs("the report", "plot", "matplotlib")
    needs("the report", "ml", "scipy")
    needs("the report", "bench", "psutil")
    store = Store(local_path(out, "--out"))
    console = Console(stderr=True)
    good = True
    with contextlib.ExitStack() as held:
        if not page:
            held.enter_context(Claim([store.folder]))  # another would run the same, and both be slower
        try:
            if not page:
                runs = running.missing(store, wanted, quick, repeat, again)
                with _Show(console, [one.experiment.seconds[0 if quick else 1] for one in runs]) as show:
                    good = running.run(store, runs, quick, show, patience)
        except KeyboardInterrupt:
            console.print("stopped; writing the page of what there is")
            raise
        finally:
            print(files.write(store, wanted))
    if not good:
        raise typer.Exit(1)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class _Show:
    """A bar with the remaining time, by what the experiments declare; elsewhere than on a terminal a line for each."""

    def __init__(self, console: Any, seconds: Sequence[float]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._console, self._seconds = console, list(seconds)
        self._number, self._passed, self._begun = 0, 0.0, 0.0
        columns = (
            TextColumn("{task.fields[at]}"),
            BarColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("[bold]{task.fields[key]}[/] {task.fields[found]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        total = sum(seconds)
        self._task = self._bar.add_task("", total=max(1.0, total), at="", left=_clock(total), key="", found="")

    def __enter__(self) -> _Show:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, one: Any) -> None:
        from rich.markup import escape

        self._begun = time.monotonic()
        at = f"{self._number + 1} of {len(self._seconds)}"
        self._bar.update(self._task, at=at, key=escape(one.key), found="")
        if not self._console.is_terminal:
            left = _clock(sum(self._seconds[self._number :]))
            self._console.print(f"{at}, about {left} left: {one.key}", markup=False, highlight=False, soft_wrap=True)

    def tick(self, seconds: float, measures: int) -> None:
        mine = self._seconds[self._number]
        left = sum(self._seconds[self._number + 1 :]) + max(0.0, mine - seconds)
        self._bar.update(
            self._task, completed=self._passed + min(seconds, mine), left=_clock(left), found=f"{measures} measures"
        )

    def end(self, one: Any, state: str, reason: str) -> None:
        self._passed += self._seconds[self._number]
        self._number += 1
        self._bar.update(self._task, completed=self._passed)
        took = _clock(time.monotonic() - self._begun)
        text = f"{one.key}: {state} in {took}" + (f": {reason}" if reason else "")
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
