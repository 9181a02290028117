"""Who carries to which dataflows: those that read the same topics have one carrier."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from riot_ops.reuse.spark.carrier import Carrier
from riot_ops.reuse.spark.carriers import Carriers
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.recipient import Carried, Recipient
from riot_ops.reuse.topic import Topic

__all__ = ["bring", "give_up", "go_on"]


def bring(
    folder: Path,
    recipients: Sequence[Recipient],
    fragments: Mapping[str, Fragment],
    at: Mapping[str, int],
    among: Carriers,
) -> list[Carrier]:
    """Have somebody carry to newcomers from these batches on; returns the carriers that are new.

    One carries to all that are alike where they are slow and read one of the same topics.
    """
    alike: dict[str, list[Recipient]] = {}
    for one in recipients:
        alike.setdefault(one.submission.on_slow, []).append(one)
    fresh = []
    for on_slow, some in alike.items():
        topics = {name: fragments[name].topic for one in some for name in one.wanted}
        begins = {name: at.get(name, 0) for name in topics}
        near = (one for one in among.all() if one.on_slow == on_slow and topics.keys() & one.mark.topics)
        if not any(carrier.take_in(some, topics, begins) for carrier in near if not carrier.apart):
            fresh.append(go_on(folder / f"{uuid.uuid4().hex}.json", some, topics, at, among))
    return fresh


def go_on(
    file: Path,
    recipients: Sequence[Recipient],
    known: Mapping[str, Topic],
    at: Mapping[str, int],
    among: Carriers,
) -> Carrier:
    """The carrier whose file this is."""
    topics = {name: known[name] for one in recipients for name in one.topics}
    state = Carried({name: at.get(name, 0) for name in topics}, {one.name: one.progress for one in recipients})
    return Carrier(file, topics, state, recipients, among)


def give_up(recipients: Iterable[Recipient], carriers: Iterable[Carrier], among: Carriers) -> None:
    """Newcomers have not come after all."""
    for one in recipients:
        one.delivery.halt()
        if (carrier := among.of.pop(one.name, None)) is not None:
            carrier.drop(one)
    for carrier in carriers:
        carrier.forget()
