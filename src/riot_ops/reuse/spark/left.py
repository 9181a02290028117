"""What a back end finds in its folder: fragments and dataflows of before a restart."""

from __future__ import annotations

import shutil
from collections.abc import Sequence, Set
from pathlib import Path

from riot_ops.reuse.backend import Coming
from riot_ops.reuse.placing import placed_steps
from riot_ops.reuse.spark.broken import read_broken
from riot_ops.reuse.spark.control import read_json
from riot_ops.reuse.spark.fragment import SPEC, Fragment, clear
from riot_ops.reuse.spark.making import source_of
from riot_ops.reuse.spark.recipient import Carried
from riot_ops.reuse.spark.source import BEGIN
from riot_ops.reuse.topic import Topic

__all__ = ["Left"]


class Left:
    """What was there, as long as nobody has taken it up."""

    def __init__(self, fragments: Path, dataflows: Path) -> None:
        self._fragments = fragments
        self.specs = {path.name: Fragment.saved(path) for path in fragments.iterdir() if (path / SPEC).exists()}
        for path in fragments.iterdir():
            if path.name not in self.specs:  # half there, or gone but for what sinks have not taken yet
                clear(path)
        self._replace()
        #: Topics of fragments that have gone, which somebody reads.
        self.retired = {path.name: Topic(path / "topic") for path in fragments.iterdir() if path.name not in self.specs}
        self._files = {file: read_json(file, Carried) for file in dataflows.glob("*.json")}
        #: By dataflow; one that was about to get a carrier of its own is there twice, and the other is for several.
        self._carried = {
            name: file for file, one in sorted(self._files.items(), key=_others, reverse=True) for name in one.dataflows
        }

    def _replace(self) -> None:
        """Finish, or take back, what was under way as several fragments became others."""
        for name, spec in list(self.specs.items()):
            old = [one for one in spec.replaces if one in self.specs]
            if old:
                begun = (one in self.specs and (self._fragments / one / BEGIN).exists() for one in spec.together)
                for one in old if all(begun) else [name]:
                    del self.specs[one]
                    clear(self._fragments / one)

    @property
    def number(self) -> int:
        """The highest number of a fragment; -1 without any."""
        return max((int(name[1:]) for name in (*self.specs, *self.retired)), default=-1)

    def steps(self) -> set[str]:
        """The steps, as the manager knows them."""
        nodes = (step for spec in self.specs.values() for step in spec.nodes)
        flows = (flow for one in self._files.values() for flow in one.dataflows.values())
        return {*nodes, *(step for flow in flows for step in flow.placed.values())}

    def fragments(self, again: Sequence[Coming]) -> dict[str, Fragment]:
        """Take up the fragments in which dataflows that come again have steps."""
        # of those that several have, the first can be made if any can
        known = {step.id: step for add, sub in again[::-1] for step, _, _ in placed_steps(sub.flow, add.placed)}
        used = {step for addition, _ in again for step in addition.placed.values()}
        found = {}
        wanted = {name for name, spec in self.specs.items() if used & {*spec.nodes}}
        for name in sorted(self.specs, key=lambda name: int(name[1:]), reverse=True):  # each reads earlier ones
            wanted |= {*self.specs[name].topics} if name in wanted else set()
        for name, spec in sorted(self.specs.items(), key=lambda item: int(item[0][1:])):
            if name in wanted:
                steps = [known[step] for step in spec.steps if step in known]
                folder = self._fragments / name
                found[name] = fragment = Fragment(folder, spec, steps, {}, read_broken(folder))
                if gone := [step for step in spec.steps if step not in known]:
                    fragment.forget(gone)
                fragment.sources = {reading: source_of(members, again) for reading, members in spec.sources.items()}
        self.specs = {name: spec for name, spec in self.specs.items() if name not in found}
        return found

    def carried(self, name: str) -> tuple[Path, Carried] | None:
        """How far the sinks of a dataflow and of others have got, and where that is noted."""
        file = self._carried.get(name)
        return None if file is None else (file, self._files[file])

    def taken_up(self, file: Path) -> None:
        """Somebody goes on with what is noted in a file."""
        del self._files[file]

    def forget(self, kept: Set[str] = frozenset()) -> None:
        """Remove what nobody has taken up; these still read what is retired."""
        for name in self.specs:
            shutil.rmtree(self._fragments / name, ignore_errors=True)
        for file in self._files:
            file.unlink(missing_ok=True)
        for topic in self.retired.values():
            for reader in topic.readers().keys() - kept:
                topic.leave(reader)
        self.specs, self._files, self._carried, self.retired = {}, {}, {}, {}


def _others(item: tuple[Path, Carried]) -> int:
    return len(item[1].dataflows)
