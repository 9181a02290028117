"""The steps of a fragment as its workers run them: those that its query was started with, and steps that join later.

A later layout is a file that a version of the control names. Like everything that Spark sends to its workers it is a
pickle. So it is signed with a key that only this query has, and a file without a valid signature is not loaded.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from riot_ops.core.errors import ConnectorError
from riot_ops.graph.plan import Plan
from riot_ops.reuse.spark.control import Control
from riot_ops.reuse.spark.files import write_bytes
from riot_ops.spark.pickling import from_pickle, to_pickle

__all__ = ["Layout", "LayoutStore"]

SIGNATURE_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Layout:
    """The stages of a fragment and when their steps run.

    Attributes
    ----------
    plan : Plan
    origins : mapping of str to frozenset of str
        By step, the sources upstream of it.
    since : mapping of str to int
        By step that has joined, the version of the control from which on it runs.
    sources : mapping of str to mapping
        By shared source and member of it, the steps that take the records of that member.
    disabled : frozenset of str
        The steps that are skipped regardless of the control, see :mod:`~riot_ops.reuse.spark.failures`.
    """

    plan: Plan
    origins: Mapping[str, frozenset[str]]
    since: Mapping[str, int]
    sources: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    def source_steps(self, source: str) -> set[str]:
        """Return the steps that take records of a shared source."""
        return set().union(*self.sources.get(source, {}).values())

    def idle_steps(self, version: int, control: Control) -> set[str]:
        """Return the steps that a micro-batch with this version of the control skips."""
        return {*control.resting, *self.disabled, *(step for step, since in self.since.items() if since > version)}


@dataclass
class LayoutStore:
    """The layouts of one query.

    Parameters
    ----------
    folder : path
        The folder of later layouts.
    first : Layout
        The layout that the query was started with; it includes all ``earlier`` ones.
    earlier : frozenset of str
        Names of the layouts before ``first``.
    key : bytes
        Signs the files.
    """

    folder: Path
    first: Layout
    earlier: frozenset[str]
    key: bytes = field(repr=False)
    _loaded: dict[str, Layout] = field(default_factory=dict, repr=False)

    @staticmethod
    def create(folder: Path, first: Layout) -> LayoutStore:
        """Create the store of a query that is being started."""
        earlier = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
        return LayoutStore(folder, first, frozenset({"", *earlier}), secrets.token_bytes(32))

    def add(self, name: str, layout: Layout) -> None:
        """Write a layout."""
        data = to_pickle(layout)
        write_bytes(self.folder / name, self._signature(name, data) + data)

    def get(self, control: Control) -> Layout:
        """Return the layout that a control names."""
        if control.layout in self.earlier:
            return self.first
        if control.layout not in self._loaded:
            self._loaded[control.layout] = self._read(control.layout)
        return self._loaded[control.layout]

    def _read(self, name: str) -> Layout:
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConnectorError(f"{path} cannot be read: {error}") from error
        signature, data = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(name, data)):
            raise ConnectorError(f"{path} is damaged, or was not written by this query")
        found: Layout = from_pickle(data)
        return found

    def _signature(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self.key, name.encode() + data, "sha256")
