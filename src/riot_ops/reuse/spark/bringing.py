"""Who carries to which dataflows: those that read the same topics have one carrier."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.carrier import Carrier
from riot_ops.reuse.spark.carriers import Carriers, noted_later
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
) -> tuple[dict[str, tuple[str, Topic]], set[tuple[str, str]]]:
    """By dataflow, which of some new fragments has its steps from now on; its topic keeps all for who carries to it.

    And these, each with the fragment.
    """
    where = {step: one for one in fresh for step in one.spec.nodes}
    to, readers = {}, set()
    for one in recipients:
        holder = next(where[step] for step in one.progress.placed.values() if step in where)
        to[one.name] = holder.name, holder.topic
        readers.add((holder.name, among.of[one.name].mark.reader))
        holder.topic.join(among.of[one.name].mark.reader, 0)
    return to, readers


def switch(to: Mapping[str, tuple[str, Topic]], expecting: Iterable[tuple[str, str]], among: Carriers[Carrier]) -> None:
    """Have carried to them what comes from there, by whoever carries to them: a sink may get its own meanwhile."""
    left = dict(to)
    while left:
        carrier = among.of[next(iter(left))]
        with carrier.lock:
            mine = {name: left.pop(name) for name in [*left] if among.of[name] is carrier}
            carrier.switch(mine)
    topics = dict(to.values())
    for fragment, reader in expecting:
        if not any(one.mark.reader == reader and fragment in one.mark.topics for one in among.all()):
            topics[fragment].leave(reader)


def give_up(recipients: Iterable[Recipient], carriers: Iterable[Carrier], among: Carriers[Carrier]) -> None:
    """Newcomers have not come after all."""
    for one in recipients:
        one.delivery.halt()
        if (carrier := among.of.pop(one.name, None)) is not None:
            with noted_later(carrier.name):
                carrier.drop(one)
    for carrier in carriers:
        with suppress(RiotError, OSError):  # a restart knows of no dataflow that it carried to
            carrier.forget()
