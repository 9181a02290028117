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

__all__ = ["bring", "expected", "give_up", "go_on", "switch"]


def bring(
    folder: Path,
    recipients: Sequence[Recipient],
    fragments: Mapping[str, Fragment],
    at: Mapping[str, int],
    among: Carriers[Carrier],
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
    among: Carriers[Carrier],
) -> Carrier:
    """The carrier whose file this is."""
    topics = {name: known[name] for one in recipients for name in one.topics}
    state = Carried({name: at.get(name, 0) for name in topics}, {one.name: one.progress for one in recipients})
    return Carrier(file, topics, state, recipients, among)


def expected(
    recipients: Iterable[Recipient], fresh: Sequence[Fragment], among: Carriers[Carrier]
) -> dict[str, tuple[str, Topic]]:
    """By dataflow, which of some new fragments has its steps from now on; its topic keeps all for who carries to it."""
    where = {step: one for one in fresh for step in one.spec.nodes}
    to = {}
    for one in recipients:
        holder = next(where[step] for step in one.progress.placed.values() if step in where)
        to[one.name] = holder.name, holder.topic
        holder.topic.join(among.of[one.name].mark.reader, 0)
    return to


def switch(to: Mapping[str, tuple[str, Topic]], among: Carriers[Carrier]) -> None:
    """Have carried to them what comes from there."""
    for carrier in {among.of[name] for name in to}:
        carrier.switch(to)
    readers = {among.of[name].mark.reader for name in to}
    for topic in {topic for _, topic in to.values()}:
        for reader in topic.readers().keys() - readers:  # a sink has got a carrier of its own meanwhile
            topic.leave(reader)


def give_up(recipients: Iterable[Recipient], carriers: Iterable[Carrier], among: Carriers[Carrier]) -> None:
    """Newcomers have not come after all."""
    for one in recipients:
        one.delivery.halt()
        if (carrier := among.of.pop(one.name, None)) is not None:
            carrier.drop(one)
    for carrier in carriers:
        carrier.forget()
