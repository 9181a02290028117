"""Runs what a report lacks, each experiment in a process of its own."""

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

from riot_bench.report.plan import Planned
from riot_bench.report.store import DONE, FAILED, LATE, STOPPED, Store, Writer, elsewhere
from riot_ops.core.errors import ConfigError

__all__ = ["Show", "missing", "run"]

#: Seconds that any experiment may take: workers and the JVM have to start.
START_S = 60.0
#: Seconds for an experiment to put away what it started.
GRACE_S = 10.0
TICK_S = 0.25
#: Where experiments run, so that what a suite writes besides stays with the report.
RUNS = "runs"


class Show(Protocol):
    """Who is told how it goes."""

    def begin(self, one: Planned) -> None: ...

    def tick(self, seconds: float, measures: int) -> None: ...

    def end(self, one: Planned, state: str, reason: str) -> None: ...


def missing(store: Store, plan: Sequence[Planned], quick: bool, repeat: int = 1, again: bool = False) -> list[Planned]:
    """The runs that are to be made, in turns.

    Parameters
    ----------
    repeat : int, >= 1, default 1
        Runs of each experiment that are wanted: those of one commit on one machine.
    again : bool, default False
        Make all of them anew, whatever is there. Otherwise an experiment that is through counts, also one of
        another commit or machine, which the report tells; where more runs are wanted, those do not count. A full run
        counts where a quick one is wanted, too: it is what the report shows.
    """
    if repeat < 1:
        raise ConfigError(f"repeat must be >= 1, got {repeat}")
    lacking = {one.key: repeat for one in plan}
    for form in () if again else (False, True) if quick else (False,):
        for result in store.results(plan, form):
            there = result.runs if repeat == 1 or not elsewhere(result.about) else 0
            if form == quick or there >= repeat:  # runs of both forms are never put together
                lacking[result.planned.key] = min(lacking[result.planned.key], max(0, repeat - there))
    return [one for turn in range(repeat) for one in plan if lacking[one.key] > turn]


def run(store: Store, plan: Sequence[Planned], quick: bool, show: Show, patience: float = 4.0) -> bool:
    """Make runs and store what they find; returns whether all went through.

    Parameters
    ----------
    patience : float, > 0, default 4
        An experiment is ended when it takes longer than a minute and so many times its declared seconds.
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
            state, reason = _of_one_code(writer, *_one(one, quick, writer, log, limit, show))
        except KeyboardInterrupt:
            writer.end(STOPPED, "stopped by the user")
            show.end(one, STOPPED, "")
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):  # the disk may be full, which is what is raised
                writer.end(FAILED, reason)
            show.end(one, FAILED, reason)
            raise
        writer.end(state, reason)
        show.end(one, state, reason)
        good &= state == DONE
    return good


def _one(one: Planned, quick: bool, writer: Writer, log: Path, limit: float, show: Show) -> tuple[str, str]:
    """Run one; returns how it ended, and why."""
    mouth, ear = os.pipe()
    begun, found, rest = time.monotonic(), 0, b""
    program = [sys.executable, "-m", "riot_bench.report.run_one", str(ear), one.source, one.key]
    with log.open("wb") as output, selectors.DefaultSelector() as selector:
        child = subprocess.Popen(  # noqa: S603
            [*program, "quick" if quick else "full"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(ear,),
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": _paths()},
            start_new_session=True,  # Ctrl-C is for us, who tell it
        )
        os.close(ear)
        selector.register(mouth, selectors.EVENT_READ)
        try:
            while True:
                over = child.poll() is not None  # asked first: what it wrote before is read below
                while selector.select(0 if over else TICK_S):
                    data = os.read(mouth, 1 << 16)
                    if not data:
                        selector.unregister(mouth)
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
                    return LATE, f"not through after {seconds:.0f} s"
        finally:
            _end(child)
            os.close(mouth)  # now: whom nobody listens to ends by itself
    if child.returncode == 0:
        return (DONE, "") if found else (FAILED, "it found nothing")
    return FAILED, _why(child.returncode, _last_words(log))


def _why(code: int, words: str) -> str:
    """Why a process failed: what it said last, which of one that was killed is not the reason."""
    if code > 0:
        return words or f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has none
        name = f"signal {-code}"
    return f"killed by {name}" + (f"; last printed: {words}" if words else "")


def _of_one_code(writer: Writer, state: str, reason: str) -> tuple[str, str]:
    """How a run ended; where the code was changed since it began, nobody knows which of both it ran."""
    if not writer.changed():
        return state, reason
    told = "the code was changed meanwhile"
    return (FAILED, told) if state == DONE else (state, f"{reason}; {told}")


def _paths() -> str:
    """Where modules are found that are found here, from another folder too."""
    given = (path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return os.pathsep.join([*(os.path.abspath(path) for path in given), os.getcwd()])


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; it may put things away first."""
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
        os.killpg(child.pid, signal.SIGKILL)  # whoever began before the family was asked for, or after


def _last_words(log: Path) -> str:
    """The last line of what it printed: of a traceback, the error."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
