"""Who carries to which dataflows: those that come at once have one carrier."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from riot_ops.reuse.spark.carrier import Carried, Carrier, Carriers
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.recipient import Recipient

__all__ = ["bring", "go_on"]


def bring(
    folder: Path,
    recipients: Sequence[Recipient],
    fragments: Mapping[str, Fragment],
    at: Mapping[str, int],
    among: Carriers,
) -> list[Carrier]:
    """Carriers for newcomers, from these batches on: one for all that are alike where they are slow."""
    found: dict[str, list[Recipient]] = {}
    for one in recipients:
        found.setdefault(one.submission.on_slow, []).append(one)
    return [go_on(folder / f"{uuid.uuid4().hex}.json", alike, fragments, at, among) for alike in found.values()]


def go_on(
    file: Path,
    recipients: Sequence[Recipient],
    fragments: Mapping[str, Fragment],
    at: Mapping[str, int],
    among: Carriers,
) -> Carrier:
    """The carrier whose file this is."""
    topics = {name: fragments[name].topic for one in recipients for name in one.wanted}
    state = Carried({name: at.get(name, 0) for name in topics}, {one.name: one.progress for one in recipients})
    return Carrier(file, topics, state, recipients, among)
