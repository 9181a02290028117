"""Runs and queries in a notebook: a table of their status, which updates in place while they are active."""

from __future__ import annotations

import contextvars
import logging
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from riot_ops.core.display import html_display, html_table

__all__ = ["DisplayedRun", "status_html"]

#: Time between two updates.
UPDATE_SECONDS = 0.5

_log = logging.getLogger("riot_ops")


def status_html(status: Mapping[str, Any], note: str = "") -> str:
    """Return the status of a run or a query as HTML.

    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("kept")
    >>> _ = flow.source("readings", {"value": "double"}).to("out")
    >>> run = flow.launch([{"value": 1.0}])
    >>> _ = run.wait()
    >>> "kept: ended, in process" in status_html(run.status())
    True
    """
    state = "running" if status["active"] else "ended" if status["error"] is None else f"failed ({status['error']})"
    where = "on Spark" if status["runner"] == "spark" else str(status["runner"])
    latency = status["latency_seconds"]
    counted = "epoch" if "epoch" in status else "micro_batch"
    facts = [
        ["messages", f"{status['messages']:,}", f"{status['messages_per_second']:,.0f}/s"],
        ["rejected", f"{status['rejected']:,}", f"{status['late']:,} late"],
        ["latency (50, 95, 99 %)", ", ".join(map(_seconds, latency.values())), ""],
        ["keys in state", f"{status['state_keys']:,}", ""],
        [counted.replace("_", "-"), "–" if status[counted] is None else f"{status[counted]:,}", "committed"],
    ]
    names = dict.fromkeys([*status["steps"], *(name for name in status["records"] if name != "errors")])
    steps = []
    for name in names:
        step = status["steps"].get(name)
        counts = ("", "") if step is None else (f"{step['read']:,}", f"{step['rejected']:,}")
        written = status["records"].get(name)
        steps.append([name, *counts, "" if written is None else f"{written:,}"])
    reasons = [[reason, f"{n:,}"] for reason, n in sorted(status["reasons"].items(), key=lambda item: -item[1])]
    return html_display(
        f"{status['dataflow']}: {state}, {where}, {status['seconds']:,.1f} s",
        html_table(facts, numbers=[1]),
        html_table(steps, ["step", "read", "rejected", "written"], numbers=[1, 2, 3]) if steps else "",
        html_table(reasons, ["rejected for", "records"], numbers=[1]) if reasons else "",
        note,
    )


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


class _Run(Protocol):
    """What is displayed."""

    @property
    def active(self) -> bool:
        """Whether it is running."""

    def status(self) -> dict[str, Any]:
        """Return the state and the counts so far."""


class DisplayedRun:
    """What a run and a query show in a notebook.

    As the last value of a cell, or by ``display(run)``, it is a table that updates in place until the run ends, the
    user interrupts the kernel, or nothing else holds the run. In a terminal and in other programs it is its text.
    """

    def _repr_html_(self: _Run) -> str:
        return status_html(self.status())

    def _ipython_display_(self: _Run) -> None:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        if getattr(shell, "kernel", None) is None or not self.active:
            display(_bundle(self), raw=True)  # type: ignore[no-untyped-call]
            return
        handle = display(_bundle(self), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        _Updater(self, handle, shell).start()


def _bundle(run: _Run, note: str = "") -> dict[str, str]:
    """Return the forms of a display by their types."""
    return {"text/plain": repr(run), "text/html": status_html(run.status(), note)}


class _Updater:
    """A thread that updates the display of a run, without holding the run."""

    def __init__(self, run: _Run, handle: Any, shell: Any) -> None:
        self._run = weakref.ref(run)
        self._handle = handle
        self._shell = shell
        self._interrupted = threading.Event()
        context = contextvars.copy_context()  # in which the kernel knows the cell
        self._thread = threading.Thread(target=context.run, args=(self._update,), daemon=True, name="riot_ops-display")

    def start(self) -> None:
        """Update until the run ends, the kernel is interrupted, or the run is gone."""
        self._shell.events.register("post_run_cell", self._after_cell)
        self._thread.start()

    def _after_cell(self, result: Any) -> None:
        if isinstance(result.error_in_exec, KeyboardInterrupt):
            self._interrupted.set()

    def _update(self) -> None:
        try:
            while True:
                interrupted = self._interrupted.wait(UPDATE_SECONDS)
                run = self._run()
                if run is None:
                    return
                active = run.active  # read first, so that the last update has the last counts
                note = "no longer updated, as the kernel was interrupted" if interrupted and active else ""
                self._handle.update(_bundle(run, note), raw=True)
                del run
                if interrupted or not active:
                    return
        except Exception:  # the display must not disturb the run, whose own error the user gets
            _log.debug("the display of a run has ended", exc_info=True)
        finally:
            self._shell.events.unregister("post_run_cell", self._after_cell)
