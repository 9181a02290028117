"""What a manager shows of what runs."""

from __future__ import annotations

import threading
from typing import Any

from riot_ops.core.errors import did_you_mean
from riot_ops.graph.diagram import mermaid, svg
from riot_ops.graph.graph import Graph
from riot_ops.reuse.backend import Backend
from riot_ops.reuse.errors import UnknownDataflowError
from riot_ops.reuse.picture import running_graph
from riot_ops.reuse.reports import counted, in_short, in_words
from riot_ops.reuse.saving import Savings
from riot_ops.reuse.shared import Shared
from riot_ops.reuse.submission import Submission

__all__ = ["Shown"]


class Shown:
    """Base of the manager: looks, and changes nothing."""

    backend: Backend
    _lock: threading.RLock
    _shared: Shared
    _savings: Savings
    #: The dataflows in the order in which they came.
    _flows: dict[str, Submission]

    @property
    def names(self) -> list[str]:
        """The dataflows that run, in the order in which they came."""
        return list(self._flows)

    def sink_map(self, name: str) -> dict[str, str]:
        """By sink of a dataflow, the running step that feeds it."""
        with self._lock:
            self._known(name)
            shared = self._shared
            return {n: s for n, s in shared.placed[name].items() if shared.steps[s].piece.kind == "sink"}

    def stats(self) -> dict[str, Any]:
        """What runs, what it would be without sharing, and what the back end tells.

        ``steps`` run in place of ``steps_alone``, ``sources`` are read in place of ``sources_alone``; ``distinct`` is
        the number of different signatures; ``shares[k]`` steps are used by k dataflows.
        """
        with self._lock:
            owners = {name: submission.owner for name, submission in self._flows.items()}
            return {**counted(self._shared, owners), **self.backend.stats()}

    def explain_sharing(self) -> str:
        """What is saved, in words; with the rates since somebody looked last, where the back end counts."""
        with self._lock:
            stats = self.stats()
            return in_words(stats, self._savings.look(self._shared, stats))

    def diagram(self) -> str:
        """The running steps, who uses them and what they do, in Mermaid's notation, and what is saved."""
        return mermaid(*self._picture())

    def svg(self) -> str:
        """The same as an SVG picture."""
        return svg(*self._picture())

    _repr_svg_ = svg

    def _picture(self) -> tuple[Graph, dict[str, str], str]:
        with self._lock:
            stats = self.stats()
            saving = self._savings.look(self._shared, stats)
            return *running_graph(self._shared, saving), in_short(stats, saving)

    def __repr__(self) -> str:
        return f"<ReuseManager: {len(self._flows)} dataflows, {len(self._shared.steps)} steps>"

    def canonical(self) -> Any:
        """All that runs, up to the ids of steps: what depends on the dataflows alone."""
        return self._shared.canonical()

    def _known(self, name: str) -> None:
        if name not in self._flows:
            raise UnknownDataflowError(f"no dataflow {name!r} is running{did_you_mean(name, self._flows)}")
