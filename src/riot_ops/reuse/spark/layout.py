"""The steps of a fragment as its workers have them: those that its query was started with, and others that join later.

A layout that comes later is a file, which a version of the control names. It is a pickle, as all that Spark's workers
get: so it is signed with a key that only the query has that is meant, and nothing else is read.
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
from riot_ops.reuse.spark.control import Control, write_bytes
from riot_ops.spark.pickling import opened, packed

__all__ = ["Layout", "Layouts"]

SIGNED_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Layout:
    """The stages, by step the sources above it, and by step that has joined the version with which it came.

    ``sources`` are, by reading and source in it, the steps that take the records of that.
    Those that are ``silent`` are passed over whatever the control says, see :mod:`~riot_ops.reuse.spark.broken`.
    """

    plan: Plan
    origins: Mapping[str, frozenset[str]]
    since: Mapping[str, int]
    sources: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def readers(self, reading: str) -> set[str]:
        """The steps that take records of a reading."""
        return set().union(*self.sources.get(reading, {}).values())

    def resting(self, version: int, control: Control) -> set[str]:
        """The steps that are passed over in a micro-batch of this version: also those that came later."""
        return {*control.resting, *self.silent, *(step for step, since in self.since.items() if since > version)}


@dataclass
class Layouts:
    """The layouts of one query.

    Parameters
    ----------
    folder : path
        Where later ones are.
    first : Layout
        That with which it was started, in which is all that ``earlier`` ones say.
    key : bytes
    """

    folder: Path
    first: Layout
    earlier: frozenset[str]
    key: bytes = field(repr=False)
    _known: dict[str, Layout] = field(default_factory=dict, repr=False)

    @staticmethod
    def begun(folder: Path, first: Layout) -> Layouts:
        """Of a query that is started now."""
        earlier = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
        return Layouts(folder, first, frozenset({"", *earlier}), secrets.token_bytes(32))

    def add(self, name: str, layout: Layout) -> None:
        """Have one more."""
        data = packed(layout)
        write_bytes(self.folder / name, self._signature(name, data) + data)

    def of(self, control: Control) -> Layout:
        """The one that is meant."""
        if control.layout in self.earlier:
            return self.first
        if control.layout not in self._known:
            self._known[control.layout] = self._read(control.layout)
        return self._known[control.layout]

    def _read(self, name: str) -> Layout:
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConnectorError(f"{path} cannot be read: {error}") from error
        signature, data = data[:SIGNED_BYTES], data[SIGNED_BYTES:]
        if not hmac.compare_digest(signature, self._signature(name, data)):
            raise ConnectorError(f"{path} is damaged, or not of this query")
        found: Layout = opened(data)
        return found

    def _signature(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self.key, name.encode() + data, "sha256")
