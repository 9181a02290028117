"""Runs the experiments that a report lacks, each in its own process."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from riot_bench.report.plan import PlannedExperiment
from riot_bench.report.store import DONE, FAILED, LATE, STOPPED, ResultStore, RunWriter, differing_origin
from riot_ops.core.errors import ConfigError

__all__ = ["Progress", "missing_runs", "run_all"]

#: Seconds that every experiment may take in addition: workers and the JVM have to start.
START_S = 60.0
#: Seconds for an experiment to clean up.
GRACE_S = 10.0
TICK_S = 0.25
#: Folder in which experiments run, so that files of the suites stay with the report.
RUNS = "runs"


class Progress(Protocol):
    """Receives the progress of the runs."""

    def begin(self, one: PlannedExperiment) -> None: ...

    def tick(self, seconds: float, measures: int) -> None: ...

    def end(self, one: PlannedExperiment, state: str, reason: str) -> None: ...


def missing_runs(
    store: ResultStore, plan: Sequence[PlannedExperiment], quick: bool, repeat: int = 1, again: bool = False
) -> list[PlannedExperiment]:
    """Return the runs that are still to be made, alternating between experiments.

    Parameters
    ----------
    store : ResultStore
    plan : sequence of PlannedExperiment
    quick : bool
        Whether to run the quick form.
    repeat : int, >= 1, default 1
        Runs of each experiment, all of the same commit and machine.
    again : bool, default False
        Whether to repeat runs that are stored. Otherwise a completed experiment counts even from another commit or
        machine, which the report states; with ``repeat`` above 1 it does not. A full run also counts for the quick
        form, since the report shows it.
    """
    if repeat < 1:
        raise ConfigError(f"repeat must be >= 1, got {repeat}")
    lacking = {one.key: repeat for one in plan}
    for form in () if again else (False, True) if quick else (False,):
        for result in store.results(plan, form):
            there = result.runs if repeat == 1 or not differing_origin(result.about) else 0
            if form == quick or there >= repeat:  # runs of both forms are never combined
                lacking[result.planned.key] = min(lacking[result.planned.key], max(0, repeat - there))
    return [one for turn in range(repeat) for one in plan if lacking[one.key] > turn]


def run_all(
    store: ResultStore, plan: Sequence[PlannedExperiment], quick: bool, show: Progress, patience: float = 4.0
) -> bool:
    """Run experiments and store their measures; return whether all were completed.

    Parameters
    ----------
    store : ResultStore
    plan : sequence of PlannedExperiment
    quick : bool
        Whether to run the quick form.
    show : Progress
    patience : float, > 0, default 4
        An experiment is ended after a minute plus ``patience`` times its declared seconds.
    """
    if not patience > 0:
        raise ConfigError(f"patience must be > 0, got {patience}")
    good = True
    for one in plan:
        show.begin(one)
        writer = store.begin(one, quick)
        limit = START_S + patience * one.experiment.seconds[0 if quick else 1]
        log = store.folder / RUNS / one.key.replace("/", "-") / f"{'quick' if quick else 'full'}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            state, reason = _checked_code(writer, *_run_one(one, quick, writer, log, limit, show))
        except KeyboardInterrupt:
            writer.end(STOPPED, "stopped by the user")
            show.end(one, STOPPED, "")
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):  # the disk may be full, which is the error raised below
                writer.end(FAILED, reason)
            show.end(one, FAILED, reason)
            raise
        writer.end(state, reason)
        show.end(one, state, reason)
        good &= state == DONE
    return good


def _run_one(
    one: PlannedExperiment, quick: bool, writer: RunWriter, log: Path, limit: float, show: Progress
) -> tuple[str, str]:
    """Run one experiment; return how it ended, and why."""
    reader, pipe = os.pipe()
    begun, found, rest = time.monotonic(), 0, b""
    program = [sys.executable, "-m", "riot_bench.report.experiment_process", str(pipe), one.source, one.key]
    with log.open("wb") as output, selectors.DefaultSelector() as selector:
        child = subprocess.Popen(  # noqa: S603
            [*program, "quick" if quick else "full"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(pipe,),
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": _python_path()},
            start_new_session=True,  # this process receives Ctrl-C and then ends the child
        )
        os.close(pipe)
        selector.register(reader, selectors.EVENT_READ)
        try:
            while True:
                over = child.poll() is not None  # checked first, so that all it wrote is read below
                while selector.select(0 if over else TICK_S):
                    data = os.read(reader, 1 << 16)
                    if not data:
                        selector.unregister(reader)
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        writer.measure(line.decode())
                        found += 1
                    if not over:
                        break
                seconds = time.monotonic() - begun
                show.tick(seconds, found)
                if over:
                    break
                if seconds > limit:
                    return LATE, f"not done after {seconds:.0f} s"
        finally:
            _terminate(child)
            os.close(reader)  # last: the child ends itself when its pipe is closed
    if child.returncode == 0:
        return (DONE, "") if found else (FAILED, "it yielded no measures")
    return FAILED, _exit_reason(child.returncode, _last_line(log))


def _exit_reason(code: int, words: str) -> str:
    """Describe why a process failed; the last output of a killed process is not the reason."""
    if code > 0:
        return words or f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has none
        name = f"signal {-code}"
    return f"killed by {name}" + (f"; last printed: {words}" if words else "")


def _checked_code(writer: RunWriter, state: str, reason: str) -> tuple[str, str]:
    """Return how a run ended; a run during which the code was changed fails, as it may have used either version."""
    if not writer.changed():
        return state, reason
    note = "the code was changed meanwhile"
    return (FAILED, note) if state == DONE else (state, f"{reason}; {note}")


def _python_path() -> str:
    """Return a ``PYTHONPATH`` that finds the modules of this process from another folder."""
    given = (path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return os.pathsep.join([*(os.path.abspath(path) for path in given), os.getcwd()])


def _terminate(child: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; it may clean up first."""
    import psutil

    try:
        family = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # processes that the list of children missed


def _last_line(log: Path) -> str:
    """Return the last line of the log; in a traceback, this is the error."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
