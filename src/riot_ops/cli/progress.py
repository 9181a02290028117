"""Terminal output of a run: its progress, warnings, and the answer to Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

from riot_ops.core.errors import ConfigError, escape_control
from riot_ops.measure.json_log import PROGRESS_LOGGER, JSONFormatter
from riot_ops.measure.metrics import Summary

__all__ = ["Progress", "Rate", "announce_interrupts", "redirect_stderr", "run_in_thread", "show_log"]

LINE_SECONDS = 2.0
LIVE_SECONDS = 0.25
RATE_SECONDS = 10.0

T = TypeVar("T")


class Rate:
    """The recent rate per second of a total that may grow in jumps, as with micro-batches.

    The rate is taken over several jumps, so it does not fall to 0 between them; it begins to fall after ``over_s``
    seconds without a jump.

    Examples
    --------
    >>> rate = Rate(now=0.0)
    >>> for second, total in ((1, 0), (2, 200), (3, 200), (4, 400), (5, 400)):
    ...     rate.add(second, total)
    >>> rate.per_second(5.0)
    100.0
    """

    def __init__(self, now: float, over_s: float = RATE_SECONDS) -> None:
        self._over = over_s
        self._points: deque[tuple[float, int]] = deque([(now, 0)])

    def add(self, now: float, total: int) -> None:
        """Add the total at a time."""
        if total == self._points[-1][1]:
            return
        self._points.append((now, total))
        while len(self._points) > 2 and self._points[1][0] <= now - self._over:
            self._points.popleft()

    def per_second(self, now: float) -> float:
        """Return the rate; 0 before the first jump."""
        (first, before), (last, total) = self._points[0], self._points[-1]
        until = last if now - last < self._over else now
        return (total - before) / (until - first) if until > first else 0.0


class Progress:
    """A line with the progress of a run: live on a terminal, every two seconds elsewhere.

    Parameters
    ----------
    total : int or None
        Number of messages, if it is known.
    lag : bool, default True
        Whether to show the lag; of records that were all there at the start it would tell how long a file waited.
    """

    def __init__(self, console: Console, total: int | None, *, lag: bool = True) -> None:
        self._console = console
        self._total = total
        self._lag = lag
        self._live = Live("", console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._shown = time.monotonic()
        self._rate = Rate(self._shown)
        if self._live is not None:
            self._live.start()

    def show(self, summary: Summary, extra: str = "") -> None:
        """Show the summary, unless it was shown a moment ago."""
        now = time.monotonic()
        self._rate.add(now, summary.messages)
        if now - self._shown < (LIVE_SECONDS if self._live is not None else LINE_SECONDS):
            return
        self._shown = now
        line = progress_line(summary, self._total, self._rate.per_second(now), extra, lag=self._lag)
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif summary.messages:
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """Remove the line."""
        if self._live is not None:
            self._live.stop()


def progress_line(summary: Summary, total: int | None, rate: float, extra: str, *, lag: bool = True) -> str:
    """Format the line; the most important parts come first, as a narrow terminal cuts the end.

    >>> progress_line(Summary(messages=5_000), 20_000, 500.0, "")
    '5,000 messages (25 %)  500/s  0:30 left  lag –  0 rejected'
    """
    share = left = ""
    if total:
        share = f" ({min(100, 100 * summary.messages // total)} %)"
        if rate > 0 and summary.messages < total:
            minutes, seconds = divmod(round((total - summary.messages) / rate), 60)
            left = f"{minutes}:{seconds:02d} left"
    newest = summary.latency.last_s()
    late = "" if not lag else "lag –" if math.isnan(newest) else f"lag {newest:.2f} s"
    speed = f"{rate:,.0f}/s" if rate else "–/s"
    parts = (f"{summary.messages:,} messages{share}", speed, left, late, f"{summary.errors:,} rejected", extra)
    return "  ".join(part for part in parts if part)


def run_in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result; Ctrl-C does not wait for it.

    >>> run_in_thread(lambda: 2 + 2)
    4
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # raised by result()
            done.set_exception(error)

    # not a pool, for which the program would wait at exit
    threading.Thread(target=run, daemon=True, name="riot_ops-work").start()
    return done.result()


@contextlib.contextmanager
def announce_interrupts(console: Console) -> Iterator[None]:
    """Answer Ctrl-C at once, since an orderly end takes a moment."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def listen() -> None:
        while data := receiver.recv(64):
            if signal.SIGINT in data:
                console.print("stopping … (press Ctrl-C again to stop without waiting)")

    listener = threading.Thread(target=listen, daemon=True, name="riot_ops-interrupts")
    listener.start()
    previous_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        sender.close()
        listener.join()
        receiver.close()


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(escape_control(f"riot-ops: {record.levelname.lower()}: {record.getMessage()}"), file=sys.stderr)


@contextlib.contextmanager
def show_log(*, verbose: bool = False, json_lines: str | None = None) -> Iterator[None]:
    """Print the warnings of the library, one per line; with ``verbose`` also what runs say at level INFO.

    ``json_lines`` is a file to which all messages and the progress after each commit go as JSON, ``-`` standard error
    instead of the text.
    """
    handlers: list[logging.Handler] = []
    if json_lines is not None:
        handlers.append(_json_handler(json_lines))
    if json_lines != "-":
        handlers.append(_ToStderr(logging.INFO if verbose else logging.WARNING))
    log, progress = logging.getLogger("riot_ops"), logging.getLogger(PROGRESS_LOGGER)
    before, before_progress = log.level, progress.level
    for handler in handlers:
        log.addHandler(handler)
    if (verbose or json_lines is not None) and log.getEffectiveLevel() > logging.INFO:
        log.setLevel(logging.INFO)
    if json_lines is not None:
        progress.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
        log.setLevel(before)
        progress.setLevel(before_progress)


def _json_handler(place: str) -> logging.Handler:
    try:
        handler = _JSONLines(sys.stderr if place == "-" else open(place, "a", encoding="utf-8"), place)  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"--log-json cannot be written: {error}") from None
    handler.setFormatter(JSONFormatter())
    return handler


class _JSONLines(logging.StreamHandler[TextIO]):
    """Writes lines until its disk is full or nobody reads them: the run goes on without."""

    def __init__(self, stream: TextIO, place: str) -> None:
        super().__init__(stream)
        self._place = place
        self._is_broken = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_broken:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (a method of logging)
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._break(error)

    def _break(self, error: OSError) -> None:
        self._is_broken = True
        if self._place != "-":
            text = f"riot-ops: warning: --log-json: {self._place} cannot be written: {error}; the run goes on without"
            print(escape_control(text), file=sys.stderr)

    def close(self) -> None:
        super().close()
        if self._place == "-":
            return
        try:
            self.stream.close()
        except OSError as error:  # of what was not written yet
            if not self._is_broken:
                self._break(error)


@contextlib.contextmanager
def redirect_stderr(path: Path) -> Iterator[None]:
    """Redirect the standard error of programs started within the block (the JVM) to a file."""
    sys.stderr.flush()
    original = os.dup(2)
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
