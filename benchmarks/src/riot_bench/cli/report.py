"""The ``riot-ops report`` command."""

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

`riot-ops report --suite streambench --full --repeat 5 --out report` · one suite, with confidence intervals

`riot-ops report --experiment neptune/relay --again --out report` · repeat one experiment

`riot-ops report --list` · all experiments, and how long they take

A report continues where an earlier one was stopped: experiments in the folder's `results.jsonl` are not run again. The
page shows all stored experiments, each in the full form if it has one. Reports that run at the same time need separate
folders; `--page` may be used while a report runs.

**Exit codes**: 0 all completed, 1 an experiment failed, 2 misuse, 130 stopped by Ctrl-C (the page is written)"""


def report(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="Suite: riotbench, dspbench, neptune, streambench, threat, reuse, all (default) "
            "or a module; repeatable."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Small data and few repetitions, or the complete experiments.")
    ] = True,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("out/report"),
    experiment: Annotated[list[str] | None, typer.Option(help="Experiment, such as neptune/relay; repeatable.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each experiment, for confidence intervals.")] = 1,
    again: Annotated[bool, typer.Option("--again", help="Also run experiments that are stored already.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the page of the stored results.")] = False,
    patience: Annotated[
        float, typer.Option(help="Time limit of an experiment, as a factor of its declared seconds.")
    ] = 4,
    list_them: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
) -> None:
    """Repeat the papers' experiments and write a page with figures, intervals and the published values."""
    from rich.console import Console

    from riot_bench.harness.requirements import require_extra
    from riot_bench.report import files, plan, runner
    from riot_bench.report.store import ResultStore
    from riot_ops.core.folder_lock import FolderLock
    from riot_ops.core.paths import local_path

    wanted = plan.plan_experiments(suite or ["all"], experiment or ())
    if list_them:
        for one in wanted:
            short, long = one.experiment.seconds
            print(f"{one.key:28} {one.suite:12} {_clock(short):>8} {_clock(long):>8}  {one.experiment.title}")
        return
    require_extra("the report", "plot", "matplotlib")
    require_extra("the report", "ml", "scipy")
    require_extra("the report", "bench", "psutil")
    store = ResultStore(local_path(out, "--out"))
    console = Console(stderr=True)
    completed = True
    with contextlib.ExitStack() as held:
        if not page:
            held.enter_context(
                FolderLock([store.folder])
            )  # a second report would run the same experiments, and both would be slower
        try:
            if not page:
                runs = runner.missing_runs(store, wanted, quick, repeat, again)
                with _ProgressBar(console, [one.experiment.seconds[0 if quick else 1] for one in runs]) as show:
                    completed = runner.run_all(store, runs, quick, show, patience)
        except KeyboardInterrupt:
            console.print("stopped; writing the page of the stored results")
            raise
        finally:
            print(files.write_report(store, wanted))
    if not completed:
        raise typer.Exit(1)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class _ProgressBar:
    """A progress bar with the remaining declared time; without a terminal, a line per experiment."""

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

    def __enter__(self) -> _ProgressBar:
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
