"""Fragments and progress of dataflows in a back end's folder, recovered after a restart."""

from __future__ import annotations

import shutil
from collections.abc import Sequence, Set
from pathlib import Path

from riot_ops.reuse.spark.failures import read_failures
from riot_ops.reuse.spark.files import read_json
from riot_ops.reuse.spark.fragment import SPEC, Fragment, remove_folder
from riot_ops.reuse.spark.planner import rebound_source
from riot_ops.reuse.spark.progress import DispatcherProgress
from riot_ops.reuse.spark.source import START
from riot_ops.reuse.submission import Deployment, lower_placed
from riot_ops.reuse.topic import Topic

__all__ = ["RecoveredState"]


class RecoveredState:
    """Fragments and progress from before a restart that no dataflow has resumed yet.

    Attributes
    ----------
    specs : dict of str to FragmentSpec
        The fragments by name.
    retired : dict of str to Topic
        Topics of removed fragments that still have readers, by fragment.
    """

    def __init__(self, fragments: Path, dataflows: Path) -> None:
        self._fragments = fragments
        self.specs = {path.name: Fragment.load_spec(path) for path in fragments.iterdir() if (path / SPEC).exists()}
        for path in fragments.iterdir():
            if path.name not in self.specs:  # half created, or removed but for batches that sinks have not read
                remove_folder(path)
        self._settle_replacements()
        self.retired = {path.name: Topic(path / "topic") for path in fragments.iterdir() if path.name not in self.specs}
        self._files = {path: read_json(path, DispatcherProgress) for path in dataflows.glob("*.json")}
        #: Path by dataflow. One in two files was being moved to a dispatcher of its own, whose file counts.
        by_size = sorted(self._files.items(), key=lambda item: len(item[1].dataflows), reverse=True)
        self._paths = {name: path for path, one in by_size for name in one.dataflows}

    def _settle_replacements(self) -> None:
        """Complete, or undo, the replacement of fragments that was in progress."""
        for name, spec in list(self.specs.items()):
            old = [one for one in spec.replaces if one in self.specs]
            if old:
                started = (one in self.specs and (self._fragments / one / START).exists() for one in spec.together)
                for one in old if all(started) else [name]:
                    del self.specs[one]
                    remove_folder(self._fragments / one)

    @property
    def max_number(self) -> int:
        """The highest number of a fragment; -1 without any."""
        return max((int(name[1:]) for name in (*self.specs, *self.retired)), default=-1)

    @property
    def dataflows(self) -> Set[str]:
        """Names of the dataflows."""
        return self._paths.keys()

    def steps(self) -> set[str]:
        """Return the ids of all steps, as the manager knows them."""
        nodes = (step for spec in self.specs.values() for step in spec.nodes)
        flows = (flow for one in self._files.values() for flow in one.dataflows.values())
        return {*nodes, *(step for flow in flows for step in flow.placed.values())}

    def resume_fragments(self, deployments: Sequence[Deployment]) -> dict[str, Fragment]:
        """Resume the fragments with steps of these dataflows, and those that they read."""
        # if several dataflows have a step, that of the first wins: it can be made if any can
        known = {step.id: step for add, sub in deployments[::-1] for step, _, _ in lower_placed(sub.flow, add.placed)}
        used = {step for addition, _ in deployments for step in addition.placed.values()}
        found = {}
        wanted = {name for name, spec in self.specs.items() if used & {*spec.nodes}}
        for name in sorted(self.specs, key=lambda name: int(name[1:]), reverse=True):  # each reads earlier ones
            wanted |= {*self.specs[name].topics} if name in wanted else set()
        for name, spec in sorted(self.specs.items(), key=lambda item: int(item[0][1:])):
            if name in wanted:
                steps = [known[step] for step in spec.steps if step in known]
                folder = self._fragments / name
                found[name] = fragment = Fragment(folder, spec, steps, {}, read_failures(folder))
                if removed := [step for step in spec.steps if step not in known]:
                    fragment.remove_steps(removed)
                fragment.sources = {
                    source: rebound_source(members, deployments) for source, members in spec.sources.items()
                }
        self.specs = {name: spec for name, spec in self.specs.items() if name not in found}
        return found

    def progress_of(self, name: str) -> tuple[Path, DispatcherProgress] | None:
        """Return the progress of a dataflow's dispatcher, and the path of its file."""
        path = self._paths.get(name)
        return None if path is None else (path, self._files[path])

    def mark_resumed(self, path: Path) -> None:
        """Keep a progress file, as a dispatcher has resumed it."""
        del self._files[path]

    def discard(self, kept_readers: Set[str] = frozenset()) -> None:
        """Remove all that was not resumed; retired topics keep only these readers."""
        for name in self.specs:
            shutil.rmtree(self._fragments / name, ignore_errors=True)
        for path in self._files:
            path.unlink(missing_ok=True)
        for topic in self.retired.values():
            for reader in topic.readers().keys() - kept_readers:
                topic.leave(reader)
        self.specs, self._files, self._paths, self.retired = {}, {}, {}, {}
